//! The stream: puts in flight, holes, seals, and who may claim the next incarnation.
//!
//! *State.* The store's objects, the puts that were sent and may land at any later time, also after their
//! sender died, and three processes. The first owns incarnation 1. The others are recoverers, or the first
//! one started again: a process that takes no more steps is a dead one, so no action kills. A put whose
//! answer is lost, or is a 409, is one whose sender reads the place: it finds its own object, another's or
//! none. A put that is sent twice lands once, as objects are put once.
//!
//! *Actions.* An owner sends frames, two of them in flight, and may end its incarnation. A put lands. A
//! process reads a place, or the place of its own put.
//!
//! *Bound.* Three processes, three incarnations, two frames in each.
//!
//! *Properties.* What was acknowledged is in the log that a recoverer would read; whoever reads or owns has
//! seen a prefix of the log; one process writes an incarnation, and none of its frames comes after one of its
//! successor; one incarnation is open.

use crate::check::rules;
use crate::place::Place;
use stateright::{Model, Property};
use std::collections::{BTreeMap, BTreeSet};

const PROCESSES: u8 = 3;
const INCARNATIONS: u8 = 3;

const LOST: &str = "an acknowledged write is in the log";
const FORKED: &str = "every process has seen a prefix of the log";
const WRITERS: &str = "one process writes an incarnation";
const LATE: &str = "no frame comes after one of its writer's successor";
const OPEN: &str = "one incarnation is open";

rules! { Stream:
    /// A recoverer seals the first empty place, not the one after the last object that a list shows.
    seal_at_first_hole: 4 => FORKED,
    /// A frame is acknowledged when all places up to it are there.
    acknowledged_in_order: 4 => LOST,
    /// An owner's seal counts when all places below it are there: the lowest seal is the end.
    lowest_seal_counts: 4 => FORKED,
    /// Whoever meets a seal stops there, whatever lies above it.
    stop_at_seal: 4 => FORKED,
    /// A put that is refused is read back: its nonce tells one's own object from another's.
    nonce_tells_mine: 4 => LOST,
    /// An incarnation is claimed only by one that put or read the seal of the one before.
    claim_needs_seal: 3 => OPEN,
    /// Whoever finds the next incarnation claimed begins again there, and does not draw a higher number.
    no_gaps: 3 => OPEN,
    /// An object 0 that is there is not overwritten, and is not taken for one's own.
    claimed_once: 3 => WRITERS,
    /// A process that starts again is a recoverer: it goes on in an incarnation of its own.
    restart_seals: 6 => LATE,
}

/// The model of the stream.
pub struct Stream {
    rules: Rules,
}

/// What an object says.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum What {
    /// The claim of an incarnation.
    Zero,
    /// One write.
    Frame,
    /// The end of an incarnation.
    Seal,
}

/// An object, with its writer as nonce.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Object {
    by: u8,
    what: What,
}

/// A write is known by its writer and its place: each is sent to one place only.
type Write = (u8, Place);

/// What a process is doing.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Phase {
    /// It reads this place next. So begins a recoverer; one that has read nothing has not started.
    Reading(Place),
    /// Its seal was sent there.
    Sealing(Place),
    /// Its object 0 of this incarnation was sent.
    Claiming(u8),
    /// It owns the incarnation: `next` is its next place, those below `known` are acknowledged, and the last
    /// one sent is a seal if it `ends`.
    Owner {
        /// The incarnation.
        k: u8,
        /// Its next place.
        next: u8,
        /// The first place that is not acknowledged.
        known: u8,
        /// Whether its seal was sent.
        ends: bool,
    },
    /// It met another's object where it wrote.
    Stopped,
}

/// A process, with the writes that it has read or had acknowledged.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Process {
    phase: Phase,
    seen: Vec<Write>,
}

/// What is in the store, on the way there and in the processes.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct State {
    store: BTreeMap<Place, Object>,
    flights: BTreeSet<(Place, Object)>,
    processes: Vec<Process>,
    acknowledged: BTreeSet<Write>,
}

/// A step.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Action {
    /// A recoverer reads its next place, and those after it that are there.
    Read(u8),
    /// An owner sends a frame.
    Send(u8),
    /// An owner sends the seal of its own incarnation.
    End(u8),
    /// A put lands, or is refused.
    Land(Place, Object),
    /// A process learns what became of its first put that it waits for.
    Learn(u8),
    /// An owner takes a frame above a hole for acknowledged.
    LearnAboveHole(u8),
}

impl State {
    fn send(&mut self, by: u8, at: Place, what: What) {
        if !self.store.contains_key(&at) {
            self.flights.insert((at, Object { by, what }));
        }
    }

    fn claim(&mut self, by: u8, k: u8) {
        self.processes[usize::from(by)].phase = if k <= INCARNATIONS {
            self.send(by, Place { k, n: 0 }, What::Zero);
            Phase::Claiming(k)
        } else {
            Phase::Stopped
        };
    }

    /// The writes that a recoverer reads if no more puts land. A hole below a seal, which must not be, is
    /// where it takes the incarnation to end.
    fn log(&self) -> Vec<Write> {
        let mut log = Vec::new();
        let mut at = Place { k: 1, n: 1 };
        loop {
            match self.store.get(&at) {
                Some(Object { what: What::Frame, by }) => {
                    log.push((*by, at));
                    at = at.next();
                }
                None if !self.is_sealed(at.k) => return log,
                _ => at = Place { k: at.k + 1, n: 1 },
            }
        }
    }

    fn of(&self, k: u8) -> impl DoubleEndedIterator<Item = (&Place, &Object)> {
        self.store.range(Place { k, n: 0 }..Place { k: k + 1, n: 0 })
    }

    fn is_sealed(&self, k: u8) -> bool {
        self.of(k).any(|(_, object)| object.what == What::Seal)
    }

    fn is_claimed(&self, k: u8) -> bool {
        self.store.contains_key(&Place { k, n: 0 })
    }

    fn owners(&self, of: u8) -> impl Iterator<Item = u8> {
        (0..PROCESSES).filter(
            move |p| matches!(self.processes[usize::from(*p)].phase, Phase::Owner { k, .. } if k == of),
        )
    }
}

impl Stream {
    /// A recoverer at the first place that is empty.
    fn at_the_end(&self, state: &mut State, p: u8, at: Place) {
        let phase = &mut state.processes[usize::from(p)].phase;
        if !self.rules.restart_seals && p == 1 {
            // The first process, started again: it is there once.
            *phase = Phase::Owner { k: at.k, next: at.n, known: at.n, ends: false };
            state.processes[0].phase = Phase::Stopped;
        } else if !self.rules.claim_needs_seal {
            state.claim(p, at.k + 1);
        } else {
            let last = state.of(at.k).next_back().map_or(at, |(last, _)| last.next());
            let at = if self.rules.seal_at_first_hole { at } else { last };
            state.processes[usize::from(p)].phase = Phase::Sealing(at);
            state.send(p, at, What::Seal);
        }
    }

    /// A recoverer reads an object.
    fn read(&self, state: &mut State, p: u8, at: Place, object: Object) {
        let process = &mut state.processes[usize::from(p)];
        if object.what == What::Frame {
            process.seen.push((object.by, at));
            process.phase = Phase::Reading(at.next());
            return;
        }
        if !self.rules.stop_at_seal {
            let mut above = at.next();
            while let Some(Object { by, what: What::Frame }) = state.store.get(&above) {
                process.seen.push((*by, above));
                above = above.next();
            }
        }
        state.claim(p, at.k + 1);
    }

    /// An owner learns what lies at its first place that is not acknowledged.
    fn learn_own(&self, state: &mut State, p: u8, object: Object) {
        let process = &mut state.processes[usize::from(p)];
        let Phase::Owner { k, next, known, ends } = process.phase else { return };
        if object.by != p && self.rules.nonce_tells_mine {
            process.phase = Phase::Stopped;
        } else if ends && known + 1 == next {
            state.claim(p, k + 1);
        } else {
            let write = (p, Place { k, n: known });
            process.seen.push(write);
            process.phase = Phase::Owner { k, next, known: known + 1, ends };
            state.acknowledged.insert(write);
        }
    }

    fn learn(&self, state: &mut State, p: u8) -> Option<()> {
        match state.processes[usize::from(p)].phase {
            Phase::Sealing(at) => {
                let object = *state.store.get(&at)?;
                if object.by == p || object.what == What::Seal {
                    state.claim(p, at.k + 1);
                } else {
                    self.read(state, p, at, object);
                }
            }
            Phase::Claiming(k) => {
                let object = state.store.get(&Place { k, n: 0 })?;
                if object.by == p || !self.rules.claimed_once {
                    state.processes[usize::from(p)].phase =
                        Phase::Owner { k, next: 1, known: 1, ends: false };
                } else if self.rules.no_gaps {
                    state.processes[usize::from(p)].phase = Phase::Reading(Place { k, n: 1 });
                } else {
                    state.claim(p, k + 1);
                }
            }
            Phase::Owner { k, next, known, ends } => {
                let seal = Place { k, n: next - 1 };
                let is_in = |object: &&Object| object.by == p;
                if !self.rules.lowest_seal_counts && ends && state.store.get(&seal).filter(is_in).is_some() {
                    state.claim(p, k + 1);
                    return Some(());
                }
                if known == next {
                    return None;
                }
                let object = *state.store.get(&Place { k, n: known })?;
                self.learn_own(state, p, object);
            }
            _ => return None,
        }
        Some(())
    }

    fn of_process(&self, state: &State, p: u8, actions: &mut Vec<Action>) {
        match state.processes[usize::from(p)].phase {
            Phase::Reading(_) => actions.push(Action::Read(p)),
            Phase::Sealing(_) | Phase::Claiming(_) => actions.push(Action::Learn(p)),
            Phase::Owner { k, next, known, ends } => {
                let frames = 2;
                if !ends && next <= frames {
                    actions.push(Action::Send(p));
                }
                if !ends && k < INCARNATIONS {
                    actions.push(Action::End(p));
                }
                actions.push(Action::Learn(p));
                let above = Place { k, n: known + 1 };
                let is_there = state.store.get(&above) == Some(&Object { by: p, what: What::Frame });
                if !self.rules.acknowledged_in_order && is_there {
                    actions.push(Action::LearnAboveHole(p));
                }
            }
            Phase::Stopped => {}
        }
    }
}

impl Model for Stream {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let phase = Phase::Reading(Place { k: 1, n: 1 });
        let mut processes = vec![Process { phase, seen: Vec::new() }; usize::from(PROCESSES)];
        processes[0].phase = Phase::Owner { k: 1, next: 1, known: 1, ends: false };
        let store = BTreeMap::from([(Place { k: 1, n: 0 }, Object { by: 0, what: What::Zero })]);
        vec![State { store, flights: BTreeSet::new(), processes, acknowledged: BTreeSet::new() }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        (0..PROCESSES).for_each(|p| self.of_process(state, p, actions));
        actions.extend(state.flights.iter().map(|(at, object)| Action::Land(*at, *object)));
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Read(p) => {
                let Phase::Reading(at) = last.processes[usize::from(p)].phase else { return None };
                if !last.store.contains_key(&at) {
                    self.at_the_end(&mut state, p, at);
                }
                // Objects stay as they are: when each of them is read makes no difference.
                while let Phase::Reading(at) = state.processes[usize::from(p)].phase
                    && let Some(object) = last.store.get(&at)
                {
                    self.read(&mut state, p, at, *object);
                }
            }
            Action::Send(p) | Action::End(p) => {
                let ends = matches!(action, Action::End(_));
                let Phase::Owner { k, next, known, .. } = last.processes[usize::from(p)].phase else {
                    return None;
                };
                state.send(p, Place { k, n: next }, if ends { What::Seal } else { What::Frame });
                state.processes[usize::from(p)].phase = Phase::Owner { k, next: next + 1, known, ends };
            }
            Action::Land(at, object) => {
                // The other puts to this place are refused, whenever they arrive.
                state.flights.retain(|(to, _)| *to != at);
                state.store.insert(at, object);
            }
            Action::Learn(p) => self.learn(&mut state, p)?,
            Action::LearnAboveHole(p) => {
                let Phase::Owner { k, known, .. } = last.processes[usize::from(p)].phase else { return None };
                state.acknowledged.insert((p, Place { k, n: known + 1 }));
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(LOST, |_, state: &State| {
                let log = state.log();
                state.acknowledged.iter().all(|write| log.contains(write))
            }),
            Property::always(FORKED, |_, state: &State| {
                let log = state.log();
                state.processes.iter().all(|process| log.starts_with(&process.seen))
            }),
            Property::always(WRITERS, |_, state: &State| {
                (1..=INCARNATIONS).all(|k| state.owners(k).count() <= 1)
            }),
            Property::always(LATE, |_, state: &State| {
                // A process that starts again has the higher number.
                let is_late = |(a, b): &(&Write, &Write)| a.1.k == b.1.k && a.0 > b.0;
                let log = state.log();
                !log.iter().zip(log.iter().skip(1)).any(|two| is_late(&two))
            }),
            Property::always(OPEN, |_, state: &State| {
                (1..=INCARNATIONS).filter(|k| state.is_claimed(*k) && !state.is_sealed(*k)).count() <= 1
            }),
            Property::sometimes("incarnation 3 acknowledges", |_, state: &State| {
                state.acknowledged.iter().any(|(_, at)| at.k == 3)
            }),
            Property::sometimes("a write of each process is acknowledged", |_, state: &State| {
                (0..PROCESSES).all(|p| state.acknowledged.iter().any(|(by, _)| *by == p))
            }),
            Property::sometimes("a frame lies above a seal", |_, state: &State| {
                let at = |n| state.store.get(&Place { k: 1, n }).map(|object| object.what);
                at(1) == Some(What::Seal) && at(2) == Some(What::Frame)
            }),
            Property::sometimes("a frame lies above a hole", |_, state: &State| {
                let at = |n| state.store.contains_key(&Place { k: 1, n });
                !at(1) && at(2)
            }),
            Property::sometimes("a recoverer finds its claim taken", |_, state: &State| {
                let is_theirs = |k, p| {
                    state.store.get(&Place { k, n: 0 }).is_some_and(|object| usize::from(object.by) != p)
                };
                let mut processes = state.processes.iter().enumerate();
                processes.any(|(p, process)| matches!(process.phase, Phase::Claiming(k) if is_theirs(k, p)))
            }),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_holds() {
        crate::check::holds::<Stream>(600_000);
    }

    #[test]
    fn a_story_is_the_shortest() {
        let story = crate::check::story::<Stream>("acknowledged_in_order").unwrap();
        let steps: Vec<&str> = story.lines().filter_map(|line| line.strip_prefix("  ")).take(4).collect();
        assert_eq!((steps[0], steps[1], steps[3]), ("Send(0)", "Send(0)", "LearnAboveHole(0)"), "{story}");
        assert_eq!(crate::check::story::<Stream>("no_such_rule"), None);
    }

    #[test]
    fn each_rule_of_the_stream_is_needed() {
        crate::check::each_is_needed::<Stream>();
    }
}
