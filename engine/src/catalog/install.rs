//! Installing a step of a flush or compaction: durable in the manifest first, then one version swap.
//!
//! All changes of SSTables come through here, under the manifest's lock, so that versions follow the
//! manifest's order. After a failure nothing has changed in memory, and the inputs stay. Outputs that the
//! manifest cannot name are removed at once; if its write failed it may name them all the same, so the next
//! open decides.

use super::Catalog;
use super::regions::check_bounds;
use crate::commit::Store;
use crate::error::{ErrorKind, Result};
use crate::memtable::Memtable;
use crate::shape::{Shape, ShapeChange, TableInfo};
use crate::sstable::Filled;
use crate::strategy::{CompactionPlan, Step};
use crate::types::{Generation, KeyRange, LogFileId, SeqNo, TableId};
use crate::version::edit::{Change, Edit};
use crate::version::manifest::{Manifest, Mark};
use crate::version::{FlushSet, TableHandle, Version};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A step to install.
pub(crate) struct Install<'a> {
    pub(crate) store: &'a Arc<Store>,
    pub(crate) plan: &'a CompactionPlan,
    /// The store's keys when the job began.
    pub(crate) bounds: &'a Arc<KeyRange>,
    pub(crate) outputs: Vec<Arc<TableInfo>>,
    pub(crate) upto: Option<Vec<u8>>,
    pub(crate) flushed: Option<Flushed>,
    /// Blocks of the outputs that were put into the cache.
    pub(crate) filled: Vec<(TableId, Filled)>,
    /// The sequence number up to which the compaction may have dropped every cell of a key (see
    /// [`Store::forgotten`]).
    pub(crate) forgotten: SeqNo,
    /// The outputs, if they are open already.
    pub(crate) opened: Option<BTreeMap<TableId, Arc<TableHandle>>>,
}

/// The effect of a step of a flush on memory.
#[derive(Clone)]
pub(crate) struct Flushed {
    /// The keys that are in SSTables now, and up to which generation.
    pub(crate) range: KeyRange,
    pub(crate) generation: Generation,
    /// The hot cells among them, which stay in memory. They are in the WAL again, durably, under a higher
    /// generation.
    pub(crate) kept: Option<Memtable>,
}

impl Catalog {
    /// Installs a step; returns how many blocks and bytes of replaced inputs left the cache.
    pub(crate) fn install(&self, install: Install<'_>) -> Result<(u64, u64)> {
        let outputs = install.outputs.clone();
        let mut given = false;
        let installed = self.install_noting(install, &mut given);
        if installed.is_err() && !given {
            self.remove_outputs(&outputs);
        }
        installed
    }

    /// Installs a step like [`Catalog::install`], and sets `given` once the manifest may name the outputs.
    // Over 70 lines: it is about the order of its steps.
    fn install_noting(&self, install: Install<'_>, given: &mut bool) -> Result<(u64, u64)> {
        let Install { store, plan, bounds, outputs, upto, flushed, mut filled, forgotten, opened } = install;
        if !planted!(Bug::SkipDirectorySync) {
            self.tables.store().sync_names()?;
        }
        let opened = opened.map_or_else(|| self.open_tables(&outputs, &mut filled), Ok)?;
        let mut manifest = self.manifest.lock();
        store.check_not_dropped()?;
        let version = store.version_full();
        check_bounds(store, &version, bounds)?;
        let bytes_below = match &upto {
            Some(key) => bytes_below(&version, plan, key)?,
            None => Vec::new(),
        };
        let last = upto.is_none();
        let step = Step { outputs, upto: upto.clone(), bytes_below };
        let mut change = plan.change(&version.shape, &step);
        if flushed.is_some() {
            // A flush may have no input SSTables; its input is memory.
            change.range = KeyRange::all();
        }
        let removed: Vec<TableId> = change.removed.iter().map(|place| place.table).collect();
        #[cfg(feature = "papers")]
        let kept = self.cx.settings.options.tuning().scan_one_side.then(|| change.clone());
        let (edit, front) = self.edit_of(&manifest, store, change, forgotten, flushed.as_ref(), last)?;
        // Inputs that other stores have, too.
        let owned_before: BTreeSet<TableId> =
            removed.iter().copied().filter(|id| manifest.state().owners_of(*id) > 1).collect();
        kill_point!("install-before-commit");
        *given = true;
        let mark = self.commit_to(&mut manifest, &edit)?;
        kill_point!("install-after-commit");
        let shape = Arc::new(manifest.state().stores[&store.id].shape.clone());
        if cfg!(feature = "strict") {
            assert_eq!(shape.check(), Ok(()), "the shape after a change");
        }
        // Set before the swap to a version that lacks such cells, so that a reader that misses them knows
        // why.
        store.forget(forgotten);
        store.swap(|now| {
            let mut next = now.with_shape(shape.clone(), &opened);
            if let Some(flushed) = &flushed {
                if let Some(hot) = &flushed.kept {
                    next.memory.ranges = Arc::new(next.memory.ranges.with_hot_cells(hot.clone()));
                }
                next.memory.flushing = left_to_flush(&now.memory.flushing, upto.as_deref());
            }
            #[cfg(feature = "papers")]
            next.keep_old_side(
                now,
                kept.as_ref(),
                flushed.is_some(),
                upto.as_deref(),
                &opened,
                &self.graveyard,
            );
            next
        });
        filled.into_iter().for_each(|(_, filled)| filled.published());
        self.let_go_of_replaced(&manifest, &version, &shape, &step, &removed, &owned_before);
        drop(manifest);
        let evicted = self.evict_replaced(&version, plan, upto.as_deref());
        drop(version);
        self.commit.recount(store);
        self.fit_cache();
        self.commit.touch(store.id);
        kill_point!("install-after-swap");
        self.commit.log_note(mark);
        kill_point!("install-after-note");
        if let Some(front) = front
            // The step is installed even if this fails; the next flush releases what is left.
            && let Err(e) = self.release_wal(front)
            && e.kind() == ErrorKind::Poisoned
        {
            self.cx.poison(&e);
        }
        self.cx.scheduler.notify();
        Ok(evicted)
    }

    /// The manifest edit of a step and, after a flush's last step, the first WAL file that is still needed.
    fn edit_of(
        &self,
        manifest: &Manifest,
        store: &Arc<Store>,
        change: ShapeChange,
        forgotten: SeqNo,
        flushed: Option<&Flushed>,
        last: bool,
    ) -> Result<(Edit, Option<LogFileId>)> {
        let mut edit: Edit = vec![Change::Shape { store: store.id, change }];
        if forgotten > store.forgotten() {
            edit.push(Change::Forgotten { store: store.id, seq: forgotten });
        }
        let Some(Flushed { range, generation, kept }) = flushed else { return Ok((edit, None)) };
        edit.push(Change::Flushed { store: store.id, range: range.clone(), generation: *generation });
        edit.push(Change::LastSeq(self.commit.snapshots.visible()));
        edit.push(Change::WalSynced(self.commit.wal()?.synced()));
        if !last {
            return Ok((edit, None));
        }
        let kept = kept.as_ref().and_then(Memtable::log_front).unwrap_or(LogFileId::MAX);
        let front = match planted!(Bug::RecycleNeededWalFile) {
            false => self.commit.log_front(Some(store)).min(kept),
            true => self.commit.wal()?.end().file,
        };
        edit.extend(self.front_changes(front)?);
        let state = &manifest.state().stores[&store.id];
        edit.extend(state.without_origins(store.id, store.inherited(), range, *generation));
        Ok((edit, Some(front)))
    }

    /// Punches holes where a step has replaced parts of its inputs, and schedules inputs that no store has
    /// any more for removal.
    fn let_go_of_replaced(
        &self,
        manifest: &Manifest,
        before: &Version,
        shape: &Shape,
        step: &Step,
        removed: &[TableId],
        owned_before: &BTreeSet<TableId>,
    ) {
        for (id, bytes) in &step.bytes_below {
            // Parts that another store has there stay.
            let is_alone = manifest.state().owners_of(*id) == 1 || planted!(Bug::PunchShared);
            if let Some(open) = before.tables().find(|open| open.info.id == *id && is_alone) {
                self.graveyard.punch(open.handle.clone(), *bytes);
            }
        }
        for open in before.tables().filter(|open| removed.contains(&open.info.id)) {
            match owned_before.contains(&open.info.id) {
                _ if shape_holds(shape, open.info.id) => {}
                true if planted!(Bug::DeleteShared) => _ = self.tables.store().remove(open.info.id),
                true => {}
                false => open.handle.make_obsolete(),
            }
        }
    }

    /// Commits an edit; a manifest that takes no edits any more poisons the database.
    pub(crate) fn commit_to(&self, manifest: &mut Manifest, edit: &Edit) -> Result<Mark> {
        let committed = manifest.commit(edit);
        if manifest.is_poisoned()
            && let Err(e) = &committed
        {
            self.cx.poison(e);
        }
        committed
    }

    /// Commits changes that concern no version.
    pub(crate) fn commit_edit(&self, edit: &Edit) -> Result<()> {
        let mark = self.commit_to(&mut self.manifest.lock(), edit)?;
        self.commit.log_note(mark);
        Ok(())
    }

    /// Applies a change of one store's SSTables that is no compaction. The caller logs the manifest's mark.
    pub(crate) fn install_change(
        &self,
        manifest: &mut Manifest,
        store: &Arc<Store>,
        change: ShapeChange,
        more: Edit,
        opened: &BTreeMap<TableId, Arc<TableHandle>>,
    ) -> Result<Mark> {
        let mut edit = vec![Change::Shape { store: store.id, change }];
        edit.extend(more);
        let mark = self.commit_to(manifest, &edit)?;
        let shape = Arc::new(manifest.state().stores[&store.id].shape.clone());
        if cfg!(feature = "strict") {
            assert_eq!(shape.check(), Ok(()), "the shape after a change");
        }
        store.swap(|now| now.with_shape(shape.clone(), opened));
        self.commit.recount(store);
        self.fit_cache();
        self.commit.touch(store.id);
        Ok(mark)
    }
}

fn shape_holds(shape: &Shape, id: TableId) -> bool {
    shape.tables().any(|(_, _, table)| table.id == id)
}

/// The part of a flush set that is still to be flushed after a step up to the key.
fn left_to_flush(set: &FlushSet, upto: Option<&[u8]>) -> FlushSet {
    let Some(key) = upto else { return FlushSet::default() };
    let mut start = key.to_vec();
    if planted!(Bug::ClipOffByOne) {
        start.push(0);
    }
    FlushSet { range: KeyRange { start, end: set.range.end.clone() }, ..set.clone() }
}

/// The inputs that a step to `key` cuts, each with about how many of its bytes lie below the key; readers at
/// or above it no longer read these bytes.
fn bytes_below(version: &Version, plan: &CompactionPlan, key: &[u8]) -> Result<Vec<(TableId, u64)>> {
    let inputs: Vec<TableId> = plan.tables().collect();
    let mut below = Vec::new();
    for open in version.tables().filter(|open| inputs.contains(&open.info.id)) {
        if open.start() < key && open.info.range.ends_after(key) {
            below.push((open.info.id, open.dead_below(key)?));
        }
    }
    Ok(below)
}
