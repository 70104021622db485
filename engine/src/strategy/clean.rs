//! What to do about the oldest WAL file, as a pure function of how much of it is still needed.
//!
//! A WAL file is released when no cell in memory came from it. Cells that still do can be *logged again* at
//! the end of the WAL, which costs as many bytes, or be *flushed*, which costs a flush of all memory of their
//! store and the compactions that follow. So:
//! * if at most half of the file is needed, it is logged again: each byte written releases at least as many;
//! * if more is needed, but memory is small beside its limit (TRI-2), it is logged again too. The whole WAL
//!   is many times as large as memory, so other files have little that is needed, and a flush this early
//!   would be a small one that the next one repeats;
//! * otherwise the store that needs most of the file is flushed; if the WAL is not over its limit yet,
//!   nothing is done.

use crate::types::{StoreId, size_text};

/// The oldest WAL file, and the memory that may need it.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct FrontFacts {
    pub(crate) file_bytes: u64,
    /// Bytes that would be logged again, by store.
    pub(crate) live: Vec<(StoreId, u64)>,
    pub(crate) wal_bytes: u64,
    pub(crate) wal_limit: u64,
    /// Unflushed memory of all stores, and the limit below which it is small.
    pub(crate) memory_bytes: u64,
    pub(crate) memory_small: u64,
}

#[derive(Clone, PartialEq, Debug)]
pub(crate) enum FrontPlan {
    /// The needed cells of the file are logged again.
    Clean { reason: String },
    /// The store that needs most of the file is flushed.
    Flush { store: StoreId, reason: String },
    /// The file stays for now.
    Leave { reason: String },
}

/// Decides about the oldest WAL file. Counting `live` may stop once one store has over half of the file and
/// memory is not small.
pub(crate) fn plan_front(facts: &FrontFacts) -> FrontPlan {
    let live: u64 = facts.live.iter().map(|(_, bytes)| bytes).sum();
    let over = facts.wal_bytes > facts.wal_limit;
    let [needed, file, wal, limit] =
        [live, facts.file_bytes, facts.wal_bytes, facts.wal_limit].map(size_text);
    let found = format!("{needed} of the {file} of the oldest file are needed, the WAL has {wal} of {limit}");
    if 2 * live <= facts.file_bytes {
        return FrontPlan::Clean { reason: found };
    }
    if !over {
        return FrontPlan::Leave { reason: found };
    }
    if facts.memory_bytes < facts.memory_small {
        let memory = size_text(facts.memory_bytes);
        return FrontPlan::Clean { reason: format!("{found}; memory has only {memory}") };
    }
    let most = facts.live.iter().max_by_key(|(_, bytes)| *bytes).map(|(store, _)| *store);
    match most {
        Some(store) => FrontPlan::Flush { store, reason: format!("{found}, most of it by this store") },
        None => FrontPlan::Clean { reason: found },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(live: &[(u32, u64)], wal_bytes: u64, memory_bytes: u64) -> FrontPlan {
        plan_front(&FrontFacts {
            file_bytes: 100,
            live: live.iter().map(|(store, bytes)| (StoreId(*store), *bytes)).collect(),
            wal_bytes,
            wal_limit: 800,
            memory_bytes,
            memory_small: 50,
        })
    }

    #[test]
    fn a_file_of_which_half_is_needed_is_cleaned_and_one_of_which_more_is_needed_flushes_its_store() {
        assert!(matches!(plan(&[(1, 30), (2, 20)], 801, 200), FrontPlan::Clean { .. }));
        assert!(matches!(plan(&[], 801, 200), FrontPlan::Clean { .. }));
        let FrontPlan::Flush { store, reason } = plan(&[(1, 20), (2, 31)], 801, 200) else { unreachable!() };
        assert_eq!(store, StoreId(2));
        assert!(reason.starts_with("51 B of the 100 B of the oldest file are needed"), "{reason}");
    }

    #[test]
    fn while_memory_is_small_a_full_wal_flushes_nothing() {
        assert!(matches!(plan(&[(1, 100)], 801, 49), FrontPlan::Clean { .. }));
        assert!(matches!(plan(&[(1, 100)], 801, 50), FrontPlan::Flush { .. }));
    }

    #[test]
    fn a_file_still_needed_stays_while_the_wal_is_under_its_limit() {
        assert!(matches!(plan(&[(1, 51)], 800, 10), FrontPlan::Leave { .. }));
        assert!(matches!(plan(&[(1, 50)], 800, 10), FrontPlan::Clean { .. }));
    }
}
