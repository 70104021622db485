//! The other end: runs compactions for databases with the engine's own code.

use super::output_memory::RetainedCompaction;
use super::table_transfer::Carried;
use super::{AnswerOf, CompactionAnswer, KeptOutputs, RetainOutputs, StepAnswer};
use crate::cache::BlockCache;
use crate::compaction::{Advance, CompactionRun, CompactionSpec, CompactionTables, Local, Step, WriteTo};
use crate::error::{Error, ErrorKind, Result};
use crate::operator::Registry;
use crate::shape::TableInfo;
use crate::sstable::Through;
use crate::storage::{Env, ObjectStore, OpenFiles, OpenObjectStore, Storage, TableStore};
use crate::sync::Mutex;
use crate::types::TableId;
use crate::version::{Graveyard, OpenTables};
use std::collections::{BTreeMap, VecDeque};
use std::fmt::Debug;
use std::path::PathBuf;
use std::sync::Arc;

/// Places of which SSTables are known at a time.
const PLACES_MAX: usize = 1 << 8;

/// The object store that SSTables lie in, and who finds others by their location.
type Objects = (Option<Arc<dyn ObjectStore>>, Option<Arc<OpenObjectStore>>);

/// Runs compactions for databases: what a compaction server does. Made by
/// [`crate::Builder::compaction_runner`].
///
/// It has no durable state: a kill at any time loses only the work since the last step.
pub struct CompactionRunner {
    env: Env,
    registry: Registry,
    objects: Objects,
    cache: Arc<BlockCache>,
    kept: Arc<KeptOutputs>,
    files: Arc<OpenFiles>,
    /// Where SSTables lie, by place and directory of the WAL.
    places: Mutex<BTreeMap<(String, PathBuf), Arc<OpenTables>>>,
}

impl Debug for CompactionRunner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CompactionRunner").field("cache", &self.cache.capacity()).finish_non_exhaustive()
    }
}

impl CompactionRunner {
    /// A runner with `cache_bytes` of memory for blocks that it reads again, such as indices, and
    /// `kept_bytes` for its outputs.
    pub(crate) fn new(
        env: &Env,
        registry: &Registry,
        objects: Objects,
        cache_bytes: u64,
        kept_bytes: u64,
    ) -> Self {
        Self {
            env: env.clone(),
            registry: registry.clone(),
            objects,
            cache: BlockCache::new(cache_bytes),
            kept: KeptOutputs::new(kept_bytes),
            files: OpenFiles::new(env.storage.clone(), usize::MAX),
            places: Mutex::default(),
        }
    }

    /// The location of the object store that the runner was given.
    pub fn object_store(&self) -> Option<String> {
        self.objects.0.as_ref().map(|store| store.location())
    }

    /// Outputs that it holds in memory, for compactions that asked for it.
    pub fn kept(&self) -> &Arc<KeptOutputs> {
        &self.kept
    }

    /// Begins a compaction, and holds its outputs for as long as `keep` says.
    ///
    /// # Errors
    /// `Invalid` where its outputs are such as no database wants; `Unsupported` where its rules are of
    /// another version, an operator or filter is not registered here, or its SSTables lie in an object store
    /// that was not given; what opening the SSTables meets.
    pub fn begin(&self, spec: &CompactionSpec, keep: RetainOutputs) -> Result<RunningCompaction> {
        let tables = self.tables(spec)?;
        self.begin_on(spec, keep, tables)
    }

    /// Begins a compaction whose inputs and outputs are transferred, as no storage is shared with the
    /// database.
    ///
    /// # Errors
    /// As [`CompactionRunner::begin`]; `Unsupported` where values of its inputs lie in the WAL of the
    /// database.
    pub fn begin_carried(
        &self,
        spec: &CompactionSpec,
        keep: RetainOutputs,
        carried: Arc<dyn CompactionTables>,
    ) -> Result<RunningCompaction> {
        if spec.needs_log() {
            let message = "values of the compaction lie in the WAL of the database, which is not carried";
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        let storage: Arc<dyn Storage> = Arc::new(Carried::new(carried, spec));
        let dir = PathBuf::from("/");
        let (store, graveyard) = (TableStore::directory(&storage, &dir), Arc::new(Graveyard::default()));
        let files = OpenFiles::new(storage.clone(), usize::MAX);
        let tables =
            OpenTables::new(store, &storage, dir, &self.cache, &files, &graveyard, Through::PageCache);
        self.begin_on(spec, keep, tables)
    }

    fn begin_on(
        &self,
        spec: &CompactionSpec,
        keep: RetainOutputs,
        tables: Arc<OpenTables>,
    ) -> Result<RunningCompaction> {
        spec.check()?;
        let (operators, filters) = (&self.registry.operators, &self.registry.filters);
        let operator = spec.keep.operator.as_ref().filter(|name| !operators.contains_key(*name));
        let filter = spec.keep.filter.as_ref().filter(|name| !filters.contains_key(*name));
        for (what, missing) in [("merge operator", operator), ("compaction filter", filter)] {
            if let Some(name) = missing {
                let message = format!("no {what} \"{name}\" is registered here");
                return Err(Error::new(ErrorKind::Unsupported, message));
            }
        }
        let kept = (keep != RetainOutputs::No).then(|| self.kept.begin(spec, keep));
        let local = Local {
            env: self.env.clone(),
            tables,
            cache: self.cache.clone(),
            registry: self.registry.clone(),
            writes_over: false,
            written: kept.clone().map(|kept| -> Arc<dyn WriteTo> { kept }),
        };
        let run = Some(local.begin(spec, None)?);
        Ok(RunningCompaction { run, next: AnswerOf::first(spec), kept, steps: VecDeque::new() })
    }

    /// Removes an SSTable of the compaction, as anybody with access to its storage could.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn lose(&self, spec: &CompactionSpec, table: TableId) -> std::io::Result<()> {
        self.tables(spec).map_err(std::io::Error::other)?.store().remove(table)
    }

    /// The SSTables of the place that the compaction names.
    fn tables(&self, spec: &CompactionSpec) -> Result<Arc<OpenTables>> {
        let mut places = self.places.lock();
        let place = (spec.place.clone(), spec.log_dir.clone());
        if let Some(tables) = places.get(&place) {
            return Ok(tables.clone());
        }
        if places.len() >= PLACES_MAX {
            // Running compactions hold what they need.
            places.clear();
        }
        let (objects, stores) = &self.objects;
        let objects = objects.as_ref().map(|objects| TableStore::objects(objects.clone()));
        let store = match objects.filter(|store| store.location() == spec.place) {
            Some(store) => store,
            None => TableStore::at(&spec.place, &self.env.storage, &spec.log_dir, stores.as_deref())?,
        };
        let (storage, graveyard) = (&self.env.storage, Arc::new(Graveyard::default()));
        let dir = spec.log_dir.clone();
        let files = match store.is_far() {
            true => OpenFiles::new(store.storage().clone(), usize::MAX),
            false => self.files.clone(),
        };
        let tables =
            OpenTables::new(store, storage, dir, &self.cache, &files, &graveyard, Through::PageCache);
        places.insert(place, tables.clone());
        Ok(tables)
    }
}

/// A compaction that runs in this process for a database elsewhere. Dropping it ends it, and its outputs
/// leave memory (or may, [`RetainOutputs`]); the database removes the files of a step that was not handed
/// out.
pub struct RunningCompaction {
    /// `None` after the last step.
    run: Option<Box<dyn CompactionRun>>,
    next: AnswerOf,
    /// Its outputs in memory, if they are to be held.
    kept: Option<Arc<RetainedCompaction>>,
    /// The last SSTable of each step that was handed out and is not published.
    steps: VecDeque<Option<TableId>>,
}

impl Debug for RunningCompaction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunningCompaction").finish_non_exhaustive()
    }
}

impl RunningCompaction {
    /// Works for some milliseconds at most; returns the progress. After the last step
    /// ([`CompactionAnswer::is_last`]) or an error it must not be called again.
    ///
    /// # Errors What reading the inputs and writing the outputs meets; `Invalid` if an SSTable with an
    /// output's name exists already.
    pub fn advance(&mut self) -> Result<CompactionAnswer> {
        let run = self.run.as_mut().ok_or_else(|| Error::invalid("the compaction is done"))?;
        let advance = run.advance()?;
        let (of, totals) = (self.next, run.totals());
        let step = match advance {
            Advance::Working | Advance::NotYet(_) => None,
            Advance::Step(Step { outputs, upto, .. }) => {
                self.next.step += 1;
                self.steps.push_back(outputs.last().map(|info| info.id));
                let outputs = outputs.iter().map(|info| TableInfo::clone(info)).collect();
                if upto.is_none() {
                    // Outputs stay in memory; inputs may leave it.
                    self.run = None;
                }
                Some(StepAnswer { outputs, upto })
            }
        };
        Ok(CompactionAnswer { of, totals, step })
    }

    /// Notes that the database has published the next step: its outputs may leave memory.
    pub fn published(&mut self) {
        if let (Some(kept), Some(Some(last))) = (&self.kept, self.steps.pop_front()) {
            kept.published(last);
        }
    }
}
