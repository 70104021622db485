//! How many compactions a server takes: l = floor(m/b) run at a time, where m is its memory and b what one
//! compaction may take (OFF-7); a few more wait their turn, and the rest are refused at once, as their
//! database can do them itself meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Compactions at a time, however much memory there is: each has a thread.
const SLOTS_MAX: u64 = 1 << 10;

/// See the page above.
pub(crate) struct Admission {
    pub(crate) slots: u64,
    pub(crate) queue_max: u64,
    turns: Arc<Semaphore>,
    queued: AtomicU64,
    running: Arc<AtomicU64>,
}

/// A compaction that runs; dropped when it ends.
pub(crate) struct Running {
    _permit: OwnedSemaphorePermit,
    running: Arc<AtomicU64>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.running.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A compaction that waits; dropped when it has waited.
pub(crate) struct Queued(Arc<Admission>);

impl Drop for Queued {
    fn drop(&mut self) {
        self.0.queued.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Admission {
    pub(crate) fn new(memory: u64, merge_memory: u64, queue_max: u64) -> Self {
        let slots = (memory / merge_memory.max(1)).clamp(1, SLOTS_MAX);
        let turns = Arc::new(Semaphore::new(usize::try_from(slots).unwrap_or(1)));
        Self { slots, queue_max, turns, queued: AtomicU64::new(0), running: Arc::default() }
    }

    pub(crate) fn queued(&self) -> u64 {
        self.queued.load(Ordering::Relaxed)
    }

    pub(crate) fn running(&self) -> u64 {
        self.running.load(Ordering::Relaxed)
    }

    /// A place in the queue, or why there is none.
    pub(crate) fn queue(self: &Arc<Self>) -> Result<Queued, String> {
        // Compactions that may run at once count too, for a moment.
        let most = self.queue_max + self.turns.available_permits() as u64;
        let taken = self
            .queued
            .try_update(Ordering::Relaxed, Ordering::Relaxed, |queued| (queued < most).then_some(queued + 1));
        match taken {
            Ok(_) => Ok(Queued(self.clone())),
            Err(queued) => Err(format!("{} compactions run here and {queued} wait", self.running())),
        }
    }

    /// Waits for a turn.
    pub(crate) async fn turn(&self, queued: Queued) -> Running {
        let permit = self.turns.clone().acquire_owned().await.expect("the turns are never closed");
        drop(queued);
        self.running.fetch_add(1, Ordering::Relaxed);
        Running { _permit: permit, running: self.running.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn as_many_run_as_memory_allows_some_wait_and_the_rest_are_refused() {
        let admission = Arc::new(Admission::new(200, 64, 2));
        assert_eq!(admission.slots, 3);
        let mut running = Vec::new();
        for _ in 0..3 {
            running.push(admission.turn(admission.queue().unwrap()).await);
        }
        let mut waiting = vec![admission.queue().unwrap(), admission.queue().unwrap()];
        assert_eq!((admission.running(), admission.queued()), (3, 2));
        assert_eq!(admission.queue().err().unwrap(), "3 compactions run here and 2 wait");
        drop(running.pop());
        running.push(admission.turn(waiting.remove(0)).await);
        assert_eq!((admission.running(), admission.queued()), (3, 1));
        drop(waiting);
        assert_eq!((admission.running(), admission.queued()), (3, 0));
        drop(running);
        assert_eq!(admission.running(), 0);
        assert_eq!(Admission::new(10, 64, 0).slots, 1, "one always runs");
    }
}
