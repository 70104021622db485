//! User functions that take part in reads and compactions: merge operators and compaction filters. They are
//! registered by name with [`crate::Builder`]; families refer to the names, so that a database records which
//! ones it needs.
//!
//! A worker calls them, or a writer in the WAL stage. Calls to a database from such a function must not wait
//! for a worker or a writer: only reads are allowed there ([`check_outside`]).

use crate::error::{Error, ErrorKind, Result};
use crate::types::{Timestamp, VALUE_BYTES_MAX};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Combines merge operands with a key's value.
///
/// Must be deterministic, and associative in the sense that merging a base with operands one after the other
/// or all at once gives the same bytes.
///
/// It may refuse, by an error, a panic, or a value longer than [`VALUE_BYTES_MAX`]. Then reads of that key
/// fail with the error, and flushes and compactions keep the key's operands as they are, until a later call
/// succeeds. Other keys are not affected.
///
/// It may read databases. All other calls (writes, flushes, compactions, `settle`, `sync`, `close` and the
/// like) fail with `Invalid`, as they could wait for the very worker that runs the operator.
///
/// ```
/// struct Sum;
/// impl siltstone::MergeOperator for Sum {
///     fn merge(&self, _key: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> siltstone::Result<Vec<u8>> {
///         let number = |bytes: &[u8]| match bytes.try_into() {
///             Ok(bytes) => Ok(u64::from_be_bytes(bytes)),
///             Err(_) => Err(siltstone::Error::new(siltstone::ErrorKind::MergeRefused, "not a number")),
///         };
///         let mut sum = base.map_or(Ok(0), number)?;
///         for operand in operands {
///             sum += number(operand)?;
///         }
///         Ok(sum.to_be_bytes().to_vec())
///     }
/// }
/// ```
pub trait MergeOperator: Send + Sync {
    /// The value of `key` after applying `operands` (oldest first) to `base` (`None` if there is none).
    fn merge(&self, key: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Result<Vec<u8>>;
}

/// Calls the operator; a panic is a refusal, and so is a value over the limit.
pub(crate) fn merged(
    operator: &dyn MergeOperator,
    key: &[u8],
    base: Option<&[u8]>,
    operands: &[&[u8]],
) -> Result<Vec<u8>> {
    let asked = catch_unwind(AssertUnwindSafe(|| inside(|| operator.merge(key, base, operands))));
    let value = asked.unwrap_or_else(|panic| {
        let told = panic.downcast_ref::<&str>().map(|text| (*text).to_string());
        let told = told.or_else(|| panic.downcast_ref::<String>().cloned());
        let told = told.map_or(String::new(), |text| format!(": {text}"));
        let message = format!("the merge operator panicked at key \"{}\"{told}", key.escape_ascii());
        Err(Error::new(ErrorKind::MergeRefused, message))
    })?;
    if value.len() > VALUE_BYTES_MAX {
        let (key, bytes) = (key.escape_ascii(), value.len());
        let message =
            format!("merging key \"{key}\" makes {bytes} bytes, the limit of a value is {VALUE_BYTES_MAX}");
        return Err(Error::new(ErrorKind::MergeRefused, message));
    }
    Ok(value)
}

/// Decides which values are no longer wanted. Readers call it too, so a value disappears as soon as the
/// filter rejects it, and its bytes are dropped by the next compaction. Once a value is unwanted it must stay
/// so as `now` grows.
///
/// In a family with explicit timestamps that keeps a number of versions, one that is unwanted counts as one
/// of them until it is pushed out, deleted or expired: which versions exist depends on the writes alone, not
/// on when compactions ran. Compactions keep its key and timestamp until then. If the filter is to remove
/// keys wholly, keep all versions (`versions: 0`), or set a TTL.
///
/// It may call databases as a [`MergeOperator`] may.
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
    /// Whether the value is unwanted. `now_us`: wall-clock microseconds since the epoch, the same for a whole
    /// read.
    fn remove(&self, key: &[u8], timestamp: Timestamp, value: &[u8], now_us: u64) -> bool;
}

/// Whether the filter rejects the value.
#[inline]
pub(crate) fn is_unwanted(
    filter: &dyn CompactionFilter,
    key: &[u8],
    timestamp: Timestamp,
    value: &[u8],
    now_us: u64,
) -> bool {
    inside(|| filter.remove(key, timestamp, value, now_us))
}

thread_local! {
    /// The depth of nested user functions on this thread.
    static INSIDE: Cell<u32> = const { Cell::new(0) };
}

/// Calls a user function on behalf of the database.
#[inline]
pub(crate) fn inside<T>(function: impl FnOnce() -> T) -> T {
    struct Leaves;
    impl Drop for Leaves {
        fn drop(&mut self) {
            INSIDE.set(INSIDE.get() - 1);
        }
    }
    INSIDE.set(INSIDE.get() + 1);
    let _leaves = Leaves;
    function()
}

/// `Invalid` inside a user function that the database has called, for calls that could wait for it.
#[inline]
pub(crate) fn check_outside() -> Result<()> {
    match INSIDE.get() {
        0 => Ok(()),
        _ => Err(Error::new(
            ErrorKind::Invalid,
            "merge operators, filters and conditions may only read: what waits for others could wait for them",
        )),
    }
}

/// What was registered, by name.
#[derive(Clone, Default)]
pub(crate) struct Registry {
    pub(crate) operators: BTreeMap<String, Arc<dyn MergeOperator>>,
    pub(crate) filters: BTreeMap<String, Arc<dyn CompactionFilter>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Zeros(usize);

    impl MergeOperator for Zeros {
        fn merge(&self, _: &[u8], _: Option<&[u8]>, _: &[&[u8]]) -> Result<Vec<u8>> {
            Ok(vec![0; self.0])
        }
    }

    #[test]
    fn a_value_over_the_limit_is_a_refusal() {
        let merged = |bytes: usize| {
            let value = merged(&Zeros(bytes), b"k", None, &[&b"1"[..]]);
            value.map(|value| value.len()).map_err(|e| e.kind())
        };
        assert_eq!(merged(VALUE_BYTES_MAX), Ok(VALUE_BYTES_MAX));
        assert_eq!(merged(VALUE_BYTES_MAX + 1), Err(ErrorKind::MergeRefused));
    }
}
