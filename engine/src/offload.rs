//! Merges run elsewhere: the seam to whoever carries them to another process.
//!
//! The engine knows no network. A database that was given an [`Offload`] asks it about each merge of tables. Where it takes one, the
//! merge goes there as plain data ([`MergeSpec`]), and what is done of it comes back as plain data ([`MergeAnswer`]). At the other
//! end a [`MergeRunner`] runs the same merge code on tables that both ends reach. The crate `siltstone-compactor` carries the two
//! over a network; whatever else can move bytes may do so too.
//!
//! ```text
//! database: Offload::decide(spec) -> OffloadedMerge      spec ->      MergeRunner::begin(spec) -> RunningMerge
//!           OffloadedMerge::advance()               <- answers        RunningMerge::advance()
//! ```
//!
//! Nothing that comes back is believed before it was checked (invariant I5). Whatever goes wrong, the database finishes the merge
//! itself, from the last step that it made true: no answer is ever needed for it to go on.

use crate::cache::BlockCache;
use crate::error::{Error, ErrorKind, Result};
use crate::merge::{Advance, InCache, Local, MergeRun, Step, Totals, sum};
use crate::operator::Registry;
use crate::shape::TableInfo;
use crate::storage::{Env, ObjectStore, OpenFiles, TableStore};
use crate::sync::Mutex;
use crate::types::TableId;
use crate::version::{Graveyard, OpenTables};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use crate::merge::MergeSpec;

/// After how long an answer that was not there is looked for again.
const LOOK_AGAIN_NS: u64 = 1_000_000;

/// Decides about merges of tables, and has those that it takes run elsewhere. Given to a database by
/// [`crate::Builder::offload`].
pub trait Offload: Send + Sync + Debug {
    /// Takes a merge, or leaves it to the database, and says why. Must not wait for an answer from elsewhere: workers of the
    /// database do other work meanwhile. Must not panic.
    fn decide(&self, spec: &MergeSpec) -> Decision;
}

/// What was decided about a merge. It is told as an event of kind [`crate::EventKind::Offload`].
pub struct Decision {
    /// The merge as it runs elsewhere; `None`: the database runs it.
    pub run: Option<Box<dyn OffloadedMerge>>,
    /// Why, for people. Empty where that is not worth telling.
    pub reason: String,
    /// The figures that it rests on.
    pub numbers: Vec<(&'static str, u64)>,
}

impl Decision {
    /// The database runs it, and nothing is told.
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

/// A merge under way elsewhere. Dropped, it is given up there.
pub trait OffloadedMerge: Send {
    /// What has come of it since the last call, in order; `None` where there is nothing yet. Must not wait. After an error, or the
    /// last step, it is not called again.
    fn advance(&mut self) -> Result<Option<MergeAnswer>>;
}

/// What came of a merge: how far it is, or a step whose tables are durable.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MergeAnswer {
    pub(crate) totals: Totals,
    pub(crate) step: Option<StepAnswer>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StepAnswer {
    pub(crate) outputs: Vec<TableInfo>,
    pub(crate) upto: Option<Vec<u8>>,
}

impl MergeAnswer {
    /// As it is carried.
    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("an answer is plain data")
    }

    /// What the other end carried.
    ///
    /// # Errors
    /// `Invalid` where these are not the bytes of an answer.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        serde_json::from_slice(bytes).map_err(|e| Error::invalid(format!("the answer of a merge: {e}")))
    }

    /// Whether a step is done; with the last one the merge is.
    pub fn is_step(&self) -> bool {
        self.step.is_some()
    }

    /// Whether nothing follows.
    pub fn is_last(&self) -> bool {
        self.step.as_ref().is_some_and(|step| step.upto.is_none())
    }

    /// The tables of the step.
    pub fn outputs(&self) -> &[TableInfo] {
        self.step.as_ref().map_or(&[], |step| &step.outputs)
    }

    /// Bytes written by now.
    pub fn bytes_written(&self) -> u64 {
        self.totals.bytes_written
    }
}

/// A merge elsewhere as one that runs here is driven. What it hands out is verified before it is made true.
pub(crate) struct There {
    run: Box<dyn OffloadedMerge>,
    totals: Totals,
}

impl There {
    pub(crate) fn new(run: Box<dyn OffloadedMerge>) -> Self {
        Self { run, totals: Totals::default() }
    }
}

impl MergeRun for There {
    fn advance(&mut self) -> Result<Advance> {
        let Some(MergeAnswer { totals, step }) = self.run.advance()? else {
            return Ok(Advance::NotYet(LOOK_AGAIN_NS));
        };
        self.totals = totals;
        let Some(StepAnswer { outputs, upto }) = step else { return Ok(Advance::Working) };
        let outputs = outputs.into_iter().map(Arc::new).collect();
        Ok(Advance::Step(Step { outputs, upto, aside: Vec::new(), warm: Box::new(InCache(Vec::new())) }))
    }

    fn totals(&self) -> Totals {
        self.totals
    }
}

/// Runs merges for databases: what a compaction server does. Made by [`crate::Builder::merge_runner`].
///
/// It holds no state that matters: killed at any time, nothing is lost but the work since the last step.
pub struct MergeRunner {
    env: Env,
    registry: Registry,
    objects: Option<Arc<dyn ObjectStore>>,
    cache: Arc<BlockCache>,
    files: Arc<OpenFiles>,
    /// Where tables lie, by place and directory of the log.
    places: Mutex<BTreeMap<(String, PathBuf), Arc<OpenTables>>>,
}

impl Debug for MergeRunner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MergeRunner").field("cache", &self.cache.capacity()).finish_non_exhaustive()
    }
}

impl MergeRunner {
    /// It keeps what it reads again, such as indices, in so many bytes of memory.
    pub(crate) fn new(
        env: &Env,
        registry: &Registry,
        objects: Option<Arc<dyn ObjectStore>>,
        cache_bytes: u64,
    ) -> Self {
        Self {
            env: env.clone(),
            registry: registry.clone(),
            objects,
            cache: BlockCache::new(cache_bytes),
            files: OpenFiles::new(env.storage.clone(), usize::MAX),
            places: Mutex::default(),
        }
    }

    /// Begins a merge.
    ///
    /// # Errors
    /// `Unsupported` where its rules are of another version, an operator or filter is not registered here, or its tables lie in an
    /// object store that was not given; what opening the tables meets.
    pub fn begin(&self, spec: &MergeSpec) -> Result<RunningMerge> {
        let missing = |what: &str, name: &str| {
            Error::new(ErrorKind::Unsupported, format!("no {what} \"{name}\" is registered here"))
        };
        if let Some(name) = &spec.keep.operator
            && !self.registry.operators.contains_key(name)
        {
            return Err(missing("merge operator", name));
        }
        if let Some(name) = &spec.keep.filter
            && !self.registry.filters.contains_key(name)
        {
            return Err(missing("compaction filter", name));
        }
        let tables = self.tables(spec)?;
        let local = Local {
            env: self.env.clone(),
            tables,
            cache: self.cache.clone(),
            registry: self.registry.clone(),
            writes_over: false,
        };
        Ok(RunningMerge { run: local.begin(spec)? })
    }

    /// The tables of the place that the merge names.
    fn tables(&self, spec: &MergeSpec) -> Result<Arc<OpenTables>> {
        let mut places = self.places.lock();
        let place = (spec.place.clone(), spec.log_dir.clone());
        if let Some(tables) = places.get(&place) {
            return Ok(tables.clone());
        }
        let objects = self.objects.as_ref().map(|objects| TableStore::objects(objects.clone()));
        let store = match objects.filter(|store| store.location() == spec.place) {
            Some(store) => store,
            None => TableStore::at(&spec.place, &self.env.storage, &spec.log_dir)?,
        };
        let (storage, graveyard) = (&self.env.storage, Arc::new(Graveyard::default()));
        let dir = spec.log_dir.clone();
        let tables = OpenTables::new(store, storage, dir, &self.cache, &self.files, &graveyard, false);
        places.insert(place, tables.clone());
        Ok(tables)
    }
}

/// A merge that runs in this process for a database elsewhere. Dropped, it ends; what it wrote of a step that was not handed out
/// is removed by the database.
pub struct RunningMerge {
    run: Box<dyn MergeRun>,
}

impl Debug for RunningMerge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunningMerge").finish_non_exhaustive()
    }
}

impl RunningMerge {
    /// Does a little, some milliseconds at most; what came of it. After the last step ([`MergeAnswer::is_last`]) or an error it must
    /// not be called again.
    ///
    /// # Errors
    /// What reading the inputs and writing the outputs meets; `Invalid` where a table of an output's name is there already.
    pub fn advance(&mut self) -> Result<MergeAnswer> {
        let advance = self.run.advance()?;
        let totals = self.run.totals();
        let step = match advance {
            Advance::Working | Advance::NotYet(_) => None,
            Advance::Step(Step { outputs, upto, .. }) => {
                let outputs = outputs.iter().map(|info| TableInfo::clone(info)).collect();
                Some(StepAnswer { outputs, upto })
            }
        };
        Ok(MergeAnswer { totals, step })
    }
}

impl MergeSpec {
    /// As it is carried.
    ///
    /// # Errors
    /// `Unsupported` where a directory's name is not UTF-8.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let unsupported =
            |e| Error::new(ErrorKind::Unsupported, format!("a merge cannot be written down: {e}"));
        serde_json::to_vec(self).map_err(unsupported)
    }

    /// The same merge with other names of its directories: those that they have for whoever runs it.
    ///
    /// # Errors
    /// What `named` returns; `Unsupported` where a name is not UTF-8.
    pub fn with_dirs(mut self, named: impl Fn(&Path) -> Result<PathBuf>) -> Result<Self> {
        if !self.place.is_empty() && !self.is_in_objects() {
            let place = named(Path::new(&self.place))?;
            let text = place.into_os_string().into_string();
            self.place = text.map_err(|name| {
                Error::new(ErrorKind::Unsupported, format!("the directory {} is not UTF-8", name.display()))
            })?;
        }
        self.log_dir = named(&self.log_dir)?;
        Ok(self)
    }

    /// What a database carried.
    ///
    /// # Errors
    /// `Invalid` where these are not the bytes of a merge.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        serde_json::from_slice(bytes).map_err(|e| Error::invalid(format!("the description of a merge: {e}")))
    }

    /// The number of the database that it is for.
    pub fn database(&self) -> u64 {
        self.database
    }

    /// The name of its first output; no other merge writes tables of that store, epoch and job.
    pub fn first_output(&self) -> TableId {
        self.output.id
    }

    /// What is merged, run by run, the newest first.
    pub fn inputs(&self) -> impl Iterator<Item = &TableInfo> {
        self.inputs.iter().flatten()
    }

    /// Bytes of what is merged, as far as it is.
    pub fn input_bytes(&self) -> u64 {
        sum(self.inputs().map(TableInfo::live_bytes))
    }

    /// Bytes of the values that its inputs left in the log of the database.
    pub fn log_bytes(&self) -> u64 {
        sum(self.inputs().map(|table| table.log_bytes))
    }

    /// The directory with the tables; `None` where they lie in an object store.
    pub fn table_dir(&self) -> Option<&Path> {
        (!self.is_in_objects()).then(|| match self.place.as_str() {
            "" => self.log_dir.as_path(),
            place => Path::new(place),
        })
    }

    /// The directory of the database, with its log.
    pub fn log_dir(&self) -> &Path {
        &self.log_dir
    }

    fn is_in_objects(&self) -> bool {
        TableStore::is_in_objects(&self.place)
    }
}
