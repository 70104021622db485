//! Ids are types, not integers, so that one is never passed for another.

use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($int:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug, serde::Serialize, serde::Deserialize)]
        pub struct $name(pub $int);
        impl $name {
            /// The smallest id.
            pub const ZERO: Self = Self(0);
            /// The largest id.
            pub const MAX: Self = Self(<$int>::MAX);
            /// The id after this one.
            #[must_use]
            pub fn next(self) -> Self {
                Self(self.0 + 1)
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }
    };
}

id!(/// A write's place in the history of a database. Every cell of a batch has its own; they are consecutive.
    SeqNo(u64));
id!(/// A cell's timestamp, by convention microseconds since the Unix epoch; zero where implicit.
    Timestamp(u64));
id!(/// One column family (of one region): its memory and its SSTables. Never reused.
    StoreId(u32));
id!(/// The id of a memtable of a store; grows with recency (invariant I1).
    Generation(u64));
id!(/// The number of a WAL file. Never reused, though the file itself may be recycled under a new number.
    LogFileId(u64));

/// A byte position in the WAL, ordered as history.
///
/// ```
/// use siltstone::{LogFileId, LogPosition};
/// let at = |file, offset| LogPosition { file: LogFileId(file), offset };
/// assert!(at(1, 4096) < at(2, 80));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct LogPosition {
    /// The WAL file.
    pub file: LogFileId,
    /// Byte offset from the start of that file.
    pub offset: u64,
}

impl fmt::Display for LogPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.offset)
    }
}

/// The name of an SSTable: the store it was written for, the owner's epoch, job and part (invariant I5), so
/// that two owners never write one file. A store that was split off shares SSTables that carry another
/// store's number.
///
/// ```
/// use siltstone::{StoreId, TableId};
/// let id = TableId { store: StoreId(9), epoch: 1, job: 2, part: 3 };
/// assert_eq!(id.file_name(), "000009-000001-000002-0003.table");
/// assert_eq!(TableId::parse_file_name(&id.file_name()), Some(id));
/// ```
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug, serde::Serialize, serde::Deserialize,
)]
pub struct TableId {
    /// The store it was written for.
    pub store: StoreId,
    /// Epoch of the owner (grows at every open of the database).
    pub epoch: u32,
    /// The job that wrote the SSTable, unique within the epoch.
    pub job: u32,
    /// The number of the output in its job.
    pub part: u32,
}

impl TableId {
    /// The file name within the database directory.
    pub fn file_name(self) -> String {
        format!("{self}.table")
    }

    /// Parses [`TableId::file_name`]; `None` for any other name.
    pub fn parse_file_name(name: &str) -> Option<Self> {
        let mut parts = name.strip_suffix(".table")?.split('-');
        let mut part = || u32::from_str_radix(parts.next()?, 16).ok();
        let id = TableId { store: StoreId(part()?), epoch: part()?, job: part()?, part: part()? };
        (id.file_name() == name).then_some(id)
    }
}

impl fmt::Display for TableId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:06x}-{:06x}-{:06x}-{:04x}", self.store.0, self.epoch, self.job, self.part)
    }
}
