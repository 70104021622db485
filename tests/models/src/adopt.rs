//! A local database that becomes a shared one.
//!
//! *State.* Two copies of a directory, the shared storage, and a process on each directory, which may be
//! killed at any point. A directory holds one table, one value in a WAL file of its own (as `log_tables` and
//! `wal_values` leave them) and rows in its WAL; its manifest says where each is. Rows are written by whoever
//! has the directory open: an adopting command, or an older one, which knows of local databases only.
//!
//! *Actions.* The command uploads the table and notes it by an edit, merges the value into a table, stops
//! writes and flushes, marks the local manifest "shared from now on, incarnation 1, nonce x", puts 1/0 with
//! nonce x, and reads it back. A row is written. A kill. An older command opens the directory.
//!
//! *Bound.* Two directories, one row before and one after a restart in each, one kill in each.
//!
//! *Properties.* A directory is local, with all its rows, or its database is the shared one, with all its
//! rows; one directory is the shared database; a killed adoption can go on; each table is where the manifest
//! says.

use crate::check::rules;
use stateright::{Model, Property};

const DIRECTORIES: usize = 2;

const KEPT: &str = "a row that was acknowledged is in the database that is used";
const ONE: &str = "one directory is the shared database";
const RESUMES: &str = "a killed adoption can go on";
const THERE: &str = "each table is where the manifest says";
const VALUES: &str = "the shared database needs no local file";

rules! { Adopt:
    /// A table gets its place by an edit after it was uploaded.
    uploaded_before_edit: 12 => THERE,
    /// Values in local WAL files are merged into tables first.
    values_merged_first: 11 => VALUES,
    /// Writes stop, and memory is flushed, before the manifest is marked.
    writes_stop: 12 => KEPT,
    /// The local manifest is marked before 1/0 is put.
    marked_before_zero: 12 => KEPT,
    /// The mark is one that older commands refuse.
    older_commands_refuse: 12 => KEPT,
    /// The nonce of 1/0 is in the mark: a command that goes on knows its own 1/0.
    nonce_is_durable: 12 => RESUMES,
    /// A 1/0 with another nonce is another copy's: the command refuses.
    theirs_refuses: 12 => ONE,
}

/// The model of adopting.
pub struct Adopt {
    rules: Rules,
}

/// What a directory durably says.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Directory {
    /// Whether the edit says that the table is in shared storage.
    is_placed: bool,
    has_local_values: bool,
    /// The nonce of the mark, if it is marked.
    mark: Option<u8>,
    /// Rows that were acknowledged, and those of them that are flushed to shared storage.
    rows: u8,
    flushed: u8,
    /// Whether its command had 1/0 for its own: the adoption is done.
    is_done: bool,
    has_refused: bool,
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
        /// The nonce that it puts 1/0 with.
        nonce: Option<u8>,
        /// Whether that put was sent.
        sent: bool,
    },
    /// A command that knows of local databases only.
    Older,
}

/// The directories, their processes and shared storage.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct State {
    directories: [Directory; DIRECTORIES],
    processes: [Process; DIRECTORIES],
    /// The directory whose table was uploaded.
    uploaded: [bool; DIRECTORIES],
    /// 1/0: by which directory, with which nonce, and the rows that it has.
    zero: Option<(usize, u8, u8)>,
    kills: [u8; DIRECTORIES],
    nonces: u8,
}

/// A step, in a directory.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Action {
    /// The adopting command starts, or goes on.
    Start(usize),
    /// An older command opens the directory.
    Older(usize),
    /// The process is killed.
    Kill(usize),
    /// A row is acknowledged by a local database.
    Write(usize),
    /// The table is uploaded.
    Upload(usize),
    /// The edit says that it is.
    Place(usize),
    /// The value in a WAL file is merged into a table.
    Merge(usize),
    /// Writes stop; memory is flushed.
    Stop(usize),
    /// The local manifest is marked.
    Mark(usize),
    /// 1/0 is put: it is there, or another one is.
    Zero(usize),
    /// The command reads 1/0.
    ReadBack(usize),
}

impl Adopt {
    fn of_command(&self, state: &State, d: usize, actions: &mut Vec<Action>) {
        let directory = &state.directories[d];
        let Process::Adopts { stopped, nonce, sent } = state.processes[d] else { return };
        if !state.uploaded[d] {
            actions.push(Action::Upload(d));
        }
        if !directory.is_placed && (state.uploaded[d] || !self.rules.uploaded_before_edit) {
            actions.push(Action::Place(d));
        }
        if directory.has_local_values {
            actions.push(Action::Merge(d));
        }
        let is_merged = !directory.has_local_values || !self.rules.values_merged_first;
        if !stopped && directory.is_placed && is_merged && directory.mark.is_none() {
            actions.push(Action::Stop(d));
        }
        let is_ready = stopped && directory.is_placed && is_merged;
        let is_zero = !self.rules.marked_before_zero && state.zero.is_some_and(|(by, ..)| by == d);
        let may_mark = is_ready && (self.rules.marked_before_zero || is_zero);
        if directory.mark.is_none() && may_mark {
            actions.push(Action::Mark(d));
        }
        let may_put = directory.mark.is_some() || is_ready && !self.rules.marked_before_zero;
        if may_put && !sent && nonce.is_some() {
            actions.push(Action::Zero(d));
        }
        if directory.mark.is_some() && sent && !directory.is_done {
            actions.push(Action::ReadBack(d));
        }
    }

    fn start(&self, state: &mut State, d: usize) {
        let mark = state.directories[d].mark;
        state.nonces += 1;
        let nonce = if self.rules.nonce_is_durable { mark.unwrap_or(state.nonces) } else { state.nonces };
        let stopped = mark.is_some();
        state.processes[d] = Process::Adopts { stopped, nonce: Some(nonce), sent: false };
    }

    fn read_back(&self, state: &mut State, d: usize) -> Option<()> {
        let Process::Adopts { nonce: Some(nonce), .. } = state.processes[d] else { return None };
        let (_, is, _) = state.zero?;
        if is == nonce || !self.rules.theirs_refuses {
            state.directories[d].is_done = true;
        } else {
            state.directories[d].has_refused = true;
        }
        state.processes[d] = Process::None;
        Some(())
    }
}

impl Model for Adopt {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let directory = Directory {
            is_placed: false,
            has_local_values: true,
            mark: None,
            rows: 0,
            flushed: 0,
            is_done: false,
            has_refused: false,
        };
        vec![State {
            directories: [directory; DIRECTORIES],
            processes: [Process::None; DIRECTORIES],
            uploaded: [false; DIRECTORIES],
            zero: None,
            kills: [0; DIRECTORIES],
            nonces: 0,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for d in 0..DIRECTORIES {
            let directory = &state.directories[d];
            let is_marked = directory.mark.is_some();
            match state.processes[d] {
                Process::None if state.kills[d] < 2 && !directory.is_done && !directory.has_refused => {
                    actions.push(Action::Start(d));
                }
                Process::None => {}
                Process::Older | Process::Adopts { .. } if state.kills[d] < 2 => {
                    actions.push(Action::Kill(d))
                }
                Process::Older | Process::Adopts { .. } => {}
            }
            let is_refused = is_marked && self.rules.older_commands_refuse;
            if state.processes[d] == Process::None && !is_refused && state.kills[d] < 2 {
                actions.push(Action::Older(d));
            }
            let writes = match state.processes[d] {
                Process::None => false,
                Process::Adopts { stopped, .. } => !stopped || !self.rules.writes_stop && !directory.is_done,
                Process::Older => true,
            };
            if writes && directory.rows <= state.kills[d] {
                actions.push(Action::Write(d));
            }
            self.of_command(state, d, actions);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = *last;
        match action {
            Action::Start(d) => self.start(&mut state, d),
            Action::Older(d) => state.processes[d] = Process::Older,
            Action::Kill(d) => {
                state.processes[d] = Process::None;
                state.kills[d] += 1;
            }
            Action::Write(d) => state.directories[d].rows += 1,
            Action::Upload(d) => state.uploaded[d] = true,
            Action::Place(d) => state.directories[d].is_placed = true,
            Action::Merge(d) => state.directories[d].has_local_values = false,
            Action::Stop(d) => {
                state.directories[d].flushed = last.directories[d].rows;
                let Process::Adopts { stopped, .. } = &mut state.processes[d] else { return None };
                *stopped = true;
            }
            Action::Mark(d) => {
                let Process::Adopts { nonce, .. } = last.processes[d] else { return None };
                state.directories[d].mark = nonce;
            }
            Action::Zero(d) => {
                let Process::Adopts { nonce: Some(own), sent, .. } = &mut state.processes[d] else {
                    return None;
                };
                *sent = true;
                state.zero = last.zero.or(Some((d, *own, last.directories[d].flushed)));
            }
            Action::ReadBack(d) => self.read_back(&mut state, d)?,
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(KEPT, |_, state: &State| {
                let Some((by, _, rows)) = state.zero else { return true };
                state.directories[by].rows == rows
            }),
            Property::always(ONE, |_, state: &State| {
                state.directories.iter().filter(|directory| directory.is_done).count() <= 1
            }),
            Property::always(RESUMES, |_, state: &State| {
                state.zero.is_none_or(|(by, ..)| !state.directories[by].has_refused)
            }),
            Property::always(THERE, |_, state: &State| {
                (0..DIRECTORIES).all(|d| !state.directories[d].is_placed || state.uploaded[d])
            }),
            Property::always(VALUES, |_, state: &State| {
                state.zero.is_none_or(|(by, ..)| !state.directories[by].has_local_values)
            }),
            Property::sometimes(
                "a directory is adopted after a kill between mark and 1/0",
                |_, state: &State| {
                    let d = &state.directories[0];
                    d.is_done
                        && state.kills[0] > 0
                        && state.zero.is_some_and(|(_, nonce, _)| nonce < state.nonces)
                },
            ),
            Property::sometimes("the other copy is refused", |_, state: &State| {
                state.directories[0].is_done && state.directories[1].has_refused
            }),
            Property::sometimes("an older command writes after a kill", |_, state: &State| {
                state.processes[0] == Process::Older && state.directories[0].rows == 2
            }),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adopting_holds() {
        crate::check::holds::<Adopt>(70_000);
    }

    #[test]
    fn each_rule_of_adopting_is_needed() {
        crate::check::each_is_needed::<Adopt>();
    }
}
