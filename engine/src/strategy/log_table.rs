//! Whether a flush leaves its values in the log (TRI-4), as a pure decision.
//!
//! What is won is the values that need not be written again; the log has them already. What it costs:
//! references in their place, a pass over the log files to find where the cells lie, an access more for a
//! read, and the whole log files stay on disk until merges have taken the tables apart, dead bytes, frames
//! and keys included and uncompressed. So it must pay clearly in bytes not written, and what stays on disk
//! must not be much more than a table would be. And merges must be able to hold the log files of their inputs
//! in memory: a value at a time, a merge that takes no order of the log fetches at some microsecond each,
//! which costs more processor time than was saved. The share of all bytes that can be saved is 1/(2+W), where
//! W is what merges write of a byte, and what a merge costs more comes W times: so W must be small
//! (`FamilyOptions::log_tables_merged_max`).

/// What the decision rests on.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct LogTableFacts {
    /// Cells in the memory to be flushed, and their keys and values.
    pub(crate) cells: u64,
    pub(crate) user_bytes: u64,
    /// The part of these cells that is expected to survive the flush.
    pub(crate) survive: f64,
    /// Bytes of log since the oldest of these cells, other stores' included.
    pub(crate) log_bytes: u64,
    /// Length of a log file.
    pub(crate) log_file_bytes: u64,
    /// Length of a key.
    pub(crate) key_bytes: f64,
    /// Bytes that this store's tables take for each byte of keys and values.
    pub(crate) compressed: f64,
    /// A value shorter than this stays in the table.
    pub(crate) value_bytes_min: u64,
    /// Bytes of log that this store's tables refer to already, and what merges may hold of log files in
    /// memory.
    pub(crate) referred_bytes: u64,
    pub(crate) merge_memory: u64,
    /// Bytes that merges have written for each byte that came to them, and how many it may be.
    pub(crate) merged: f64,
    pub(crate) merged_max: f64,
}

/// A reference with what an entry has besides.
const REFERENCE_BYTES: f64 = 10.0;
/// At least this part of what a plain flush would write must be saved.
const SAVED_MIN: f64 = 0.4;
/// A table would take at least this part of the log files that stay in its place.
const LIVE_MIN: f64 = 0.4;
/// A log file is begun for the flush: at least this part of one should have been filled.
const FILE_SHARE_MIN: u64 = 16;

/// The decision.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct LogTableChoice {
    pub(crate) leave: bool,
    pub(crate) reason: String,
    /// Share of the bytes of a plain flush that is expected to be saved, and share of the log files that a
    /// plain table would take; in percent.
    pub(crate) saved_percent: u64,
    pub(crate) live_percent: u64,
    /// What it rests on.
    pub(crate) facts: LogTableFacts,
}

/// Whether to leave values in the log.
pub(crate) fn leave_in_log(facts: &LogTableFacts) -> LogTableChoice {
    let choice = |leave: bool, reason: &str, saved_percent, live_percent| LogTableChoice {
        leave,
        reason: reason.into(),
        saved_percent,
        live_percent,
        facts: *facts,
    };
    let no = |reason: &str| choice(false, reason, 0, 0);
    if facts.cells == 0 || facts.log_bytes * FILE_SHARE_MIN < facts.log_file_bytes {
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
    let live = plain / facts.log_bytes as f64;
    let (leave, reason) = match () {
        () if saved < SAVED_MIN => (false, "references would save little"),
        () if facts.merged > facts.merged_max => (false, "merges write what comes too often"),
        () if live < LIVE_MIN => (false, "too little of the log is live"),
        () if facts.referred_bytes + facts.log_bytes > facts.merge_memory => {
            (false, "merges could not hold so much of the log in memory")
        }
        () => (true, "the log holds the values already"),
    };
    let percent = |share: f64| (share.clamp(0.0, 9.99) * 100.0) as u64;
    choice(leave, reason, percent(saved), percent(live))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A million cells of 8 and 255 bytes, alone in the log.
    fn uniform() -> LogTableFacts {
        LogTableFacts {
            cells: 1_000_000,
            user_bytes: 263_000_000,
            survive: 0.98,
            log_bytes: 312_000_000,
            log_file_bytes: 16 << 20,
            key_bytes: 8.0,
            compressed: 1.0,
            value_bytes_min: 48,
            referred_bytes: 0,
            merge_memory: 1 << 30,
            merged: 0.5,
            merged_max: 1.0,
        }
    }

    #[test]
    fn long_values_that_are_alone_in_the_log_stay_there() {
        let choice = leave_in_log(&uniform());
        assert!(choice.leave, "{choice:?}");
        assert!(choice.saved_percent > 90 && choice.live_percent > 80, "{choice:?}");
    }

    #[test]
    fn what_does_not_pay_is_written() {
        let refused = |facts: LogTableFacts| {
            let choice = leave_in_log(&facts);
            assert!(!choice.leave, "{choice:?}");
            choice.reason
        };
        let facts = uniform();
        assert_eq!(refused(LogTableFacts { cells: 0, user_bytes: 0, ..facts }), "too little was logged");
        assert_eq!(refused(LogTableFacts { log_bytes: 1 << 19, ..facts }), "too little was logged");
        assert_eq!(refused(LogTableFacts { user_bytes: 50_000_000, ..facts }), "values are short");
        assert_eq!(refused(LogTableFacts { survive: 0.1, ..facts }), "too little of the log is live");
        assert_eq!(refused(LogTableFacts { compressed: 0.3, ..facts }), "too little of the log is live");
        let shared = LogTableFacts { log_bytes: 4 * facts.log_bytes, ..facts };
        assert_eq!(refused(shared), "too little of the log is live");
        let after = LogTableFacts { referred_bytes: 2 * facts.log_bytes, ..facts };
        assert!(leave_in_log(&after).leave);
        let tight = LogTableFacts { merge_memory: 3 * facts.log_bytes - 1, ..after };
        assert_eq!(refused(tight), "merges could not hold so much of the log in memory");
        let churn = LogTableFacts { merged: 1.1, ..facts };
        assert_eq!(refused(churn), "merges write what comes too often");
        let wide = LogTableFacts { key_bytes: 200.0, ..facts };
        assert_eq!(refused(wide), "references would save little");
    }
}
