//! Which of a family's cells a reader may see: its options with the names in them resolved.

use crate::error::{Error, Result};
use crate::operator::{CompactionFilter, MergeOperator, is_unwanted, merged};
use crate::types::{CellRef, Kind, Pinned, TimeRange, Timestamp};
use std::sync::Arc;

/// How a family's cells are read.
#[derive(Clone, Default)]
pub(crate) struct ReadRules {
    pub(crate) explicit: bool,
    pub(crate) versions: u32,
    pub(crate) ttl_us: u64,
    pub(crate) operator: Option<Arc<dyn MergeOperator>>,
    pub(crate) filter: Option<Arc<dyn CompactionFilter>>,
    /// Why there is no operator or no filter though the family has one.
    pub(crate) operator_missing: Option<Error>,
    pub(crate) filter_missing: Option<Error>,
}

impl ReadRules {
    /// Whether a read needs to know the time.
    pub(crate) fn needs_now(&self) -> bool {
        self.ttl_us > 0 || self.filter.is_some()
    }

    /// The timestamps of cells that decide about versions with `times`: those themselves; later tombstones;
    /// and all later versions if their number is limited.
    pub(crate) fn looks_at(&self, times: TimeRange) -> Result<TimeRange> {
        match (self.explicit, self.versions) {
            (false, _) if times == TimeRange::ALL => Ok(times),
            (false, _) => {
                Err(Error::invalid(format!("{times} were asked for of a family that keeps no timestamps")))
            }
            (true, _) if times.is_empty() => Ok(times),
            (true, kept) if kept == 0 || planted!(Bug::ForgetLaterVersions) => Ok(times),
            (true, _) => Ok(TimeRange { last: Timestamp::MAX, ..times }),
        }
    }

    /// Whether a cell decides about versions with those timestamps. Of later ones only tombstones do.
    #[inline]
    pub(crate) fn says_of(cell: &CellRef<'_>, looks_at: TimeRange) -> bool {
        looks_at.first <= cell.timestamp && (cell.timestamp <= looks_at.last || cell.kind == Kind::Tombstone)
    }

    pub(crate) fn expired(&self, born_us: u64, now_us: u64) -> bool {
        self.ttl_us > 0 && born_us.saturating_add(self.ttl_us) <= now_us
    }

    #[inline]
    pub(crate) fn unwanted(&self, key: &[u8], timestamp: Timestamp, value: &[u8], now_us: u64) -> bool {
        self.filter.as_ref().is_some_and(|f| is_unwanted(&**f, key, timestamp, value, now_us))
    }

    /// An error if the family's filter is not registered, as it decides what is visible.
    #[inline]
    pub(crate) fn check_filter(&self) -> Result<()> {
        self.filter_missing.as_ref().map_or(Ok(()), |why| Err(why.clone()))
    }

    /// The value of operands (newest first) over a base. Without an operator the newest operand stands.
    pub(crate) fn combine(&self, key: &[u8], base: Option<&[u8]>, operands: &[Pinned]) -> Result<Pinned> {
        match (&self.operator, &self.operator_missing) {
            (Some(operator), _) => {
                let oldest_first: Vec<&[u8]> = operands.iter().rev().map(|o| &**o).collect();
                merged(&**operator, key, base, &oldest_first).map(Pinned::from)
            }
            (None, Some(missing)) => Err(missing.clone()),
            (None, None) => Ok(operands[0].clone()),
        }
    }
}
