//! The turns of background work on one store: a flush, a compaction, or work in memory.
//!
//! Beginning one returns a guard: [`FlushTurn`], [`CompactionTurn`], [`LayoutTurn`],
//! [`MemtableCompactionTurn`]. Dropping the guard removes the entry, however the job ends.

use super::store::Store;
use super::store_work::StoreWork;
use crate::strategy::{CompactionPlan, PipelineState, RunningCompaction};
use std::sync::Arc;

/// The turn of a flush that is under way. The flush has ended when its turn is dropped.
pub(crate) struct FlushTurn {
    store: Arc<Store>,
    number: u64,
}

impl FlushTurn {
    /// Begins a flush; `None` where one is under way, or the store is gone.
    pub(crate) fn begin(store: &Arc<Store>) -> Option<Self> {
        let mut work = store.work.lock();
        if work.flush.under_way || store.is_dropped() {
            return None;
        }
        work.flush.under_way = true;
        work.memory.pipeline = PipelineState::default();
        work.flush.tries += 1;
        Some(Self { store: store.clone(), number: work.flush.tries })
    }

    /// Its number among the store's flushes.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Its last step is about to be installed.
    pub(crate) fn note_end(&self) {
        self.store.work.lock().flush.ends = true;
    }
}

impl Drop for FlushTurn {
    fn drop(&mut self) {
        let mut work = self.store.work.lock();
        (work.flush.under_way, work.flush.ends) = (false, false);
    }
}

/// The turn of a compaction that runs. The compaction has ended when its turn is dropped.
pub(crate) struct CompactionTurn {
    store: Arc<Store>,
    id: u32,
}

impl CompactionTurn {
    /// Adds the compaction of that number. `work` is the store's, locked since the plan was checked.
    pub(crate) fn begin(store: &Arc<Store>, work: &mut StoreWork, id: u32, plan: CompactionPlan) -> Self {
        work.compactions.running.push((id, RunningCompaction { plan, clip: None }));
        Self { store: store.clone(), id }
    }

    /// Raises the compaction's clip: keys below it are done.
    pub(crate) fn raise_clip(&self, key: &[u8]) {
        let mut work = self.store.work.lock();
        if let Some((_, running)) = work.compactions.running.iter_mut().find(|(id, _)| *id == self.id) {
            running.clip = Some(key.to_vec());
        }
        work.compactions.nothing_of_level0 = None;
    }
}

impl Drop for CompactionTurn {
    fn drop(&mut self) {
        self.store.work.lock().compactions.running.retain(|(id, _)| *id != self.id);
    }
}

/// The right to lay out memtables of a store, for one job at a time.
pub(crate) struct LayoutTurn<'s>(&'s Store);

impl<'s> LayoutTurn<'s> {
    /// `None` if another job has it.
    pub(crate) fn begin(store: &'s Store) -> Option<Self> {
        let is_taken = std::mem::replace(&mut store.work.lock().memory.laying_out, true);
        (!is_taken).then(|| Self(store))
    }
}

impl Drop for LayoutTurn<'_> {
    fn drop(&mut self) {
        self.0.work.lock().memory.laying_out = false;
    }
}

/// The turn of a compaction of a store's memtables. The compaction has ended when its turn is dropped.
pub(crate) struct MemtableCompactionTurn(Arc<Store>);

impl MemtableCompactionTurn {
    /// Enters it. `work` is the store's, locked since `MemoryWork::is_compacting` said that there is none.
    pub(crate) fn begin(store: &Arc<Store>, work: &mut StoreWork) -> Self {
        work.memory.joining = true;
        Self(store.clone())
    }
}

impl Drop for MemtableCompactionTurn {
    fn drop(&mut self) {
        let mut work = self.0.work.lock();
        (work.memory.joining, work.memory.compacts) = (false, None);
    }
}
