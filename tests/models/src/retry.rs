//! Calls that are asked again: by a client, on a hint of ours, or by a front end.
//!
//! *State.* One increment of a client, on its way through a front end to an owner, which may be replaced by
//! another one. The log holds each put of the increment that landed. A put may land long after its answer was
//! lost. An answer says: done; failed, ask again (`RetryInfo`: nothing was put); or unknown. A client asks
//! again by itself after the hint; after "unknown" only with an idempotency token. What it asks again carries
//! the same server time.
//!
//! *Actions.* The front end forwards. The owner puts the increment, or answers that it does not own. A put
//! lands, or another owner seals before. The owner learns the outcome, reads it back, or does not know. The
//! client asks again.
//!
//! *Bound.* Four attempts, two owners.
//!
//! *Properties.* The increment is counted once; when the answer was "done" it is there; what carries a server
//! time has one.

use crate::check::rules;
use stateright::{Model, Property};

const ATTEMPTS: u8 = 4;

const ONCE: &str = "an increment is counted once";
const DONE: &str = "what was answered with success is there";
const TRUE: &str = "a call that failed with a hint was not put";
const TIME: &str = "a call has one server time";

rules! { Retry:
    /// RetryInfo is sent only where it is certain that nothing was put.
    hint_only_if_not_put: 14 => TRUE,
    /// A front end asks again only where nothing was put.
    front_end_only_if_not_put: 14 => ONCE,
    /// A refused put is read back: if it is one's own, the call succeeded.
    own_put_is_known: 14 => TRUE,
    /// A place that is read back empty is not "failed": the put may still land.
    absent_is_unknown: 14 => TRUE,
    /// A call is done when its put is there, not when another's is.
    theirs_is_not_done: 14 => DONE,
    /// Tokens are in the frames: the next owner knows them.
    tokens_are_in_frames: 14 => ONCE,
    /// Calls with one token wait for the one that is under way.
    token_waits: 14 => ONCE,
    /// The front end fixes the server time before it forwards.
    front_end_fixes_time: 14 => TIME,
}

/// The model of calls that are asked again.
pub struct Retry {
    rules: Rules,
}

/// A put of the increment.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Put {
    owner: u8,
    time: u8,
    /// Whether it landed, and whether it still may.
    landed: bool,
    refused: bool,
    /// Whether its owner still has a call that waits for it.
    waits: bool,
}

/// Where the call is.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Call {
    /// The front end has it.
    FrontEnd,
    /// An owner has it.
    Owner(u8),
    /// The owner waits for this put.
    Waits(usize),
    /// The client was told to ask again.
    Hint,
    /// The client was told that the outcome is not known.
    Unknown,
    /// The client was told that it succeeded.
    Done,
}

/// The call, the puts and the owners.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct State {
    has_token: bool,
    call: Call,
    attempts: u8,
    time: u8,
    puts: Vec<Put>,
    newest: u8,
    /// Tokens that an owner knows, without those in the frames.
    remembers: [bool; 2],
    hint_was_wrong: bool,
}

/// A step.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Action {
    /// The front end sends the call to an owner, or a former one.
    Forward(u8),
    /// The owner sends its put, or answers from a token.
    Apply,
    /// A former owner that knows it answers that nothing was put.
    NotMine,
    /// A put lands.
    Land(usize),
    /// Another owner takes over; the first one's puts are refused from then on.
    TakeOver,
    /// The owner learns the outcome of its put.
    Learn,
    /// The deadline passes without an outcome.
    Deadline,
    /// The client asks again.
    Again,
}

impl State {
    /// A hint after an attempt that made this put, or none. Of earlier ones the client was told what is
    /// known.
    fn hint(&mut self, put: Option<usize>) {
        self.hint_was_wrong |= put.is_some_and(|at| !self.puts[at].refused);
        self.call = Call::Hint;
    }

    fn landed(&self) -> usize {
        self.puts.iter().filter(|put| put.landed).count()
    }
}

impl Retry {
    fn apply(&self, state: &mut State, owner: u8) {
        let is_in_frames = self.rules.tokens_are_in_frames && state.landed() > 0;
        let known = state.has_token && (is_in_frames || state.remembers[usize::from(owner)]);
        if known {
            state.call = Call::Done;
            return;
        }
        let is_under_way = |put: &Put| put.owner == owner && !put.refused && put.waits;
        let under_way = state.puts.iter().position(is_under_way);
        if let Some(at) = under_way.filter(|_| state.has_token && self.rules.token_waits) {
            state.call = Call::Waits(at);
            return;
        }
        // By the owner's own clock.
        let time = if self.rules.front_end_fixes_time { state.time } else { owner + 1 };
        state.puts.push(Put { owner, time, landed: false, refused: false, waits: true });
        state.call = Call::Waits(state.puts.len() - 1);
    }

    fn learn(&self, state: &mut State, at: usize) -> Option<()> {
        let put = state.puts[at];
        if put.landed {
            state.puts[at].waits = false;
            state.remembers[usize::from(put.owner)] = true;
            if self.rules.own_put_is_known {
                state.call = Call::Done;
            } else {
                // "Exists" is taken for another's.
                state.hint(Some(at));
            }
        } else if put.refused {
            state.puts[at].waits = false;
            if self.rules.theirs_is_not_done {
                state.hint(Some(at));
            } else {
                state.call = Call::Done;
            }
        } else if self.rules.absent_is_unknown {
            return None;
        } else {
            state.hint(Some(at));
        }
        Some(())
    }

    /// What the front end does when it has no answer.
    fn no_answer(&self, state: &mut State, at: usize) {
        if !self.rules.hint_only_if_not_put {
            state.hint(Some(at));
        } else if !self.rules.front_end_only_if_not_put && state.attempts < ATTEMPTS {
            state.call = Call::FrontEnd;
            state.attempts += 1;
        } else {
            state.call = Call::Unknown;
        }
    }
}

impl Model for Retry {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let state = |has_token| State {
            has_token,
            call: Call::FrontEnd,
            attempts: 1,
            time: 1,
            puts: Vec::new(),
            newest: 0,
            remembers: [false; 2],
            hint_was_wrong: false,
        };
        vec![state(false), state(true)]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        match state.call {
            Call::FrontEnd => actions.extend((0..=state.newest).map(Action::Forward)),
            Call::Owner(owner) => {
                actions.push(Action::Apply);
                if owner < state.newest {
                    actions.push(Action::NotMine);
                }
            }
            Call::Waits(_) => actions.extend([Action::Learn, Action::Deadline]),
            Call::Hint if state.attempts < ATTEMPTS => actions.push(Action::Again),
            Call::Unknown if state.attempts < ATTEMPTS && state.has_token => actions.push(Action::Again),
            Call::Hint | Call::Unknown | Call::Done => {}
        }
        if state.newest == 0 {
            actions.push(Action::TakeOver);
        }
        let flying = |(_, put): &(usize, &Put)| !put.landed && !put.refused;
        actions.extend(state.puts.iter().enumerate().filter(flying).map(|(at, _)| Action::Land(at)));
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match (action, last.call) {
            (Action::Forward(owner), _) => state.call = Call::Owner(owner),
            (Action::Apply, Call::Owner(owner)) => self.apply(&mut state, owner),
            (Action::NotMine, _) if last.attempts < ATTEMPTS => {
                state.call = Call::FrontEnd;
                state.attempts += 1;
            }
            (Action::NotMine, _) => state.hint(None),
            (Action::Land(at), _) => state.puts[at].landed = true,
            (Action::TakeOver, _) => {
                state.newest = 1;
                state.puts.iter_mut().filter(|put| !put.landed).for_each(|put| put.refused = true);
            }
            (Action::Learn, Call::Waits(at)) => self.learn(&mut state, at)?,
            (Action::Deadline, Call::Waits(at)) => self.no_answer(&mut state, at),
            (Action::Again, _) => {
                state.call = Call::FrontEnd;
                state.attempts += 1;
            }
            (Action::Apply | Action::Learn | Action::Deadline, _) => return None,
        }
        // A former owner cannot put any more.
        state
            .puts
            .iter_mut()
            .filter(|put| put.owner < last.newest && !put.landed)
            .for_each(|put| put.refused = true);
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(ONCE, |_, state: &State| state.landed() <= 1),
            Property::always(DONE, |_, state: &State| state.call != Call::Done || state.landed() > 0),
            Property::always(TRUE, |_, state: &State| !state.hint_was_wrong),
            Property::always(TIME, |_, state: &State| {
                state.puts.windows(2).all(|two| two[0].time == two[1].time)
            }),
            Property::sometimes("a call succeeds after a hint", |_, state: &State| {
                state.call == Call::Done && state.puts.iter().any(|put| put.refused)
            }),
            Property::sometimes("the next owner answers from a token", |_, state: &State| {
                state.call == Call::Done && state.attempts > 1 && state.puts.len() == 1 && state.newest == 1
            }),
            Property::sometimes("an unknown outcome lands later", |_, state: &State| {
                state.call == Call::Unknown && state.landed() == 1
            }),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_hold() {
        crate::check::holds::<Retry>(800);
    }

    #[test]
    fn each_rule_of_retries_is_needed() {
        crate::check::each_is_needed::<Retry>();
    }
}
