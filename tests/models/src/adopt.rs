//! A local database that becomes a shared one.
//!
//! *State.* Two copies of a directory, the shared storage, and a process on each directory, which may be
//! killed at any point. A directory holds one SSTable, which has one name in both and other bytes once the
//! copies went their own ways, one value in a WAL file of its own, and rows; its manifest may be marked with
//! a nonce. The storage holds the SSTable's object, the states that are in the stream, and the ids of the
//! place, of which each name is put once: "moving" with a nonce, and after it "database" or "undone". An id
//! may land late, when its process is gone.
//!
//! *Actions.* The command merges the value into a table, stops writes, marks the manifest, reserves the place
//! by "moving" with the mark's nonce, uploads the SSTable, puts the state with that nonce, and decides by
//! "database". Undoing puts "undone" under the name of that id, and removes the mark. A row is written. A
//! kill. An older command, which knows of local databases only, opens the directory.
//!
//! *Bound.* Two directories, one row before and one after a restart in each, one kill and one undone move in
//! each; three nonces, four ids.
//!
//! *Properties.* A directory is local, with all its rows, or its database is the shared one, with all its
//! rows; one directory is the shared database; a killed adoption can go on; the SSTable is the one that the
//! state names.

use crate::check::rules;
use stateright::{Model, Property};
use std::collections::BTreeSet;

const DIRECTORIES: usize = 2;
const KILLS: u8 = 1;
const NONCES: usize = 3;
const IDS: usize = 4;

const KEPT: &str = "a row that was acknowledged is in the database that is used";
const ONE: &str = "one directory is the shared database";
const RESUMES: &str = "a killed adoption can go on";
const THERE: &str = "the table is the one that the state names";
const VALUES: &str = "the shared database needs no local file";

rules! { Adopt:
    /// The state is put after the table was uploaded.
    uploaded_before_state: 12 => THERE,
    /// Values in local WAL files are merged into tables first.
    values_merged_first: 11 => VALUES,
    /// Writes stop before the manifest is marked.
    writes_stop: 12 => KEPT,
    /// The local manifest is marked before the place is reserved.
    marked_before_reserved: 12 => KEPT,
    /// The mark is one that older commands refuse.
    older_commands_refuse: 12 => KEPT,
    /// The nonce of "moving" is in the mark: a command that goes on knows its own.
    nonce_is_durable: 12 => RESUMES,
    /// "Moving" with another nonce is another copy's: the command refuses.
    theirs_refuses: 12 => ONE,
    /// Nothing is uploaded before the place is reserved: another copy's table has the same name.
    reserved_before_upload: 12 => THERE,
    /// The place is a database after its state is in the stream.
    state_before_database: 12 => KEPT,
    /// Undoing puts an id under the name of the one that decides, before the mark is removed.
    undone_by_an_id: 12 => KEPT,
}

/// The model of adopting.
pub struct Adopt {
    rules: Rules,
}

/// What a directory durably says.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Directory {
    has_local_values: bool,
    /// The nonce of the mark, if it is marked.
    mark: Option<u8>,
    /// Rows that were acknowledged.
    rows: u8,
    /// Whether its command found the place to be its database.
    is_done: bool,
    has_refused: bool,
    was_undone: bool,
    kills: u8,
}

/// The process that has a directory open.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Process {
    /// None has.
    None,
    /// The adopting command.
    Adopts {
        /// Whether writes are stopped.
        stopped: bool,
        /// The nonce of its move.
        nonce: u8,
        /// Whether it knows that the place is reserved for it.
        reserved: bool,
        /// Whether it uploaded the table.
        uploaded: bool,
    },
    /// A command that undoes the move with that nonce, and the number of the id that it sent.
    Undoes {
        /// The mark's nonce.
        nonce: u8,
        /// The number it sent.
        sent: Option<usize>,
    },
    /// A command that knows of local databases only.
    Older,
}

/// An id of the place, with the nonce of the move that it is about.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Id {
    /// The place is reserved.
    Moving(u8),
    /// The place is a database.
    Database(u8),
    /// The place is free.
    Undone(u8),
}

/// How far a move has come, by the ids.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Found {
    Free(usize),
    Begun(usize),
    Done,
    Undone,
    Taken,
}

/// Rows of a directory, as a table or a state has them.
type Copied = (usize, u8);

/// The directories, their processes and shared storage.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct State {
    directories: [Directory; DIRECTORIES],
    processes: [Process; DIRECTORIES],
    /// The directory of each nonce.
    nonces: Vec<usize>,
    ids: Vec<Id>,
    /// Ids that were sent, each with its number.
    sent: BTreeSet<(usize, Id)>,
    table: Option<Copied>,
    /// The states in the stream, by nonce.
    states: BTreeSet<(u8, Copied)>,
}

/// A step, in a directory.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Action {
    /// An id lands, or finds its name taken.
    Land(usize, Id),
    /// The adopting command starts, or goes on.
    Start(usize),
    /// The undoing command starts.
    StartUndoing(usize),
    /// An older command opens the directory.
    Older(usize),
    /// The process is killed.
    Kill(usize),
    /// A row is acknowledged by a local database.
    Write(usize),
    /// The value in a WAL file is merged into a table.
    Merge(usize),
    /// Writes stop.
    Stop(usize),
    /// The local manifest is marked with the command's nonce.
    Mark(usize),
    /// The local manifest is marked with a new nonce, as the move with the former one was undone.
    MarkAgain(usize),
    /// An id is sent.
    Send(usize, usize, Id),
    /// The command finds the place reserved for it.
    Reserved(usize),
    /// The command finds the place taken, and ends.
    Refuse(usize),
    /// The table is uploaded.
    Upload(usize),
    /// The state is put into the stream.
    PutState(usize),
    /// The command finds that the place is the database, and ends.
    Done(usize),
    /// The undoing command finds another id where it sent its own, and tries again.
    UndoAgain(usize),
    /// The mark is removed, and the undoing command ends.
    Unmark(usize),
    /// The undoing command finds that the place is the database, and ends.
    TooLate(usize),
}

impl State {
    fn find(&self, nonce: u8) -> Found {
        match self.ids.iter().position(|id| *id == Id::Moving(nonce)) {
            Some(at) => match self.ids.get(at + 1) {
                None => Found::Begun(at + 1),
                Some(Id::Database(_)) => Found::Done,
                Some(_) => Found::Undone,
            },
            None => match self.ids.last() {
                None | Some(Id::Undone(_)) => Found::Free(self.ids.len()),
                Some(_) => Found::Taken,
            },
        }
    }

    fn is_sent(&self, id: Id) -> bool {
        self.sent.iter().any(|(_, sent)| *sent == id)
    }

    fn state_of(&self, nonce: u8) -> Option<Copied> {
        self.states.iter().find(|(of, _)| *of == nonce).map(|(_, copied)| *copied)
    }

    /// A new nonce of a directory.
    fn draw(&mut self, d: usize) -> u8 {
        self.nonces.push(d);
        self.nonces.len() as u8
    }

    /// The nonces whose moves ended with the place as their database, each with its directory.
    fn decided(&self) -> impl Iterator<Item = (u8, usize)> {
        let moves = (1..=self.nonces.len() as u8).filter(move |nonce| self.find(*nonce) == Found::Done);
        moves.map(move |nonce| (nonce, self.nonces[usize::from(nonce) - 1]))
    }
}

impl Adopt {
    fn of_command(&self, state: &State, d: usize, actions: &mut Vec<Action>) {
        let (rules, directory) = (&self.rules, &state.directories[d]);
        let Process::Adopts { stopped, nonce, reserved, uploaded } = state.processes[d] else { return };
        let found = state.find(nonce);
        let is_marked = directory.mark.is_some();
        if (!stopped || !rules.writes_stop && !directory.is_done) && directory.rows <= directory.kills {
            actions.push(Action::Write(d));
        }
        if directory.has_local_values && !is_marked {
            actions.push(Action::Merge(d));
        }
        let is_merged = !directory.has_local_values || !rules.values_merged_first;
        if !stopped && is_merged {
            actions.push(Action::Stop(d));
        }
        let may_mark = found != Found::Taken && (rules.marked_before_reserved || found == Found::Done);
        if stopped && is_merged && may_mark && !is_marked {
            actions.push(Action::Mark(d));
        }
        if is_marked && found == Found::Undone {
            actions.push(Action::MarkAgain(d));
        }
        let is_ready = stopped && is_merged && (is_marked || !rules.marked_before_reserved);
        if is_ready && !reserved {
            match found {
                Found::Free(number) if !state.is_sent(Id::Moving(nonce)) => {
                    actions.push(Action::Send(d, number, Id::Moving(nonce)));
                }
                Found::Begun(_) | Found::Done => actions.push(Action::Reserved(d)),
                Found::Taken if rules.theirs_refuses => actions.push(Action::Refuse(d)),
                Found::Taken => actions.push(Action::Reserved(d)),
                Found::Free(_) | Found::Undone => {}
            }
        }
        if is_ready && (reserved || !rules.reserved_before_upload) && !uploaded && found != Found::Done {
            actions.push(Action::Upload(d));
        }
        if reserved {
            self.of_reserved(state, d, (nonce, uploaded, found), actions);
        }
    }

    /// What the command does once the place is reserved for it.
    fn of_reserved(
        &self,
        state: &State,
        d: usize,
        (nonce, uploaded, found): (u8, bool, Found),
        actions: &mut Vec<Action>,
    ) {
        let has_state = state.state_of(nonce).is_some();
        if (uploaded || !self.rules.uploaded_before_state) && !has_state && found != Found::Done {
            actions.push(Action::PutState(d));
        }
        if let Found::Begun(number) = found
            && (has_state || !self.rules.state_before_database)
            && !state.is_sent(Id::Database(nonce))
        {
            actions.push(Action::Send(d, number, Id::Database(nonce)));
        }
        let is_anyones = matches!(state.ids.last(), Some(Id::Database(_)));
        let is_done = found == Found::Done || !self.rules.theirs_refuses && is_anyones;
        if is_done && state.directories[d].mark.is_some() {
            actions.push(Action::Done(d));
        }
    }

    fn of_undoing(&self, state: &State, d: usize, actions: &mut Vec<Action>) {
        let Process::Undoes { nonce, sent } = state.processes[d] else { return };
        let found = state.find(nonce);
        if found == Found::Done {
            actions.push(Action::TooLate(d));
            return;
        }
        if !self.rules.undone_by_an_id {
            actions.push(Action::Unmark(d));
            return;
        }
        let is_taken = sent.is_some_and(|number| number < state.ids.len());
        match (found, sent) {
            (Found::Free(number) | Found::Begun(number), None) => {
                actions.push(Action::Send(d, number, Id::Undone(nonce)));
            }
            (Found::Begun(_), Some(_)) if is_taken => actions.push(Action::UndoAgain(d)),
            (Found::Undone | Found::Taken, None) => actions.push(Action::Unmark(d)),
            (Found::Free(_) | Found::Undone | Found::Taken, Some(_)) if is_taken => {
                actions.push(Action::Unmark(d));
            }
            _ => {}
        }
    }

    fn start(&self, state: &mut State, d: usize) {
        let mark = state.directories[d].mark;
        let nonce = match mark.filter(|_| self.rules.nonce_is_durable) {
            Some(nonce) => nonce,
            None => state.draw(d),
        };
        let stopped = mark.is_some();
        state.processes[d] = Process::Adopts { stopped, nonce, reserved: false, uploaded: false };
    }

    /// A step of the adopting command itself.
    fn advance(state: &mut State, d: usize, action: Action) -> Option<()> {
        let Process::Adopts { stopped, nonce, reserved, uploaded } = &mut state.processes[d] else {
            return None;
        };
        let directory = &mut state.directories[d];
        let copied = (d, directory.rows);
        match action {
            Action::Stop(_) => *stopped = true,
            Action::Mark(_) => directory.mark = Some(*nonce),
            Action::Reserved(_) => *reserved = true,
            Action::Upload(_) => (state.table, *uploaded) = (Some(copied), true),
            Action::PutState(_) => _ = state.states.insert((*nonce, copied)),
            Action::MarkAgain(_) => {
                let nonce = state.draw(d);
                state.directories[d].mark = Some(nonce);
                state.processes[d] =
                    Process::Adopts { stopped: true, nonce, reserved: false, uploaded: false };
            }
            _ => return None,
        }
        Some(())
    }
}

impl Model for Adopt {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let directory = Directory {
            has_local_values: true,
            mark: None,
            rows: 0,
            is_done: false,
            has_refused: false,
            was_undone: false,
            kills: 0,
        };
        vec![State {
            directories: [directory; DIRECTORIES],
            processes: [Process::None; DIRECTORIES],
            nonces: Vec::new(),
            ids: Vec::new(),
            sent: BTreeSet::new(),
            table: None,
            states: BTreeSet::new(),
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        actions.extend(state.sent.iter().map(|(number, id)| Action::Land(*number, *id)));
        for d in 0..DIRECTORIES {
            let directory = &state.directories[d];
            match state.processes[d] {
                Process::None => {
                    if !directory.is_done && !directory.has_refused {
                        actions.push(Action::Start(d));
                    }
                    if directory.mark.is_some() && !directory.was_undone && !directory.is_done {
                        actions.push(Action::StartUndoing(d));
                    }
                    if directory.mark.is_none() || !self.rules.older_commands_refuse {
                        actions.push(Action::Older(d));
                    }
                    continue;
                }
                Process::Older if directory.rows <= directory.kills => actions.push(Action::Write(d)),
                _ => {}
            }
            if directory.kills < KILLS {
                actions.push(Action::Kill(d));
            }
            self.of_command(state, d, actions);
            self.of_undoing(state, d, actions);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Land(number, id) => {
                state.sent.remove(&(number, id));
                if number == state.ids.len() {
                    state.ids.push(id);
                }
            }
            Action::Start(d) => self.start(&mut state, d),
            Action::StartUndoing(d) => {
                state.processes[d] = Process::Undoes { nonce: state.directories[d].mark?, sent: None };
            }
            Action::Older(d) => state.processes[d] = Process::Older,
            Action::Kill(d) => {
                state.processes[d] = Process::None;
                state.directories[d].kills += 1;
            }
            Action::Write(d) => state.directories[d].rows += 1,
            Action::Merge(d) => state.directories[d].has_local_values = false,
            Action::Send(d, number, id) => {
                if let Process::Undoes { sent, .. } = &mut state.processes[d] {
                    *sent = Some(number);
                }
                state.sent.insert((number, id));
            }
            Action::Refuse(d) => {
                state.processes[d] = Process::None;
                state.directories[d].has_refused = true;
            }
            Action::Done(d) => {
                state.processes[d] = Process::None;
                state.directories[d].is_done = true;
            }
            Action::UndoAgain(d) => {
                let Process::Undoes { sent, .. } = &mut state.processes[d] else { return None };
                *sent = None;
            }
            Action::Unmark(d) => {
                let directory = &mut state.directories[d];
                (directory.mark, directory.has_refused, directory.was_undone) = (None, false, true);
                state.processes[d] = Process::None;
            }
            Action::TooLate(d) => state.processes[d] = Process::None,
            Action::Stop(d)
            | Action::Mark(d)
            | Action::MarkAgain(d)
            | Action::Reserved(d)
            | Action::Upload(d)
            | Action::PutState(d) => Self::advance(&mut state, d, action)?,
        }
        Some(state)
    }

    fn within_boundary(&self, state: &State) -> bool {
        state.nonces.len() <= NONCES && state.ids.len() <= IDS
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(KEPT, |_, state: &State| {
                let has_all = |(nonce, d)| state.state_of(nonce) == Some((d, state.directories[d].rows));
                state.decided().all(has_all)
            }),
            Property::always(ONE, |_, state: &State| {
                state.directories.iter().filter(|directory| directory.is_done).count() <= 1
            }),
            Property::always(RESUMES, |_, state: &State| {
                let goes_on = |nonce| matches!(state.find(nonce), Found::Begun(_) | Found::Done);
                let mut moves = (1..).zip(&state.nonces);
                moves.all(|(nonce, d)| !goes_on(nonce) || !state.directories[*d].has_refused)
            }),
            Property::always(THERE, |_, state: &State| {
                state.decided().all(|(nonce, _)| state.state_of(nonce).is_none_or(|s| state.table == Some(s)))
            }),
            Property::always(VALUES, |_, state: &State| {
                state.decided().all(|(_, d)| !state.directories[d].has_local_values)
            }),
            Property::sometimes("a killed adoption is done", |_, state: &State| {
                state.directories[0].is_done && state.directories[0].kills > 0
            }),
            Property::sometimes("one that was undone is done", |_, state: &State| {
                state.directories[0].is_done && state.directories[0].was_undone
            }),
            Property::sometimes("the other copy is refused", |_, state: &State| {
                state.directories[0].is_done && state.directories[1].has_refused
            }),
            Property::sometimes("an older command writes after a move was undone", |_, state: &State| {
                let directory = &state.directories[0];
                state.processes[0] == Process::Older && directory.was_undone && directory.rows == 2
            }),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adopting_holds() {
        crate::check::holds::<Adopt>(500_000);
    }

    #[test]
    fn each_rule_of_adopting_is_needed() {
        crate::check::each_is_needed::<Adopt>();
    }
}
