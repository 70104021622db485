//! One merge, in steps (idea 3 of the design): sources, rules, a sink with cut rules, driven by `advance()`.
//!
//! `spec` says as plain data what a merge of tables is; `merge_run` is the seam behind which it runs, here
//! (`executor`) or elsewhere, and `verify` what is checked of one that ran elsewhere, against what the inputs
//! tell (`bounds`). `kway_merge` joins sorted sources into one sorted stream; `run` makes a run of tables one
//! source; `retention` decides which cells of the stream survive; `output` writes them into tables and
//! decides where these end, `hot_cells` which of a flush's stay out of them; `machine` joins these and stops
//! at step ends. A flush is a merge whose sources are memory, so it runs here.
//!
//! Nothing here knows a database: no manifest, no version swap, no choice of inputs. That is why a compaction
//! server will run the same code.

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
pub use merge_run::MergeTables;
pub(crate) use merge_run::{Advance, LeftInLog, MergeRun, Step, Totals, WriteTo};
pub(crate) use retention::TombstoneElision;
pub(crate) use run::RunCursor;
pub use spec::CompactionSpec;
#[cfg(any(test, feature = "testing"))]
pub(crate) use spec::sample;
pub(crate) use spec::{OutputSpec, RULES_VERSION, RetentionSpec, sum};
pub(crate) use verify::Verifier;
