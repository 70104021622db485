//! Siltstone: a log-structured merge key-value store whose compactions are not felt.
//!
//! ```
//! # let dir = tempfile::tempdir().unwrap();
//! let db = siltstone::Db::open(dir.path())?;
//! db.put(b"silt", b"settles in layers")?;
//! assert_eq!(db.get(b"silt")?.unwrap(), b"settles in layers");
//! for entry in db.scan("a".."z") {
//!     println!("{}", entry?.key.escape_ascii());
//! }
//! # Ok::<(), siltstone::Error>(())
//! ```
//!
//! Start at [`Db`]; [`Family`] is a column family, [`Batch`] an atomic write, [`Snapshot`] a read point.
//! ARCHITECTURE.md is a tour of the inside; the byte formats are docs/format.md.

#[macro_use]
mod hooks;

mod backup;
mod cache;
mod catalog;
mod commit;
mod compaction;
mod context;
mod db;
mod error;
mod event;
mod latency;
mod lease;
mod memtable;
mod metrics;
pub mod offload;
mod operator;
mod options;
mod repair;
pub mod schedule;
pub mod shape;
pub mod simulate;
mod snapshot;
mod sstable;
pub mod storage;
pub mod strategy;
pub mod stream;
mod sync;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod types;
mod version;
mod wal;
mod work;

pub use backup::{BackupInfo, Backups};
pub use db::{
    Adopted, Batch, BlockListing, Builder, Change, ChangeBatch, ChangeKind, Changes, CompactionControl,
    Condition, Cursor, DEFAULT_FAMILY, Db, Entry, Estimate, Expected, Family, Follower, FollowerLag,
    Isolation, Keys, MemtableListing, Operation, Reader, Scan, SstableWriter, TableListing, Transaction,
    TransactionScan, WalListing, destroy,
};
pub use error::{Error, ErrorKind, Result};
pub use event::{Event, EventKind};
pub use latency::{Histogram, Latencies};
pub use lease::Waiting;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub use memtable::probe as memory_probe;
pub use metrics::{FamilyStatistics, Statistics};
pub use operator::{CompactionFilter, MergeOperator};
#[cfg(feature = "papers")]
pub use options::Tuning;
pub use options::{CacheFill, Durability, FamilyOptions, Options, SstableReads, Timestamps};
pub use repair::{CheckProgress, CheckReport, Damage, Loss, RepairReport, check, check_with_objects, repair};
pub use snapshot::Snapshot;
pub use sstable::Compression;
pub use types::{
    Cell, CellRef, Generation, KEY_BYTES_MAX, KeyRange, Kind, LogFileId, LogPosition, Pinned, RangeTombstone,
    Rng, SeqNo, Sketch, StoreId, TableId, Timestamp, VALUE_BYTES_MAX, parse_size, size_text,
};

/// Runs the readme's example with the other documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// Whether a test planted that bug, for the packages around the engine:
/// `siltstone::planted_bug!(RightsAfterBody)`.
#[cfg(feature = "testing")]
#[doc(hidden)]
#[macro_export]
macro_rules! planted_bug {
    ($bug:ident) => {
        $crate::testing::Bug::$bug.is_planted()
    };
}

/// Whether a test planted that bug: never, in this build.
#[cfg(not(feature = "testing"))]
#[doc(hidden)]
#[macro_export]
macro_rules! planted_bug {
    ($bug:ident) => {
        false
    };
}
