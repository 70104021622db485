//! Splitting a store at a key, and joining two neighbours: one edit of the manifest, whatever the size.
//!
//! *Split.* While nothing is logged, the active memtable is frozen, the edit divides the keys, and two
//! versions take the place of one. SSTables over the key are in both, each of which uses its part; so is all
//! memory, of which each store flushes its own keys. Records of the WAL go by key: recovery gives records of
//! the store that belong to the new one to that one ([`super::replay`]), as the manifest names the store that
//! it came from.
//!
//! *Join.* The same the other way round. Memtables and runs of both stand in one order, as generations are
//! given once in a database. Parts of one SSTable that lie in the same place become one again; a part that
//! went elsewhere meanwhile gets another name before, as one store has no SSTable twice.
//!
//! A job that runs on the store meanwhile finds at its next step that the store's keys have changed, and
//! gives up: its finished steps stay, and what is left is planned anew. An SSTable's file is removed when no
//! store has it any more: the manifest counts. No part of a shared file is freed before.

use super::{Catalog, check_name};
use crate::commit::{FamilySettings, Store};
use crate::error::{Error, ErrorKind, Result};
use crate::event::EventKind;
use crate::memtable::{ActiveMemtable, Memtable};
use crate::shape::TableInfo;
use crate::types::{Generation, KeyRange, StoreId, TableId};
use crate::version::edit::{Change, StoreState};
use crate::version::manifest::Manifest;
use crate::version::{FlushSet, Memtables, TableHandle, Version};
use std::collections::BTreeMap;
use std::sync::Arc;

impl Catalog {
    /// Splits a store; the new one has the keys from `at` on.
    pub(crate) fn split(&self, store: &Arc<Store>, at: &[u8], name: &str) -> Result<Arc<Store>> {
        self.cx.check_writable()?;
        check_name(name)?;
        // Done before writers wait, as it reads indices.
        let bytes = bytes_before(&store.version_full(), at)?;
        let _one = self.families.lock();
        self.cx.check_writable()?;
        self.check_name_is_free(name)?;
        let settings = self.settings_again(store)?;
        let mut manifest = self.manifest.lock();
        store.check_takes_writes()?;
        let right = manifest.state().last_store.next();
        let (mark, new) = self.commit.with_writes_held(|_| {
            let bounds = store.version().bounds.clone();
            if at <= bounds.start.as_slice() || !bounds.ends_after(at) {
                let (name, at) = (&store.name, at.escape_ascii());
                let message = format!("{name} cannot be split at \"{at}\": its keys are {bounds}");
                return Err(Error::invalid(message));
            }
            let left = KeyRange { start: bounds.start.clone(), end: Some(at.to_vec()) };
            let there = KeyRange { start: at.to_vec(), end: bounds.end.clone() };
            let inherited = store.version().memory.newest_generation().max(store.inherited());
            let (at, bytes, name_there) = (at.to_vec(), bytes.clone(), name.to_string());
            let split = Change::Split { store: store.id, at, right, name: name_there, bytes };
            let mut edit = vec![split];
            edit.extend(no_origins(&manifest, store.id, inherited, right, &there));
            kill_point!("split-before-commit");
            let mark = self.commit_to(&mut manifest, &edit)?;
            kill_point!("split-committed");
            let shape = |id: StoreId| Arc::new(manifest.state().stores[&id].shape.clone());
            let (mine, theirs) = (store.new_active(0), store.new_active(0));
            let before = store.version_full();
            let part = |version: &Version, active: Arc<ActiveMemtable>, id: StoreId, range: &KeyRange| {
                let memory = memory_within(&version.memory.with_fresh_active(active), range);
                version.with_memory(memory).with_shape(shape(id), &BTreeMap::new()).within(range.clone())
            };
            let version = part(&before, theirs, right, &there);
            let attached = (store.attached_from, store.attached_at);
            let generations = &self.commit.generations;
            let graveyard = self.graveyard.clone();
            let new = Store::new(right, name.into(), settings, version, generations, graveyard, attached);
            new.fit_memory(self.cx.settings.write_memory());
            new.forget(store.forgotten());
            new.note_replayed(store.replayed_generation());
            new.inherit(inherited);
            // The new store must be in the list before this one loses the keys.
            self.add_store(new.clone());
            store.swap(|now| part(now, mine.clone(), store.id, &left));
            // While nobody can ask what of the WAL is needed.
            self.commit.enter_fronts(std::slice::from_ref(&new));
            Ok((mark, new))
        })??;
        drop(manifest);
        self.reshaped(&[store, &new]);
        self.commit.log_note(mark);
        kill_point!("split-noted");
        let numbers = [("shared_sstables", bytes.len() as u64), ("store", u64::from(right.0))];
        self.cx.events.record(EventKind::Family, &store.name, format!("split: {name} has a part"), &numbers);
        Ok(new)
    }

    /// Takes a neighbour's keys into a store; the neighbour ceases to exist.
    pub(crate) fn join(&self, store: &Arc<Store>, with: &Arc<Store>) -> Result<()> {
        self.cx.check_writable()?;
        let _one = self.families.lock();
        self.cx.check_writable()?;
        self.removable(&with.name)?;
        let same = store.settings().options.timestamps == with.settings().options.timestamps;
        if Arc::ptr_eq(store, with) || !same {
            let message = format!("families {} and {} cannot be joined", store.name, with.name);
            return Err(Error::invalid(message));
        }
        let mut manifest = self.manifest.lock();
        store.check_takes_writes()?;
        with.check_takes_writes()?;
        let (own, other) = (store.version().bounds.clone(), with.version().bounds.clone());
        check_neighbours(&manifest, (store, &own), (with, &other))?;
        let (renamed, opened) = self.renamed_apart(store, with)?;
        kill_point!("join-renamed");
        let mark = self.commit.with_writes_held(|_| {
            let edit = vec![Change::Join { store: store.id, with: with.id, renamed: renamed.clone() }];
            kill_point!("join-before-commit");
            let mark = self.commit_to(&mut manifest, &edit)?;
            kill_point!("join-committed");
            let shape = Arc::new(manifest.state().stores[&store.id].shape.clone());
            let theirs = with.version_full();
            let mut handles: BTreeMap<TableId, Arc<TableHandle>> = opened;
            handles.extend(theirs.tables().map(|open| (open.info.id, open.handle.clone())));
            let range = own.cover(&other);
            let active = store.new_active(0);
            store.note_replayed(with.replayed_generation());
            store.inherit(theirs.memory.newest_generation().max(with.inherited()));
            store.forget(with.forgotten());
            store.swap(|now| {
                let memory = both_memories(now.memory.with_fresh_active(active.clone()), &theirs.memory);
                now.with_memory(memory).with_shape(shape.clone(), &handles).within(range.clone())
            });
            // Before anybody can ask which WAL files are needed.
            self.commit.enter_fronts(std::slice::from_ref(store));
            with.set_dropped(true);
            // The old name of a renamed SSTable belongs to no store any more, unless another store has it.
            for (old, _) in renamed.iter().filter(|(old, _)| !manifest.state().has_table(*old)) {
                let gone = theirs.tables().filter(|open| open.info.id == *old);
                gone.for_each(|open| open.handle.make_obsolete());
            }
            Ok::<_, Error>(mark)
        })??;
        drop(manifest);
        store.metrics.take_in(&with.metrics);
        self.remove_store(with);
        self.commit.discount(with);
        self.reshaped(&[store]);
        self.commit.log_note(mark);
        let numbers = [("renamed_sstables", renamed.len() as u64)];
        let what = format!("joined with {}", with.name);
        self.cx.events.record(EventKind::Family, &store.name, what, &numbers);
        Ok(())
    }

    /// Gives those SSTables of a neighbour other names that the store has elsewhere itself.
    #[expect(clippy::type_complexity, reason = "names, and the tables that have them")]
    fn renamed_apart(
        &self,
        store: &Store,
        with: &Store,
    ) -> Result<(Vec<(TableId, TableId)>, BTreeMap<TableId, Arc<TableHandle>>)> {
        let apart = store.version().shape.apart_from(&with.version().shape);
        if apart.is_empty() {
            return Ok((Vec::new(), BTreeMap::new()));
        }
        let (place, first) = (self.tables.store(), self.next_name(store.id));
        let mut renamed = Vec::new();
        let mut opened = BTreeMap::new();
        for (part, info) in apart.iter().enumerate() {
            let id = TableId { part: part as u32, ..first };
            place.bring_in(&place.path(info.id), place.storage(), id, info.bytes)?;
            let info = Arc::new(TableInfo { id, ..TableInfo::clone(info) });
            opened.insert(id, self.tables.open(&info, None)?);
            renamed.push((apart[part].id, id));
        }
        place.sync_names()?;
        Ok((renamed, opened))
    }

    /// The stores have other keys than before.
    fn reshaped(&self, stores: &[&Arc<Store>]) {
        for store in stores {
            store.work.lock().compactions.plan_state = Default::default();
            self.commit.recount(store);
            self.commit.touch(store.id);
        }
        self.fit_cache();
        self.cx.scheduler.notify();
    }

    /// The settings of a store for one that is split off it.
    fn settings_again(&self, store: &Store) -> Result<FamilySettings> {
        let now = store.settings();
        let settings = FamilySettings::resolve_known(&store.name, now.options.clone(), &self.registry)?;
        Ok(FamilySettings { papers_missing: now.papers_missing.clone(), ..settings })
    }
}

/// Refuses two that are no neighbours; and parts of different families while recovery could not tell their
/// records apart: where a third store, which one of them came from, or which came from one of them, has keys
/// of theirs. O(stores).
fn check_neighbours(
    manifest: &Manifest,
    (store, own): (&Store, &KeyRange),
    (with, other): (&Store, &KeyRange),
) -> Result<()> {
    if !own.adjoins(other) {
        let message = format!("families {} and {} are no neighbours: {own}, {other}", store.name, with.name);
        return Err(Error::invalid(message));
    }
    let (stores, both) = (&manifest.state().stores, own.cover(other));
    let origins: Vec<_> = [store, with].iter().flat_map(|one| &stores[&one.id].origins).collect();
    let is_apart = |(id, state): &(&StoreId, &StoreState)| {
        let is_related =
            origins.contains(id) || [store, with].iter().any(|one| state.origins.contains(&one.id));
        is_related && **id != store.id && **id != with.id && state.range.overlaps(&both)
    };
    match stores.iter().find(is_apart) {
        None => Ok(()),
        Some((_, third)) => Err(Error::invalid(format!(
            "families {} and {} are parts of different ones, and {} has keys of both; flush all three first",
            store.name, with.name, third.name
        ))),
    }
}

/// The change by which a store that is split off has no origins, where nothing of its keys, up to that
/// generation, is in memory only: no record of the WAL is for it.
fn no_origins(
    manifest: &Manifest,
    store: StoreId,
    inherited: Generation,
    right: StoreId,
    keys: &KeyRange,
) -> Option<Change> {
    let is_flushed = manifest.state().stores[&store].flushed.covers(keys, inherited);
    is_flushed.then(|| Change::Region { store: right, range: keys.clone(), origins: Vec::new() })
}

/// About how many bytes each SSTable over the key has before it.
fn bytes_before(version: &Version, at: &[u8]) -> Result<Vec<(TableId, u64)>> {
    let over: Vec<TableId> = version.shape.over(at).map(|table| table.id).collect();
    let open = version.tables().filter(|open| over.contains(&open.info.id));
    open.map(|open| Ok((open.info.id, open.dead_below(at)?))).collect()
}

/// The part of the memory with these keys. Memtables that were laid out are laid out anew.
fn memory_within(memory: &Memtables, keys: &KeyRange) -> Memtables {
    let Memtables { active, ranges, flushing, .. } = memory;
    let flushing = match flushing.is_empty() || flushing.range.intersect(keys).is_empty() {
        true => FlushSet::default(),
        false => FlushSet { ranges: Arc::new(flushing.ranges.parts(keys)), ..flushing.clone() },
    };
    let waiting = memory.unflushed().filter_map(|memtable| memtable.part(keys)).collect();
    Memtables { active: active.clone(), waiting, ranges: Arc::new(ranges.emptied()), flushing }
}

/// The memory of two neighbours, in one order: what was being flushed waits again, as far as it is in no
/// SSTable yet.
fn both_memories(own: Memtables, other: &Memtables) -> Memtables {
    let mut waiting: Vec<Memtable> = own.unflushed().chain(other.unflushed()).cloned().collect();
    waiting.extend(Some(&other.active).filter(|active| !active.is_empty()).cloned());
    for FlushSet { ranges, range, .. } in [&own.flushing, &other.flushing] {
        let left = |memtable: &Memtable| match *range == KeyRange::all() {
            true => Some(memtable.clone()),
            false => memtable.part(range),
        };
        waiting.extend(ranges.memtables().filter_map(left));
    }
    // Stable: of those that share keys the newer comes first already.
    waiting.sort_by_key(|memtable| std::cmp::Reverse(memtable.generation()));
    let waiting = reunited(waiting);
    let ranges = Arc::new(own.ranges.emptied());
    Memtables { waiting, ranges, flushing: FlushSet::default(), ..own }
}

/// The memtables, in their order; parts of one that was split are joined again.
fn reunited(memtables: Vec<Memtable>) -> Vec<Memtable> {
    let mut all: Vec<Memtable> = Vec::with_capacity(memtables.len());
    for memtable in memtables {
        let same = all.iter().rev().take_while(|other| other.generation() == memtable.generation());
        let found = same.enumerate().find_map(|(back, other)| Some((back, other.reunited(&memtable)?)));
        match found {
            Some((back, whole)) => {
                let at = all.len() - 1 - back;
                all[at] = whole;
            }
            None => all.push(memtable),
        }
    }
    all
}

/// An error for a job of a store that has other keys than when the job began.
pub(crate) fn check_bounds(store: &Store, version: &Version, bounds: &Arc<KeyRange>) -> Result<()> {
    if Arc::ptr_eq(&version.bounds, bounds) {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Canceled, format!("family {} was split or joined meanwhile", store.name)))
}
