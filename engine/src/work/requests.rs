//! What callers ask for: flush, compact a range, wait until nothing is due.

use super::Work;
use super::manual::{CompactionControl, ManualCompaction};
use crate::commit::Store;
use crate::error::{Error, ErrorKind, Result};
use crate::strategy::{ManualRequest, cover};
use crate::types::{Generation, KeyRange, StoreId, Timestamp};
use crate::version::{OpenTable, Unions};
use std::cell::OnceCell;
use std::collections::HashMap;
use std::sync::Arc;

impl Work {
    /// Starts compactions that wait, as soon as no running compaction is in their way.
    pub(crate) fn start_manual(&self) {
        let waiting: Vec<_> = self.manual.lock().clone();
        for manual in waiting {
            let store = &manual.store;
            if !manual.is_waiting_for(store.id) {
                continue;
            }
            if manual.is_canceled() || store.is_dropped() {
                manual.fail(&Error::new(ErrorKind::Canceled, "the compaction was cancelled"));
                self.cx.scheduler.notify();
                continue;
            }
            let settings = store.settings();
            let (strategy, by_range) = (settings.options.strategy.strategy(), settings.by_range());
            let running = store.work.lock().compactions.running();
            // Beside flushes of other ranges, of which there is always one.
            if !running.is_empty() && by_range.is_none() {
                continue;
            }
            let version = store.version_full();
            let ttl_us = Some(settings.options.ttl_us).filter(|ttl_us| *ttl_us > 0);
            let expired = ttl_us.and_then(|ttl_us| self.cx.env.clock.wall_us().checked_sub(ttl_us));
            let (kept, by_id) = (settings.versions_kept(), OnceCell::new());
            let list = || version.tables().map(|open| (open.info.id, open)).collect::<HashMap<_, _>>();
            // The compaction meets what cannot be opened.
            let has_surplus =
                |open: &OpenTable| open.table().map_or(true, |table| table.properties().has_surplus(kept));
            let request = ManualRequest {
                upto: manual.upto,
                rewrite: manual.rewrites() || settings.options.compaction_filter.is_some(),
                expired: expired.map(Timestamp),
                surplus: &|table| by_id.get_or_init(list).get(&table).copied().is_some_and(has_surplus),
            };
            let bounds = settings.range_bounds(&version.shape);
            let Some(mut plan) = manual.plan(&version.shape, strategy, &bounds, request) else {
                self.cx.scheduler.notify();
                continue;
            };
            if running.iter().any(|other| other.range_left().overlaps(&plan.range)) {
                continue;
            }
            if let Some(by_range) = by_range {
                let unions = Unions::default();
                by_range
                    .cut(&mut plan, &|tables| unions.left(&version, &[], tables, settings.versions_kept()));
            }
            manual.note_started();
            let begun = self.start_compaction(store, plan, Some(manual.clone()));
            if let Ok(true) = begun {
                continue;
            }
            // Unless a flush of a range came between.
            if manual.note_refused(&version.shape) && running.is_empty() {
                let refused =
                    || Error::new(ErrorKind::Conflict, "the compaction's plan was refused; see the events");
                manual.fail(&begun.err().unwrap_or_else(refused));
                self.cx.scheduler.notify();
            } else {
                manual.begin_again();
            }
        }
    }

    /// Whether a compaction of the store has not ended.
    pub(crate) fn is_compacting(&self, store: StoreId) -> bool {
        let manual = self.manual.lock();
        manual.iter().any(|m| m.is_waiting_for(store) || m.is_running_for(store))
    }

    /// Whether a compaction of the store waits for its other compactions to end, so that no long one should
    /// begin. Where it waits for another compaction, which may take long, they go on.
    pub(crate) fn waits_for_compactions(&self, store: &Store) -> bool {
        let manual = self.manual.lock();
        manual.iter().any(|m| m.is_waiting_for(store.id))
            && !manual.iter().any(|m| m.is_running_for(store.id))
    }

    /// Compacts everything in the range into the last level.
    pub(crate) fn compact(
        &self,
        store: &Arc<Store>,
        range: KeyRange,
        control: &CompactionControl,
    ) -> Result<()> {
        store.settings().check_papers()?;
        let compacted = self.compact_once(store, range.clone(), control);
        let is_full = compacted.as_ref().is_err_and(|e| e.kind() == ErrorKind::DiskFull);
        // What is set aside for a full disk is for what makes room.
        let again = is_full && self.catalog.manifest.lock().free_reserve();
        let compacted = if again { self.compact_once(store, range, control) } else { compacted };
        // Also where nothing was deleted and so no room made: the delete to come needs it.
        if (again || compacted.is_ok()) && self.cx.check_writable().is_ok() {
            if again {
                self.catalog.sweep_until(u64::MAX);
            }
            self.catalog.manifest.lock().make_reserve();
        }
        compacted
    }

    fn compact_once(&self, store: &Arc<Store>, range: KeyRange, control: &CompactionControl) -> Result<()> {
        self.flush(store)?;
        // What comes before the first key that is there now, or behind the last, was written later.
        let held = cover(store.version().shape.tables().map(|(_, _, table)| table));
        let range = range.intersect(&held.unwrap_or(KeyRange::new("", "")));
        let upto = self.commit.snapshots.visible();
        let manual = ManualCompaction::new(store.clone(), control.clone(), range, upto);
        let manual = Arc::new(manual);
        self.manual.lock().push(manual.clone());
        self.commit.touch(store.id);
        self.cx.scheduler.notify();
        let mut result = Ok(());
        self.cx.scheduler.wait(&mut || {
            if let Some(ended) = manual.ended() {
                result = ended;
                return true;
            }
            if let Err(e) = self.cx.check_writable() {
                control.cancel();
                result = Err(e);
                return true;
            }
            if control.is_canceled() {
                self.cx.scheduler.notify();
            }
            false
        });
        self.manual.lock().retain(|m| !Arc::ptr_eq(m, &manual));
        self.commit.touch(store.id);
        result
    }

    /// Writes everything that is now in the store's memory to SSTables. Its error is the error of a flush of
    /// this store which began after the call.
    pub(crate) fn flush(&self, store: &Arc<Store>) -> Result<()> {
        self.cx.check_writable()?;
        // All memory, with the id under which a flush of it may keep cells: the one behind that of the newest
        // memtable.
        let upto = {
            let version = store.version();
            let active = version.memory.active.generation().0;
            Generation(if version.memory.active.is_empty() { active - 1 } else { active + 1 })
        };
        let begun = {
            let mut work = store.work.lock();
            work.flush.requested = work.flush.requested.max(upto);
            // Whoever asks wants to know now.
            work.flush.not_before = 0;
            work.flush.tries()
        };
        // Writers that are stopped wait for the outcome, too.
        *self.cx.health.flush_error.lock() = None;
        self.commit.touch(store.id);
        self.cx.scheduler.notify();
        let mut failed = None;
        self.cx.scheduler.wait(&mut || {
            // One that had begun may have failed for want of what was written or freed since; it is tried
            // again.
            let failure = store.work.lock().flush.failed.clone().filter(|(number, _)| *number > begun);
            failed = self.cx.check_writable().err().or(failure.map(|(_, error)| error));
            // Its statistics and events are there when it returns.
            let is_told = || !store.work.lock().flush.ends();
            failed.is_some() || store.is_dropped() || (!store.flush_is_requested() && is_told())
        });
        failed.map_or(Ok(()), Err)
    }

    /// Waits until no flush or compaction runs or is due, and frees what nobody reads any more.
    pub(crate) fn wait_idle(&self) -> Result<()> {
        for store in self.catalog.stores().iter() {
            // Snapshots may have gone since they were last looked at.
            store.work.lock().compactions.plan_state.triggered_at = None;
        }
        // What failed before may have been for want of what is there now: it is tried again, and only that
        // counts.
        *self.cx.health.flush_error.lock() = None;
        self.commit.touch_all(&self.catalog.stores());
        self.cx.scheduler.notify();
        let mut failed = None;
        self.cx.scheduler.wait(&mut || {
            failed = self.cx.check_writable().err().or_else(|| self.commit.background_failure());
            failed.is_some() || self.is_settled()
        });
        if failed.is_none() {
            self.catalog.sweep_until(u64::MAX);
        }
        failed.map_or(Ok(()), Err)
    }
}
