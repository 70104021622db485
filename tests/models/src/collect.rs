//! What is deleted of the stream, and where replay begins: checkpoints, `first`, sealed incarnations.
//!
//! *State.* The stream of three incarnations, the checkpoints (a manifest as of a place), and three
//! processes: the owner of incarnation 1 and two recoverers. A write is a bit. A flush is an edit that says
//! which writes are in tables from then on, and up to which place memory needs no more frames: `first`. A
//! flush is in flight until it lands or is refused, and a checkpoint too. What puts do otherwise, see
//! `stream`.
//!
//! *Actions.* An owner writes, flushes, writes a checkpoint, names it by an edit, ends its incarnation and
//! claims the next, collects. A recoverer begins at the newest object 0, reads place after place, seals the
//! first empty one and claims.
//!
//! *Bound.* Three incarnations, four places in each, two writes in all, a checkpoint of each of two owners.
//!
//! *Properties.* The owner of the newest incarnation has exactly what was acknowledged; all that a recoverer
//! needs is there; one incarnation is open.

use crate::check::rules;
use crate::place::Place;
use stateright::{Model, Property};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

const PROCESSES: usize = 3;
const INCARNATIONS: u8 = 3;
const PLACES: u8 = 4;
const WRITES: u8 = 2;

const LOST: &str = "the newest owner has every acknowledged write";
const NEEDED: &str = "all that a recoverer needs is there";
const OPEN: &str = "one incarnation is open";

rules! { Collect:
    /// Frames are replayed from `first`, the oldest place that memory needed, and not from the checkpoint.
    frames_from_first: 1 => LOST,
    /// Nothing from `first` on is deleted, though the checkpoint is newer.
    frames_kept_from_first: 1 => NEEDED,
    /// Nothing of an unsealed incarnation is deleted.
    collect_sealed_only: 2 => LOST,
    /// Object 0 of each incarnation stays for ever: nobody claims it again.
    zero_stays: 3 => LOST,
    /// The seal of each incarnation stays for ever: its owner, however late, is refused there.
    seal_stays: 2 => LOST,
    /// The newest incarnation is found by reading object 0 upwards from any hint, which may be old.
    newest_is_read_upwards: 3 => NEEDED,
    /// A place that is missing below a known end means: begin anew at the newest object 0.
    missing_begins_anew: 4 => LOST,
    /// An incarnation ends at the seal that the next object 0 names. A slow recoverer's seal may lie below
    /// it, where something was collected.
    end_is_the_named_seal: 4 => LOST,
    /// A checkpoint counts only if an acknowledged place or an object 0 names it.
    checkpoint_is_named: 5 => LOST,
    /// A recoverer begins at the newest checkpoint that a place of the newest incarnation names: that of its
    /// object 0 may be deleted.
    newest_named_is_taken: 5 => NEEDED,
    /// An owner names a checkpoint only after it was put.
    named_when_there: 5 => NEEDED,
}

/// The model of collecting.
pub struct Collect {
    rules: Rules,
}

/// A set of writes.
type Writes = u8;

/// An object of the stream.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Object {
    /// The claim of an incarnation, with the newest checkpoint that counts and the seal that it follows.
    Zero(Place, Place),
    /// A write.
    Frame(Writes),
    /// An edit: these writes are in tables now, and memory needs frames from this place on.
    Flush(Writes, Place),
    /// An edit: this checkpoint counts.
    Named(Place),
    /// The end of an incarnation.
    Seal,
}

/// A checkpoint: the manifest as of a place.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Manifest {
    tables: Writes,
    first: Place,
}

/// What a process is doing.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Phase {
    /// It has not begun, or begins anew.
    Asleep,
    /// It replays what an object 0 of incarnation `newest` told it to.
    Reading {
        /// The newest incarnation it knows of.
        newest: u8,
    },
    /// It put or read the seal of the incarnation that it was in.
    Sealed,
    /// It owns the incarnation that it is in.
    Owner,
    /// It met another's object where it wrote.
    Stopped,
}

/// A process: where it is in the stream and what it knows.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Process {
    phase: Phase,
    /// The next place to read or to write.
    at: Place,
    manifest: Manifest,
    memory: Writes,
    /// The newest checkpoint that counts.
    counts: Place,
    /// A checkpoint whose put landed.
    written: Option<Place>,
    sent: Option<Object>,
}

impl Process {
    /// What it finds in memory and in the tables that exist.
    fn has(&self, exist: Writes) -> Writes {
        self.memory | self.manifest.tables & exist
    }

    fn apply(&mut self, at: Place, object: Object) {
        match object {
            Object::Frame(write) => self.memory |= write,
            // What the checkpoint says already is not applied again.
            Object::Flush(writes, first) if at > self.counts => {
                self.manifest = Manifest { tables: self.manifest.tables | writes, first };
                self.memory &= !writes;
            }
            Object::Named(checkpoint) if at > self.counts => self.counts = checkpoint,
            _ => {}
        }
    }
}

/// What is in the store, on the way there and in the processes.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct State {
    stream: BTreeMap<Place, Object>,
    checkpoints: BTreeMap<Place, Manifest>,
    /// A checkpoint of each process that was sent and has not landed.
    late: [Option<(Place, Manifest)>; PROCESSES],
    processes: [Process; PROCESSES],
    acknowledged: Writes,
    /// What is in tables: those of an edit that never came into the stream are swept.
    exist: Writes,
    /// The newest incarnation that was ever claimed.
    claimed: u8,
    collected: bool,
}

/// A step.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Action {
    /// An owner writes: a frame lands, or is refused.
    Write(usize),
    /// An owner sends an edit: all of its memory is in tables.
    Flush(usize),
    /// An owner sends a checkpoint, as of its newest place.
    Checkpoint(usize),
    /// A checkpoint lands.
    LandCheckpoint(usize),
    /// An owner's edit that names its checkpoint lands, or is refused.
    Name(usize),
    /// An owner's flush lands, or is refused.
    Land(usize),
    /// An owner seals its incarnation.
    End(usize),
    /// A process claims the next incarnation.
    Claim(usize),
    /// An owner deletes what nobody needs.
    Collect(usize),
    /// A recoverer looks for the newest object 0.
    Begin(usize),
    /// A recoverer reads its next place.
    Read(usize),
}

impl State {
    /// The newest incarnation, found by reading object 0 upwards.
    fn newest(&self) -> u8 {
        let claimed = |k: &u8| self.stream.contains_key(&Place { k: *k, n: 0 });
        (2..=INCARNATIONS).take_while(claimed).last().unwrap_or(1)
    }

    /// The owner of the newest incarnation.
    fn owner(&self) -> Option<&Process> {
        self.processes.iter().find(|process| process.phase == Phase::Owner && process.at.k == self.claimed)
    }
}

impl Collect {
    /// The incarnation that a recoverer with an old hint takes for the newest.
    fn newest(&self, state: &State) -> u8 {
        if self.rules.newest_is_read_upwards { state.newest() } else { 1 }
    }

    /// The newest checkpoint that a place of an incarnation or its object 0 names.
    fn named(&self, state: &State, k: u8) -> Option<Place> {
        let named = |(_, object): (_, &Object)| match object {
            Object::Named(checkpoint) if self.rules.newest_named_is_taken => Some(*checkpoint),
            Object::Zero(checkpoint, _) => Some(*checkpoint),
            _ => None,
        };
        state.stream.range(Place { k, n: 0 }..Place { k: k + 1, n: 0 }).rev().find_map(named)
    }

    /// Whether a recoverer that begins now finds its checkpoint, and each place that it is to read.
    fn is_complete(&self, state: &State) -> bool {
        let newest = self.newest(state);
        let Some(place) = self.named(state, newest) else { return false };
        let Some(manifest) = state.checkpoints.get(&place) else { return false };
        let mut at = manifest.first.min(place.next());
        while at.k < newest {
            let Some(object) = state.stream.get(&at) else { return false };
            at = if *object == Object::Seal { Place { k: at.k + 1, n: 1 } } else { at.next() };
        }
        true
    }

    /// The places that an owner may delete: what is older than its checkpoint, and than what that needs.
    fn garbage(&self, state: &State, p: usize) -> Vec<Place> {
        let process = &state.processes[p];
        let Some(Manifest { first, .. }) = state.checkpoints.get(&process.counts) else { return Vec::new() };
        let needed =
            if self.rules.frames_kept_from_first { process.counts.min(*first) } else { process.counts };
        let is_garbage = |(at, object): &(&Place, &Object)| {
            let stays = match object {
                Object::Zero(..) => self.rules.zero_stays,
                Object::Seal => self.rules.seal_stays,
                _ => false,
            };
            let is_sealed = at.k < process.at.k || !self.rules.collect_sealed_only;
            **at < needed && is_sealed && !stays
        };
        state.stream.iter().filter(is_garbage).map(|(at, _)| *at).collect()
    }

    fn begin(&self, state: &mut State, p: usize) -> Option<()> {
        let newest = self.newest(state);
        let named = self.named(state, newest)?;
        let highest = state.checkpoints.last_key_value().map_or(named, |(place, _)| *place);
        let counts = if self.rules.checkpoint_is_named { named } else { highest };
        let manifest = *state.checkpoints.get(&counts)?;
        let from =
            if self.rules.frames_from_first { manifest.first.min(counts.next()) } else { counts.next() };
        let phase = Phase::Reading { newest };
        state.processes[p] =
            Process { phase, at: from, manifest, counts, memory: 0, written: None, sent: None };
        Some(())
    }

    fn read(&self, state: &mut State, p: usize) -> Option<()> {
        let process = &mut state.processes[p];
        let Phase::Reading { newest } = process.phase else { return None };
        let at = process.at;
        let after = Place { k: at.k + 1, n: 1 };
        let is_end = match state.stream.get(&Place { n: 0, ..after }) {
            Some(Object::Zero(_, seal)) => *seal == at,
            _ => false,
        };
        match state.stream.get(&at) {
            Some(Object::Seal) if at.k == newest => process.phase = Phase::Sealed,
            Some(Object::Seal) if is_end || !self.rules.end_is_the_named_seal => process.at = after,
            Some(Object::Seal) => process.phase = Phase::Asleep,
            Some(object) => {
                process.apply(at, *object);
                process.at = at.next();
            }
            None if at.k < newest && self.rules.missing_begins_anew => process.phase = Phase::Asleep,
            None if at.k < newest => process.at = if at.n < PLACES { at.next() } else { after },
            None => {
                state.stream.insert(at, Object::Seal);
                process.phase = Phase::Sealed;
            }
        }
        Some(())
    }

    fn claim(&self, state: &mut State, p: usize) {
        let process = &mut state.processes[p];
        let zero = Place { k: process.at.k + 1, n: 0 };
        if let Entry::Vacant(free) = state.stream.entry(zero) {
            free.insert(Object::Zero(process.counts, process.at));
            process.phase = Phase::Owner;
            process.at = zero.next();
            state.claimed = state.claimed.max(zero.k);
        } else {
            process.phase = Phase::Asleep;
        }
    }

    fn land(&self, state: &mut State, p: usize) {
        let process = &mut state.processes[p];
        let (Some(object), at) = (process.sent.take(), process.at) else { return };
        if state.stream.contains_key(&at) {
            process.phase = Phase::Stopped;
            return;
        }
        state.stream.insert(at, object);
        process.apply(at, object);
        process.at = at.next();
        match object {
            Object::Frame(write) => state.acknowledged |= write,
            Object::Flush(writes, _) => state.exist |= writes,
            Object::Named(checkpoint) => {
                state.checkpoints.retain(|place, _| *place >= checkpoint);
            }
            _ => {}
        }
    }

    /// The manifest that an owner has when the put in flight has landed, with its place.
    fn checkpoint(process: &Process) -> (Place, Manifest) {
        let mut then = *process;
        let Some(object) = process.sent else {
            return (Place { n: process.at.n - 1, ..process.at }, process.manifest);
        };
        then.apply(process.at, object);
        (process.at, then.manifest)
    }

    fn of_owner(&self, state: &State, p: usize, actions: &mut Vec<Action>) {
        let process = &state.processes[p];
        if process.sent.is_some() {
            actions.push(Action::Land(p));
        } else if process.at.n < PLACES {
            if state.acknowledged.count_ones() < u32::from(WRITES) && process.at.k < INCARNATIONS {
                actions.push(Action::Write(p));
            }
            if process.memory != 0 {
                actions.push(Action::Flush(p));
            }
            let written = process.written.or(state.late[p].map(|(at, _)| at));
            let may_name = if self.rules.named_when_there { process.written } else { written };
            if may_name.is_some_and(|at| at > process.counts) {
                actions.push(Action::Name(p));
            }
        }
        let is_new = process.at.n > 1 || process.sent.is_some();
        let is_first = state.late[p].is_none() && process.written.is_none();
        if p + 1 < PROCESSES && is_first && is_new {
            actions.push(Action::Checkpoint(p));
        }
        if process.sent.is_none() && process.at.k < INCARNATIONS {
            actions.push(Action::End(p));
        }
        if !self.garbage(state, p).is_empty() {
            actions.push(Action::Collect(p));
        }
    }
}

impl Model for Collect {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let zero = Place { k: 1, n: 0 };
        let manifest = Manifest { tables: 0, first: zero.next() };
        let owner = Process {
            phase: Phase::Owner,
            at: zero.next(),
            manifest,
            memory: 0,
            counts: zero,
            written: None,
            sent: None,
        };
        let asleep = Process { phase: Phase::Asleep, ..owner };
        vec![State {
            stream: BTreeMap::from([(zero, Object::Zero(zero, zero))]),
            checkpoints: BTreeMap::from([(zero, manifest)]),
            late: [None; PROCESSES],
            processes: [owner, asleep, asleep],
            acknowledged: 0,
            exist: 0,
            claimed: 1,
            collected: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for p in 0..PROCESSES {
            match state.processes[p].phase {
                Phase::Asleep => actions.push(Action::Begin(p)),
                Phase::Reading { .. } => actions.push(Action::Read(p)),
                Phase::Sealed if state.processes[p].at.k < INCARNATIONS => actions.push(Action::Claim(p)),
                Phase::Owner => self.of_owner(state, p, actions),
                Phase::Sealed | Phase::Stopped => {}
            }
            if state.late[p].is_some() {
                actions.push(Action::LandCheckpoint(p));
            }
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Write(p) => {
                let write = 1 << state.acknowledged.count_ones();
                state.processes[p].sent = Some(Object::Frame(write));
                self.land(&mut state, p);
            }
            Action::Flush(p) => {
                let process = &mut state.processes[p];
                process.sent = Some(Object::Flush(process.memory, process.at.next()));
            }
            Action::Checkpoint(p) => state.late[p] = Some(Self::checkpoint(&state.processes[p])),
            Action::LandCheckpoint(p) => {
                let (place, manifest) = state.late[p].take()?;
                state.checkpoints.insert(place, manifest);
                if state.processes[p].phase == Phase::Owner {
                    state.processes[p].written = Some(place);
                }
            }
            Action::Name(p) => {
                let written = state.processes[p].written.or(state.late[p].map(|(at, _)| at))?;
                state.processes[p].sent = Some(Object::Named(written));
                self.land(&mut state, p);
            }
            Action::Land(p) => self.land(&mut state, p),
            Action::End(p) => {
                let process = &mut state.processes[p];
                let is_free = !state.stream.contains_key(&process.at);
                process.phase = if is_free { Phase::Sealed } else { Phase::Stopped };
                state.stream.entry(process.at).or_insert(Object::Seal);
            }
            Action::Claim(p) => self.claim(&mut state, p),
            Action::Collect(p) => {
                for at in self.garbage(last, p) {
                    state.stream.remove(&at);
                }
                state.collected = true;
            }
            Action::Begin(p) => self.begin(&mut state, p)?,
            Action::Read(p) => self.read(&mut state, p)?,
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(LOST, |_, state: &State| {
                state.owner().is_none_or(|owner| owner.has(state.exist) == state.acknowledged)
            }),
            Property::always(NEEDED, |model: &Self, state: &State| model.is_complete(state)),
            Property::always(OPEN, |_, state: &State| {
                let owners = |k| {
                    let owns = |process: &&Process| process.phase == Phase::Owner && process.at.k == k;
                    state.processes.iter().filter(owns).count()
                };
                let sealed = |k| {
                    let of = Place { k, n: 0 }..Place { k: k + 1, n: 0 };
                    state.stream.range(of).any(|(_, object)| *object == Object::Seal)
                };
                let is_open = |k: &u8| owners(*k) > 0 && !sealed(*k);
                (1..=INCARNATIONS).all(|k| owners(k) <= 1) && (1..=INCARNATIONS).filter(is_open).count() <= 1
            }),
            Property::sometimes("a recoverer owns what was collected behind it", |_, state: &State| {
                let owns = |process: &Process| process.phase == Phase::Owner && process.at.k > 1;
                state.collected && state.processes[1..].iter().any(owns) && state.acknowledged != 0
            }),
            Property::sometimes("a recoverer reads where it was collected", |_, state: &State| {
                let reads = |process: &Process| {
                    matches!(process.phase, Phase::Reading { newest } if process.at.k < newest)
                        && !state.stream.contains_key(&process.at)
                };
                state.processes.iter().any(reads)
            }),
            Property::sometimes("incarnation 3 has all writes", |_, state: &State| {
                state.owner().is_some_and(|owner| owner.at.k == 3)
                    && state.acknowledged.count_ones() == u32::from(WRITES)
            }),
            Property::sometimes("a checkpoint lands after the seal", |_, state: &State| {
                let lands = |(place, _): (&Place, _)| state.stream.get(place) == Some(&Object::Seal);
                state.checkpoints.iter().any(lands)
            }),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collecting_holds() {
        crate::check::holds::<Collect>(3_000_000);
    }

    #[test]
    fn each_rule_of_collecting_is_needed() {
        crate::check::each_is_needed::<Collect>();
    }
}
