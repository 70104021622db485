//! One compaction, in steps: sources, retention rules, and outputs, driven by `advance()`.
//!
//! `spec` describes a compaction of SSTables as plain data; `merge_run` is the interface of whatever runs it,
//! this process (`executor`) or another one, and `verify` checks one that ran elsewhere, against the counts
//! of its inputs (`bounds`). `kway_merge` merges sorted sources into one sorted stream; `run` makes a run of
//! SSTables one source; `retention` decides which cells of the stream survive; `output` writes them into
//! SSTables and decides where these end, `hot_cells` picks a flush's cells that stay in memory; `machine`
//! drives all of these and stops at step ends. A flush runs in the same way, with memory beside its SSTables.
//!
//! Not owned here: the database, that is, the manifest, the version swap and the choice of inputs. So a
//! compaction server runs the same code.

mod bounds;
mod executor;
mod hot_cells;
mod kway_merge;
mod machine;
mod merge_run;
mod output;
mod retention;
mod run;
mod spec;
mod verify;

pub(crate) use bounds::Bounds;
#[cfg(any(test, feature = "testing"))]
pub(crate) use bounds::Expected;
pub(crate) use executor::{Local, MemoryInputs};
pub(crate) use hot_cells::AsideRules;
pub(crate) use kway_merge::Merging;
pub(crate) use machine::Source;
pub use merge_run::CompactionTables;
pub(crate) use merge_run::{Advance, CompactionRun, LeftInWal, Step, Totals, WriteTo};
pub(crate) use retention::TombstoneElision;
pub(crate) use run::RunCursor;
pub use spec::CompactionSpec;
#[cfg(any(test, feature = "testing"))]
pub(crate) use spec::sample;
pub(crate) use spec::{OutputSpec, RULES_VERSION, RetentionSpec, sum};
pub(crate) use verify::Verifier;
