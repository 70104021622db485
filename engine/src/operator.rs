//! Functions of the user's that take part in reads and merges: merge operators and compaction filters. They are
//! registered by name with [`crate::Builder`]; families refer to the names, so that a database says what it needs.

use crate::types::Timestamp;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Combines merge operands with what a key holds.
///
/// Must be deterministic, and associative in the sense that merging a base with operands one after the other or
/// all at once gives the same bytes.
///
/// ```
/// struct Concat;
/// impl siltstone::MergeOperator for Concat {
///     fn merge(&self, _key: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Vec<u8> {
///         let mut all = base.unwrap_or_default().to_vec();
///         operands.iter().for_each(|o| all.extend_from_slice(o));
///         all
///     }
/// }
/// ```
pub trait MergeOperator: Send + Sync {
    /// The value of `key` after applying `operands` (oldest first) to `base` (`None` when there is none).
    fn merge(&self, key: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Vec<u8>;
}

/// Decides which values are no longer wanted. Readers ask too, so a value is gone from the moment the filter says
/// so, and its bytes go with the next merge. Once a value is unwanted it must stay so as `now` grows.
///
/// ```
/// struct NoDrafts;
/// impl siltstone::CompactionFilter for NoDrafts {
///     fn remove(&self, key: &[u8], _: siltstone::Timestamp, _value: &[u8], _now_us: u64) -> bool {
///         key.starts_with(b"draft/")
///     }
/// }
/// ```
pub trait CompactionFilter: Send + Sync {
    /// Whether the value is unwanted. `now_us`: wall-clock microseconds since the epoch, one for a whole read.
    fn remove(&self, key: &[u8], timestamp: Timestamp, value: &[u8], now_us: u64) -> bool;
}

/// What was registered, by name.
#[derive(Clone, Default)]
pub(crate) struct Registry {
    pub(crate) operators: BTreeMap<String, Arc<dyn MergeOperator>>,
    pub(crate) filters: BTreeMap<String, Arc<dyn CompactionFilter>>,
}
