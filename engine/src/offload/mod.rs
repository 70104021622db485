//! Compactions in other processes: the interface to whatever carries them there.
//!
//! The engine knows no network. A database that was given an [`Offload`] asks it about each compaction. If it
//! takes one, the compaction goes there as plain data ([`CompactionSpec`]), and its progress comes back as
//! plain data ([`CompactionAnswer`]). At the other end a [`CompactionRunner`] runs the same code on SSTables
//! that both ends reach. The crate `siltstone-compactor` carries the two over a network; whatever else can
//! move bytes may do so too.
//!
//! ```text
//! database                                          compaction server
//! Offload::decide(offer) -> OffloadedCompaction
//!                                  spec ->          CompactionRunner::begin(spec) -> RunningCompaction
//! OffloadedCompaction::advance()  <- answers        RunningCompaction::advance()
//! RemoteCache::read(table, parts) <- blocks         KeptOutputs::read(table, parts)
//! ```
//!
//! The process that ran a compaction keeps what it wrote in memory for a while, the *remote cache* (OFF-3),
//! so that the database's own cache gets the new blocks from there and not from storage ([`crate::CacheFill`]
//! says which and when).
//!
//! Every answer is checked before it is used (invariant I5): first whether it is the expected one
//! (`AnswerOf`), then its contents. Whatever goes wrong, the database finishes the compaction itself, from
//! the last step that it installed, so it never depends on an answer.
//!
//! This file is the database's end. `runner` is the other end, `output_memory` its remote cache, `remote`
//! reads that cache from the database's end, and `table_transfer` runs compactions where the two share no
//! storage.

mod output_memory;
#[cfg(feature = "papers")]
mod remote;
mod runner;
mod table_transfer;

pub use crate::compaction::{CompactionSpec, CompactionTables};
pub use output_memory::KeptOutputs;
#[cfg(feature = "papers")]
pub(crate) use remote::RemoteFile;
pub use runner::{CompactionRunner, RunningCompaction};
pub(crate) use table_transfer::OwnTables;

use crate::compaction::{Advance, CompactionRun, Step, Totals, sum};
use crate::error::{Error, ErrorKind, Result};
use crate::options::CacheFill;
use crate::shape::TableInfo;
use crate::storage::TableStore;
use crate::types::TableId;
use crate::types::codec::{Malformed, sealed, unsealed};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fmt::Debug;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The time after which the database asks again for an answer that was not ready.
const LOOK_AGAIN_NS: u64 = 1_000_000;

/// Decides which compactions run in another process, and has them run there. Given to a database by
/// [`crate::Builder::offload`].
pub trait Offload: Send + Sync + Debug {
    /// Takes a compaction, or leaves it to the database, with a reason. Must not wait for an answer from
    /// another process, as a worker of the database calls it. Must not panic.
    fn decide(&self, offer: &Offer<'_>) -> Decision;
}

/// A compaction that is offered, with what the database knows of it.
pub struct Offer<'a> {
    /// The compaction.
    pub spec: &'a CompactionSpec,
    /// How long the process that runs it should retain its outputs in memory.
    pub keep: RetainOutputs,
    pub(crate) predicted: &'a dyn Fn() -> u64,
    pub(crate) cached: &'a dyn Fn() -> u64,
    pub(crate) tables: &'a dyn Fn() -> Arc<dyn CompactionTables>,
}

impl Offer<'_> {
    /// About how many bytes it will write: its input bytes times the share of distinct keys by the inputs'
    /// sketches, if the number of versions is limited; else, and for many inputs, all of them. Reads a sketch
    /// for each input.
    pub fn predicted_bytes(&self) -> u64 {
        (self.predicted)()
    }

    /// Its inputs and outputs, for a process that shares no storage with the database. Valid as long as the
    /// compaction runs.
    pub fn tables(&self) -> Arc<dyn CompactionTables> {
        (self.tables)()
    }

    /// About how many of its input bytes are in the database's block cache, by a sample.
    pub fn cached_bytes(&self) -> u64 {
        (self.cached)()
    }
}

impl Debug for Offer<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Offer").field("spec", self.spec).field("keep", &self.keep).finish_non_exhaustive()
    }
}

/// How long the process that runs a compaction retains its outputs in memory, if there is room.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum RetainOutputs {
    /// Not at all.
    #[default]
    No,
    /// Each step's SSTables until the step is published.
    UntilPublished,
    /// Until others need the room.
    WhileThereIsRoom,
}

impl From<CacheFill> for RetainOutputs {
    fn from(fill: CacheFill) -> Self {
        match fill {
            CacheFill::None => Self::No,
            #[cfg(feature = "papers")]
            CacheFill::Remote => Self::WhileThereIsRoom,
            #[cfg(feature = "papers")]
            CacheFill::Before => Self::UntilPublished,
            CacheFill::WriteThrough | CacheFill::Step => Self::UntilPublished,
        }
    }
}

/// A decision about a compaction. It is recorded as an event of kind [`crate::EventKind::Offload`].
pub struct Decision {
    /// The compaction in the other process; `None`: the database runs it.
    pub run: Option<Box<dyn OffloadedCompaction>>,
    /// The reason, for people. Empty where it is not worth recording.
    pub reason: String,
    /// The figures behind the decision.
    pub numbers: Vec<(&'static str, u64)>,
}

impl Decision {
    /// The decision that the database runs it, without a record.
    pub fn here() -> Self {
        Self { run: None, reason: String::new(), numbers: Vec::new() }
    }
}

impl Debug for Decision {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let place = if self.run.is_some() { "elsewhere" } else { "here" };
        write!(f, "{place}: {} {:?}", self.reason, self.numbers)
    }
}

/// A running compaction in another process. Dropping this cancels it there.
pub trait OffloadedCompaction: Send {
    /// The next answer, in order; `None` while there is none. Must not wait. After an error, or the last
    /// step, it is not called again. The database keeps asking while the answer is `None`. It is up to this
    /// method to notice that the other end has been silent for too long, and to return an error.
    fn advance(&mut self) -> Result<Option<CompactionAnswer>>;

    /// Called if its last answer was refused for that reason: the other process has failed, and is not asked
    /// again. Returns the error, which should name that process.
    fn refused(&mut self, why: &str) -> Error {
        Error::new(ErrorKind::Io, format!("a compaction run elsewhere handed out {why}"))
    }

    /// The memory that its outputs may be read from; `None`: they are read from storage.
    fn remote_cache(&self) -> Option<Arc<dyn RemoteCache>> {
        None
    }
}

/// The memory of the process that ran a compaction, with its outputs (OFF-3). Reads from it are checked like
/// reads from storage, which has everything that it lacks.
pub trait RemoteCache: Send + Sync + Debug {
    /// Begins to read these parts of an SSTable's file. Must not wait.
    fn read(&self, table: TableId, parts: Vec<Range<u64>>) -> Box<dyn RemoteRead>;
}

/// Parts of an SSTable's file on their way from a [`RemoteCache`].
pub trait RemoteRead: Send {
    /// The bytes of the parts, one behind the other; `None` if they do not arrive within `wait`. Not called
    /// again after it returned something else.
    fn advance(&mut self, wait: Duration) -> Result<Option<Vec<u8>>>;
}

/// One answer of a compaction: how far it is, or a step whose SSTables are durable.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CompactionAnswer {
    pub(crate) of: AnswerOf,
    pub(crate) totals: Totals,
    pub(crate) step: Option<StepAnswer>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StepAnswer {
    pub(crate) outputs: Vec<TableInfo>,
    pub(crate) upto: Option<Vec<u8>>,
}

/// Identifies an answer: which compaction, attempt and step it is of. An answer for another compaction, a
/// cancelled attempt or an earlier step must not count, even if its contents are right.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AnswerOf {
    pub(crate) database: u64,
    /// The name of the compaction's first output: store, epoch of the owner, and job. Each attempt at a
    /// compaction has a job number of its own.
    pub(crate) merge: TableId,
    /// Steps that were handed out before this answer.
    pub(crate) step: u64,
}

impl AnswerOf {
    pub(crate) fn first(spec: &CompactionSpec) -> Self {
        Self { database: spec.database, merge: spec.output.id, step: 0 }
    }
}

impl std::fmt::Display for AnswerOf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "step {} of compaction {} of database {:016x}", self.step, self.merge, self.database)
    }
}

impl CompactionAnswer {
    /// Encodes the answer, to be sent to the database.
    pub fn to_bytes(&self) -> Vec<u8> {
        sealed(&serde_json::to_string(self).expect("an answer is plain data")).into_bytes()
    }

    /// Decodes an answer that the other end sent.
    ///
    /// # Errors
    /// `Invalid` where these are not the bytes of an answer, or some of them have changed on the way.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        carried(bytes).map_err(|why| Error::invalid(format!("the answer of a compaction: {why}")))
    }

    /// Whether a step is done; with the last one the compaction is.
    pub fn is_step(&self) -> bool {
        self.step.is_some()
    }

    /// Whether it is the last: a step without another after it.
    pub fn is_last(&self) -> bool {
        self.step.as_ref().is_some_and(|step| step.upto.is_none())
    }

    /// The SSTables of the step.
    pub fn outputs(&self) -> &[TableInfo] {
        self.step.as_ref().map_or(&[], |step| &step.outputs)
    }

    /// Cells of the inputs met by now.
    pub fn cells_met(&self) -> u64 {
        self.totals.taken
    }

    /// Bytes written by now.
    pub fn bytes_written(&self) -> u64 {
        self.totals.bytes_written
    }
}

/// A compaction in another process, driven like a local one. Its steps are verified before they are
/// installed.
pub(crate) struct OffloadedRun {
    run: Box<dyn OffloadedCompaction>,
    next: AnswerOf,
    totals: Totals,
}

impl OffloadedRun {
    pub(crate) fn new(run: Box<dyn OffloadedCompaction>, spec: &CompactionSpec) -> Self {
        Self { run, next: AnswerOf::first(spec), totals: Totals::default() }
    }
}

impl CompactionRun for OffloadedRun {
    fn advance(&mut self) -> Result<Advance> {
        let Some(CompactionAnswer { of, totals, step }) = self.run.advance()? else {
            return Ok(Advance::NotYet(LOOK_AGAIN_NS));
        };
        if of != self.next {
            return Err(self.run.refused(&format!("an answer of {of}, not of {}", self.next)));
        }
        self.totals = totals;
        let Some(StepAnswer { outputs, upto }) = step else { return Ok(Advance::Working) };
        self.next.step += 1;
        let outputs = outputs.into_iter().map(Arc::new).collect();
        Ok(Advance::Step(Step { outputs, upto, aside: Vec::new(), filled: Vec::new() }))
    }

    fn totals(&self) -> Totals {
        self.totals
    }

    fn refused(&mut self, why: &str) -> Error {
        self.run.refused(why)
    }
}

/// Decodes a message with a checksum, which for reports of progress is the only check that they arrived
/// unchanged.
fn carried<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    let json = unsealed(bytes).map_err(|Malformed(why)| why.to_string())?;
    serde_json::from_slice(json).map_err(|e| e.to_string())
}

impl CompactionSpec {
    /// Encodes the compaction, to be sent to whoever runs it.
    ///
    /// # Errors
    /// `Unsupported` where a directory's name is not UTF-8.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let unsupported =
            |e| Error::new(ErrorKind::Unsupported, format!("a compaction cannot be written down: {e}"));
        Ok(sealed(&serde_json::to_string(self).map_err(unsupported)?).into_bytes())
    }

    /// This compaction with its directories renamed to their names in the process that runs it.
    ///
    /// # Errors
    /// What `named` returns; `Unsupported` where a name is not UTF-8.
    pub fn with_dirs(mut self, named: impl Fn(&Path) -> Result<PathBuf>) -> Result<Self> {
        if !self.place.is_empty() && self.object_store().is_none() {
            let place = named(Path::new(&self.place))?;
            let text = place.into_os_string().into_string();
            self.place = text.map_err(|name| {
                Error::new(ErrorKind::Unsupported, format!("the directory {} is not UTF-8", name.display()))
            })?;
        }
        self.log_dir = named(&self.log_dir)?;
        Ok(self)
    }

    /// This compaction without the directory of the database, unless values of its inputs lie in the WAL
    /// there: so the process that runs it needs access to one directory less.
    #[must_use]
    pub fn without_log(mut self) -> Self {
        if !self.needs_log() && !self.place.is_empty() {
            self.log_dir =
                if self.object_store().is_some() { PathBuf::new() } else { PathBuf::from(&self.place) };
        }
        self
    }

    /// Whether running it needs the WAL of the database. (If files of its inputs say otherwise, they are not
    /// those of this description.)
    pub fn needs_log(&self) -> bool {
        self.inputs().any(|table| table.log_bytes > 0 || table.has_wal_values())
    }

    /// Decodes a compaction that a database sent.
    ///
    /// # Errors
    /// `Invalid` where these are not the bytes of a compaction, or some of them have changed on the way.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        carried(bytes).map_err(|why| Error::invalid(format!("the description of a compaction: {why}")))
    }

    /// The number of the database that it is for.
    pub fn database(&self) -> u64 {
        self.database
    }

    /// The name of its first output; no other compaction writes SSTables of that store, epoch and job.
    pub fn first_output(&self) -> TableId {
        self.output.id
    }

    /// The input SSTables, run by run, the newest first.
    pub fn inputs(&self) -> impl Iterator<Item = &TableInfo> {
        self.inputs.iter().flatten()
    }

    /// Whether its outputs are compressed.
    pub fn compresses(&self) -> bool {
        self.output.table.compression != crate::sstable::Compression::None
    }

    /// Bytes of the live parts of its inputs.
    pub fn input_bytes(&self) -> u64 {
        sum(self.inputs().map(TableInfo::live_bytes))
    }

    /// Bytes of the values that its inputs left in the WAL of the database.
    pub fn log_bytes(&self) -> u64 {
        sum(self.inputs().map(|table| table.log_bytes))
    }

    /// The directory with the SSTables; `None` where they lie in an object store.
    pub fn table_dir(&self) -> Option<&Path> {
        self.object_store().is_none().then(|| match self.place.as_str() {
            "" => self.log_dir.as_path(),
            place => Path::new(place),
        })
    }

    /// The object store that the SSTables lie in, if they do.
    pub fn object_store(&self) -> Option<&str> {
        TableStore::object_location(&self.place)
    }

    /// The directory of the database, with its WAL.
    pub fn log_dir(&self) -> &Path {
        &self.log_dir
    }
}
