//! Work of a call, counted as it is done.
//!
//! A call that works on the thread on which it arrived keeps all other calls of that thread waiting, so it
//! stops after a fixed amount and goes on on a thread for long work. Long work checks now and then whether
//! its client still waits.
//!
//! A unit is about the time for a small cell, some 100 ns.

use crate::net::budget::{self, Budget, Lease};
use crate::net::calls::Guard;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tonic::Status;

/// Units that are done where a call came in: 4,096 small cells, or 256 KiB. What is begun below that is done.
const AT_ONCE: u64 = 4_096;
/// Bytes that are looked at or copied in the time of a unit.
const UNIT_BYTES: usize = 64;
/// Units between two checks of the deadline.
const LOOK_EVERY: u64 = 1_024;

/// The client that waits for the work: none any more when the time of the call is over or the client is gone.
#[derive(Clone, Default)]
pub(crate) struct Caller {
    call: Option<Guard>,
    is_gone: Arc<AtomicBool>,
    memory: Option<Arc<Budget>>,
}

impl Caller {
    /// The client of a call, and the memory for its answers; `is_gone` becomes true when it waits no more.
    pub(crate) fn new(call: Guard, is_gone: Arc<AtomicBool>, memory: Arc<Budget>) -> Self {
        Self { call: Some(call), is_gone, memory: Some(memory) }
    }

    /// One that is gone.
    #[cfg(test)]
    pub(crate) fn gone() -> Self {
        Self { is_gone: Arc::new(AtomicBool::new(true)), ..Self::default() }
    }

    fn check_gone(&self) -> Result<(), Status> {
        match self.is_gone.load(Ordering::Relaxed) {
            true => Err(Status::cancelled("the client is gone")),
            false => Ok(()),
        }
    }

    /// Checks whether the client is there and its time is not over.
    ///
    /// # Errors
    /// `CANCELLED` or `DEADLINE_EXCEEDED`.
    pub(crate) fn check(&self) -> Result<(), Status> {
        self.check_gone()?;
        self.call.as_ref().map_or(Ok(()), Guard::check)
    }
}

/// The work of a turn, counted.
pub(crate) struct Work {
    done: u64,
    most: u64,
    look_at: u64,
    caller: Caller,
}

impl Work {
    /// Work where the call came in, which soon is over.
    pub(crate) fn at_once(caller: Caller) -> Self {
        Self { done: 0, most: AT_ONCE, look_at: LOOK_EVERY, caller }
    }

    /// Work where it keeps nobody waiting: over when it is done.
    pub(crate) fn unbounded(caller: Caller) -> Self {
        Self { done: 0, most: u64::MAX, look_at: LOOK_EVERY, caller }
    }

    /// Whether what is left is to be done elsewhere.
    pub(crate) fn is_over(&self) -> bool {
        self.done >= self.most && !siltstone::planted_bug!(WorkInPlace)
    }

    /// Units that were done.
    pub(crate) fn done(&self) -> u64 {
        self.done
    }

    /// Counts units that were done.
    ///
    /// # Errors
    /// Nobody waits for the work any more.
    pub(crate) fn count(&mut self, units: u64) -> Result<(), Status> {
        self.done = self.done.saturating_add(units);
        if self.done < self.look_at {
            return Ok(());
        }
        self.look_at = self.done.saturating_add(LOOK_EVERY);
        self.caller.check()
    }

    /// Counts a cell of which so many bytes were looked at or copied.
    ///
    /// # Errors
    /// Nobody waits for the work any more.
    pub(crate) fn count_cell(&mut self, bytes: usize) -> Result<(), Status> {
        self.count(1 + (bytes / UNIT_BYTES) as u64)
    }

    /// Reserves so many bytes of the memory for the call's answers, for as long as the call lasts.
    ///
    /// # Errors
    /// There is no room for them now.
    pub(crate) fn lend(&self, bytes: usize) -> Result<Option<Arc<Lease>>, Status> {
        let Some(memory) = &self.caller.memory else { return Ok(None) };
        memory.lend_to_work(bytes).map(Some).ok_or_else(budget::no_memory)
    }

    /// Checks whether the client is there: between rows, as each may wait for the disk.
    ///
    /// # Errors
    /// It is gone.
    pub(crate) fn check_gone(&self) -> Result<(), Status> {
        self.caller.check_gone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_where_a_call_came_in_is_over_after_so_many_cells_or_bytes_and_other_work_never() {
        let mut work = Work::at_once(Caller::default());
        (0..AT_ONCE - 1).for_each(|_| work.count_cell(10).unwrap());
        assert!(!work.is_over());
        work.count_cell(0).unwrap();
        assert!(work.is_over());
        let mut work = Work::at_once(Caller::default());
        work.count_cell(200 << 10).unwrap();
        assert!(!work.is_over());
        work.count_cell(100 << 10).unwrap();
        assert!(work.is_over());
        let mut work = Work::unbounded(Caller::default());
        work.count(u64::MAX - 1).unwrap();
        assert!(!work.is_over());
    }

    #[test]
    fn work_for_which_nobody_waits_ends_within_a_fixed_number_of_units() {
        let is_gone = Arc::new(AtomicBool::new(false));
        let mut work = Work::unbounded(Caller { is_gone: is_gone.clone(), ..Caller::default() });
        (0..5_000).for_each(|_| work.count(1).unwrap());
        is_gone.store(true, Ordering::Relaxed);
        let ended = (0..=LOOK_EVERY).find_map(|_| work.count(1).err());
        assert_eq!(ended.unwrap().code(), tonic::Code::Cancelled);
        assert!(work.check_gone().is_err());
    }

    #[test]
    fn what_is_kept_for_a_call_is_counted_as_long_as_it_is_kept() {
        let memory = budget::Budgets::new(1 << 20).caller(None, [127, 0, 0, 1].into()).answers.clone();
        let memory_of_connection = Some(memory.of_connection());
        let work = Work::unbounded(Caller { memory: memory_of_connection, ..Caller::default() });
        let lease = work.lend(100_000).unwrap();
        assert_eq!(memory.used(), 100_000);
        assert_eq!(work.lend(1 << 20).unwrap_err().code(), tonic::Code::ResourceExhausted);
        drop(lease);
        assert_eq!(memory.used(), 0);
    }
}
