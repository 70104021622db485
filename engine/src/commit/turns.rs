//! Turns in ticket order: the apply stage of the write path (see `write`).
//!
//! A turn lasts about a microsecond, so a writer that comes too early spins for a while. Before it gives up
//! the processor, it posts its work in a slot, and the thread that ends the turn before does it. Otherwise,
//! with more writers than processors, each writer would have to be given a processor in the order of tickets,
//! which takes many times as long as a turn: three switches a write, with eight writers on two cores. The
//! work of a writer that still spins is not posted: it begins at once when its turn comes.
//!
//! A writer that has posted its work yields for some time before it sleeps, since being woken takes fifty
//! times as long as a turn. One word says whose turn it is and whether anybody sleeps. So either the thread
//! that ends a turn sees that somebody sleeps, or the sleeper, when it sets the mark, sees that the turn has
//! ended.

// Posted work lies on the stack of its writer, who waits until it is done.
#![expect(unsafe_code, reason = "what is left borrows from a stack")]

use crate::sync::{AtomicBool, AtomicU64, AtomicUsize, Condvar, Mutex, Ordering, thread};

/// The turns of an apply stage; see the page above.
pub(crate) struct Turns {
    /// Twice the ticket whose turn it is, and one more while somebody sleeps.
    turn: AtomicU64,
    /// At least the number of posted works: a thread that reads 0 need not look for any.
    left: AtomicUsize,
    /// The number of threads that sleep.
    sleepers: Mutex<usize>,
    places: [Slot; PLACES],
}

/// A slot in which the writers of some tickets post their work and sleep: a ticket's slot is its number
/// modulo `PLACES`.
struct Slot {
    work: Mutex<Option<Left>>,
    /// Wakes the threads that sleep at this place, and no others.
    turned: Condvar,
}

/// The number of slots: more than writers that usually wait. Of two writers with the same slot only one posts
/// its work.
const PLACES: usize = if cfg!(models) { 2 } else { 256 };
/// A writer that is at most so many turns away spins before it posts its work. If all of hundreds spun, they
/// would take the processor from the one whose turn it is.
const NEAR: u64 = if cfg!(models) { 1 } else { 16 };
/// The most works of others that a thread does when it ends its turn, as its own caller waits.
const DONE_FOR_OTHERS: usize = if cfg!(models) { 1 } else { 64 };

/// How long a writer polls before it sleeps.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patience {
    /// Some microseconds: for writers that sync, of which many are served by one sync or wait for it.
    Short,
    /// Some hundred microseconds, yielding the processor to other threads.
    Long,
}

/// The number of polls at full speed, and then of polls between yields. Models of schedules do without.
const LOOKS: u32 = if cfg!(models) { 0 } else { 100 };
const YIELDS: u32 = if cfg!(models) { 0 } else { 200 };
const SLEEPS: u64 = 1;

/// Calls `look` until it finds something, but not for ever.
#[inline]
pub(crate) fn spin_or_yield<T>(patience: Patience, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    spin(&mut look).or_else(|| between_yields(patience, look))
}

#[inline]
fn spin<T>(mut look: impl FnMut() -> Option<T>) -> Option<T> {
    for _ in 0..LOOKS {
        if let Some(found) = look() {
            return Some(found);
        }
        std::hint::spin_loop();
    }
    None
}

fn between_yields<T>(patience: Patience, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let yields = if patience == Patience::Long { YIELDS } else { 0 };
    for _ in 0..yields {
        if let Some(found) = look() {
            return Some(found);
        }
        thread::yield_now();
    }
    None
}

/// Work that its writer has posted. The thread that takes it from its slot does it, sets `done`, and does not
/// touch it any more.
struct Left {
    ticket: u64,
    work: *const (dyn Fn() + Sync),
    done: *const AtomicBool,
}

// SAFETY: the work is `Sync`, and both live until `done` says so (see `Turns::hand_over`).
unsafe impl Send for Left {}

impl Left {
    fn complete(self) {
        let in_work = AbortOnPanic;
        // SAFETY: its writer stays in `Turns::hand_over` until `done` is true, or until it has taken the work
        // back, and then it is not in a slot. Setting `done` is the last access to either.
        unsafe {
            (*self.work)();
            (*self.done).store(true, Ordering::Release);
        }
        std::mem::forget(in_work);
    }
}

/// Aborts the process when it is dropped, which happens only if a panic unwinds out of a turn: nobody would
/// end that turn, so its writer and all later ones would wait for ever. (A panic while cells are inserted
/// does not come this far: see `Commit::apply`.)
struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        // In models the panic must get out, as it reports the schedule.
        if cfg!(not(models)) {
            std::process::abort();
        }
    }
}

impl Turns {
    /// No turns yet; ticket 0 comes first.
    pub(crate) fn new() -> Self {
        let places = std::array::from_fn(|_| Slot { work: Mutex::new(None), turned: Condvar::new() });
        Self { turn: AtomicU64::new(0), left: AtomicUsize::new(0), sleepers: Mutex::new(0), places }
    }

    fn place(&self, ticket: u64) -> &Slot {
        &self.places[ticket as usize % PLACES]
    }

    #[inline]
    fn is_turn_of(&self, ticket: u64) -> bool {
        self.turn.load(Ordering::Acquire) / 2 == ticket
    }

    /// Does the work in the ticket's turn, in this thread or in the one that had the turn before; returns its
    /// result. Each ticket must come here once. A panic in the work ends the process, as all later turns wait
    /// for this one.
    #[inline]
    pub(crate) fn run<T: Send>(&self, ticket: u64, patience: Patience, work: impl Fn() -> T + Sync) -> T {
        if !self.is_turn_of(ticket) {
            return self.run_later(ticket, patience, work);
        }
        let in_turn = AbortOnPanic;
        let answer = work();
        std::mem::forget(in_turn);
        self.end(ticket);
        answer
    }

    #[cold]
    fn run_later<T: Send>(&self, ticket: u64, patience: Patience, work: impl Fn() -> T + Sync) -> T {
        let is_near = ticket - self.turn.load(Ordering::Acquire) / 2 <= NEAR;
        let answer = Mutex::new(None);
        let looked = if is_near { spin(|| self.is_turn_of(ticket).then_some(())) } else { None };
        if looked.is_none() && self.hand_over(ticket, patience, is_near, &|| *answer.lock() = Some(work())) {
            let answer = answer.lock().take();
            return answer.expect("who did the work has left what came of it");
        }
        let in_turn = AbortOnPanic;
        let answer = work();
        std::mem::forget(in_turn);
        self.end(ticket);
        answer
    }

    /// Posts the work in its slot, if that is free. Returns `true` when another thread has done it, or
    /// `false` when the turn has come with the work taken back.
    fn hand_over(&self, ticket: u64, patience: Patience, is_near: bool, work: &(dyn Fn() + Sync)) -> bool {
        let done = AtomicBool::new(false);
        let is_left = {
            let mut place = self.place(ticket).work.lock();
            let is_free = place.is_none();
            if is_free {
                self.left.fetch_add(1, Ordering::AcqRel);
                // SAFETY: only the lifetime is forgotten. This call does not end, nor unwind, before the work
                // is done or was taken back: see `Left`.
                let work =
                    unsafe { std::mem::transmute::<&(dyn Fn() + Sync), &'static (dyn Fn() + Sync)>(work) };
                *place = Some(Left { ticket, work, done: &raw const done });
            }
            is_free
        };
        let settled = || {
            if done.load(Ordering::Acquire) {
                return Some(true);
            }
            let comes = self.is_turn_of(ticket) && (!is_left || self.take(ticket).is_some());
            comes.then_some(false)
        };
        let looked = if is_near { between_yields(patience, settled) } else { None };
        looked.unwrap_or_else(|| self.sleep_until(ticket, settled))
    }

    /// Takes the posted work of a ticket.
    fn take(&self, ticket: u64) -> Option<Left> {
        let taken = self.place(ticket).work.lock().take_if(|left| left.ticket == ticket);
        if taken.is_some() {
            self.left.fetch_sub(1, Ordering::AcqRel);
        }
        taken
    }

    /// Sleeps in the ticket's slot until `look` finds something; it is called each time that the thread is
    /// woken.
    fn sleep_until<T>(&self, ticket: u64, look: impl Fn() -> Option<T>) -> T {
        let mut sleepers = self.sleepers.lock();
        *sleepers += 1;
        let found = loop {
            self.turn.fetch_or(SLEEPS, Ordering::AcqRel);
            if let Some(found) = look() {
                break found;
            }
            self.place(ticket).turned.wait(&mut sleepers);
        };
        *sleepers -= 1;
        if *sleepers == 0 {
            self.turn.fetch_and(!SLEEPS, Ordering::AcqRel);
        }
        found
    }

    /// Ends a turn, which begins the next, and does the work that was posted for that.
    #[inline]
    fn end(&self, ticket: u64) {
        match self.left.load(Ordering::Acquire) {
            0 => self.end_with(ticket, false, false),
            _ => self.end_for_others(ticket),
        }
    }

    /// Ends one turn. Wakes its writer, which may sleep if the work was posted, and the writer of the next
    /// turn, unless that one's work was taken.
    #[inline]
    fn end_with(&self, ticket: u64, was_left: bool, is_taken: bool) {
        let before = self.turn.fetch_add(2, Ordering::AcqRel);
        debug_assert_eq!(before / 2, ticket, "only the turn that is on can end");
        if before & SLEEPS != 0 {
            // A thread that is marked as sleeping holds the lock until it sleeps.
            drop(self.sleepers.lock());
            if was_left {
                self.place(ticket).turned.notify_all();
            }
            if !is_taken {
                self.place(ticket + 1).turned.notify_all();
            }
        }
    }

    #[cold]
    fn end_for_others(&self, mut ticket: u64) {
        for count in 0..=DONE_FOR_OTHERS {
            let next = if count < DONE_FOR_OTHERS { self.take(ticket + 1) } else { None };
            self.end_with(ticket, count > 0, next.is_some());
            let Some(left) = next else { return };
            left.complete();
            ticket += 1;
        }
    }

    /// The ticket whose turn it is; those before have had theirs.
    pub(crate) fn now(&self) -> u64 {
        self.turn.load(Ordering::Acquire) / 2
    }

    /// Waits until the turn of that ticket is over, which was given out.
    pub(crate) fn wait_for(&self, ticket: u64) {
        let is_over = || (self.now() > ticket).then_some(());
        // Whoever ends that turn wakes those who sleep in the slot of the next, at the latest when its work
        // is done, too.
        spin_or_yield(Patience::Short, is_over).unwrap_or_else(|| self.sleep_until(ticket + 1, is_over));
    }

    /// Waits until all turns before this ticket are over. The caller keeps further tickets from being given
    /// out.
    pub(crate) fn wait_all(&self, next_ticket: u64) {
        let is_over = || self.is_turn_of(next_ticket).then_some(());
        spin_or_yield(Patience::Long, is_over).unwrap_or_else(|| self.sleep_until(next_ticket, is_over));
    }
}

#[cfg(all(test, not(models)))]
mod tests {
    use super::*;
    use std::thread::{ThreadId, current, scope};

    /// The threads that did the work of each ticket, in order, if the writer of ticket 0 waits in its turn
    /// until so many have posted theirs.
    fn done_by(writers: u64) -> Vec<(u64, ThreadId)> {
        let (turns, done) = (Turns::new(), Mutex::new(Vec::new()));
        let run = |ticket: u64, patience| {
            turns.run(ticket, patience, || {
                while ticket == 0 && turns.left.load(Ordering::SeqCst) as u64 + 1 < writers {
                    thread::yield_now();
                }
                done.lock().push((ticket, current().id()));
                ticket * 3
            })
        };
        scope(|scope| {
            for ticket in 1..writers {
                let patience = if ticket % 2 == 0 { Patience::Short } else { Patience::Long };
                scope.spawn(move || assert_eq!(run(ticket, patience), ticket * 3, "its own answer"));
            }
            run(0, Patience::Long);
        });
        assert_eq!(turns.left.load(Ordering::SeqCst), 0);
        done.into_inner()
    }

    #[test]
    fn who_ends_a_turn_does_what_was_left_behind_it() {
        let done = done_by(40);
        let all_here: Vec<_> = (0..40).map(|ticket| (ticket, current().id())).collect();
        assert_eq!(done, all_here, "40 turns without one switch of threads");
    }

    #[test]
    fn nobody_works_for_others_without_end() {
        let done = done_by(200);
        assert!(done.iter().map(|(ticket, _)| *ticket).eq(0..200));
        let here = done.iter().filter(|(_, by)| *by == current().id()).count();
        assert_eq!(here, 1 + DONE_FOR_OTHERS);
    }

    #[test]
    #[allow(clippy::disallowed_methods, reason = "a process of its own ends")]
    fn a_panic_in_a_turn_ends_the_process_whoever_has_the_work() {
        use std::os::unix::process::ExitStatusExt;
        const CHILD: &str = "SILTSTONE_TEST_PANIC_IN_TURN";
        let fault = || assert!(std::env::var_os(CHILD).is_none(), "a fault");
        if let Some(whose) = std::env::var_os(CHILD) {
            let turns = Turns::new();
            if whose == "own" {
                turns.run(0, Patience::Short, fault);
            } else {
                scope(|scope| {
                    scope.spawn(|| turns.run(1, Patience::Long, fault));
                    turns.run(0, Patience::Long, || {
                        while turns.left.load(Ordering::SeqCst) == 0 {
                            thread::yield_now();
                        }
                    });
                });
            }
            return;
        }
        let name = "commit::turns::tests::a_panic_in_a_turn_ends_the_process_whoever_has_the_work";
        for whose in ["own", "left"] {
            let mut child = std::process::Command::new(std::env::current_exe().unwrap());
            let ended = child.args(["--exact", name]).env(CHILD, whose).output().unwrap();
            assert_eq!(ended.status.signal(), Some(libc::SIGABRT), "{whose}: {ended:?}");
        }
    }

    #[test]
    fn where_more_wait_than_there_are_places_each_has_its_turn() {
        let (turns, next, sum) = (Turns::new(), Mutex::new(0), AtomicU64::new(0));
        scope(|scope| {
            for _ in 0..PLACES as u64 + 40 {
                scope.spawn(|| {
                    for _ in 0..20 {
                        let ticket = {
                            let mut next = next.lock();
                            *next += 1;
                            *next - 1
                        };
                        let before =
                            turns.run(ticket, Patience::Short, || sum.fetch_add(1, Ordering::Relaxed));
                        assert_eq!(before, ticket, "applied in the order of the tickets");
                    }
                });
            }
        });
        turns.wait_all(*next.lock());
        assert_eq!(sum.into_inner(), 20 * (PLACES as u64 + 40));
    }
}

/// Schedules of writers; see `crate::sync`.
#[cfg(all(test, models))]
mod model {
    use super::*;
    use crate::sync::thread::{JoinHandle, spawn, yield_now};
    use crate::sync::{Limits, check};
    use std::sync::Arc;

    const LIMITS: Limits = Limits { preemptions: 3, schedules: 20_000 };
    /// Writers, and writes of each. Loom tries all interleavings, so it gets fewer.
    fn load() -> (usize, usize) {
        if crate::sync::is_loom() { (2, 1) } else { (3, 2) }
    }

    /// The two stages as `write` joins them: `stage` gives out tickets, `applied` is what memory holds.
    struct Path {
        stage: Mutex<u64>,
        turns: Turns,
        applied: AtomicU64,
    }

    impl Path {
        fn new() -> Arc<Self> {
            Arc::new(Self { stage: Mutex::new(0), turns: Turns::new(), applied: AtomicU64::new(0) })
        }

        fn beside(self: &Arc<Self>, work: impl FnOnce(&Self) + Send + 'static) -> JoinHandle<()> {
            let path = self.clone();
            spawn(move || work(&path))
        }

        fn write(&self, syncs: bool) {
            let ticket = {
                let mut stage = self.stage.lock();
                *stage += 1;
                *stage - 1
            };
            if syncs {
                yield_now();
            }
            let is_done = AtomicBool::new(false);
            let answer = self.turns.run(ticket, Patience::Long, || {
                assert_eq!(
                    self.applied.fetch_add(1, Ordering::SeqCst),
                    ticket,
                    "applied in the order logged"
                );
                assert!(!is_done.swap(true, Ordering::SeqCst), "and once");
                ticket
            });
            assert!(is_done.load(Ordering::SeqCst) && answer == ticket, "when the writer goes on");
        }

        /// Freezing, as production does it: nothing is logged meanwhile, and everything logged is in memory.
        fn freeze(&self) {
            let stage = self.stage.lock();
            self.turns.wait_all(*stage);
            assert_eq!(self.applied.load(Ordering::SeqCst), *stage, "memory holds all that was logged");
            yield_now();
            assert_eq!(self.applied.load(Ordering::SeqCst), *stage, "and nothing comes while it is held");
        }
    }

    #[test]
    fn writers_apply_in_the_order_they_logged_and_none_waits_for_ever() {
        check(LIMITS, || {
            let path = Path::new();
            let (count, writes) = load();
            let writer = |n: usize| path.beside(move |path| (0..writes).for_each(|_| path.write(n == 0)));
            let writers: Vec<_> = (0..count).map(writer).collect();
            writers.into_iter().for_each(|w| w.join().unwrap());
            assert_eq!(path.applied.load(Ordering::SeqCst), (count * writes) as u64);
        });
    }

    #[test]
    fn who_waits_for_a_write_sees_it_in_memory_whoever_applies_it() {
        check(LIMITS, || {
            let path = Path::new();
            let (count, writes) = load();
            let writer = |_| path.beside(move |path| (0..writes).for_each(|_| path.write(true)));
            let writers: Vec<_> = (1..count).map(writer).collect();
            let newest = path.stage.lock().checked_sub(1);
            if let Some(ticket) = newest {
                path.turns.wait_for(ticket);
                assert!(path.applied.load(Ordering::SeqCst) > ticket);
            }
            path.write(false);
            writers.into_iter().for_each(|w| w.join().unwrap());
        });
    }

    #[test]
    fn who_holds_writes_sees_all_that_was_logged_in_memory() {
        check(LIMITS, || {
            let path = Path::new();
            let (count, writes) = load();
            let writer = |_| path.beside(move |path| (0..writes).for_each(|_| path.write(true)));
            let writers: Vec<_> = (1..count).map(writer).collect();
            let freezer = path.beside(Path::freeze);
            path.freeze();
            writers.into_iter().for_each(|w| w.join().unwrap());
            freezer.join().unwrap();
        });
    }
}
