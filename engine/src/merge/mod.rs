//! One merge, in steps (idea 3 of the design): sources, rules, a sink with cut rules, driven by `advance()`.
//!
//! `merging` joins sorted sources into one sorted stream; `run` makes a run of tables one source; `keep` decides
//! which cells of the stream survive; `output` writes them into tables and decides where these end, `aside` which of a
//! flush's stay out of them; `machine` joins these and stops at step ends. A flush is a merge whose only source is memory.
//!
//! Nothing here knows a database: no manifest, no version swap, no choice of inputs. That is why a compaction
//! server will run the same code.

mod aside;
mod keep;
mod machine;
mod merging;
mod output;
mod run;

pub(crate) use aside::AsideRules;
pub(crate) use keep::{Below, KeepRules};
pub(crate) use machine::{Merge, MergeSpec, Progress, Source, Step};
pub(crate) use merging::Merging;
pub(crate) use output::{LeftInLog, OutputRules};
pub(crate) use run::{Floor, PassingRun, RunCursor};
