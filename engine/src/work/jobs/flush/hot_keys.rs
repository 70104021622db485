//! Hot keys stay in memory when others go to disk (TRI-1): what a flush set aside becomes a memtable again.
//!
//! The flush set is dropped and with it the WAL files that it needed, so before a step's edit the cells that
//! stay in its interval are logged again and synced, under the generation reserved for them: it is above what
//! the edit says is in SSTables, so replay takes them, and below that of everything newer. In the swap of the
//! same step they join the old end of their range of memory. They were the newest cells of their keys in the
//! flush set, the oldest memory there was, so everything before them is newer and everything behind, the
//! SSTables, is older (invariant I3).
//!
//! A flush that leaves cells claims for its SSTables only the generations of its memtables; one that leaves
//! none claims the reserved one too: then whatever an earlier attempt at it may have logged again counts as
//! written.

use super::take::FlushPolicy;
use crate::catalog::Catalog;
use crate::commit::Store;
use crate::compaction::{AsideRules, CompactionRun, Step};
use crate::error::Result;
use crate::event::EventKind;
use crate::memtable::{FlatMemtable, Memtable};
use crate::strategy::{self, HotKeys, HotPlan, KEPT_MAX};
use crate::types::{Generation, LogPosition};
use crate::version::Version;
use crate::wal::Entry;
use std::sync::Arc;

/// The cells of a step that stay in memory.
pub(super) struct HotCells {
    pub(super) memtable: Memtable,
    /// The position up to which the WAL must be synced for them to be durable.
    pub(super) logged_to: LogPosition,
}

/// The part of a flush that leaves hot keys in memory.
pub(super) struct HotKeysStage {
    plan: HotPlan,
    /// The generation of the cells it leaves.
    reserved: Generation,
    /// The bytes of memory that it may leave.
    budget: u64,
    /// The cells and the bytes of memory that it left.
    left: (u64, u64),
}

impl HotKeysStage {
    /// The part of a flush whose set was just taken, with cells of generations up to this one; `None` where
    /// the family has no hot keys. Hot cells stay where all keys are one range of memory.
    pub(super) fn new(
        catalog: &Catalog,
        store: &Store,
        version: &Version,
        policy: FlushPolicy,
        generation: Generation,
    ) -> Option<Self> {
        let settings = store.settings();
        if settings.options.hot_keys == HotKeys::Off || !version.memory.ranges.is_one() {
            return None;
        }
        let reserved = version.memory.flushing.reserved;
        let may_take = keep_budget(catalog, store, version.memory.flushing.bytes());
        // They have an id of their own only where something was written since cells were last left.
        let plan = match policy.keep && generation < reserved && !store.is_leaving() {
            true => {
                let state = store.work.lock().flush.hot.clone();
                settings.options.hot_keys.plan(may_take, &state)
            }
            false => HotPlan { over: None, reason: "this flush is to leave no hot keys in memory".into() },
        };
        let budget = if plan.over.is_some() { may_take } else { 0 };
        catalog.commit.room.keeping.add(budget);
        Some(Self { plan, reserved, budget, left: (0, 0) })
    }

    /// Whether keys may stay.
    pub(super) fn leaves(&self) -> bool {
        self.plan.over.is_some()
    }

    pub(super) fn rules(&self) -> AsideRules {
        AsideRules { over: self.plan.over, bytes_max: self.budget, kept_max: KEPT_MAX }
    }

    /// Logs the cells again that the step set aside, and makes a memtable of them; `None` where there are
    /// none.
    pub(super) fn log(&mut self, catalog: &Catalog, store: &Store, step: &Step) -> Result<Option<HotCells>> {
        let cells = &step.aside;
        let entries = cells.iter().map(|kept| Entry::Cell(kept.cell.as_ref()));
        let Some(copied) = catalog.commit.log_copies(store, self.reserved, entries)? else { return Ok(None) };
        let flat = FlatMemtable::of_kept(self.reserved, cells, store.memory_options());
        let memtable = Memtable::logged_again(Arc::new(flat), copied.start.file);
        self.left.0 += cells.len() as u64;
        self.left.1 += memtable.bytes() as u64;
        Ok(Some(HotCells { memtable, logged_to: copied.end }))
    }

    /// Records what was left, and remembers for the next flush what this one met.
    pub(super) fn note(&self, catalog: &Catalog, store: &Store, run: &mut dyn CompactionRun) {
        let heats = run.take_heats();
        let numbers = [
            ("over", self.plan.over.map_or(0, u64::from)),
            ("budget_bytes", self.budget),
            ("keys", heats.keys),
            ("updates", heats.updates),
            ("hot_before", heats.kept),
            ("updated_since", heats.kept_updated),
            ("hot_cells", self.left.0),
            ("hot_bytes", self.left.1),
        ];
        catalog.cx.metrics.hot_cells.add(self.left.0);
        catalog.cx.metrics.hot_bytes.add(self.left.1);
        catalog.cx.events.record(EventKind::HotKeys, &store.name, self.plan.reason.clone(), &numbers);
        store.work.lock().flush.hot.learn(heats);
    }

    /// Gives the memory back that it might have left.
    pub(super) fn leave(&mut self, catalog: &Catalog) {
        catalog.commit.room.keeping.sub(std::mem::take(&mut self.budget));
    }
}

/// The bytes of hot keys that a flush of `flush_bytes` may leave in memory.
fn keep_budget(catalog: &Catalog, store: &Store, flush_bytes: u64) -> u64 {
    let all = catalog.cx.settings.write_memory();
    let limit = store.settings().options.write_limit(all);
    let elsewhere = catalog.commit.kept_by_others(store) + catalog.commit.room.keeping.get();
    strategy::keep_budget(limit, all, elsewhere, flush_bytes)
}
