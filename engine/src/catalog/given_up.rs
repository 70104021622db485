//! SSTables that a shared database needs no more. Others may still read them: followers, and a former owner.
//! So each is removed ten minutes after the edit that gave it up was acknowledged, and those that a former
//! owner's life left behind ten minutes after this one's open, and daily: its compactions may end late.

use super::Catalog;
use crate::types::TableId;
use std::collections::{BTreeSet, VecDeque};

const KEEP_DELETED_NS: u64 = 600 * 1_000_000_000;
const SWEEP_NS: u64 = 24 * 3_600 * 1_000_000_000;

/// See the page above.
pub(super) struct GivenUp {
    /// SSTables, and when each was given up.
    waiting: VecDeque<(u64, TableId)>,
    /// When those of former owners are looked for.
    sweep_at_ns: u64,
}

impl GivenUp {
    pub(super) fn since(now_ns: u64) -> Self {
        Self { waiting: VecDeque::new(), sweep_at_ns: now_ns.saturating_add(KEEP_DELETED_NS) }
    }

    fn take_due(&mut self, now_ns: u64) -> Vec<TableId> {
        let is_due = |(since, _): &(u64, TableId)| now_ns.saturating_sub(*since) >= KEEP_DELETED_NS;
        let due = self.waiting.iter().take_while(|one| is_due(one)).count();
        self.waiting.drain(..due).map(|(_, table)| table).collect()
    }
}

impl Catalog {
    /// Takes an SSTable that is to be removed later; `false` if this database removes them at once.
    pub(super) fn give_up(&self, table: TableId) -> bool {
        let Some(given_up) = &self.given_up else { return false };
        given_up.lock().waiting.push_back((self.cx.env.clock.monotonic_ns(), table));
        true
    }

    /// Does what is due of a shared database: removes SSTables, puts a checkpoint, and deletes objects of the
    /// stream that no reader needs.
    pub(crate) fn tend_shared(&self, now_ns: u64) {
        let Some(given_up) = &self.given_up else { return };
        // Once another owns the database, in doubt nothing is removed.
        if self.cx.check_not_poisoned().is_err() {
            return;
        }
        let due = given_up.lock().take_due(now_ns);
        for table in due {
            if self.tables.store().remove(table).is_err() {
                given_up.lock().waiting.push_back((now_ns, table));
            }
        }
        if given_up.lock().sweep_at_ns <= now_ns {
            given_up.lock().sweep_at_ns = now_ns.saturating_add(SWEEP_NS);
            self.remove_tables(&self.left_behind());
        }
        if self.commit.wal().is_ok_and(|wal| wal.is_spread()) {
            // A full disk shows again at the next write.
            let _ = self.commit.begin_wal_file();
        }
        let collectable = {
            let mut manifest = self.manifest.lock();
            if let (Err(e), true) = (manifest.checkpoint_if_due(), manifest.is_poisoned()) {
                self.cx.poison(&e);
            }
            manifest.take_collectable()
        };
        if let Some((outbox, start)) = collectable {
            // What cannot be deleted now is deleted after the next checkpoint.
            let _ = outbox.collect(start);
        }
    }

    /// SSTables of former owners that nobody has.
    fn left_behind(&self) -> Vec<TableId> {
        let Ok(there) = self.tables.store().list() else { return Vec::new() };
        let named: BTreeSet<TableId> = {
            let manifest = self.manifest.lock();
            let tables = manifest.state().stores.values().flat_map(|store| store.shape.tables());
            tables.map(|(_, _, table)| table.id).collect()
        };
        let waiting: BTreeSet<TableId> = match &self.given_up {
            Some(given_up) => given_up.lock().waiting.iter().map(|(_, table)| *table).collect(),
            None => BTreeSet::new(),
        };
        let is_left = |table: &TableId| {
            let is_named = named.contains(table) || waiting.contains(table);
            table.epoch < self.epoch && !is_named && !self.tables.is_open(*table)
        };
        there.into_iter().filter(is_left).collect()
    }
}
