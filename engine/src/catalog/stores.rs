//! The stores of a database: making, changing and dropping them, and what concerns all of them.

use super::Catalog;
use crate::commit::{DEFAULT_FAMILY, FamilySettings, PapersMissing, Store, by_id, first_active};
use crate::error::{Error, ErrorKind, Result};
use crate::event::EventKind;
use crate::options::{FamilyOptions, Options, stored_options};
use crate::types::{SeqNo, StoreId, TableId, size_text};
use crate::version::Version;
use crate::version::edit::Change;
use std::sync::Arc;

/// Stores among which those to flush are chosen: the ones with most memory.
const CHOSEN_FROM: usize = 64;

pub(crate) fn check_name(name: &str) -> Result<()> {
    if name.is_empty() || name.len() > 255 || name.chars().any(char::is_control) {
        return Err(Error::invalid("a family's name has 1 to 255 bytes and no control characters"));
    }
    Ok(())
}

fn to_json(options: &FamilyOptions) -> Result<String> {
    serde_json::to_string(options).map_err(|e| Error::invalid(format!("family options: {e}")))
}

impl Catalog {
    pub(crate) fn create_family(&self, name: &str, options: FamilyOptions) -> Result<Arc<Store>> {
        self.cx.check_writable()?;
        check_name(name)?;
        let settings = FamilySettings::resolve(name, options.clone(), &self.registry)?;
        let _one = self.families.lock();
        self.cx.check_writable()?;
        self.check_name_is_free(name)?;
        let id = StoreId(self.manifest.lock().state().last_store.0 + 1);
        let options = to_json(&options)?;
        self.commit_edit(&vec![Change::NewStore { id, name: name.to_string(), options }])?;
        kill_point!("family-create-committed");
        let write_memory = self.cx.settings.write_memory();
        let generations = &self.commit.generations;
        let active = first_active(&settings.options, generations.take(), write_memory);
        let (version, graveyard) = (Version::new(active.into()), self.graveyard.clone());
        let attached = (SeqNo::ZERO, SeqNo::ZERO);
        let store = Store::new(id, name.to_string(), settings, version, generations, graveyard, attached);
        store.fit_memory(write_memory);
        self.add_store(store.clone());
        self.cx.events.record(EventKind::Family, &store.name, "created".into(), &[]);
        Ok(store)
    }

    pub(crate) fn check_name_is_free(&self, name: &str) -> Result<()> {
        match self.stores().iter().any(|s| s.name == name) {
            true => Err(Error::invalid(format!("family {name} exists"))),
            false => Ok(()),
        }
    }

    /// Puts a store that the manifest knows into the list. The caller has the lock of families.
    pub(crate) fn add_store(&self, store: Arc<Store>) {
        store.use_spares(&self.commit.room.spares);
        let mut stores = (*self.stores()).clone();
        stores.push(store);
        self.stores.store(Arc::new(stores));
    }

    /// The name of a store that exists, or was dropped since the database was opened.
    pub(crate) fn name_of(&self, id: StoreId) -> Option<Arc<str>> {
        let stores = self.stores();
        let is_there = by_id(&stores, id).map(|store| store.name.as_str().into());
        is_there.or_else(|| self.names_gone.lock().get(&id).map(|(_, name)| name.clone()))
    }

    /// Takes a store out of the list. Change streams may still meet writes to it.
    pub(super) fn remove_store(&self, store: &Store) {
        if let Ok(wal) = self.commit.wal() {
            let (newest, oldest) = (wal.end().file, wal.oldest());
            let mut gone = self.names_gone.lock();
            gone.retain(|_, (last, _)| *last >= oldest);
            gone.insert(store.id, (newest, store.name.as_str().into()));
        }
        self.stores.store(Arc::new(self.stores().iter().filter(|s| s.id != store.id).cloned().collect()));
    }

    /// The family of that name, if it may be dropped.
    pub(crate) fn removable(&self, name: &str) -> Result<Arc<Store>> {
        if name == DEFAULT_FAMILY {
            return Err(Error::invalid("the default family cannot be taken away"));
        }
        self.find(name)
    }

    pub(crate) fn drop_family(&self, name: &str) -> Result<()> {
        self.cx.check_writable()?;
        let _one = self.families.lock();
        self.cx.check_writable()?;
        let store = self.removable(name)?;
        self.forget(&store)?;
        self.cx.events.record(EventKind::Family, name, "dropped".into(), &[]);
        Ok(())
    }

    /// Takes a store out of the database for good. The caller has the lock of families.
    pub(crate) fn forget(&self, store: &Arc<Store>) -> Result<()> {
        // Nothing may be logged for the store after the manifest has forgotten it.
        store.set_dropped(true);
        self.commit.with_writes_held(|_| ())?;
        kill_point!("family-drop-marked");
        // Writes to other families that depended on this one's must not be lost if the drop is durable (I2).
        let synced = self.commit.wal()?.sync().inspect_err(|e| self.cx.poison(e))?;
        let shared: Vec<TableId> = {
            let manifest = self.manifest.lock();
            let tables = store.version().tables().map(|open| open.info.id).collect::<Vec<_>>();
            tables.into_iter().filter(|id| manifest.state().owners_of(*id) > 1).collect()
        };
        if let Err(e) = self.commit_edit(&vec![Change::WalSynced(synced), Change::DropStore { id: store.id }])
        {
            store.set_dropped(false);
            // It was not counted meanwhile.
            self.commit.recount(store);
            return Err(e);
        }
        kill_point!("family-drop-committed");
        let version = store.version_full();
        let gone = version.tables().filter(|open| !shared.contains(&open.info.id));
        gone.for_each(|open| open.handle.make_obsolete());
        self.remove_store(store);
        self.commit.discount(store);
        self.cx.scheduler.notify();
        Ok(())
    }

    /// Gives stores other options, all or none, by one edit.
    pub(crate) fn alter_families(&self, changes: Vec<(Arc<Store>, FamilyOptions)>) -> Result<()> {
        if changes.is_empty() {
            return Ok(());
        }
        self.cx.check_writable()?;
        let mut settings = Vec::with_capacity(changes.len());
        for (store, options) in &changes {
            settings.push(FamilySettings::resolve(&store.name, options.clone(), &self.registry)?);
        }
        let _one = self.families.lock();
        self.cx.check_writable()?;
        let mut edit = Vec::with_capacity(changes.len());
        for (store, options) in &changes {
            store.check_not_dropped()?;
            if store.settings().options.timestamps != options.timestamps {
                return Err(Error::invalid(format!("family {}: timestamps cannot change", store.name)));
            }
            edit.push(Change::StoreOptions { id: store.id, options: to_json(options)? });
        }
        self.commit_edit(&edit)?;
        for ((store, _), settings) in changes.iter().zip(settings) {
            self.alter_store(store, settings);
        }
        self.cx.scheduler.notify();
        Ok(())
    }

    /// Gives the store those settings, which the manifest has already.
    fn alter_store(&self, store: &Arc<Store>, mut settings: FamilySettings) {
        let (before, strategy) =
            (store.settings().options.strategy.clone(), settings.options.strategy.clone());
        if before == strategy {
            settings.inherited = store.settings().inherited.clone();
        }
        store.set_settings(settings);
        let what = match before == strategy {
            true => "options changed".to_string(),
            false => format!("options changed: strategy {before} gives way to {strategy}"),
        };
        self.cx.events.record(EventKind::Family, &store.name, what, &[]);
        {
            let mut work = store.work.lock();
            work.compactions.not_before = 0;
            // Drawn anew, as the period may be another.
            work.compactions.plan_state.major_due = None;
        }
        self.commit.gets_on(store);
        // Wakes writers that stopped for runs that the strategy before did not allow.
        self.commit.recount(store);
        self.commit.touch(store.id);
    }

    /// Whether the manifest has those options for the family.
    pub(crate) fn has_options(&self, store: &Store, options: &FamilyOptions) -> Result<bool> {
        let manifest = self.manifest.lock();
        let json = manifest.state().stores.get(&store.id).map_or("{}", |state| &state.options);
        let (stored, missing) = Self::parse_options(&store.name, json)?;
        Ok(missing.is_none() && stored == *options)
    }

    /// The options of a family in what the manifest holds, and what of them this build lacks.
    pub(crate) fn parse_options(name: &str, json: &str) -> Result<(FamilyOptions, Option<PapersMissing>)> {
        let (options, missing) = stored_options(name, json).map_err(|e| {
            let message = format!("options of family {name} in the manifest: {e}; was a newer release here?");
            Error::new(ErrorKind::Unsupported, message)
        })?;
        Ok((options, missing.map(|missing| (missing, json.into()))))
    }

    /// The stores that planning looks at now: those that were touched, those with jobs, some in rotation, and
    /// those with most memory if some has to be freed. By number.
    pub(crate) fn take_due(&self, working: &[StoreId], now: u64) -> Vec<Arc<Store>> {
        let stores = self.stores();
        let mut ids = self.commit.tally.take_due(&stores, now);
        ids.extend(working);
        if self.is_over_low(&stores) {
            let mut by_memory: Vec<(u64, StoreId)> = stores
                .iter()
                .map(|store| (store.counted_memory(), store.id))
                .filter(|(bytes, _)| *bytes > 0)
                .collect();
            if by_memory.len() > CHOSEN_FROM {
                by_memory.select_nth_unstable_by_key(CHOSEN_FROM, |(bytes, _)| std::cmp::Reverse(*bytes));
                by_memory.truncate(CHOSEN_FROM);
            }
            ids.extend(by_memory.into_iter().map(|(_, id)| id));
        }
        ids.into_iter().filter_map(|id| by_id(&stores, id).cloned()).collect()
    }

    /// The stores that were touched and not looked at yet.
    pub(crate) fn touched(&self) -> Vec<Arc<Store>> {
        let stores = self.stores();
        self.commit.tally.touched().into_iter().filter_map(|id| by_id(&stores, id).cloned()).collect()
    }

    /// Counts everything anew. O(everything).
    pub(crate) fn recount_all(&self) {
        self.stores().iter().for_each(|store| self.commit.recount_one(store));
        self.commit.counted();
    }

    /// Whether memory is over the mark, after a look-up of the largest store. O(stores) where it may be.
    pub(crate) fn is_over_low(&self, stores: &[Arc<Store>]) -> bool {
        let memory = self.commit.tally.memory.get();
        if memory <= self.commit.memory_low() {
            return false;
        }
        let largest = stores.iter().map(|store| store.counted_memory()).max().unwrap_or(0);
        // The next growth is counted from memory without what was flushed meanwhile.
        self.commit.room.largest.note(largest, memory.min(self.commit.tally.memory.get()));
        memory > self.commit.memory_low()
    }

    pub(crate) fn set_memory_limits(&self, write_memory: u64, memory_budget: u64) -> Result<()> {
        self.cx.check_open()?;
        // New stores take their part of it under the same lock.
        let _one = self.families.lock();
        self.cx.check_open()?;
        let before = self.cx.settings.now();
        Options { write_memory, memory_budget, ..before.clone() }.validate()?;
        self.cx.settings.set_memory_limits(write_memory, memory_budget);
        for store in self.stores().iter() {
            store.fit_memory(write_memory);
            self.fit_active(store);
        }
        self.recount_all();
        self.commit.touch_all(&self.stores());
        self.fit_cache();
        let reason = format!(
            "write memory {} of {}, it was {} of {}",
            size_text(write_memory),
            size_text(memory_budget),
            size_text(before.write_memory),
            size_text(before.memory_budget)
        );
        let numbers = [
            ("write_memory", write_memory),
            ("memory_budget", memory_budget),
            ("written_bytes", self.commit.memory_taken()),
            ("cache_capacity", self.cache.stats().capacity),
        ];
        self.cx.events.record(EventKind::Memory, "", reason, &numbers);
        self.cx.scheduler.notify();
        Ok(())
    }

    /// Begins a new active memtable where the present one is too large by now, or could only begin with a
    /// chunk of the old size.
    fn fit_active(&self, store: &Store) {
        let active = store.version().memory.active.clone();
        if active.is_empty() || active.bytes() as u64 >= store.active_bytes() {
            self.commit.renew_active(store, true);
        }
    }
}
