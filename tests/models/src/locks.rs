//! What waits for a put, and what must not.
//!
//! *State.* The lock `stage` of the write path, with the thread that holds it: two writers with a conditional
//! write of the same row each, a flush that freezes the memtable, and the sender, which puts what was logged,
//! in order. The owner knows its own manifest as its edits say. A put may fail as far as its sender knows,
//! and land nevertheless.
//!
//! *Actions.* A thread takes the lock, logs, waits, leaves. The sender puts. The flush freezes, then sends
//! its edit through the same queue.
//!
//! *Bound.* Two writers, one flush, one edit.
//!
//! *Properties.* As long as somebody has something to do, somebody can; puts and the holder of the lock do
//! not wait for each other; of two writes on one condition one succeeds; the owner's manifest is what the
//! stream says.

use crate::check::rules;
use stateright::{Model, Property};

const WRITERS: usize = 2;

const MOVES: &str = "somebody can go on";
const SENDS: &str = "what is logged can be put, whoever has the lock";
const LOGS: &str = "who has the lock needs no put to go on";
const CONDITION: &str = "one of two writes on one condition succeeds";
const MANIFEST: &str = "the owner's manifest is what the stream says";
const ORDER: &str = "an edit comes after what it says is in tables";

rules! { Locks:
    /// No put needs the lock, or no holder of the lock needs a put. Either keeps threads from waiting for
    /// each other for ever, and the next three rules are both, so that they do not wait for each other at
    /// all.
    lock_and_puts_apart: 19 => MOVES,
    /// The sender takes no lock of the write path.
    sender_takes_no_lock: 19 => SENDS,
    /// Nobody waits for a put with the lock held.
    nobody_waits_with_lock: 19 => LOGS,
    /// Freezing does not wait for what is in flight.
    freeze_does_not_wait: 19 => LOGS,
    /// A condition is judged against what is logged and in flight, not only what is visible.
    condition_sees_in_flight: 19 => CONDITION,
    /// An edit that was sent is not taken back: its outcome becomes known, or the database is poisoned.
    edits_are_not_taken_back: 19 => MANIFEST,
    /// Edits queue in the order of the stream, behind the frames that they are about.
    edits_queue: 19 => ORDER,
}

/// The model of the write path's lock.
pub struct Locks {
    rules: Rules,
}

/// What a thread is doing.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Step {
    /// It wants the lock.
    Begins,
    /// It has the lock.
    Locked,
    /// It waits for its put, with or without the lock.
    Waits {
        /// Whether it has the lock.
        locked: bool,
    },
    /// It succeeded.
    Done,
    /// Its condition did not hold.
    Refused,
}

/// What is put.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Item {
    /// The write of this writer.
    Frame(usize),
    /// The flush's edit, with the number of writes that it says are in tables.
    Edit(u8),
}

/// The lock, the queue and the threads.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct State {
    is_locked: bool,
    writers: [Step; WRITERS],
    flush: Step,
    sender_locks: bool,
    /// What is logged and not put.
    queue: Vec<Item>,
    stream: Vec<Item>,
    /// Writes in the memtable that was frozen.
    frozen: u8,
    /// Whether the owner's manifest has the edit.
    has_edit: bool,
    /// Whether it was told that the put of the edit failed.
    failed: bool,
    poisoned: bool,
}

/// A step.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Action {
    /// A writer takes the lock.
    Lock(usize),
    /// It judges its condition and logs its write.
    Log(usize),
    /// Its put is there, as are all before.
    Answer(usize),
    /// The flush takes the lock.
    LockFlush,
    /// It freezes the memtable and sends its edit.
    Freeze,
    /// Its edit is there.
    AnswerFlush,
    /// The answer to the edit's put is an error.
    Fail,
    /// The sender takes the lock.
    LockSender,
    /// It puts what is first in the queue.
    Put,
}

impl Locks {
    fn sender_locks(&self) -> bool {
        !self.rules.sender_takes_no_lock || !self.rules.lock_and_puts_apart
    }

    fn writers_keep_lock(&self) -> bool {
        !self.rules.nobody_waits_with_lock || !self.rules.lock_and_puts_apart
    }

    /// Whether the row is changed already, as far as a writer looks.
    fn is_changed(&self, state: &State) -> bool {
        let is_frame = |item: &Item| matches!(item, Item::Frame(_));
        let visible = state.stream.iter().any(is_frame);
        visible || self.rules.condition_sees_in_flight && state.queue.iter().any(is_frame)
    }

    fn log(&self, state: &mut State, w: usize) {
        if self.is_changed(state) {
            state.writers[w] = Step::Refused;
            state.is_locked = false;
            return;
        }
        state.queue.push(Item::Frame(w));
        state.writers[w] = Step::Waits { locked: self.writers_keep_lock() };
        state.is_locked = self.writers_keep_lock();
    }

    fn freeze(&self, state: &mut State) {
        let logged = |items: &[Item]| items.iter().filter(|item| matches!(item, Item::Frame(_))).count();
        state.frozen = u8::try_from(logged(&state.queue) + logged(&state.stream)).unwrap_or(u8::MAX);
        let edit = Item::Edit(state.frozen);
        if self.rules.edits_queue {
            state.queue.push(edit);
        } else {
            state.queue.insert(0, edit);
        }
        state.flush = Step::Waits { locked: false };
        state.is_locked = false;
    }

    fn has_work(state: &State) -> bool {
        let waits = |step: &Step| !matches!(step, Step::Done | Step::Refused);
        !state.poisoned && (state.writers.iter().any(waits) || waits(&state.flush))
    }

    fn of_writer(state: &State, w: usize, actions: &mut Vec<Action>) {
        match state.writers[w] {
            Step::Begins if !state.is_locked => actions.push(Action::Lock(w)),
            Step::Locked => actions.push(Action::Log(w)),
            Step::Waits { .. } if state.stream.contains(&Item::Frame(w)) => actions.push(Action::Answer(w)),
            _ => {}
        }
    }

    fn possible(&self, state: &State) -> Vec<Action> {
        let mut actions = Vec::new();
        if state.poisoned {
            return actions;
        }
        (0..WRITERS).for_each(|w| Self::of_writer(state, w, &mut actions));
        let is_edit = |item: &Item| matches!(item, Item::Edit(_));
        match state.flush {
            Step::Begins if !state.is_locked => actions.push(Action::LockFlush),
            Step::Locked if self.rules.freeze_does_not_wait || state.queue.is_empty() => {
                actions.push(Action::Freeze);
            }
            Step::Waits { .. } => {
                if state.stream.iter().any(is_edit) {
                    actions.push(Action::AnswerFlush);
                }
                if !state.failed
                    && (state.stream.iter().any(is_edit) || state.queue.first().is_some_and(is_edit))
                {
                    actions.push(Action::Fail);
                }
            }
            _ => {}
        }
        if !state.queue.is_empty() {
            if !self.sender_locks() || state.sender_locks {
                actions.push(Action::Put);
            } else if !state.is_locked {
                actions.push(Action::LockSender);
            }
        }
        actions
    }
}

impl Model for Locks {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            is_locked: false,
            writers: [Step::Begins; WRITERS],
            flush: Step::Begins,
            sender_locks: false,
            queue: Vec::new(),
            stream: Vec::new(),
            frozen: 0,
            has_edit: false,
            failed: false,
            poisoned: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        actions.extend(self.possible(state));
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Lock(w) => {
                state.is_locked = true;
                state.writers[w] = Step::Locked;
            }
            Action::Log(w) => self.log(&mut state, w),
            Action::Answer(w) => {
                if last.writers[w] == (Step::Waits { locked: true }) {
                    state.is_locked = false;
                }
                state.writers[w] = Step::Done;
            }
            Action::LockFlush => {
                state.is_locked = true;
                state.flush = Step::Locked;
            }
            Action::Freeze => self.freeze(&mut state),
            Action::AnswerFlush => {
                state.flush = Step::Done;
                state.has_edit = true;
            }
            Action::Fail if self.rules.edits_are_not_taken_back => state.poisoned = true,
            Action::Fail => {
                state.failed = true;
                state.flush = Step::Refused;
            }
            Action::LockSender => {
                state.is_locked = true;
                state.sender_locks = true;
            }
            Action::Put => {
                let item = state.queue.remove(0);
                state.stream.push(item);
                if last.sender_locks {
                    state.is_locked = false;
                    state.sender_locks = false;
                }
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(MOVES, |model: &Self, state: &State| {
                !Self::has_work(state) || !model.possible(state).is_empty()
            }),
            Property::always(SENDS, |model: &Self, state: &State| {
                state.queue.is_empty() || state.poisoned || model.possible(state).contains(&Action::Put)
            }),
            Property::always(LOGS, |model: &Self, state: &State| {
                let locked = |step: &Step| matches!(step, Step::Locked | Step::Waits { locked: true });
                let holder =
                    state.writers.iter().position(locked).map(|w| [Action::Log(w), Action::Answer(w)]);
                let flush = Some([Action::Freeze; 2]).filter(|_| locked(&state.flush));
                let possible = model.possible(state);
                let can_go_on = |actions: [Action; 2]| actions.iter().any(|action| possible.contains(action));
                state.poisoned || holder.or(flush).is_none_or(can_go_on)
            }),
            Property::always(CONDITION, |_, state: &State| {
                state.writers.iter().filter(|step| **step == Step::Done).count() <= 1
            }),
            Property::always(MANIFEST, |_, state: &State| {
                let is_in = state.stream.iter().any(|item| matches!(item, Item::Edit(_)));
                !is_in || state.has_edit || state.poisoned || matches!(state.flush, Step::Waits { .. })
            }),
            Property::always(ORDER, |_, state: &State| {
                let edit = state.stream.iter().position(|item| matches!(item, Item::Edit(_)));
                edit.is_none_or(|at| at >= usize::from(state.frozen))
            }),
            Property::sometimes("both writers and the flush are answered", |_, state: &State| {
                let ends = |step: &Step| matches!(step, Step::Done | Step::Refused);
                state.writers.iter().all(ends) && state.flush == Step::Done
            }),
            Property::sometimes("memory is frozen with a frame in flight", |_, state: &State| {
                state.queue.len() == 2 && state.frozen == 1
            }),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_hold() {
        crate::check::holds::<Locks>(150);
    }

    #[test]
    fn each_rule_of_locks_is_needed() {
        crate::check::each_is_needed::<Locks>();
    }
}
