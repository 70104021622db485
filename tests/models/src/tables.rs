//! When a table may be deleted.
//!
//! *State.* The tables in the store, the edits of the stream, the owner of incarnation 1 and a recoverer, a
//! follower, a backup, and a compaction server of the first owner, which may be late. An edit gives up one
//! table for a new one. Edits are put in order and a recoverer seals in one step: how, see `stream`.
//!
//! *Actions.* An owner compacts: it puts a table and sends an edit. That lands or is refused; the owner
//! learns it, or is left in doubt. It deletes what waited long enough, and sweeps. A recoverer reads, seals,
//! claims. The follower reads the stream, the backup begins and ends. A tick is the time that deleting waits,
//! and the longest that a follower keeps a manifest; the old owner's lease is longer here.
//!
//! *Bound.* Two incarnations, one compaction in the first and two in the second, five ticks.
//!
//! *Properties.* Each table that somebody still needs is there, with what its edit says; strays are swept.

use crate::check::rules;
use stateright::{Model, Property};
use std::collections::{BTreeMap, BTreeSet};

const TICKS: u8 = 5;
/// Ticks for which deleting waits after the edit was acknowledged.
const KEEP: u8 = 1;
/// Ticks for which the old owner's lease lasts after the seal.
const LEASE: u8 = 2;

const NEEDED: &str = "a table that somebody needs is there";
const CONTENT: &str = "a table holds what its edit says";
const STRAYS: &str = "a stray can be swept";

rules! { Tables:
    /// A table is deleted after the edit that gives it up was acknowledged.
    delete_after_edit: 15 => NEEDED,
    /// In doubt about an edit nothing is deleted.
    in_doubt_delete_nothing: 9 => NEEDED,
    /// Deleting waits for `keep_deleted`, for the sake of followers.
    keep_deleted: 15 => NEEDED,
    /// Deleting waits for the end of the old owner's lease.
    old_lease_ends: 15 => NEEDED,
    /// What waits is in the manifest: a recoverer goes on waiting.
    waiting_is_in_the_manifest: 15 => NEEDED,
    /// A backup holds its tables by an edit.
    backups_hold: 15 => NEEDED,
    /// A sweep takes names of lower incarnations only: those of its own are of compactions that run.
    sweep_lower_only: 23 => NEEDED,
    /// The first sweep is after the first acknowledged object of the incarnation, not before the seal.
    sweep_after_claim: 23 => NEEDED,
    /// Sweeps are repeated: a compaction server of the old owner may be late.
    sweep_again: 23 => STRAYS,
    /// A table's name has the incarnation in it: a late stray is not taken for a new table.
    names_carry_incarnation: 23 => CONTENT,
}

/// The model of tables.
pub struct Tables {
    rules: Rules,
}

/// The name of a table: incarnation and number.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Name(u8, u8);

/// Tables, with the process that wrote each.
type Contents = BTreeMap<Name, u8>;

/// An edit of the stream.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Edit {
    by: u8,
    adds: Name,
    drops: Name,
}

/// What an owner knows of its edit.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Sent {
    /// It is under way.
    Flying(Edit),
    /// It is in the stream, and its sender does not know yet.
    Landed(Edit),
}

/// The recoverer.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Recoverer {
    /// It has not started.
    Asleep,
    /// It read this manifest.
    Read(Contents),
    /// Its seal is the end of incarnation 1.
    Sealed,
    /// It owns incarnation 2.
    Owner,
}

/// The old owner.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Old {
    /// It writes.
    Writes,
    /// It does not know what became of its edit, and writes no more.
    Doubts,
    /// It met the seal.
    Stopped,
}

/// What is in the store and who uses it.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct State {
    ticks: u8,
    store: Contents,
    /// What the edits in the stream make.
    manifest: Contents,
    /// What was given up, since when it waits, and who gave it up.
    waiting: BTreeMap<Name, (u8, u8)>,
    /// By process.
    sent: [Option<Sent>; 2],
    /// What the old owner reads, and how long its lease lasts.
    old: Old,
    old_reads: Contents,
    lease: u8,
    recoverer: Recoverer,
    /// What the follower reads, and the age of that.
    follower: Option<(BTreeSet<Name>, u8)>,
    backup: Option<BTreeSet<Name>>,
    /// What was counted: numbers of tables by process, strays, sweeps.
    made: [u8; 2],
    stray: bool,
    swept: bool,
}

/// A step.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Action {
    /// Time passes.
    Tick,
    /// An owner puts a table and sends the edit that it replaces another.
    Compact(u8),
    /// An edit lands, or is refused by the seal.
    Land(u8),
    /// An owner learns that its edit is in the stream.
    Learn(u8),
    /// The old owner has no answer, and writes no more.
    Doubt,
    /// An owner deletes a table.
    Delete(u8, Name),
    /// The recoverer reads the stream.
    Read,
    /// The recoverer seals it.
    Seal,
    /// The recoverer's object 0 is acknowledged.
    Claim,
    /// The recoverer deletes what nobody names.
    Sweep,
    /// A compaction server of the old owner puts its table.
    Stray,
    /// The follower reads the stream on.
    Follow,
    /// A backup begins.
    Begin,
    /// It ends.
    End,
}

impl State {
    fn is_sealed(&self) -> bool {
        matches!(self.recoverer, Recoverer::Sealed | Recoverer::Owner)
    }

    fn owns(&self, by: u8) -> bool {
        if by == 0 { self.old == Old::Writes } else { self.recoverer == Recoverer::Owner }
    }

    /// Whether somebody needs the table.
    fn needs(&self, name: &Name) -> bool {
        let old = self.lease > 0 && self.old_reads.contains_key(name);
        let follower = self.follower.as_ref().is_some_and(|(tables, _)| tables.contains(name));
        self.manifest.contains_key(name) || old || follower || self.holds(name)
    }

    fn holds(&self, name: &Name) -> bool {
        self.backup.as_ref().is_some_and(|tables| tables.contains(name))
    }
}

impl Tables {
    fn compact(&self, state: &mut State, by: u8) {
        let made = &mut state.made[usize::from(by)];
        *made += 1;
        let k = if self.rules.names_carry_incarnation { by + 1 } else { 1 };
        let adds = Name(k, *made);
        // Put once: if the name is there, so it stays.
        state.store.entry(adds).or_insert(by);
        let Some(drops) = state.manifest.keys().next().copied() else { return };
        state.sent[usize::from(by)] = Some(Sent::Flying(Edit { by, adds, drops }));
    }

    fn land(&self, state: &mut State, by: u8) {
        let Some(Sent::Flying(edit)) = state.sent[usize::from(by)] else { return };
        if by == 0 && state.is_sealed() {
            state.sent[0] = None;
            if state.old == Old::Writes {
                state.old = Old::Stopped;
            }
            return;
        }
        state.manifest.remove(&edit.drops);
        state.manifest.insert(edit.adds, by);
        state.sent[usize::from(by)] = Some(Sent::Landed(edit));
        state.waiting.insert(edit.drops, (0, by));
    }

    /// What a process may delete by name.
    fn deletable(&self, state: &State, by: u8) -> Vec<Name> {
        let is_over = |age: u8| age >= KEEP || !self.rules.keep_deleted;
        let lease_ended = by == 0 || state.lease == 0 || !self.rules.old_lease_ends;
        let in_flight = match state.sent[usize::from(by)] {
            Some(Sent::Landed(edit) | Sent::Flying(edit)) => Some(edit),
            None => None,
        };
        let mut names: Vec<Name> = Vec::new();
        if state.owns(by) {
            let mine = state.waiting.iter().filter(|(name, (age, giver))| {
                // The old owner knows nothing of what the new one gave up.
                let is_known = by == 1 || *giver == by;
                let is_known = is_known && in_flight.is_none_or(|edit| edit.drops != **name);
                let is_held = state.holds(name) && self.rules.backups_hold;
                is_known && is_over(*age) && lease_ended && !is_held
            });
            names.extend(mine.map(|(name, _)| *name));
            if let Some(edit) = in_flight.filter(|_| !self.rules.delete_after_edit) {
                names.push(edit.drops);
            }
        }
        if let (0, Old::Doubts, Some(edit), false) =
            (by, state.old, in_flight, self.rules.in_doubt_delete_nothing)
        {
            names.push(edit.adds);
        }
        names.retain(|name| state.store.contains_key(name));
        names
    }

    fn sweep(&self, state: &mut State) {
        let manifest = match &state.recoverer {
            Recoverer::Read(manifest) => manifest.clone(),
            _ => state.manifest.clone(),
        };
        let (waiting, backup) = (state.waiting.clone(), state.backup.clone().unwrap_or_default());
        let held = |name: &Name| backup.contains(name) && self.rules.backups_hold;
        let own = if self.rules.names_carry_incarnation { 2 } else { 1 };
        let is_lower = |name: &Name| name.0 < own || !self.rules.sweep_lower_only;
        state.store.retain(|name, _| {
            !is_lower(name) || manifest.contains_key(name) || waiting.contains_key(name) || held(name)
        });
        state.swept = true;
    }

    fn may_sweep(&self, state: &State) -> bool {
        let is_time = match state.recoverer {
            Recoverer::Owner => true,
            Recoverer::Read(_) => !self.rules.sweep_after_claim,
            _ => false,
        };
        is_time && (self.rules.sweep_again || !state.swept)
    }

    fn of_owner(&self, state: &State, by: u8, actions: &mut Vec<Action>) {
        match state.sent[usize::from(by)] {
            Some(Sent::Flying(_)) => {
                actions.push(Action::Land(by));
                if by == 0 && state.old == Old::Writes {
                    actions.push(Action::Doubt);
                }
            }
            Some(Sent::Landed(_)) if state.owns(by) => actions.push(Action::Learn(by)),
            None if state.owns(by) && state.made[usize::from(by)] <= by => actions.push(Action::Compact(by)),
            _ => {}
        }
        actions.extend(self.deletable(state, by).into_iter().map(|name| Action::Delete(by, name)));
    }

    fn tick(&self, state: &mut State) {
        state.ticks += 1;
        state.waiting.values_mut().for_each(|(age, _)| *age = (*age + 1).min(KEEP));
        if state.is_sealed() {
            state.lease = state.lease.saturating_sub(1);
        }
        // A follower reads no tables of a manifest that is as old as this.
        state.follower =
            state.follower.take().map(|(tables, age)| (tables, age + 1)).filter(|(_, age)| *age < KEEP);
    }
}

impl Model for Tables {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let first = Contents::from([(Name(1, 0), 0)]);
        vec![State {
            ticks: 0,
            store: first.clone(),
            manifest: first.clone(),
            waiting: BTreeMap::new(),
            sent: [None; 2],
            old: Old::Writes,
            old_reads: first,
            lease: LEASE,
            recoverer: Recoverer::Asleep,
            follower: None,
            backup: None,
            made: [0; 2],
            stray: false,
            swept: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.ticks < TICKS {
            actions.push(Action::Tick);
        }
        (0..2).for_each(|by| self.of_owner(state, by, actions));
        match state.recoverer {
            Recoverer::Asleep => actions.push(Action::Read),
            // What landed meanwhile it reads before it seals.
            Recoverer::Read(_) => actions.push(Action::Seal),
            Recoverer::Sealed => actions.push(Action::Claim),
            Recoverer::Owner => {}
        }
        if self.may_sweep(state) {
            actions.push(Action::Sweep);
        }
        if !state.stray {
            actions.push(Action::Stray);
        }
        actions.push(Action::Follow);
        actions.push(if state.backup.is_none() { Action::Begin } else { Action::End });
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Tick => self.tick(&mut state),
            Action::Compact(by) => self.compact(&mut state, by),
            Action::Land(by) => self.land(&mut state, by),
            Action::Learn(by) => {
                let Some(Sent::Landed(edit)) = state.sent[usize::from(by)].take() else { return None };
                // Deleting waits from the acknowledgement on.
                state.waiting.insert(edit.drops, (0, by));
                if by == 0 {
                    state.old_reads.remove(&edit.drops);
                    state.old_reads.insert(edit.adds, by);
                }
            }
            Action::Doubt => state.old = Old::Doubts,
            Action::Delete(_, name) => {
                state.store.remove(&name);
                state.waiting.remove(&name);
            }
            Action::Read => state.recoverer = Recoverer::Read(state.manifest.clone()),
            Action::Seal => state.recoverer = Recoverer::Sealed,
            Action::Claim => {
                state.recoverer = Recoverer::Owner;
                if !self.rules.waiting_is_in_the_manifest {
                    state.waiting.clear();
                }
            }
            Action::Sweep => self.sweep(&mut state),
            Action::Stray => {
                state.store.entry(Name(1, 2)).or_insert(2);
                state.stray = true;
            }
            Action::Follow => state.follower = Some((state.manifest.keys().copied().collect(), 0)),
            Action::Begin => state.backup = Some(state.manifest.keys().copied().collect()),
            Action::End => state.backup = None,
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(NEEDED, |_, state: &State| {
                let names = state.manifest.keys().chain(state.old_reads.keys()).copied();
                let follower = state.follower.iter().flat_map(|(tables, _)| tables).copied();
                let backup = state.backup.iter().flatten().copied();
                let mut names = names.chain(follower).chain(backup);
                names.all(|name| !state.needs(&name) || state.store.contains_key(&name))
            }),
            Property::always(CONTENT, |_, state: &State| {
                state.manifest.iter().all(|(name, by)| state.store.get(name).is_none_or(|is| is == by))
            }),
            Property::always(STRAYS, |model: &Self, state: &State| {
                let is_stray =
                    |name: &Name| name.0 < 2 && !state.needs(name) && !state.waiting.contains_key(name);
                let is_done = state.recoverer == Recoverer::Owner;
                !is_done || model.may_sweep(state) || !state.store.keys().any(is_stray)
            }),
            Property::sometimes("the recoverer deletes what the old owner gave up", |_, state: &State| {
                state.recoverer == Recoverer::Owner
                    && state.made == [1, 0]
                    && !state.store.contains_key(&Name(1, 0))
                    && state.manifest.contains_key(&Name(1, 1))
            }),
            Property::sometimes("a table waits for the old lease", |_, state: &State| {
                state.lease > 0 && state.waiting.values().any(|(age, _)| *age == KEEP) && state.made[1] > 0
            }),
            Property::sometimes("a backup holds what was given up long ago", |_, state: &State| {
                let is_old = |(name, (age, _)): (&Name, &(u8, u8))| *age == KEEP && state.holds(name);
                state.waiting.iter().any(is_old)
            }),
            Property::sometimes("a stray is swept", |_, state: &State| {
                state.swept && state.stray && !state.store.contains_key(&Name(1, 2))
            }),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_hold() {
        crate::check::holds::<Tables>(150_000);
    }

    #[test]
    fn each_rule_of_tables_is_needed() {
        crate::check::each_is_needed::<Tables>();
    }
}
