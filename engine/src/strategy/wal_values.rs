//! Whether a flush leaves its values in the WAL (TRI-4), as a pure decision.
//!
//! It saves writing the values again; the WAL has them already. It costs references in their place, a pass
//! over the WAL files to find the positions of the values, and one more access per read. Whole WAL files stay
//! on disk until compactions have rewritten the SSTables: uncompressed, with keys, frames and dead bytes. So
//! it must clearly save bytes written, and the WAL files must not be much larger than an SSTable would be.
//! Compactions must also be able to hold the WAL files of their inputs in memory: they read values in no
//! order of the WAL, and fetching each one separately, at some microsecond, would cost more processor time
//! than was saved. The share of all bytes that can be saved is 1/(2+W), where W is the bytes that compactions
//! write per byte, and the extra cost of a compaction is paid W times: so W must be small
//! (`FamilyOptions::write_amp_max`).

#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct WalValuesFacts {
    /// Cells in the memory to be flushed, and the bytes of their keys and values.
    pub(crate) cells: u64,
    pub(crate) user_bytes: u64,
    /// The part of these cells that is expected to survive the flush.
    pub(crate) survive: f64,
    /// Bytes of WAL since the oldest of these cells, including other stores'.
    pub(crate) wal_bytes: u64,
    pub(crate) wal_file_bytes: u64,
    pub(crate) key_bytes: f64,
    /// Bytes that this store's SSTables take for each byte of keys and values.
    pub(crate) compressed: f64,
    /// A value shorter than this stays in the SSTable.
    pub(crate) value_bytes_min: u64,
    /// Bytes of WAL that this store's SSTables refer to already, and the limit that compactions can hold in
    /// memory.
    pub(crate) referred_bytes: u64,
    pub(crate) compaction_memory: u64,
    /// Bytes that compactions have written per byte flushed, and the limit.
    pub(crate) rewritten: f64,
    pub(crate) write_amp_max: f64,
}

/// Bytes of a reference, with its key's overhead.
const REFERENCE_BYTES: f64 = 10.0;
/// The least share of a plain flush's bytes that must be saved.
const SAVED_MIN: f64 = 0.4;
/// The least size of a plain SSTable, as a share of the WAL files that stay in its place.
const LIVE_MIN: f64 = 0.4;
/// A flush begins a new WAL file: at least one part in so many of the old one should have been filled.
const FILE_SHARE_MIN: u64 = 16;

#[derive(Clone, PartialEq, Debug)]
pub(crate) struct WalValuesChoice {
    pub(crate) leave: bool,
    pub(crate) reason: String,
    /// The share of a plain flush's bytes that is expected to be saved, and the size of a plain SSTable as a
    /// share of the WAL files; in percent.
    pub(crate) saved_percent: u64,
    pub(crate) live_percent: u64,
    pub(crate) facts: WalValuesFacts,
}

pub(crate) fn leave_in_wal(facts: &WalValuesFacts) -> WalValuesChoice {
    let choice = |leave: bool, reason: &str, saved_percent, live_percent| WalValuesChoice {
        leave,
        reason: reason.into(),
        saved_percent,
        live_percent,
        facts: *facts,
    };
    let no = |reason: &str| choice(false, reason, 0, 0);
    if facts.cells == 0 || facts.wal_bytes * FILE_SHARE_MIN < facts.wal_file_bytes {
        return no("too little was logged");
    }
    let cells = facts.cells as f64;
    let value = facts.user_bytes as f64 / cells - facts.key_bytes;
    if value < facts.value_bytes_min as f64 {
        return no("values are short");
    }
    let plain = facts.user_bytes as f64 * facts.survive * facts.compressed;
    let written = cells * facts.survive * (facts.key_bytes + REFERENCE_BYTES) * facts.compressed.max(0.5);
    let saved = 1.0 - written / plain.max(1.0);
    let live = plain / facts.wal_bytes as f64;
    let (leave, reason) = match () {
        () if saved < SAVED_MIN => (false, "references would save little"),
        () if facts.rewritten > facts.write_amp_max => (false, "compactions write what comes too often"),
        () if live < LIVE_MIN => (false, "too little of the WAL is live"),
        () if facts.referred_bytes + facts.wal_bytes > facts.compaction_memory => {
            (false, "compactions could not hold so much of the WAL in memory")
        }
        () => (true, "the WAL holds the values already"),
    };
    let percent = |share: f64| (share.clamp(0.0, 9.99) * 100.0) as u64;
    choice(leave, reason, percent(saved), percent(live))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A million cells of 8 and 255 bytes, alone in the WAL.
    fn uniform() -> WalValuesFacts {
        WalValuesFacts {
            cells: 1_000_000,
            user_bytes: 263_000_000,
            survive: 0.98,
            wal_bytes: 312_000_000,
            wal_file_bytes: 16 << 20,
            key_bytes: 8.0,
            compressed: 1.0,
            value_bytes_min: 48,
            referred_bytes: 0,
            compaction_memory: 1 << 30,
            rewritten: 0.5,
            write_amp_max: 1.0,
        }
    }

    #[test]
    fn long_values_that_are_alone_in_the_wal_stay_there() {
        let choice = leave_in_wal(&uniform());
        assert!(choice.leave, "{choice:?}");
        assert!(choice.saved_percent > 90 && choice.live_percent > 80, "{choice:?}");
    }

    #[test]
    fn what_does_not_pay_is_written() {
        let refused = |facts: WalValuesFacts| {
            let choice = leave_in_wal(&facts);
            assert!(!choice.leave, "{choice:?}");
            choice.reason
        };
        let facts = uniform();
        assert_eq!(refused(WalValuesFacts { cells: 0, user_bytes: 0, ..facts }), "too little was logged");
        assert_eq!(refused(WalValuesFacts { wal_bytes: 1 << 19, ..facts }), "too little was logged");
        assert_eq!(refused(WalValuesFacts { user_bytes: 50_000_000, ..facts }), "values are short");
        assert_eq!(refused(WalValuesFacts { survive: 0.1, ..facts }), "too little of the WAL is live");
        assert_eq!(refused(WalValuesFacts { compressed: 0.3, ..facts }), "too little of the WAL is live");
        let shared = WalValuesFacts { wal_bytes: 4 * facts.wal_bytes, ..facts };
        assert_eq!(refused(shared), "too little of the WAL is live");
        let after = WalValuesFacts { referred_bytes: 2 * facts.wal_bytes, ..facts };
        assert!(leave_in_wal(&after).leave);
        let tight = WalValuesFacts { compaction_memory: 3 * facts.wal_bytes - 1, ..after };
        assert_eq!(refused(tight), "compactions could not hold so much of the WAL in memory");
        let churn = WalValuesFacts { rewritten: 1.1, ..facts };
        assert_eq!(refused(churn), "compactions write what comes too often");
        let wide = WalValuesFacts { key_bytes: 200.0, ..facts };
        assert_eq!(refused(wide), "references would save little");
    }
}
