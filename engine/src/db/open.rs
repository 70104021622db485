//! Opening: the manifest, the tables it names, the log behind them. The order matters (invariant I2):
//!
//! 1. Lock the directory, read the manifest, open every table it names.
//! 2. Read the log's history into memory, skipping what tables already hold (by generation, invariant I1).
//! 3. Check the manifest against the longest one the log knew of: a manifest that lost its tail is an error.
//! 4. Make the history durable, then write a fresh manifest with a new epoch and the place where history
//!    ended. Only now may files that are no part of it be removed.
//! 5. Start a fresh log file on the first write. History never goes on inside a recovered file.

use super::{DEFAULT_FAMILY, Db, Family, Inner, LogListing, Shared};
use crate::cache::BlockCache;
use crate::catalog::{
    Catalog, Found, NOTE_NEW, Replay, highest_manifest, no_database, read_log, refuse_occupied,
    remove_orphans, remove_unnamed_tables,
};
use crate::commit::{Commit, FamilySettings, Generations, Stages, Store, memory_options};
use crate::context::{Context, Settings};
use crate::error::{Error, ErrorKind, Result};
use crate::event::{EventKind, Events, Listener};
use crate::log::{Log, LogEnd, LogOptions, LogStart, Recovered, WrittenAhead, still_kept};
use crate::memory::Active;
use crate::offload::{MergeRunner, Offload};
use crate::operator::{CompactionFilter, MergeOperator, Registry};
use crate::options::{FamilyOptions, Options};
use crate::schedule::{MakeScheduler, ThreadScheduler, Worker};
use crate::storage::{
    Clock, DirLock, Env, LOCK_FILE, NOTE, ObjectStore, OpenFiles, OpenObjectStore, SMALL_FILE_BYTES,
    TableStore, absolute, begins_with_number, create_dir_durably, create_over_own, lock_dir, mark_begun,
    read_file,
};
use crate::sync::Mutex;
use crate::table::{Through, tail_bytes};
use crate::types::{Generation, LogFileId, SeqNo, StoreId, size_text};
use crate::version::edit::{State as ManifestState, StoreState};
use crate::version::manifest::{self, Manifest, Mark};
use crate::version::{Graveyard, OpenTables, Version};
use crate::work::{DbWorker, Work};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How to open a database.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// use siltstone::{Builder, FamilyOptions, Options};
/// let db = Builder::new()
///     .options(Options { write_memory: 8 << 20, ..Default::default() })
///     .family("users", FamilyOptions::default())
///     .open(dir.path())?;
/// db.family("users")?.put(b"ada", b"1815")?;
/// # Ok::<(), siltstone::Error>(())
/// ```
#[derive(Clone)]
pub struct Builder {
    options: Options,
    pub(crate) env: Env,
    scheduler: MakeScheduler,
    pub(crate) registry: Registry,
    listener: Option<Listener>,
    families: Vec<(String, FamilyOptions)>,
    objects: Option<Arc<dyn ObjectStore>>,
    stores: Option<Arc<OpenObjectStore>>,
    /// Runs merges elsewhere, if anybody does.
    pub(crate) offload: Option<Arc<dyn Offload>>,
}

impl Default for Builder {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for Builder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder").field("options", &self.options).finish_non_exhaustive()
    }
}

impl Builder {
    /// Default options, the machine's own files and clock, workers on threads.
    pub fn new() -> Self {
        Self {
            options: Options::default(),
            env: Env::local(),
            scheduler: Arc::new(|| Arc::new(ThreadScheduler::new())),
            registry: Registry::default(),
            listener: None,
            families: Vec::new(),
            objects: None,
            stores: None,
            offload: None,
        }
    }

    /// Settings.
    #[must_use]
    pub fn options(mut self, options: Options) -> Self {
        self.options = options;
        self
    }

    /// Files, clock and randomness to live in.
    #[must_use]
    pub fn env(mut self, env: Env) -> Self {
        self.env = env;
        self
    }

    /// Who runs background work.
    #[must_use]
    pub fn scheduler(mut self, scheduler: Arc<dyn crate::schedule::Scheduler>) -> Self {
        self.scheduler = Arc::new(move || scheduler.clone());
        self
    }

    /// Registers a merge operator under a name that families refer to.
    #[must_use]
    pub fn merge_operator(mut self, name: &str, operator: Arc<dyn MergeOperator>) -> Self {
        self.registry.operators.insert(name.to_string(), operator);
        self
    }

    /// Registers a compaction filter under a name that families refer to.
    #[must_use]
    pub fn filter(mut self, name: &str, filter: Arc<dyn CompactionFilter>) -> Self {
        self.registry.filters.insert(name.to_string(), filter);
        self
    }

    /// Tables lie there, apart from log and manifest. It belongs to one database: say it when that is
    /// created, and at each open.
    #[must_use]
    pub fn object_store(mut self, store: Arc<dyn ObjectStore>) -> Self {
        self.objects = Some(store);
        self
    }

    /// Finds the object store of a location such as `s3://bucket/prefix`, which [`Options::tables`] or the
    /// database itself names. Crate `siltstone-storage-object` has one for S3 and HDFS.
    #[must_use]
    pub fn object_stores(
        mut self,
        open: impl Fn(&str) -> std::io::Result<Arc<dyn ObjectStore>> + Send + Sync + 'static,
    ) -> Self {
        self.stores = Some(Arc::new(open));
        self
    }

    /// Merges of tables are offered to it, and run elsewhere if it takes them; see [`crate::offload`].
    #[must_use]
    pub fn offload(mut self, offload: Arc<dyn Offload>) -> Self {
        self.offload = Some(offload);
        self
    }

    /// What runs the merges of other databases in this process, with the operators, filters, object store and
    /// files that were said here. It keeps what it reads again, such as indices, in `cache_bytes` of memory,
    /// and in `kept_bytes` of memory what it wrote of merges that want it ([`crate::offload::KeepOutputs`]).
    pub fn merge_runner(&self, cache_bytes: u64, kept_bytes: u64) -> MergeRunner {
        let objects = (self.objects.clone(), self.stores.clone());
        MergeRunner::new(&self.env, &self.registry, objects, cache_bytes, kept_bytes)
    }

    /// Called for every event.
    #[must_use]
    pub fn listener(mut self, listener: impl Fn(&crate::event::Event) + Send + Sync + 'static) -> Self {
        self.listener = Some(Arc::new(listener));
        self
    }

    /// Makes sure the family is there, with these options (changed if it has others).
    #[must_use]
    pub fn family(mut self, name: &str, options: FamilyOptions) -> Self {
        self.families.push((name.to_string(), options));
        self
    }

    /// The place where this builder puts the tables of the database in `dir`.
    pub(crate) fn place(&self, dir: &Path) -> Result<TableStore> {
        let storage = &self.env.storage;
        match (&self.objects, &self.options.tables) {
            (Some(objects), _) => Ok(TableStore::objects(objects.clone())),
            (None, Some(tables)) if TableStore::is_location(tables) => {
                TableStore::found(&tables.to_string_lossy(), self.stores.as_deref())
            }
            (None, Some(tables)) => Ok(TableStore::directory(storage, tables)),
            (None, None) => Ok(TableStore::beside(storage, dir)),
        }
    }

    /// Opens the database in `dir`. Without one there it is made, where [`Options::create_if_missing`] says
    /// so and the directory is absent or empty; in one that holds other things nothing is touched. From here
    /// on the directory is held open: should it be renamed, and another come to have its name, this database
    /// goes on in the renamed one.
    ///
    /// # Errors
    /// `Invalid` where other things lie in the directory, `NotFound` where no database is to be made, `Busy`
    /// where another process has it open, `Corruption` where it is damaged.
    pub fn open(mut self, dir: impl AsRef<Path>) -> Result<Db> {
        self.options.validate()?;
        let dir = self.absolute(dir.as_ref())?;
        if self.options.tables.as_deref() == Some(&*dir) {
            return Err(Error::invalid("option tables is the database's own directory"));
        }
        self.env = self.env.with_access(self.options.file_access);
        open(self, &dir)
    }

    /// The directory's path, and that of its tables in the options, no longer depend on the working
    /// directory.
    fn absolute(&mut self, dir: &Path) -> Result<PathBuf> {
        if let Some(tables) = self.options.tables.as_mut().filter(|tables| !TableStore::is_location(tables)) {
            *tables = absolute(&self.env, tables)?;
        }
        absolute(&self.env, dir)
    }

    /// Opens it for reading: as it is at this moment, without its lock, without changing a byte on disk.
    /// Where another process is writing to it, what that process removes meanwhile shows as an error.
    pub fn open_read_only(mut self, dir: impl AsRef<Path>) -> Result<Db> {
        self.options.validate()?;
        let dir = self.absolute(dir.as_ref())?;
        self.env = self.env.bound_if_there(&dir)?;
        open_read_only(self, &dir)
    }
}

fn open(mut builder: Builder, dir: &Path) -> Result<Db> {
    for (name, options) in &builder.families {
        FamilySettings::resolve(name, options.clone(), &builder.registry)?;
    }
    let (lock, mut state, mark) = lock_and_load(&mut builder, dir)?;
    let env = &builder.env;
    let cache = cache_for(&builder.options);
    let (graveyard, generations) = (Arc::new(Graveyard::default()), Arc::new(Generations::default()));
    let told = state.log_kept.values().copied();
    let kept = still_kept(env, dir, state.database, told, builder.options.changes_kept);
    let is_kept = |file: &LogFileId| kept.iter().any(|info| info.file == *file);
    Arc::make_mut(&mut state.log_kept).retain(|file, _| is_kept(file));
    graveyard.logs.set_first(kept.first().map_or(state.log_first, |info| info.file));
    let store = table_store(&builder, dir, mark.is_none(), &mut state)?;
    if mark.is_none() {
        store.create_dir()?;
    }
    let store = store.bound()?;
    let of_tables = store.claim(state.database, mark.is_none())?;
    let tables = open_tables(&builder, dir, store.clone(), &cache, &graveyard)?;
    let stores = open_stores(&builder, &state, &tables, &graveyard, &generations)?;
    let mut replay = Replay::new(&state, stores, &generations);
    let events = events_of(&builder, dir);
    let mut told = Replaying::new(&events, &*env.clock);
    let mut recovered =
        read_log(env, dir, &state, mark, &mut |frame| replay.frame(frame), &mut |done, total| {
            told.progress(done, total);
        })?;
    let replay_micros = told.micros();
    let database = state.database;
    kill_point!("open-log-read");
    state.epoch += 1;
    make_durable(env, dir, &store, &state, &recovered)?;
    replay.forget_origins(&mut state);
    state.last_seq = replay.max_seq.max(recovered.max_seq.unwrap_or_default()).max(state.last_seq);
    state.log_synced = state.log_synced.max(recovered.end);
    if !planted!(Bug::ForgetLogEnd) {
        state.log_ends.push(LogEnd { at: recovered.end, next: recovered.next_file });
    }
    let (epoch, last_seq) = (state.epoch, state.last_seq);
    let manifest = start_manifest(env, dir, &store, state, mark)?;
    recovered.stale.retain(|file| !is_kept(file));
    remove_orphans(env, dir, &store, manifest.state(), &recovered);
    recovered.give_back_tails(env, dir);
    kill_point!("open-orphans-removed");

    let start = LogStart { kept, ..LogStart::behind(database, &recovered) };
    let (log, appender) = Log::open(env, dir, log_options(&builder.options), start)?;
    let stores = replay.finish();
    let stages = Stages::new(appender, last_seq.next());
    let log_found = super::inspect::log_files(&recovered.files);
    let families = builder.families.clone();
    let found = Found { stores, manifest, cache, tables, graveyard, epoch, offload: builder.offload.clone() };
    let writing = Some((log, stages, std::iter::once(lock).chain(of_tables).collect()));
    let inner = assemble(builder, dir, Opened { found, last_seq, log_found, events, generations, writing });
    inner.commit.log_note(inner.catalog.manifest.lock().mark());
    kill_point!("open-noted");
    let numbers = [
        ("log_bytes", recovered.bytes),
        ("log_frames", recovered.frames),
        ("replay_micros", replay_micros),
        ("epoch", u64::from(epoch)),
    ];
    inner.work.gather_log();
    let what = if mark.is_none() { "created" } else { "opened" };
    inner.cx.events.record(EventKind::Open, "", what.into(), &numbers);
    finish(inner, families)
}

/// How often an open begins again where the directory is removed or replaced meanwhile.
const LOCK_AGAIN: usize = 10;

/// Takes the directory's lock and reads the manifest, or makes the state of a new database. The builder's
/// storage is bound to the directory then.
fn lock_and_load(builder: &mut Builder, dir: &Path) -> Result<(DirLock, ManifestState, Option<Mark>)> {
    for _ in 0..LOCK_AGAIN {
        let env = directory_for(builder, dir)?;
        let lock = match lock_dir(&env, dir, true) {
            Ok(lock) => lock.expect("its file is made"),
            Err(_) if !is_there_still(&env, dir)? => continue,
            Err(e) => return Err(e),
        };
        // Who had it may have deleted the directory, or given its name to another one.
        if !is_there_still(&env, dir)? {
            continue;
        }
        // Read again under the lock: another process may have been here.
        let (state, mark) = match manifest::load(&env, dir)? {
            Some(loaded) => (loaded.state, Some(loaded.mark)),
            None => {
                refuse_occupied(&env, dir)?;
                (ManifestState { database: env.random.next_u64() | 1, ..ManifestState::default() }, None)
            }
        };
        // Before any table is there to be refused.
        if builder.options.direct_reads {
            let path = dir.join(LOCK_FILE);
            env.storage.open_direct(&path).map_err(|e| Error::io("read directly", &path, e))?;
        }
        builder.env = env;
        return Ok((lock, state, mark));
    }
    Err(Error::new(ErrorKind::Busy, format!("{} is removed or replaced again and again", dir.display())))
}

fn is_there_still(env: &Env, dir: &Path) -> Result<bool> {
    env.storage.is_bound_still(dir).map_err(|e| Error::io("look for", dir, e))
}

/// The environment bound to the directory, which is made where there is none and one is to be made. Until it
/// is known that a database lies there, or may be made there, nothing is touched.
fn directory_for(builder: &Builder, dir: &Path) -> Result<Env> {
    let (options, unbound) = (&builder.options, &builder.env);
    let is_there = unbound.storage.exists(dir).map_err(|e| Error::io("look for", dir, e))?;
    let env = if is_there { unbound.bound_to(dir)? } else { unbound.clone() };
    if manifest::current(&env, dir)?.is_some() {
        if options.error_if_exists {
            return Err(Error::invalid(format!("{} holds a database already", dir.display())));
        }
        return Ok(env);
    }
    if is_there {
        if !options.create_if_missing {
            return Err(no_database(&env, dir));
        }
        refuse_occupied(&env, dir)?;
    } else if !options.create_if_missing {
        return Err(Error::new(ErrorKind::NotFound, format!("{} holds no database", dir.display())));
    }
    builder.place(dir)?.refuse_others()?;
    create_dir_durably(&*unbound.storage, dir).map_err(|e| Error::io("create the directory", dir, e))?;
    unbound.bound_to(dir)
}

fn make_durable(
    env: &Env,
    dir: &Path,
    store: &TableStore,
    state: &ManifestState,
    recovered: &Recovered,
) -> Result<()> {
    match recovered.make_durable(env, dir, state.database) {
        // On some file systems what is written again takes new blocks.
        Err(e) if e.kind() == ErrorKind::DiskFull => {
            manifest::free_reserve(env, dir);
            remove_unnamed_tables(env, dir, store, state);
            recovered.make_durable(env, dir, state.database)
        }
        made => made,
    }
}

/// Puts a manifest of that state in force, in the place of the one that was read.
fn start_manifest(
    env: &Env,
    dir: &Path,
    store: &TableStore,
    state: ManifestState,
    read: Option<Mark>,
) -> Result<Manifest> {
    let number = match read {
        Some(mark) => highest_manifest(env, dir)?.max(mark.number) + 1,
        // Over what a crash during creation may have left, so that never more than one is left.
        None => 1,
    };
    kill_point!("open-before-manifest");
    let manifest = match Manifest::start(env, dir, number, state.clone()) {
        Err(e) if e.kind() == ErrorKind::DiskFull => {
            // Perhaps the disk is full of what a merge had written when it ended. No manifest names that, and
            // the one in force is known to be whole.
            remove_unnamed_tables(env, dir, store, &state);
            Manifest::start(env, dir, number + 2, state)?
        }
        started => started?,
    };
    kill_point!("open-after-manifest");
    Ok(manifest)
}

fn log_options(options: &Options) -> LogOptions {
    let ahead = options.experimental.log_written_ahead;
    LogOptions {
        file_bytes: options.experimental.log_file_bytes,
        recycle_max: 2,
        written_ahead: if ahead { WrittenAhead::WhenSyncsDominate } else { WrittenAhead::Never },
        kept_bytes: options.changes_kept,
        followed_bytes: options.experimental.changes_held_max,
    }
}

/// How often a read-only open begins again where a writer changes what it reads.
const READ_AGAIN: usize = 50;

/// Beside a writer files go and grow between the reading of one and of the next: what looks like damage then
/// is none. So an error counts only if nothing was written meanwhile.
fn open_read_only(builder: Builder, dir: &Path) -> Result<Db> {
    let env = builder.env.clone();
    let mut failed = None;
    for _ in 0..READ_AGAIN {
        let before = manifest::load(&env, dir).ok().flatten().map(|loaded| loaded.mark);
        match open_read_only_once(builder.clone(), dir) {
            Err(e) if matches!(e.kind(), ErrorKind::Corruption | ErrorKind::Io | ErrorKind::NotFound) => {
                let after = manifest::load(&env, dir).ok().flatten().map(|loaded| loaded.mark);
                // Who has the lock writes to the log, too, which the manifest need not show.
                let rests = before == after && !is_locked(&env, dir);
                if rests || planted!(Bug::ReadOnlyOnce) {
                    return Err(e);
                }
                failed = Some(e);
            }
            opened => return opened,
        }
    }
    let why = failed.map_or(String::new(), |e| format!(" (last: {e})"));
    let message = format!("{} is being written to faster than it can be read{why}", dir.display());
    Err(Error::new(ErrorKind::Busy, message))
}

/// Whether somebody has the database open for writing, as far as that can be told without changing anything.
fn is_locked(env: &Env, dir: &Path) -> bool {
    lock_dir(env, dir, false).is_err_and(|e| e.kind() == ErrorKind::Busy)
}

fn open_read_only_once(builder: Builder, dir: &Path) -> Result<Db> {
    let env = &builder.env;
    let Some(loaded) = manifest::load(env, dir)? else { return Err(no_database(env, dir)) };
    let mut state = loaded.state;
    let cache = cache_for(&builder.options);
    let (graveyard, generations) = (Arc::new(Graveyard::default()), Arc::new(Generations::default()));
    graveyard.logs.set_first(state.log_first);
    let store = table_store(&builder, dir, false, &mut state)?.bound()?;
    let tables = open_tables(&builder, dir, store, &cache, &graveyard)?;
    let stores = open_stores(&builder, &state, &tables, &graveyard, &generations)?;
    let mut replay = Replay::new(&state, stores, &generations);
    let events = events_of(&builder, dir);
    let mut told = Replaying::new(&events, &*env.clock);
    let mark = Some(loaded.mark);
    let recovered =
        read_log(env, dir, &state, mark, &mut |frame| replay.frame(frame), &mut |done, total| {
            told.progress(done, total);
        })?;
    let last_seq = replay.max_seq.max(recovered.max_seq.unwrap_or_default()).max(state.last_seq);
    let epoch = state.epoch;
    let manifest = Manifest::read_only(env, dir, loaded.mark, state);
    let stores = replay.finish();
    let log_found = super::inspect::log_files(&recovered.files);
    let found = Found { stores, manifest, cache, tables, graveyard, epoch, offload: builder.offload.clone() };
    let inner =
        assemble(builder, dir, Opened { found, last_seq, log_found, events, generations, writing: None });
    default_of(Shared::new(inner))
}

/// With fewer descriptors a database could be read and, once its memory is full, not be written to.
const OPEN_FILES_MIN: u64 = 32;

/// How many tables are open at a time leaves a quarter of what the process may have open to others.
fn files_for(builder: &Builder, store: &TableStore) -> Result<Arc<OpenFiles>> {
    let storage = &builder.env.storage;
    if let Some(most) = storage.open_files_max().filter(|most| *most < OPEN_FILES_MIN) {
        let message = "a database needs at least";
        return Err(Error::invalid(format!(
            "the process may have {most} files open, {message} {OPEN_FILES_MIN} (see `ulimit -n`)"
        )));
    }
    let most = match builder.options.experimental.open_tables {
        // They have no descriptors.
        _ if store.is_far() => usize::MAX,
        0 => storage.open_files_max().map_or(usize::MAX, |most| (most / 4 * 3) as usize),
        most => most,
    };
    Ok(OpenFiles::new(store.storage().clone(), most))
}

/// Where the tables lie: as the manifest says, or of a new database, whose directory is marked, as the
/// builder says.
fn table_store(builder: &Builder, dir: &Path, is_new: bool, state: &mut ManifestState) -> Result<TableStore> {
    if is_new {
        mark_begun(&*builder.env.storage, dir).map_err(|e| Error::io("create a file in", dir, e))?;
        let store = builder.place(dir)?;
        state.tables = store.location();
        if !state.tables.is_empty() {
            state.database = number_to_claim_by(&builder.env, dir, state.database, &state.tables)?;
        }
        return Ok(store);
    }
    match builder.place(dir)? {
        store if store.location() == state.tables => Ok(store),
        store if store.location().is_empty() => {
            TableStore::at(&state.tables, &builder.env.storage, dir, builder.stores.as_deref())
        }
        store => {
            let there = if state.tables.is_empty() { "its own directory" } else { &state.tables };
            let (dir, said) = (dir.display(), store.location());
            Err(Error::invalid(format!("the tables of {dir} lie in {there}, not in {said}")))
        }
    }
}

/// The number of a database that is being created. It is noted before the place of its tables is claimed by
/// it, so that a creation that a crash ended can be begun again. The note stays, for a repair that finds no
/// manifest.
fn number_to_claim_by(env: &Env, dir: &Path, drawn: u64, tables: &str) -> Result<u64> {
    let path = dir.join(NOTE);
    let mut number = drawn;
    if env.storage.exists(&path).map_err(|e| Error::io("look for", &path, e))? {
        let noted = read_file(env, &path, SMALL_FILE_BYTES)?;
        let text = std::str::from_utf8(&noted).unwrap_or_default();
        if let Some((noted, rest)) = text.split_once('\n')
            && rest.strip_suffix('\n') == Some(tables)
            && let Ok(noted) = u64::from_str_radix(noted, 16)
        {
            number = noted;
        }
    }
    // Also where it is there: the creation that wrote it may have ended before it was durable.
    let failed = |e| Error::io("write", &path, e);
    let new = dir.join(NOTE_NEW);
    let mut file = create_over_own(&*env.storage, &new, begins_with_number).map_err(failed)?;
    file.write(format!("{number:016x}\n{tables}\n").as_bytes()).and_then(|()| file.sync()).map_err(failed)?;
    env.storage.rename(&new, &path).map_err(failed)?;
    env.storage.sync_dir(dir).map_err(failed)?;
    Ok(number)
}

fn open_tables(
    builder: &Builder,
    dir: &Path,
    store: TableStore,
    cache: &Arc<BlockCache>,
    graveyard: &Arc<Graveyard>,
) -> Result<Arc<OpenTables>> {
    let files = files_for(builder, &store)?;
    let through = match &builder.options {
        options if options.direct_reads => Through::Device,
        options if options.mapped_reads && !store.is_far() => Through::Mapping,
        _ => Through::PageCache,
    };
    if through == Through::Mapping {
        cache.believe(&builder.env.clock);
    }
    let of_log = &builder.env.storage;
    Ok(OpenTables::new(store, of_log, dir.to_path_buf(), cache, &files, graveyard, through))
}

fn cache_for(options: &Options) -> Arc<BlockCache> {
    BlockCache::filled_by_merges(options.cache_bytes(), Settings::of(options).filling())
}

fn events_of(builder: &Builder, dir: &Path) -> Events {
    Events::new(&builder.env, dir, builder.options.experimental.events_kept, builder.listener.clone())
}

/// The least that is replayed between two events that report it; of a long WAL it is a sixteenth.
const PROGRESS_BYTES: u64 = 4 << 20;

/// Reports how far the WAL is replayed, so that a long open is known not to hang.
struct Replaying<'a> {
    events: &'a Events,
    clock: &'a dyn Clock,
    began_ns: u64,
    told: u64,
}

impl<'a> Replaying<'a> {
    fn new(events: &'a Events, clock: &'a dyn Clock) -> Self {
        Self { events, clock, began_ns: clock.monotonic_ns(), told: 0 }
    }

    fn micros(&self) -> u64 {
        (self.clock.monotonic_ns() - self.began_ns) / 1_000
    }

    fn progress(&mut self, done: u64, total: u64) {
        if done - self.told < (total / 16).max(PROGRESS_BYTES) {
            return;
        }
        self.told = done;
        let reason = format!("{} of {} of log replayed", size_text(done), size_text(total));
        let numbers = [("bytes", done), ("total", total), ("micros", self.micros())];
        self.events.record(EventKind::Replay, "", reason, &numbers);
    }
}

/// The stores of the manifest with their tables open and nothing in memory.
fn open_stores(
    builder: &Builder,
    state: &ManifestState,
    tables: &OpenTables,
    graveyard: &Arc<Graveyard>,
    generations: &Arc<Generations>,
) -> Result<BTreeMap<StoreId, Arc<Store>>> {
    for store in state.stores.values() {
        // Ids of runs are generations too.
        let runs = store.shape.runs().map(|(_, run)| run.id).max();
        generations.above(Generation(store.last_generation.0.max(runs.unwrap_or(0))));
    }
    let all = state.stores.values().flat_map(|store| store.shape.tables());
    tables.store().expect(all.map(|(_, _, info)| (info.id, tail_bytes(info.bytes))));
    state
        .stores
        .iter()
        .map(|(id, s)| Ok((*id, open_store(builder, *id, s, tables, graveyard, generations)?)))
        .collect()
}

fn open_store(
    builder: &Builder,
    id: StoreId,
    state: &StoreState,
    tables: &OpenTables,
    graveyard: &Arc<Graveyard>,
    generations: &Arc<Generations>,
) -> Result<Arc<Store>> {
    let stored = Catalog::parse_options(&state.name, &state.options)?;
    // What the builder says counts from the beginning; it is written down when the database is open.
    let said = builder.families.iter().find(|(name, _)| *name == state.name);
    let options =
        said.map(|(_, options)| options.clone()).filter(|said| said.timestamps == stored.timestamps);
    let settings = FamilySettings::resolve_known(&state.name, options.unwrap_or(stored), &builder.registry)?;
    let mut handles = BTreeMap::new();
    for (_, _, info) in state.shape.tables() {
        let opened = tables.open(info, None).map_err(|e| match tables.store().exists(info.id) {
            Ok(false) => {
                let path = tables.store().path(info.id);
                Error::corruption(&path, 0, "table is missing, expected it by the manifest")
            }
            _ => e,
        });
        handles.insert(info.id, opened?);
    }
    let first = generations.take();
    let write_memory = builder.options.write_memory;
    let active = Arc::new(Active::new(first, memory_options(&settings.options, write_memory)));
    let version = Version::new(active.into()).with_shape(Arc::new(state.shape.clone()), &handles);
    let version = version.within(state.range.clone());
    let (name, graveyard) = (state.name.clone(), graveyard.clone());
    let taken = (state.attached_from, state.attached);
    let store = Store::attached(id, name, settings, version, generations, graveyard, taken);
    store.fit_memory(write_memory);
    store.forget(state.forgotten);
    Ok(store)
}

type Writing = (Arc<Log>, Stages, Vec<Box<dyn Send + Sync>>);

/// What an open has found, and what it made for writing.
struct Opened {
    found: Found,
    last_seq: SeqNo,
    log_found: Vec<LogListing>,
    events: Events,
    generations: Arc<Generations>,
    writing: Option<Writing>,
}

fn assemble(builder: Builder, dir: &Path, opened: Opened) -> Arc<Inner> {
    let Opened { found, last_seq, log_found, events, generations, writing } = opened;
    let (writing, locks) = match writing {
        Some((log, stages, locks)) => (Some((log, stages)), locks),
        None => (None, Vec::new()),
    };
    let settings = Settings::of(&builder.options);
    let cx = Context::new(&builder.env, settings, events, (builder.scheduler)(), writing.is_none());
    let commit = Commit::new(&cx, generations, writing);
    commit.snapshots.publish(last_seq);
    let catalog = Catalog::new(&commit, dir, builder.registry, found);
    let work = Work::new(&catalog);
    Arc::new(Inner { cx, commit, catalog, work, log_found, locks: Mutex::new(locks) })
}

/// Starts the workers and makes sure the families asked for are there.
fn finish(inner: Arc<Inner>, families: Vec<(String, FamilyOptions)>) -> Result<Db> {
    // From here on a failure closes what was opened.
    let inner = Shared::new(inner);
    let workers = (0..inner.cx.settings.options.workers)
        .map(|_| Box::new(DbWorker(Arc::downgrade(&inner.work))) as Box<dyn Worker>);
    let started = inner.cx.scheduler.start(workers.collect());
    started.map_err(|e| Error::io("start a worker thread for", &inner.catalog.dir, e))?;
    let known = |name: &str| inner.catalog.find(name).ok();
    if known(DEFAULT_FAMILY).is_none() && !families.iter().any(|(name, _)| name == DEFAULT_FAMILY) {
        inner.catalog.create_family(DEFAULT_FAMILY, FamilyOptions::default())?;
    }
    let mut altered = Vec::new();
    for (name, options) in families {
        match known(&name) {
            None => {
                inner.catalog.create_family(&name, options)?;
            }
            Some(store) if inner.catalog.stored_options(&store)? != options => {
                altered.push((store, options));
            }
            Some(_) => {}
        }
    }
    inner.catalog.alter_families(altered)?;
    default_of(inner)
}

fn default_of(inner: Shared) -> Result<Db> {
    let default = Family::new(inner.clone(), inner.catalog.find(DEFAULT_FAMILY)?);
    Ok(Db { inner, default })
}
