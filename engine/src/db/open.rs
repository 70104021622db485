//! Opening: the manifest, the SSTables it names, the WAL behind them. The order matters (invariant I2):
//!
//! 1. Lock the directory, read the manifest, open every SSTable it names. Those in an object store are opened
//!    when they are needed, and by workers behind the open.
//! 2. Read the WAL's history into memory, skipping what SSTables already hold (by generation, invariant I1).
//! 3. Check the manifest against the longest one the WAL knew of: a manifest that lost its tail is an error.
//! 4. Make the history durable, then write a fresh manifest with a new epoch and the place where history
//!    ended. Only now may files that are no part of it be removed.
//! 5. Start a fresh WAL file on the first write. History never goes on inside a recovered file.

use super::builder::Builder;
use super::claim::{Claim, lock_and_load, lock_and_take_over, table_store};
use super::{DEFAULT_FAMILY, Db, Family, Inner, Shared, WalListing};
use crate::cache::BlockCache;
use crate::catalog::{
    Catalog, Found, Replay, highest_manifest, read_wal, remove_orphans, remove_unnamed_tables, tables_of,
};
use crate::commit::{Commit, FamilySettings, Generations, Stages, Store, first_active};
use crate::context::{Context, Settings};
use crate::error::{Error, ErrorKind, Result};
use crate::event::{EventKind, Events};
use crate::lease::{Claimed, Keeper, KeeperWorker};
use crate::options::{FamilyOptions, Options, SstableReads};
use crate::schedule::Worker;
use crate::sstable::Through;
use crate::storage::{Clock, Env, OpenFiles, TableStore};
use crate::stream::Outbox;
use crate::sync::Mutex;
use crate::types::{Generation, LogFileId, SeqNo, StoreId, size_text};
use crate::version::edit::{State as ManifestState, StoreState};
use crate::version::manifest::{self, Manifest, Mark};
use crate::version::{Graveyard, OpenTables, Version};
use crate::wal::{Recovered, Wal, WalEnd, WalOptions, WalStart, WrittenAhead, still_kept};
use crate::work::{DbWorker, Work};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

impl Builder {
    /// Opens the database in `dir`. If there is none, it is created, provided that
    /// [`Options::create_if_missing`] is set and the directory is absent or empty; a directory that holds
    /// other things is not touched. The directory stays open: if it is renamed, and another takes its name,
    /// this database goes on in the renamed one.
    ///
    /// # Errors
    /// `Invalid` where other things lie in the directory, `NotFound` where no database is to be made, `Busy`
    /// where another process has it open, `Corruption` where it is damaged.
    pub fn open(self, dir: impl AsRef<Path>) -> Result<Db> {
        self.open_by(dir.as_ref(), &mut Claimed::at_once)
    }

    pub(super) fn open_by(mut self, dir: &Path, claim: &mut Claim<'_>) -> Result<Db> {
        self.options.validate()?;
        let dir = self.absolute(dir)?;
        if self.options.sstable_store.as_deref() == Some(&*dir) {
            return Err(Error::invalid("option tables is the database's own directory"));
        }
        self.env = self.env.with_access(self.options.file_access);
        open(self, &dir, claim)
    }
}

// Over 70 lines: it is about the order of its steps.
fn open(mut builder: Builder, dir: &Path, claim: &mut Claim<'_>) -> Result<Db> {
    for (name, options) in &builder.families {
        FamilySettings::resolve(name, options.clone(), &builder.registry)?;
    }
    let place = builder.shared_place()?;
    let (lock, mut state, mark, shared) = match &place {
        None => {
            let (lock, state, mark) = lock_and_load(&mut builder, dir)?;
            (lock, state, mark, None)
        }
        Some(place) => {
            let (lock, taken) = lock_and_take_over(&mut builder, dir, place, claim)?;
            let shared = (taken.outbox, taken.is_new, taken.wal_end, taken.lease);
            (lock, taken.state, None, Some(shared))
        }
    };
    let is_new = shared.as_ref().map_or(mark.is_none(), |(_, is_new, ..)| *is_new);
    let wal_end = shared.as_ref().and_then(|(_, _, end, _)| *end);
    let (outbox, lease) = shared.map(|(outbox, .., lease)| (outbox, lease)).unzip();
    let env = &builder.env;
    let cache = cache_for(&builder.options);
    let (graveyard, generations) = (Arc::new(Graveyard::default()), Arc::new(Generations::default()));
    let told = state.wal_retained.values().copied();
    let kept = still_kept(env, dir, state.database, told, builder.options.change_log_bytes);
    let is_kept = |file: &LogFileId| kept.iter().any(|info| info.file == *file);
    Arc::make_mut(&mut state.wal_retained).retain(|file, _| is_kept(file));
    graveyard.logs.set_first(kept.first().map_or(state.wal_first, |info| info.file));
    let store = match &place {
        None => table_store(&builder, dir, is_new, &mut state)?,
        Some(place) => {
            let store = TableStore::objects(tables_of(place, state.database));
            state.tables = store.location();
            store
        }
    };
    if is_new {
        store.create_dir()?;
    }
    let store = store.bound()?;
    let of_tables = store.claim(state.database, is_new)?;
    let tables = open_tables(&builder, dir, store.clone(), &cache, &graveyard)?;
    let stores = open_stores(&builder, &state, &tables, &graveyard, &generations)?;
    let mut replay = Replay::new(&state, stores, &generations);
    let events = events_of(&builder, dir);
    let mut told = Replaying::new(&events, &*env.clock);
    let mut recovered =
        read_wal(env, dir, &state, mark, &mut |frame| replay.frame(frame), &mut |done, total| {
            told.progress(done, total);
        })?;
    // Of a shared database's WAL each byte is known to belong to it.
    if let Some(end) = wal_end.filter(|end| *end != recovered.end) {
        let file = dir.join(crate::wal::file_name(end.file));
        let message = format!("WAL is readable up to {}, expected it up to {end}", recovered.end);
        return Err(Error::corruption(file, recovered.end.offset, message));
    }
    let replay_micros = told.micros();
    let database = state.database;
    kill_point!("open-wal-read");
    state.epoch += 1;
    if outbox.is_none() {
        make_durable(env, dir, &store, &state, &recovered)?;
    }
    replay.forget_origins(&mut state);
    state.last_seq = replay.max_seq.max(recovered.max_seq.unwrap_or_default()).max(state.last_seq);
    state.wal_synced = state.wal_synced.max(recovered.end);
    if !planted!(Bug::ForgetWalEnd) {
        state.wal_ends.push(WalEnd { at: recovered.end, next: recovered.next_file });
    }
    let (epoch, last_seq) = (state.epoch, state.last_seq);
    let manifest = match &outbox {
        None => start_manifest(env, dir, &store, state, mark)?,
        Some(outbox) => Manifest::start_shared(env, dir, outbox, state)?,
    };
    recovered.stale.retain(|file| !is_kept(file));
    if outbox.is_none() {
        remove_unnamed_tables(env, dir, &store, manifest.state());
    }
    remove_orphans(env, dir, manifest.state(), &recovered);
    recovered.give_back_tails(env, dir);
    kill_point!("open-orphans-removed");

    let lease = outbox.clone().zip(lease);
    let start = WalStart { kept, outbox, ..WalStart::behind(database, &recovered) };
    let (wal, appender) = Wal::open(env, dir, wal_options(&builder.options), start)?;
    let stores = replay.finish();
    let stages = Stages::new(appender, last_seq.next());
    let wal_found = super::inspect::wal_listings(&recovered.files);
    let families = builder.families.clone();
    let found = Found { stores, manifest, cache, tables, graveyard, epoch, offload: builder.offload.clone() };
    let writing = Some((wal, stages, std::iter::once(lock).chain(of_tables).collect()));
    let opened = Opened { found, last_seq, wal_found, events, generations, writing, lease };
    let inner = assemble(builder, dir, opened);
    inner.commit.log_note(inner.catalog.manifest.lock().mark());
    kill_point!("open-noted");
    let numbers = [
        ("wal_bytes", recovered.bytes),
        ("wal_frames", recovered.frames),
        ("replay_micros", replay_micros),
        ("epoch", u64::from(epoch)),
    ];
    inner.work.gather_wal();
    let what = if is_new { "created" } else { "opened" };
    inner.cx.events.record(EventKind::Open, "", what.into(), &numbers);
    finish(inner, families)
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

/// Replaces the manifest that was read by a fresh one of that state.
fn start_manifest(
    env: &Env,
    dir: &Path,
    store: &TableStore,
    state: ManifestState,
    read: Option<Mark>,
) -> Result<Manifest> {
    let number = match read {
        Some(mark) => highest_manifest(env, dir)?.max(mark.number) + 1,
        // Over what a crash during creation may have left, so that there is never more than one.
        None => 1,
    };
    kill_point!("open-before-manifest");
    let manifest = match Manifest::start(env, dir, number, state.clone()) {
        Err(e) if e.kind() == ErrorKind::DiskFull => {
            // Outputs of an interrupted compaction may fill the disk. No manifest names them, and the current
            // one is known to be whole.
            remove_unnamed_tables(env, dir, store, &state);
            // An unfinished creation leaves at most the first manifest, which is removed.
            Manifest::start(env, dir, if read.is_some() { number + 2 } else { number }, state)?
        }
        started => started?,
    };
    kill_point!("open-after-manifest");
    Ok(manifest)
}

fn wal_options(options: &Options) -> WalOptions {
    let ahead = options.tuning().wal_prefill;
    WalOptions {
        file_bytes: options.tuning().wal_file_bytes,
        recycle_max: 2,
        written_ahead: if ahead { WrittenAhead::WhenSyncsDominate } else { WrittenAhead::Never },
        kept_bytes: options.change_log_bytes,
        followed_bytes: options.tuning().change_log_open_bytes_max,
    }
}

/// With fewer descriptors a database could be read and, once its memory is full, not be written to.
const OPEN_FILES_MIN: u64 = 32;

/// The limit on open SSTables leaves a quarter of the process's descriptors to others.
fn files_for(builder: &Builder, store: &TableStore) -> Result<Arc<OpenFiles>> {
    let storage = &builder.env.storage;
    if let Some(most) = storage.open_files_max().filter(|most| *most < OPEN_FILES_MIN) {
        let needs = format!("a database needs at least {OPEN_FILES_MIN} (see `ulimit -n`)");
        return Err(Error::invalid(format!("the process may have {most} files open, {needs}")));
    }
    let most = match builder.options.open_files_max {
        // They take no descriptors.
        _ if store.is_far() => usize::MAX,
        0 => storage.open_files_max().map_or(usize::MAX, |most| (most / 4 * 3) as usize),
        most => most,
    };
    Ok(OpenFiles::new(store.storage().clone(), most))
}

pub(super) fn open_tables(
    builder: &Builder,
    dir: &Path,
    store: TableStore,
    cache: &Arc<BlockCache>,
    graveyard: &Arc<Graveyard>,
) -> Result<Arc<OpenTables>> {
    let files = files_for(builder, &store)?;
    let through = match builder.options.sstable_reads {
        SstableReads::Direct => Through::Device,
        SstableReads::Mapped if !store.is_far() => Through::Mapping,
        SstableReads::Mapped | SstableReads::PageCache => Through::PageCache,
    };
    if through == Through::Mapping {
        cache.believe(&builder.env.clock);
    }
    let of_wal = &builder.env.storage;
    Ok(OpenTables::new(store, of_wal, dir.to_path_buf(), cache, &files, graveyard, through))
}

pub(super) fn cache_for(options: &Options) -> Arc<BlockCache> {
    BlockCache::filled_by_compactions(options.cache_bytes(), Settings::of(options).filling())
}

pub(super) fn events_of(builder: &Builder, dir: &Path) -> Events {
    Events::new(&builder.env, dir, builder.options.tuning().events_max, builder.listener.clone())
}

/// The least number of bytes between two events about the replay; for a long WAL it is a sixteenth of it.
const PROGRESS_BYTES: u64 = 4 << 20;

/// Reports how far the WAL is replayed, so that a long open does not look like a hang.
pub(super) struct Replaying<'a> {
    events: &'a Events,
    clock: &'a dyn Clock,
    began_ns: u64,
    told: u64,
}

impl<'a> Replaying<'a> {
    pub(super) fn new(events: &'a Events, clock: &'a dyn Clock) -> Self {
        Self { events, clock, began_ns: clock.monotonic_ns(), told: 0 }
    }

    fn micros(&self) -> u64 {
        (self.clock.monotonic_ns() - self.began_ns) / 1_000
    }

    pub(super) fn progress(&mut self, done: u64, total: u64) {
        if done - self.told < (total / 16).max(PROGRESS_BYTES) {
            return;
        }
        self.told = done;
        let reason = format!("{} of {} of the WAL replayed", size_text(done), size_text(total));
        let numbers = [("bytes", done), ("total", total), ("micros", self.micros())];
        self.events.record(EventKind::Replay, "", reason, &numbers);
    }
}

/// The stores of the manifest with their SSTables, open or left unread, and nothing in memory.
pub(super) fn open_stores(
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
    let open = |(id, store): (&StoreId, &StoreState)| {
        open_store(builder, *id, store, tables, graveyard, generations).map(|store| (*id, store))
    };
    let stores = state.stores.iter().map(open).collect::<Result<_>>()?;
    let named = state.stores.values().flat_map(|store| store.shape.tables());
    let mut order: Vec<_> = named.map(|(level, _, info)| (level, info.id)).collect();
    // Those that most reads look into first: upper levels, and there the newest.
    order.sort_by_key(|(level, _)| *level);
    tables.open_behind(order.into_iter().map(|(_, table)| table));
    Ok(stores)
}

fn open_store(
    builder: &Builder,
    id: StoreId,
    state: &StoreState,
    tables: &OpenTables,
    graveyard: &Arc<Graveyard>,
    generations: &Arc<Generations>,
) -> Result<Arc<Store>> {
    let settings = settings_of(builder, state)?;
    let mut handles = BTreeMap::new();
    for (_, _, info) in state.shape.tables() {
        handles.insert(info.id, tables.open_named(info)?);
    }
    let write_memory = builder.options.write_memory;
    let active = first_active(&settings.options, generations.take(), write_memory);
    let version = Version::new(active.into()).with_shape(Arc::new(state.shape.clone()), &handles);
    let version = version.within(state.range.clone());
    let (name, graveyard) = (state.name.clone(), graveyard.clone());
    let taken = (state.attached_from, state.attached);
    let store = Store::new(id, name, settings, version, generations, graveyard, taken);
    store.fit_memory(write_memory);
    store.forget(state.forgotten);
    Ok(store)
}

/// The settings of a store: the builder's options apply from the start, and are stored once the database is
/// open.
pub(super) fn settings_of(builder: &Builder, state: &StoreState) -> Result<FamilySettings> {
    let (stored, missing) = Catalog::parse_options(&state.name, &state.options)?;
    let said = builder.families.iter().find(|(name, _)| *name == state.name);
    let options =
        said.map(|(_, options)| options.clone()).filter(|said| said.timestamps == stored.timestamps);
    let papers_missing = missing.filter(|_| options.is_none());
    let settings = FamilySettings::resolve_known(&state.name, options.unwrap_or(stored), &builder.registry)?;
    Ok(FamilySettings { papers_missing, ..settings })
}

type Writing = (Arc<Wal>, Stages, Vec<Box<dyn Send + Sync>>);

/// The results of an open, and what it prepared for writing.
pub(super) struct Opened {
    pub(super) found: Found,
    pub(super) last_seq: SeqNo,
    pub(super) wal_found: Vec<WalListing>,
    pub(super) events: Events,
    pub(super) generations: Arc<Generations>,
    pub(super) writing: Option<Writing>,
    /// What keeps the lease of a shared database.
    pub(super) lease: Option<(Arc<Outbox>, Claimed)>,
}

pub(super) fn assemble(builder: Builder, dir: &Path, opened: Opened) -> Arc<Inner> {
    let Opened { found, last_seq, wal_found, events, generations, writing, lease } = opened;
    let (writing, locks) = match writing {
        Some((wal, stages, locks)) => (Some((wal, stages)), locks),
        None => (None, Vec::new()),
    };
    let settings = Settings::of(&builder.options);
    let cx = Context::new(&builder.env, settings, events, (builder.scheduler)(), writing.is_none());
    let commit = Commit::new(&cx, generations, writing);
    commit.snapshots.publish(last_seq);
    let catalog = Catalog::new(&commit, dir, builder.registry, found);
    let work = Work::new(&catalog);
    let keeper = lease.map(|(outbox, claimed)| Arc::new(Keeper::new(&cx, outbox, claimed)));
    Arc::new(Inner { cx, commit, catalog, work, keeper, wal_found, locks: Mutex::new(locks) })
}

/// Starts the workers and creates the builder's missing families.
fn finish(inner: Arc<Inner>, families: Vec<(String, FamilyOptions)>) -> Result<Db> {
    // From here on a failure closes what was opened.
    let inner = Shared::new(inner);
    let workers = (0..inner.cx.settings.options.workers)
        .map(|_| Box::new(DbWorker(Arc::downgrade(&inner.work))) as Box<dyn Worker>);
    let keeper = inner.keeper.iter().map(|keeper| Box::new(KeeperWorker::new(keeper)) as Box<dyn Worker>);
    let started = inner.cx.scheduler.start(workers.chain(keeper).collect());
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
            Some(store) if !inner.catalog.has_options(&store, &options)? => {
                altered.push((store, options));
            }
            Some(_) => {}
        }
    }
    inner.catalog.alter_families(altered)?;
    default_of(inner)
}

pub(super) fn default_of(inner: Shared) -> Result<Db> {
    let default = Family::new(inner.clone(), inner.catalog.find(DEFAULT_FAMILY)?);
    Ok(Db { inner, default })
}
