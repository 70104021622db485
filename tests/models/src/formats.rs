//! Old and new programs side by side.
//!
//! *State.* `ID` with the lowest format, two processes of an old program, which knows format 1, and two of a
//! new one, which knows 2 as well, what they wrote with the new format's field: frames of the stream, and
//! specs of compactions for another process. Another command changes something else in `ID`.
//!
//! *Actions.* A process reads `ID`, opens the database, writes, is stopped. `finalize` raises the lowest
//! format. The other command reads `ID` and writes it.
//!
//! *Bound.* Two programs with two processes each, two formats.
//!
//! *Properties.* A process that has the database open can read all that is written; the lowest format never
//! falls.

use crate::check::rules;
use stateright::{Model, Property};

const PROCESSES: usize = 4;

const READABLE: &str = "a process can read all that it may meet";
const RISES: &str = "the lowest format never falls";

rules! { Formats:
    /// A field that the lowest format does not have is not written.
    written_by_lowest: 22 => READABLE,
    /// The lowest format is that of all that one process writes for another, specs too.
    covers_all: 22 => READABLE,
    /// Each process reads the lowest format before it opens anything.
    read_before_open: 22 => READABLE,
    /// `finalize` refuses while an old process is there.
    finalize_finds_no_old: 22 => READABLE,
    /// `ID` is changed by compare-and-swap.
    id_by_swap: 22 => RISES,
}

/// The model of formats.
pub struct Formats {
    rules: Rules,
}

/// What a process is doing.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Process {
    /// It does not run.
    Down,
    /// It read `ID`, and its format is not too low.
    Checked,
    /// It has the database open.
    Open,
}

/// What the other command does with `ID`.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Command {
    /// It has not begun.
    Begins,
    /// It read this lowest format, which it writes again.
    Read(u8),
    /// It wrote, or was refused.
    Done,
}

/// `ID`, the processes, and what they wrote.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct State {
    lowest: u8,
    highest_ever: u8,
    processes: [Process; PROCESSES],
    has_new_frame: bool,
    has_new_spec: bool,
    command: Command,
}

/// A step.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Action {
    /// A process reads `ID`.
    Check(usize),
    /// It opens the database.
    Open(usize),
    /// It stops.
    Stop(usize),
    /// It writes a frame.
    Frame(usize),
    /// It writes the spec of a compaction.
    Spec(usize),
    /// The lowest format is raised.
    Finalize,
    /// The other command reads `ID`.
    ReadId,
    /// It writes `ID`.
    WriteId,
}

/// The format that the program of a process knows.
fn knows(p: usize) -> u8 {
    if p < PROCESSES / 2 { 1 } else { 2 }
}

impl Formats {
    fn writes(&self, state: &State, p: usize, is_covered: bool) -> bool {
        let by_lowest = is_covered && self.rules.written_by_lowest;
        knows(p) == 2 && (state.lowest == 2 || !by_lowest)
    }
}

impl Model for Formats {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            lowest: 1,
            highest_ever: 1,
            processes: [Process::Down; PROCESSES],
            has_new_frame: false,
            has_new_spec: false,
            command: Command::Begins,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (p, process) in state.processes.iter().enumerate() {
            match process {
                Process::Down => actions.push(Action::Check(p)),
                Process::Checked => actions.extend([Action::Open(p), Action::Stop(p)]),
                Process::Open => actions.extend([Action::Frame(p), Action::Spec(p), Action::Stop(p)]),
            }
        }
        let is_old = |p: &usize| knows(*p) == 1 && state.processes[*p] != Process::Down;
        if state.lowest == 1 && (!(0..PROCESSES).any(|p| is_old(&p)) || !self.rules.finalize_finds_no_old) {
            actions.push(Action::Finalize);
        }
        match state.command {
            Command::Begins => actions.push(Action::ReadId),
            Command::Read(_) => actions.push(Action::WriteId),
            Command::Done => {}
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = *last;
        match action {
            Action::Check(p) => {
                if self.rules.read_before_open && knows(p) < last.lowest {
                    return None;
                }
                state.processes[p] = Process::Checked;
            }
            Action::Open(p) => state.processes[p] = Process::Open,
            Action::Stop(p) => state.processes[p] = Process::Down,
            Action::Frame(p) => state.has_new_frame |= self.writes(last, p, true),
            Action::Spec(p) => state.has_new_spec |= self.writes(last, p, self.rules.covers_all),
            Action::Finalize => {
                state.lowest = 2;
                state.highest_ever = 2;
            }
            Action::ReadId => state.command = Command::Read(last.lowest),
            Action::WriteId => {
                let Command::Read(lowest) = last.command else { return None };
                state.command = Command::Done;
                if lowest == last.lowest || !self.rules.id_by_swap {
                    state.lowest = lowest;
                }
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(READABLE, |_, state: &State| {
                let is_open = |p: &usize| knows(*p) == 1 && state.processes[*p] == Process::Open;
                !(state.has_new_frame || state.has_new_spec) || !(0..PROCESSES).any(|p| is_open(&p))
            }),
            Property::always(RISES, |_, state: &State| state.lowest == state.highest_ever),
            Property::sometimes("old and new have the database open", |_, state: &State| {
                state.processes[0] == Process::Open && state.processes[2] == Process::Open
            }),
            Property::sometimes("the new field is written", |_, state: &State| state.has_new_frame),
            Property::sometimes("a swap of ID is refused", |_, state: &State| {
                state.lowest == 2 && state.command == Command::Read(1)
            }),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_hold() {
        crate::check::holds::<Formats>(300);
    }

    #[test]
    fn each_rule_of_formats_is_needed() {
        crate::check::each_is_needed::<Formats>();
    }
}
