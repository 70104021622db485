//! Sequence numbers, and what a local WAL holds beyond the stream.
//!
//! *State.* The stream as a list of frames and gaps, two machines, each with a local WAL, the numbers that
//! were given out. A number is given when a write is logged locally, which may be long before its frame is in
//! the stream (`buffered`). Each object allows its writer a few more numbers. How a recoverer seals, see
//! `stream`: here it takes over in one step.
//!
//! *Actions.* An owner gives a number, sends its oldest frame that is not in the stream, learns that it is
//! there. A put lands, or is refused because another took over. A machine takes over: another one, or the
//! same one started again. A consumer of a stream of changes at an owner sees the newest number.
//!
//! *Bound.* Numbers up to 6, three incarnations.
//!
//! *Properties.* No number is given twice; the numbers of the stream ascend; one that is missing is in a
//! noted gap; a consumer saw only what the stream has.

use crate::check::rules;
use stateright::{Model, Property};

const MACHINES: usize = 2;
const INCARNATIONS: u8 = 3;
const NUMBERS: u8 = 6;
/// How many numbers an object allows beyond its own.
const AHEAD: u8 = 2;

const TWICE: &str = "no number is given twice";
const ASCENDS: &str = "the numbers of the stream ascend";
const EXPLAINED: &str = "a number that the stream lacks is in a noted gap";
const UNSEEN: &str = "a consumer saw only what the stream has";

rules! { Numbers:
    /// A number is given only if an object allows it.
    numbers_are_allowed: 7 => TWICE,
    /// An object allows numbers when it is acknowledged, not when it is sent.
    allowed_when_acknowledged: 7 => TWICE,
    /// The next incarnation begins above what the last one was allowed, not above its last frame.
    begins_above: 7 => TWICE,
    /// What was never given, or is lost, is a frame of its own: "a to b were never given".
    gaps_are_noted: 7 => EXPLAINED,
    /// Consumers see what is in the stream, not what is in a local WAL.
    consumers_see_the_stream: 7 => UNSEEN,
    /// The local WAL's tail is shipped only if it follows directly on the stream's own frames.
    tail_follows_directly: 6 => ASCENDS,
    /// The tail is what lies beyond the stream's end, not beyond the last acknowledgement.
    tail_is_what_is_missing: 6 => ASCENDS,
    /// The tail goes into the new incarnation before all else.
    tail_goes_first: 6 => ASCENDS,
}

/// The model of sequence numbers.
pub struct Numbers {
    rules: Rules,
}

/// The numbers `from` to `to`: of one write, or of none.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Frame {
    from: u8,
    to: u8,
    is_gap: bool,
    /// The incarnation in which its number was given.
    given: u8,
    /// The incarnation that has it; 0 before.
    landed: u8,
}

/// A machine, with the process that runs on it.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Machine {
    /// The incarnation that it owns, or did.
    k: u8,
    /// Whether it knows that another took over.
    stopped: bool,
    /// The next number.
    next: u8,
    /// Numbers up to here may be given.
    allowed: u8,
    /// The local WAL: frames of which it does not know that they are in the stream, in the order of sending.
    wal: Vec<Frame>,
    in_flight: Option<Flight>,
}

/// What became of the oldest frame of the local WAL.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Flight {
    /// It was sent.
    Sent,
    /// It is in the stream, and its sender does not know yet.
    Landed,
}

/// The stream, the machines, and what the world has seen.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct State {
    stream: Vec<Frame>,
    /// The newest incarnation.
    newest: u8,
    /// Numbers up to here were allowed by the stream.
    allowed: u8,
    machines: [Machine; MACHINES],
    /// Sets of numbers.
    given: u32,
    given_twice: u32,
    seen: u32,
}

/// A step, of a machine.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Action {
    /// A write gets the next number and is in the local WAL.
    Give(usize),
    /// The oldest frame is sent.
    Send(usize),
    /// It lands.
    Land(usize),
    /// The owner learns that it landed.
    Learn(usize),
    /// A consumer sees the newest number of the owner.
    See(usize),
    /// The machine takes over, or starts again.
    TakeOver(usize),
}

impl State {
    fn last(&self) -> u8 {
        self.stream.iter().map(|frame| frame.to).max().unwrap_or(0)
    }

    fn has(&self, number: u8) -> bool {
        self.stream.iter().any(|frame| !frame.is_gap && frame.from == number)
    }
}

impl Numbers {
    /// What a machine's local WAL holds beyond the stream, if it may be shipped.
    fn tail(&self, state: &State, machine: &Machine) -> Vec<Frame> {
        let own = state.stream.iter().filter(|frame| frame.landed <= machine.k);
        let end = own.map(|frame| frame.to).max().unwrap_or(0);
        let follows = machine.k == state.newest || !self.rules.tail_follows_directly;
        let is_missing = |frame: &&Frame| frame.from > end || !self.rules.tail_is_what_is_missing;
        machine.wal.iter().filter(is_missing).filter(|_| follows).copied().collect()
    }

    /// A machine owns the next incarnation. It sends the tail and a gap before its own writes.
    fn take_over(&self, state: &mut State, m: usize) {
        let tail = self.tail(state, &state.machines[m]);
        let last = tail.last().map_or(0, |frame| frame.to).max(state.last());
        let begins = if self.rules.begins_above { state.allowed.max(last) + 1 } else { last + 1 };
        state.newest += 1;
        let gap = Frame { from: last + 1, to: begins - 1, is_gap: true, given: state.newest, landed: 0 };
        let gap = Some(gap).filter(|_| begins > last + 1 && self.rules.gaps_are_noted);
        let wal = if self.rules.tail_goes_first {
            tail.into_iter().chain(gap).collect()
        } else {
            gap.into_iter().chain(tail).collect()
        };
        // Object 0 allows as each object does.
        state.allowed = state.allowed.max(begins - 1 + AHEAD);
        let allowed = state.allowed;
        state.machines[m] =
            Machine { k: state.newest, next: begins, allowed, wal, in_flight: None, stopped: false };
    }

    fn land(&self, state: &mut State, m: usize) {
        let machine = &mut state.machines[m];
        if machine.k != state.newest {
            machine.stopped = true;
            machine.in_flight = None;
            return;
        }
        machine.in_flight = Some(Flight::Landed);
        state.stream.push(Frame { landed: machine.k, ..machine.wal[0] });
        state.allowed = state.allowed.max(machine.wal[0].to + AHEAD);
    }
}

impl Model for Numbers {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let down = Machine { k: 0, stopped: true, next: 0, allowed: 0, wal: Vec::new(), in_flight: None };
        let owner = Machine { k: 1, stopped: false, next: 1, allowed: AHEAD, ..down.clone() };
        let machines = [owner, down];
        let (stream, newest, allowed) = (Vec::new(), 1, AHEAD);
        vec![State { stream, newest, allowed, machines, given: 0, given_twice: 0, seen: 0 }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (m, machine) in state.machines.iter().enumerate() {
            if state.newest < INCARNATIONS {
                actions.push(Action::TakeOver(m));
            }
            if machine.stopped {
                continue;
            }
            let may = machine.next <= machine.allowed || !self.rules.numbers_are_allowed;
            if machine.next <= NUMBERS && may {
                actions.push(Action::Give(m));
            }
            actions.push(Action::See(m));
            match machine.in_flight {
                None if machine.wal.is_empty() => {}
                None => actions.push(Action::Send(m)),
                Some(Flight::Sent) => actions.push(Action::Land(m)),
                Some(Flight::Landed) => actions.push(Action::Learn(m)),
            }
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Give(m) => {
                let machine = &mut state.machines[m];
                let number = machine.next;
                machine.next += 1;
                machine.wal.push(Frame {
                    from: number,
                    to: number,
                    is_gap: false,
                    given: machine.k,
                    landed: 0,
                });
                state.given_twice |= state.given & 1 << number;
                state.given |= 1 << number;
            }
            Action::Send(m) => {
                let machine = &mut state.machines[m];
                machine.in_flight = Some(Flight::Sent);
                if !self.rules.allowed_when_acknowledged {
                    machine.allowed = machine.allowed.max(machine.wal[0].to + AHEAD);
                }
            }
            Action::Land(m) => self.land(&mut state, m),
            Action::Learn(m) => {
                let machine = &mut state.machines[m];
                machine.in_flight = None;
                let frame = machine.wal.remove(0);
                machine.allowed = machine.allowed.max(frame.to + AHEAD);
            }
            Action::See(m) => {
                let own = last.machines[m].wal.iter().rev().find(|frame| !frame.is_gap);
                let shown = last.stream.iter().rev().find(|frame| !frame.is_gap);
                let newest = if self.rules.consumers_see_the_stream { shown } else { own };
                state.seen |= 1 << newest?.from;
            }
            Action::TakeOver(m) => self.take_over(&mut state, m),
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(TWICE, |_, state: &State| state.given_twice == 0),
            Property::always(ASCENDS, |_, state: &State| {
                state.stream.windows(2).all(|two| two[0].to < two[1].from)
            }),
            Property::always(EXPLAINED, |_, state: &State| {
                state.stream.windows(2).all(|two| two[1].from <= two[0].to + 1)
                    && state.stream.first().is_none_or(|frame| frame.from == 1)
            }),
            Property::always(UNSEEN, |_, state: &State| {
                let last = state.last();
                (1..=last).all(|number| state.seen & 1 << number == 0 || state.has(number))
            }),
            Property::sometimes("a tail is shipped", |_, state: &State| {
                state.stream.iter().any(|frame| frame.given < frame.landed)
            }),
            Property::sometimes("writes of three incarnations are in the stream", |_, state: &State| {
                let has = |k| state.stream.iter().any(|frame| !frame.is_gap && frame.given == k);
                (1..=INCARNATIONS).all(has)
            }),
            Property::sometimes("a gap is in the stream", |_, state: &State| {
                state.stream.iter().any(|frame| frame.is_gap)
            }),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_hold() {
        crate::check::holds::<Numbers>(100_000);
    }

    #[test]
    fn each_rule_of_numbers_is_needed() {
        crate::check::each_is_needed::<Numbers>();
    }
}
