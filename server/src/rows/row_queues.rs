//! Queues of calls for rows, so that those which wait for a row are carried out together.
//!
//! The first call for a row leads: its thread carries it out at once, alone. Calls that come meanwhile wait.
//! When it is done, the first of them leads, with all that wait by then. Each is answered by itself.
//!
//! A row has a queue only while a call leads, so the queues hold no more than the calls under way.

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};
use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// The number of locks of all queues; each is for the rows that fall to it by their hash.
const STRIPES: usize = 256;
/// Calls that are carried out together, at most.
const CALLS_MAX: usize = 1_000;

/// A row of a table, which is known by its address: it exists as long as calls for it do.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct RowId {
    pub(crate) table: usize,
    pub(crate) row: Bytes,
}

type Queue<C, A> = VecDeque<Arc<Waiting<C, A>>>;

/// The queues of calls `C`, each answered by an `A`.
pub(crate) struct RowQueues<C, A>(Vec<Mutex<HashMap<RowId, Queue<C, A>>>>);

impl<C, A> Default for RowQueues<C, A> {
    fn default() -> Self {
        Self((0..STRIPES).map(|_| Mutex::default()).collect())
    }
}

/// A call that waits.
struct Waiting<C, A> {
    call: C,
    told: Mutex<Option<Told<A>>>,
    is_told: Condvar,
}

/// The news for a call that waits.
enum Told<A> {
    /// It is the first of those that wait, and its row is free.
    Lead,
    /// It was carried out.
    Answer(A),
    /// It was to be carried out, and the thread that did so panicked.
    Panicked,
}

impl<C, A> Waiting<C, A> {
    fn tell(&self, told: Told<A>) {
        *self.told.lock() = Some(told);
        self.is_told.notify_one();
    }

    fn wait(&self) -> Told<A> {
        let mut news = self.told.lock();
        loop {
            if let Some(told) = news.take() {
                return told;
            }
            self.is_told.wait(&mut news);
        }
    }
}

impl<C: Clone, A> RowQueues<C, A> {
    fn stripe(&self, row: &RowId) -> &Mutex<HashMap<RowId, Queue<C, A>>> {
        let hash = row.row.iter().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
        });
        &self.0[usize::try_from(hash % STRIPES as u64).unwrap_or(0)]
    }

    /// Carries a call out, once nobody else does so for its row, or waits until another thread has done it.
    /// `None` if that panicked.
    ///
    /// `carry_out` is given calls in the order in which they came and answers the first of them, at least
    /// one; those without an answer wait again. It must do the same as that of the row's other calls.
    pub(crate) fn run(&self, row: &RowId, call: C, carry_out: impl FnOnce(&[C]) -> Vec<A>) -> Option<A> {
        let own = Arc::new(Waiting { call, told: Mutex::new(None), is_told: Condvar::new() });
        let is_free = match self.stripe(row).lock().entry(row.clone()) {
            Entry::Vacant(free) => {
                free.insert(VecDeque::new());
                true
            }
            Entry::Occupied(mut queue) => {
                queue.get_mut().push_back(own.clone());
                false
            }
        };
        if is_free {
            return self.lead(row, vec![own], carry_out);
        }
        match own.wait() {
            Told::Answer(answer) => Some(answer),
            Told::Panicked => None,
            Told::Lead => {
                let mut together = vec![own];
                if let Some(queue) = self.stripe(row).lock().get_mut(row) {
                    together.extend(queue.drain(..queue.len().min(CALLS_MAX - 1)));
                }
                self.lead(row, together, carry_out)
            }
        }
    }

    /// Carries calls out and returns the answer to the first.
    fn lead(
        &self,
        row: &RowId,
        together: Vec<Arc<Waiting<C, A>>>,
        carry_out: impl FnOnce(&[C]) -> Vec<A>,
    ) -> Option<A> {
        let calls: Vec<C> = together.iter().map(|waiting| waiting.call.clone()).collect();
        let mut lead = Lead { queues: self, row, together, left: Vec::new() };
        let mut answers = carry_out(&calls).into_iter();
        lead.left = lead.together.split_off(answers.len().clamp(1, calls.len()));
        let done = std::mem::take(&mut lead.together);
        // The next batch is on its way while these are told.
        drop(lead);
        let own = answers.next();
        done.iter().skip(1).zip(answers).for_each(|(waiting, answer)| waiting.tell(Told::Answer(answer)));
        own
    }

    /// The number of calls that wait for a row; `None` if no call leads.
    #[cfg(test)]
    pub(crate) fn waiting(&self, row: &RowId) -> Option<usize> {
        self.stripe(row).lock().get(row).map(VecDeque::len)
    }
}

/// The lead for a row. When it is dropped, the next call leads; those that were being carried out are told of
/// a panic.
struct Lead<'q, C: Clone, A> {
    queues: &'q RowQueues<C, A>,
    row: &'q RowId,
    together: Vec<Arc<Waiting<C, A>>>,
    /// Calls that wait again, before those that came meanwhile.
    left: Vec<Arc<Waiting<C, A>>>,
}

impl<C: Clone, A> Drop for Lead<'_, C, A> {
    fn drop(&mut self) {
        if let Entry::Occupied(mut row) = self.queues.stripe(self.row).lock().entry(self.row.clone()) {
            let queue = row.get_mut();
            self.left.drain(..).rev().for_each(|waiting| queue.push_front(waiting));
            match queue.pop_front() {
                Some(next) => next.tell(Told::Lead),
                None => _ = row.remove(),
            }
        }
        self.together.drain(..).for_each(|waiting| waiting.tell(Told::Panicked));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::mpsc;
    use std::thread::{scope, yield_now};

    type Queues = RowQueues<u32, u32>;

    fn row(row: &'static str) -> RowId {
        RowId { table: 0, row: row.into() }
    }

    /// Runs call 0, holds it up until calls 1 to `others` wait, in this order, and returns all answers.
    /// `carry_out` is asked for all but call 0.
    fn behind_one(
        queues: &Queues,
        others: u32,
        carry_out: impl Fn(&[u32]) -> Vec<u32> + Sync,
    ) -> Vec<Option<u32>> {
        let (row, carry_out) = (&row("r"), &carry_out);
        let (go_on, held) = mpsc::channel::<()>();
        scope(|scope| {
            let first = scope.spawn(move || {
                queues.run(row, 0, |calls| {
                    held.recv().unwrap();
                    assert_eq!(calls, [0]);
                    vec![0]
                })
            });
            while queues.waiting(row).is_none() {
                yield_now();
            }
            let run = |call: u32| {
                let run = AssertUnwindSafe(|| queues.run(row, call, carry_out));
                catch_unwind(run).unwrap_or_default()
            };
            let mut all = vec![first];
            for call in 1..=others {
                all.push(scope.spawn(move || run(call)));
                while queues.waiting(row) != Some(call as usize) {
                    yield_now();
                }
            }
            go_on.send(()).unwrap();
            all.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    #[test]
    fn calls_that_wait_for_a_row_are_carried_out_together_and_each_has_its_own_answer() {
        let (queues, batches) = (Queues::default(), Mutex::new(Vec::new()));
        let answers = behind_one(&queues, 9, |calls| {
            batches.lock().push(calls.to_vec());
            calls.iter().map(|call| call * 2).collect()
        });
        assert_eq!(answers, (0..10).map(|call| Some(call * 2)).collect::<Vec<_>>());
        assert_eq!(*batches.lock(), [(1..10).collect::<Vec<_>>()]);
        assert_eq!(queues.waiting(&row("r")), None, "nothing is left of a row without calls");
    }

    #[test]
    fn calls_without_an_answer_wait_again_in_their_order() {
        let (queues, batches) = (Queues::default(), Mutex::new(Vec::new()));
        let answers = behind_one(&queues, 7, |calls| {
            batches.lock().push(calls.to_vec());
            calls.iter().take(3).copied().collect()
        });
        assert_eq!(answers, (0..8).map(Some).collect::<Vec<_>>());
        assert_eq!(*batches.lock(), [vec![1, 2, 3, 4, 5, 6, 7], vec![4, 5, 6, 7], vec![7]]);
    }

    #[test]
    fn a_panic_ends_the_calls_that_were_carried_out_together_and_no_others() {
        let queues = Queues::default();
        let answers = behind_one(&queues, 4, |_| panic!("planted"));
        assert_eq!(answers, [Some(0), None, None, None, None]);
        assert_eq!(queues.waiting(&row("r")), None);
        assert_eq!(queues.run(&row("r"), 5, |calls| calls.to_vec()), Some(5));
    }

    #[test]
    fn rows_and_tables_do_not_wait_for_each_other() {
        let queues = Queues::default();
        let answer = queues.run(&row("r"), 1, |_| {
            let other = queues.run(&row("s"), 2, |calls| calls.to_vec());
            let elsewhere = queues.run(&RowId { table: 1, ..row("r") }, 3, |calls| calls.to_vec());
            vec![other.unwrap() + elsewhere.unwrap()]
        });
        assert_eq!(answer, Some(5));
    }
}
