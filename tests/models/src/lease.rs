//! Reads of an owner that may have been replaced, by a lease that is changed by compare-and-swap.
//!
//! *State.* The time, the lease object, its holder and a standby. A state of the object is its bytes: holder,
//! counter, nonce of a process. A swap names the state that it expects, and lands if the object is equal to
//! that. The holder may be started again under its own name while a swap of its former life is under way. The
//! holder's clock may lose a tick, the standby's may gain one. That a seal refuses all later puts of the old
//! owner, see `stream`: here the standby takes over in one step, and later acknowledges a write of its own.
//!
//! *Actions.* A tick. The holder sends a swap, learns its outcome, reads, acknowledges a buffered write,
//! hands over. The standby looks at the object, takes over, writes.
//!
//! *Bound.* Eight ticks, three swaps, one takeover.
//!
//! *Properties.* No read is answered without a write that was acknowledged before it began; no buffered write
//! is acknowledged after another owner serves.

use crate::check::rules;
use stateright::{Model, Property};

const TICKS: u8 = 8;
const SWAPS: u8 = 3;
const TTL: u8 = 3;

const FRESH: &str = "a read has what was acknowledged before it began";
const BUFFERED: &str = "a buffered write is acknowledged by the owner only";

rules! { Lease:
    /// The lease is valid from the time at which its swap was sent, not from that of the answer.
    from_send_time: 13 => FRESH,
    /// The clock is looked at for each answer: a process that was stopped does not know that time passed.
    clock_for_each_answer: 13 => FRESH,
    /// Both sides keep a margin, for clocks that run apart.
    margin: 13 => FRESH,
    /// The standby counts from when it first read the same state, for a whole TTL.
    standby_waits: 13 => FRESH,
    /// The standby counts only when the owner has a lease: before, reads need none.
    standby_waits_for_lease: 13 => FRESH,
    /// A refused port is no proof that the owner is gone.
    refused_port_is_no_proof: 13 => FRESH,
    /// Who hands over puts the seal itself, after its last read.
    last_read_before_hand_over: 13 => FRESH,
    /// A lease drawn anew gives no database back.
    new_lease_revives_nothing: 13 => FRESH,
    /// A read without a lease is answered after a put that was sent after the read.
    put_after_read: 13 => FRESH,
    /// Each swap counts: a state is not equal to the one before.
    counter: 21 => FRESH,
    /// Each process has a nonce: its state is not equal to that of its former life.
    nonce: 21 => FRESH,
    /// A buffered write obeys the lease as a read does.
    buffered_obeys_lease: 7 => BUFFERED,
}

/// The model of the lease.
pub struct Lease {
    rules: Rules,
}

/// The bytes of the lease object.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Bytes {
    is_standby: bool,
    counter: u8,
    nonce: u8,
}

/// A swap, with the time by the sender's clock.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Swap {
    expects: Option<Bytes>,
    makes: Bytes,
    sent: u8,
    /// Whether it landed; `None` while it is under way.
    landed: Option<bool>,
}

/// A read that waits for a put.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Pending {
    /// Whether what it read lacks a write that was acknowledged before it began.
    is_stale: bool,
    put_landed: bool,
}

/// The holder of the lease, which was the owner first.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Holder {
    life: u8,
    /// Whether it obeys the lease: it saw that there is a standby.
    obeys: bool,
    /// Ticks that its clock lost.
    slow: u8,
    valid_until: u8,
    /// Whether it believes in its lease without a look at the clock.
    believes: bool,
    known: Option<Bytes>,
    swap: Option<Swap>,
    pending: Option<Pending>,
    stopped: bool,
}

/// The standby.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Standby {
    /// The state that it saw, and since when.
    seen: Option<(Option<Bytes>, u8)>,
    /// Ticks that its clock gained.
    fast: u8,
    owns: bool,
    wrote: bool,
}

/// The time, the object and the two processes.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct State {
    now: u8,
    object: Option<Bytes>,
    holder: Holder,
    standby: Standby,
    /// A swap of the holder's former life.
    ghost: Option<Swap>,
    swaps: u8,
    handed_over: bool,
    read_stale: bool,
    buffered_late: bool,
}

/// A step.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Action {
    /// Time passes.
    Tick,
    /// The holder's clock loses a tick.
    Slow,
    /// The standby's clock gains one.
    Fast,
    /// The holder sends a swap.
    Send,
    /// It lands or is refused.
    Land,
    /// The holder has the answer, or reads the object instead.
    Learn,
    /// The holder is killed and started again.
    Restart,
    /// The swap of its former life lands or is refused.
    LandGhost,
    /// The holder's background thread sees that its lease has ended.
    Notice,
    /// The holder answers a read.
    Answer,
    /// It begins a read that is answered after a put.
    Begin,
    /// The put lands, or is refused by the seal.
    LandPut,
    /// The read is answered.
    AnswerAfterPut,
    /// The holder acknowledges a buffered write.
    Buffer,
    /// The holder hands over.
    HandOver,
    /// The holder, whose lease was taken, has one again: the standby is gone.
    DrawAnew,
    /// The standby reads the lease object.
    Look,
    /// The standby takes over.
    TakeOver,
    /// It acknowledges a write.
    Write,
}

impl State {
    fn holders_clock(&self) -> u8 {
        self.now - self.holder.slow
    }

    fn standbys_clock(&self) -> u8 {
        self.now + self.standby.fast
    }
}

impl Lease {
    fn margin(&self) -> u8 {
        u8::from(self.rules.margin)
    }

    fn may_read(&self, state: &State) -> bool {
        let holder = &state.holder;
        let is_valid = if self.rules.clock_for_each_answer {
            state.holders_clock() < holder.valid_until
        } else {
            holder.believes
        };
        !holder.stopped && (!holder.obeys || is_valid)
    }

    fn may_take_over(&self, state: &State) -> bool {
        if state.standby.owns {
            return false;
        }
        if state.handed_over || !self.rules.refused_port_is_no_proof {
            return true;
        }
        let Some((seen, since)) = state.standby.seen else { return false };
        let has_waited = state.standbys_clock() >= since + TTL + self.margin() || !self.rules.standby_waits;
        let counts = seen.is_some() || !self.rules.standby_waits_for_lease;
        has_waited && counts && seen == state.object
    }

    fn send(&self, state: &mut State) {
        let before = state.holder.known;
        let counter = before.map_or(0, |bytes| bytes.counter) + u8::from(self.rules.counter);
        let nonce = if self.rules.nonce { state.holder.life } else { 0 };
        let makes = Bytes { is_standby: false, counter, nonce };
        state.holder.swap = Some(Swap { expects: before, makes, sent: state.holders_clock(), landed: None });
        state.holder.obeys = true;
        state.swaps += 1;
    }

    fn learn(&self, state: &mut State, swap: Swap) {
        let now = state.holders_clock();
        let holder = &mut state.holder;
        holder.swap = None;
        // After a conflict it reads back whether the object is as it made it.
        if swap.landed == Some(true) || state.object == Some(swap.makes) {
            let from = if self.rules.from_send_time { swap.sent } else { now };
            holder.known = Some(swap.makes);
            holder.valid_until = holder.valid_until.max(from + TTL - self.margin());
            holder.believes = !self.rules.clock_for_each_answer;
        } else {
            holder.known = state.object;
        }
    }

    fn restart(state: &mut State) {
        let holder = &mut state.holder;
        state.ghost = holder.swap.take();
        *holder = Holder {
            life: holder.life + 1,
            obeys: true,
            valid_until: 0,
            believes: false,
            known: state.object,
            pending: None,
            ..holder.clone()
        };
    }

    fn of_holder(&self, state: &State, actions: &mut Vec<Action>) {
        let holder = &state.holder;
        let lost = holder.known.is_some_and(|bytes| bytes.is_standby);
        match holder.swap {
            Some(Swap { landed: None, .. }) => actions.push(Action::Land),
            Some(_) => actions.push(Action::Learn),
            None if state.swaps < SWAPS && !lost && !holder.stopped => actions.push(Action::Send),
            None => {}
        }
        if holder.life == 0 && holder.swap.is_some() && !state.standby.owns {
            actions.push(Action::Restart);
        }
        if self.may_read(state) {
            actions.push(Action::Answer);
        }
        if self.may_read(state) || !self.rules.buffered_obeys_lease {
            actions.push(Action::Buffer);
        }
        if holder.believes && state.holders_clock() >= holder.valid_until {
            actions.push(Action::Notice);
        }
        match holder.pending {
            None if !holder.stopped => actions.push(Action::Begin),
            Some(Pending { put_landed: false, .. }) => actions.push(Action::LandPut),
            Some(_) => actions.push(Action::AnswerAfterPut),
            None => {}
        }
        if !state.handed_over && !state.standby.owns && self.may_read(state) {
            actions.push(Action::HandOver);
        }
        let ended = holder.obeys && state.holders_clock() >= holder.valid_until;
        if lost && ended && !holder.stopped {
            actions.push(Action::DrawAnew);
        }
    }
}

impl Model for Lease {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let holder = Holder {
            life: 0,
            obeys: false,
            slow: 0,
            valid_until: 0,
            believes: false,
            known: None,
            swap: None,
            pending: None,
            stopped: false,
        };
        vec![State {
            now: 1,
            object: None,
            holder,
            standby: Standby { seen: None, fast: 0, owns: false, wrote: false },
            ghost: None,
            swaps: 0,
            handed_over: false,
            read_stale: false,
            buffered_late: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.now < TICKS {
            actions.push(Action::Tick);
        }
        if state.holder.slow == 0 && state.holder.obeys {
            actions.push(Action::Slow);
        }
        if state.standby.fast == 0 && state.standby.seen.is_some() {
            actions.push(Action::Fast);
        }
        if state.ghost.is_some() {
            actions.push(Action::LandGhost);
        }
        self.of_holder(state, actions);
        if !state.standby.owns && state.standby.seen.is_none_or(|(seen, _)| seen != state.object) {
            actions.push(Action::Look);
        }
        if self.may_take_over(state) {
            actions.push(Action::TakeOver);
        }
        if state.standby.owns && !state.standby.wrote {
            actions.push(Action::Write);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Tick => state.now += 1,
            Action::Slow => state.holder.slow = 1,
            Action::Fast => state.standby.fast = 1,
            Action::Send => self.send(&mut state),
            Action::Land | Action::LandGhost => {
                let mut swap = if action == Action::Land { state.holder.swap } else { state.ghost.take() }?;
                let lands = state.object == swap.expects;
                swap.landed = Some(lands);
                if lands {
                    state.object = Some(swap.makes);
                }
                if action == Action::Land {
                    state.holder.swap = Some(swap);
                }
            }
            Action::Learn => self.learn(&mut state, last.holder.swap?),
            Action::Restart => Self::restart(&mut state),
            Action::Notice => state.holder.believes = false,
            Action::Answer => state.read_stale |= last.standby.wrote,
            Action::Begin => {
                state.holder.pending = Some(Pending { is_stale: last.standby.wrote, put_landed: false });
            }
            Action::LandPut if last.standby.owns => {
                state.holder.pending = None;
                state.holder.stopped = true;
            }
            Action::LandPut => state.holder.pending.as_mut()?.put_landed = true,
            Action::AnswerAfterPut => {
                let mut pending = state.holder.pending.take()?;
                // Without the rule it is read only now.
                pending.is_stale |= last.standby.wrote && !self.rules.put_after_read;
                state.read_stale |= pending.is_stale;
            }
            Action::Buffer => state.buffered_late |= last.standby.wrote,
            Action::HandOver => {
                state.handed_over = true;
                state.holder.stopped = self.rules.last_read_before_hand_over;
            }
            Action::DrawAnew if self.rules.new_lease_revives_nothing => state.holder.stopped = true,
            Action::DrawAnew => {
                state.holder.valid_until = state.holders_clock() + TTL;
                state.holder.believes = !self.rules.clock_for_each_answer;
            }
            Action::Look => state.standby.seen = Some((last.object, last.standbys_clock())),
            Action::TakeOver => {
                let counter = last.object.map_or(0, |bytes| bytes.counter) + 1;
                state.object = Some(Bytes { is_standby: true, counter, nonce: 9 });
                state.standby.owns = true;
            }
            Action::Write => state.standby.wrote = true,
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(FRESH, |_, state: &State| !state.read_stale),
            Property::always(BUFFERED, |_, state: &State| !state.buffered_late),
            Property::sometimes("a read by a lease that was renewed", |model: &Self, state: &State| {
                model.may_read(state) && state.holder.known.is_some_and(|bytes| bytes.counter == SWAPS)
            }),
            Property::sometimes("the standby writes after the lease ended", |_, state: &State| {
                state.standby.wrote && !state.handed_over && state.holder.obeys
            }),
            Property::sometimes("the standby writes after a hand-over", |_, state: &State| {
                state.standby.wrote && state.handed_over && state.now < TTL
            }),
            Property::sometimes("a swap of the former life lands", |_, state: &State| {
                state.holder.life == 1 && state.object.is_some_and(|bytes| bytes.nonce == 0)
            }),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lease_holds() {
        crate::check::holds::<Lease>(3_000_000);
    }

    #[test]
    fn each_rule_of_the_lease_is_needed() {
        crate::check::each_is_needed::<Lease>();
    }
}
