//! Compactions run elsewhere: the seam to whatever carries them to another process.
//!
//! The engine knows no network. A database that was given an [`Offload`] asks it about each compaction. If it
//! takes one, the compaction goes there as plain data ([`CompactionSpec`]), and its progress comes back as
//! plain data ([`MergeAnswer`]). At the other end a [`MergeRunner`] runs the same code on tables that both
//! ends reach. The crate `siltstone-compactor` carries the two over a network; whatever else can move bytes
//! may do so too.
//!
//! ```text
//! database: Offload::decide(offer) -> OffloadedMerge     spec ->      MergeRunner::begin(spec) -> RunningCompaction
//!           OffloadedMerge::advance()               <- answers        RunningCompaction::advance()
//!           RemoteCache::read(table, parts)         <- blocks         KeptOutputs::read(table, parts)
//! ```
//!
//! The process that ran a compaction keeps what it wrote in memory for a while, the *remote cache* (OFF-3),
//! so that the database's own cache gets the new blocks from there and not from storage ([`crate::CacheFill`]
//! says which and when).
//!
//! Nothing that comes back is believed before it was checked (invariant I5): that it is the answer that is
//! waited for (`AnswerOf`), and then what it says. Whatever goes wrong, the database finishes the compaction
//! itself, from the last step that it installed: no answer is ever needed for it to go on.
//!
//! Here is the database's end. `runner` is the other end, `output_memory` its remote cache, `remote` reads
//! that cache from the database's end, and `table_transfer` runs compactions where the two share no storage.

mod output_memory;
#[cfg(feature = "papers")]
mod remote;
mod runner;
mod table_transfer;

pub use crate::compaction::{CompactionSpec, MergeTables};
pub use output_memory::KeptOutputs;
#[cfg(feature = "papers")]
pub(crate) use remote::RemoteFile;
pub use runner::{MergeRunner, RunningCompaction};
pub(crate) use table_transfer::OwnTables;

use crate::compaction::{Advance, MergeRun, Step, Totals, sum};
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

/// The time after which an answer that was not there is looked for again.
const LOOK_AGAIN_NS: u64 = 1_000_000;

/// Decides about compactions, and has those that it takes run elsewhere. Given to a database by
/// [`crate::Builder::offload`].
pub trait Offload: Send + Sync + Debug {
    /// Takes a compaction, or leaves it to the database, and says why. Must not wait for an answer from
    /// elsewhere: workers of the database do other work meanwhile. Must not panic.
    fn decide(&self, offer: &Offer<'_>) -> Decision;
}

/// A compaction that is offered, and what the database knows of it.
pub struct Offer<'a> {
    /// The compaction.
    pub spec: &'a CompactionSpec,
    /// How long its outputs should be kept in memory where it runs.
    pub keep: RetainOutputs,
    pub(crate) predicted: &'a dyn Fn() -> u64,
    pub(crate) cached: &'a dyn Fn() -> u64,
    pub(crate) tables: &'a dyn Fn() -> Arc<dyn MergeTables>,
}

impl Offer<'_> {
    /// About how many bytes it will write: its input bytes by the share of distinct keys that the inputs'
    /// sketches tell, where a number of versions of each is kept; else, and where there are many inputs, all
    /// of them. Reads a sketch for each input.
    pub fn predicted_bytes(&self) -> u64 {
        (self.predicted)()
    }

    /// Its inputs and outputs, for whoever runs it and shares no storage with the database. Good as long as
    /// the merge is.
    pub fn tables(&self) -> Arc<dyn MergeTables> {
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

/// How long whoever runs a merge keeps what it writes in memory, as far as there is room.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum RetainOutputs {
    /// Not at all.
    #[default]
    No,
    /// Each step's tables until the step is published.
    UntilPublished,
    /// Until others need the room.
    WhileThereIsRoom,
}

impl From<CacheFill> for RetainOutputs {
    fn from(fill: CacheFill) -> Self {
        match fill {
            CacheFill::None => Self::No,
            CacheFill::WriteThrough | CacheFill::Step => Self::UntilPublished,
            #[cfg(feature = "papers")]
            CacheFill::Before => Self::UntilPublished,
            #[cfg(feature = "papers")]
            CacheFill::Remote => Self::WhileThereIsRoom,
        }
    }
}

/// A decision about a compaction. It is recorded as an event of kind [`crate::EventKind::Offload`].
pub struct Decision {
    /// The compaction as it runs elsewhere; `None`: the database runs it.
    pub run: Option<Box<dyn OffloadedMerge>>,
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

/// A compaction under way elsewhere. When this is dropped, it is given up there.
pub trait OffloadedMerge: Send {
    /// The next answer, in order; `None` while there is none. Must not wait. After an error, or the last
    /// step, it is not called again. The database keeps asking while the answer is `None`. It is up to this
    /// method to notice that the other end has been silent for too long, and to return an error.
    fn advance(&mut self) -> Result<Option<MergeAnswer>>;

    /// Takes notice that its last answer was refused for that reason: whoever runs it has failed, and it is
    /// not asked again. Returns the error, which should say who runs it.
    fn refused(&mut self, why: &str) -> Error {
        Error::new(ErrorKind::Io, format!("a merge run elsewhere handed out {why}"))
    }

    /// Where the tables that it wrote may be read from memory; `None`: nowhere, they are read from storage.
    fn remote_cache(&self) -> Option<Arc<dyn RemoteCache>> {
        None
    }
}

/// The memory of whoever ran a compaction, with the tables that it wrote (OFF-3). What comes from there is
/// checked like what comes from storage, and whatever is not there is in storage.
pub trait RemoteCache: Send + Sync + Debug {
    /// Begins to read these parts of a table's file. Must not wait.
    fn read(&self, table: TableId, parts: Vec<Range<u64>>) -> Box<dyn RemoteRead>;
}

/// Parts of a table's file on their way from a [`RemoteCache`].
pub trait RemoteRead: Send {
    /// The bytes of the parts, one behind the other; `None` where they are not there within `wait`. Not
    /// called again after that came to something.
    fn advance(&mut self, wait: Duration) -> Result<Option<Vec<u8>>>;
}

/// One answer of a compaction: how far it is, or a step whose tables are durable.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MergeAnswer {
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

/// Identifies an answer: which compaction, attempt and step it is of. One of another compaction, of an
/// attempt that was given up, or of an earlier step says nothing about what is waited for, though all in it
/// may have been true.
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
    /// The first answer of a compaction.
    pub(crate) fn first(spec: &CompactionSpec) -> Self {
        Self { database: spec.database, merge: spec.output.id, step: 0 }
    }
}

impl std::fmt::Display for AnswerOf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "step {} of merge {} of database {:016x}", self.step, self.merge, self.database)
    }
}

impl MergeAnswer {
    /// Encodes the answer, to be sent to the database.
    pub fn to_bytes(&self) -> Vec<u8> {
        sealed(&serde_json::to_string(self).expect("an answer is plain data")).into_bytes()
    }

    /// Decodes an answer that the other end sent.
    ///
    /// # Errors
    /// `Invalid` where these are not the bytes of an answer, or some of them have changed on the way.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        carried(bytes).map_err(|why| Error::invalid(format!("the answer of a merge: {why}")))
    }

    /// Whether a step is done; with the last one the merge is.
    pub fn is_step(&self) -> bool {
        self.step.is_some()
    }

    /// Whether it is the last: a step without another after it.
    pub fn is_last(&self) -> bool {
        self.step.as_ref().is_some_and(|step| step.upto.is_none())
    }

    /// The tables of the step.
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

/// A compaction elsewhere, driven like one that runs here. Its steps are verified before they are installed.
pub(crate) struct OffloadedRun {
    run: Box<dyn OffloadedMerge>,
    /// The answer that is waited for.
    next: AnswerOf,
    totals: Totals,
}

impl OffloadedRun {
    pub(crate) fn new(run: Box<dyn OffloadedMerge>, spec: &CompactionSpec) -> Self {
        Self { run, next: AnswerOf::first(spec), totals: Totals::default() }
    }
}

impl MergeRun for OffloadedRun {
    fn advance(&mut self) -> Result<Advance> {
        let Some(MergeAnswer { of, totals, step }) = self.run.advance()? else {
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

/// Decodes what was carried under a checksum: for reports of progress it is the only check that they are as
/// they were sent.
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
            |e| Error::new(ErrorKind::Unsupported, format!("a merge cannot be written down: {e}"));
        Ok(sealed(&serde_json::to_string(self).map_err(unsupported)?).into_bytes())
    }

    /// This compaction with its directories renamed to what they are called where it runs.
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
    /// there: whoever runs it then needs access to one directory less.
    #[must_use]
    pub fn without_log(mut self) -> Self {
        if !self.needs_log() && !self.place.is_empty() {
            self.log_dir =
                if self.object_store().is_some() { PathBuf::new() } else { PathBuf::from(&self.place) };
        }
        self
    }

    /// Whether whoever runs it reads the WAL of the database. (If files of its inputs say otherwise, they are
    /// not those that are described here.)
    pub fn needs_log(&self) -> bool {
        self.inputs().any(|table| table.log_bytes > 0 || table.is_log_table())
    }

    /// Decodes a compaction that a database sent.
    ///
    /// # Errors
    /// `Invalid` where these are not the bytes of a compaction, or some of them have changed on the way.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        carried(bytes).map_err(|why| Error::invalid(format!("the description of a merge: {why}")))
    }

    /// The number of the database that it is for.
    pub fn database(&self) -> u64 {
        self.database
    }

    /// The name of its first output; no other compaction writes tables of that store, epoch and job.
    pub fn first_output(&self) -> TableId {
        self.output.id
    }

    /// The input tables, run by run, the newest first.
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

    /// The directory with the tables; `None` where they lie in an object store.
    pub fn table_dir(&self) -> Option<&Path> {
        self.object_store().is_none().then(|| match self.place.as_str() {
            "" => self.log_dir.as_path(),
            place => Path::new(place),
        })
    }

    /// The object store that the tables lie in, if they do.
    pub fn object_store(&self) -> Option<&str> {
        TableStore::object_location(&self.place)
    }

    /// The directory of the database, with its WAL.
    pub fn log_dir(&self) -> &Path {
        &self.log_dir
    }
}
