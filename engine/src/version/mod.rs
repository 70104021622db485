//! What a store consists of at one moment, and the only place where that changes.
//!
//! `version` joins a shape with memory and tables in one immutable object; `edit` is a change, `code` its
//! encoding, `regions` what splits and joins make of stores; `manifest` makes changes durable. `open_tables`
//! has one handle for each table, opened by `opener`; `distinct_estimate` says what a compaction leaves of
//! its inputs, `one_side` serves scans from one side of a compaction. `memtables` is a store's memory,
//! `tombstones_near` what deletes ranges of keys. `wal_refs` counts which WAL files SSTables need, `sums`
//! finds records behind a damaged part of a manifest. `shared_mark` is the mark of a database that moves into
//! shared storage, `sharing` how one there keeps its manifest. Nothing here decides *what* to change.

pub(crate) mod code;
mod distinct_estimate;
pub(crate) mod edit;
pub(crate) mod manifest;
mod memtables;
#[cfg(feature = "papers")]
mod one_side;
mod open_tables;
mod opener;
mod regions;
mod shared_mark;
mod sharing;
mod sums;
mod tombstones_near;
#[expect(clippy::module_inception, reason = "the file is named for its main type")]
pub(crate) mod version;
mod wal_refs;

pub(crate) use distinct_estimate::Unions;
pub(crate) use memtables::{FlushSet, Memtables, flushed_run};
#[cfg(feature = "papers")]
pub(crate) use one_side::OldSides;
pub(crate) use open_tables::OpenTables;
pub(crate) use shared_mark::SharedMark;
pub(crate) use version::{Dead, Graveyard, OpenRun, OpenTable, PinnedTables, TableHandle, Version};

/// The place of what keeps scans to one side of a compaction, which only builds with the feature `papers` do.
#[cfg(not(feature = "papers"))]
#[derive(Clone, Default)]
pub(crate) struct OldSides;
