//! A compaction of SSTables as plain data: all that is needed to run it, in this process or in another one.
//!
//! A compaction that reads memory (a flush) or leaves values in the WAL has no spec: it is a
//! [`super::LocalCompaction`], which holds cursors and cannot be serialized.

use super::retention::{RetentionRules, TombstoneElision};
use crate::error::{Error, Result};
use crate::operator::Registry;
use crate::shape::TableInfo;
use crate::sstable::TableOptions;
use crate::types::{KeyRange, SeqNo, TableId};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::sync::Arc;

/// The version of what a compaction keeps, how it writes SSTables, and the format of answers. Both sides must
/// have the same.
pub(crate) const RULES_VERSION: u32 = 2;

/// The smallest output and step: an eighth of the smallest SSTable that a strategy makes, where steps are
/// small for the cache.
const OUTPUT_BYTES_MIN: u64 = 512;
/// The most bytes of an input that are read at once.
const READ_AHEAD_MAX: u64 = 16 << 20;
/// The most block entries from one whole key to the next.
const RESTART_INTERVAL_MAX: usize = 1 << 12;

/// A compaction of SSTables, as plain data: its inputs, which cells survive, and how the outputs are written.
///
/// See [`crate::offload`].
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CompactionSpec {
    /// [`RULES_VERSION`] of the requester.
    pub(crate) rules_version: u32,
    pub(crate) database: u64,
    /// The place of its SSTables, as in a manifest, and the database's directory, which has its WAL.
    pub(crate) place: String,
    pub(crate) log_dir: PathBuf,
    /// Runs of SSTables, newest first, each in order of keys, with their clips at the beginning.
    pub(crate) inputs: Vec<Vec<TableInfo>>,
    pub(crate) range: KeyRange,
    pub(crate) keep: RetentionSpec,
    pub(crate) output: OutputSpec,
    /// Output bytes of a step: it ends with the SSTable after which another like it would exceed them.
    pub(crate) step_bytes: u64,
    /// Bytes of an input that are read at once.
    pub(crate) read_ahead: u64,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct RetentionSpec {
    /// Sequence numbers of registered snapshots, ascending.
    pub(crate) read_points: Vec<SeqNo>,
    /// Whether timestamps are part of the key, so that versions are counted.
    pub(crate) explicit: bool,
    /// Versions kept of a key; 0 for all.
    pub(crate) versions: u32,
    /// Microseconds of life; 0 for no limit.
    pub(crate) ttl_us: u64,
    /// Wall clock for expiry and filter.
    pub(crate) now_us: u64,
    /// Names of the merge operator and filter, which must be registered where the compaction runs.
    pub(crate) operator: Option<String>,
    pub(crate) filter: Option<String>,
    /// The family's strategy, for display.
    pub(crate) strategy: String,
    /// Keys that may have older data outside the inputs.
    pub(crate) below: TombstoneElision,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct OutputSpec {
    pub(crate) table: TableOptions,
    #[serde(rename = "table_bytes")]
    pub(crate) sstable_bytes: u64,
    /// Keys at which SSTables end too, in order.
    pub(crate) cuts: Vec<Vec<u8>>,
    /// The name of the first output; the part is incremented for the next ones.
    pub(crate) id: TableId,
    /// Names in each SSTable that describe its family, for a repair without a manifest.
    pub(crate) names: Vec<(String, String)>,
}

/// A saturating sum of numbers, which may come from another process and be anything.
pub(crate) fn sum(figures: impl Iterator<Item = u64>) -> u64 {
    figures.fold(0, u64::saturating_add)
}

impl CompactionSpec {
    /// The least number of cells in the inputs, and whether it is exact: for a clipped or split SSTable the
    /// number of remaining cells is not known.
    pub(crate) fn cells(&self) -> (u64, bool) {
        let tables = || self.inputs.iter().flatten();
        let whole = tables().filter(|table| table.is_whole());
        (sum(whole.map(|table| table.cells)), tables().all(TableInfo::is_whole))
    }

    /// Checks that its outputs are within the limits of a database, whoever described it.
    pub(crate) fn check(&self) -> Result<()> {
        let (output, table) = (&self.output, &self.output.table);
        let interval = table.restart_interval;
        for (is_right, wrong) in [
            (output.sstable_bytes >= OUTPUT_BYTES_MIN, "sstable_bytes is under 512 B"),
            (self.step_bytes >= OUTPUT_BYTES_MIN, "step_bytes is under 512 B"),
            (self.read_ahead <= READ_AHEAD_MAX, "read_ahead is over 16 MiB"),
            ((64..=16 << 20).contains(&table.block_bytes), "block_bytes is not between 64 B and 16 MiB"),
            (table.bloom_bits <= 64, "bloom_bits is over 64"),
            ((1..=RESTART_INTERVAL_MAX).contains(&interval), "restart_interval is not between 1 and 4096"),
            (output.cuts.is_sorted(), "cuts are out of order"),
        ] {
            if !is_right {
                return Err(Error::invalid(format!("the description of a compaction: {wrong}")));
            }
        }
        table.compression.check_supported()
    }
}

impl RetentionSpec {
    /// The rules, with operator and filter looked up by name. Without its operator a compaction keeps
    /// operands, and without its filter values: readers get the error.
    pub(crate) fn resolve(&self, registry: &Registry) -> RetentionRules {
        let mut read_points: Arc<[SeqNo]> = self.read_points.as_slice().into();
        if planted!(Bug::IgnoreSnapshotInCompaction) {
            read_points = Arc::default();
        }
        let early = planted!(Bug::DropTombstoneEarly);
        let below = if early { TombstoneElision::default() } else { self.below.clone() };
        RetentionRules {
            read_points,
            explicit: self.explicit,
            versions: self.versions,
            ttl_us: self.ttl_us,
            now_us: self.now_us,
            operator: self.operator.as_ref().and_then(|name| registry.operators.get(name)).cloned(),
            filter: self.filter.as_ref().and_then(|name| registry.filters.get(name)).cloned(),
            below,
        }
    }
}

#[cfg(any(test, feature = "testing"))]
pub(crate) mod sample {
    use super::*;
    use crate::types::StoreId;

    /// A compaction of one SSTable with so many cells.
    pub(crate) fn spec(start: &str, end: &str, cells: u64) -> CompactionSpec {
        let mut table = TableInfo::plain(TableId { epoch: 1, job: 1, part: 0, ..TableId::default() }, 100);
        (table.range, table.cells) = (KeyRange::new(start, end), cells);
        CompactionSpec {
            rules_version: RULES_VERSION,
            database: 7,
            place: "/tables".into(),
            log_dir: "/db".into(),
            inputs: vec![vec![table]],
            range: KeyRange::new(start, end),
            keep: RetentionSpec {
                read_points: vec![SeqNo(3)],
                explicit: false,
                versions: 1,
                ttl_us: 0,
                now_us: 0,
                operator: Some("sum".into()),
                filter: None,
                strategy: "leveled".into(),
                below: TombstoneElision::new(vec![KeyRange::all()]),
            },
            output: OutputSpec {
                table: TableOptions::default(),
                sstable_bytes: 1 << 20,
                cuts: vec![b"k".to_vec()],
                id: TableId { store: StoreId(2), epoch: 3, job: 4, part: 0 },
                names: vec![("store".into(), "1".into())],
            },
            step_bytes: 1 << 20,
            read_ahead: 1 << 16,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::sample::spec;
    use super::*;

    #[test]
    fn a_compaction_can_be_written_down_and_read_back_and_an_unknown_field_is_refused() {
        let spec = spec("a", "z", 30);
        let text = serde_json::to_string(&spec).unwrap();
        assert_eq!(serde_json::from_str::<CompactionSpec>(&text).unwrap(), spec);
        assert_eq!(spec.cells(), (30, true));
        let other = text.replacen("\"database\"", "\"data_base\"", 1);
        assert!(serde_json::from_str::<CompactionSpec>(&other).is_err());
    }

    #[test]
    fn outputs_that_no_database_wants_are_refused() {
        spec("a", "z", 30).check().unwrap();
        type Change = fn(&mut CompactionSpec);
        let changes: [(&str, Change); 7] = [
            ("sstable_bytes", |spec| spec.output.sstable_bytes = 1),
            ("step_bytes", |spec| spec.step_bytes = 0),
            ("read_ahead", |spec| spec.read_ahead = 1 << 40),
            ("block_bytes", |spec| spec.output.table.block_bytes = 1 << 30),
            ("bloom_bits", |spec| spec.output.table.bloom_bits = 65),
            ("restart_interval", |spec| spec.output.table.restart_interval = 0),
            ("cuts", |spec| spec.output.cuts = vec![b"b".to_vec(), b"a".to_vec()]),
        ];
        for (name, change) in changes {
            let mut spec = spec("a", "z", 30);
            change(&mut spec);
            let refused = spec.check().unwrap_err().to_string();
            assert!(refused.contains(name), "{refused}");
        }
    }
}
