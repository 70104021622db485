//! Planned failures of the simulated storage, counts of operations, and the record of them.

use std::io;
use std::path::{Path, PathBuf};

/// A kind of operation. Every call of the storage traits is one operation of one kind.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[expect(missing_docs, reason = "the kinds are named as the calls are")]
pub enum OpKind {
    Create,
    Append,
    Open,
    Map,
    Read,
    /// A write to a file or into a mapping.
    Write,
    /// A sync of a file or a mapping.
    Sync,
    SyncDir,
    Rename,
    Remove,
    Link,
    List,
    CreateDir,
    RemoveDir,
    Lock,
    Exists,
    Punch,
}

impl OpKind {
    /// Every kind.
    pub const ALL: [OpKind; 17] = [
        OpKind::Create,
        OpKind::Append,
        OpKind::Open,
        OpKind::Map,
        OpKind::Read,
        OpKind::Write,
        OpKind::Sync,
        OpKind::SyncDir,
        OpKind::Rename,
        OpKind::Remove,
        OpKind::Link,
        OpKind::List,
        OpKind::CreateDir,
        OpKind::RemoveDir,
        OpKind::Lock,
        OpKind::Exists,
        OpKind::Punch,
    ];

    /// Simulated microseconds that the operation takes.
    pub(super) fn takes_us(self) -> u64 {
        match self {
            // So long that a worker's slice of time ends between two steps of a flush or compaction.
            OpKind::Sync | OpKind::SyncDir => 2_000,
            OpKind::Write | OpKind::Exists => 1,
            _ => 5,
        }
    }
}

/// Whether a planned failure happens once or from then on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// The failure hits the planned operation only.
    Once,
    /// The failure hits the planned operation and all later ones that match.
    Sticky,
}

/// The number of operations so far, by kind.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct OpCounts {
    of: [u64; OpKind::ALL.len()],
}

impl OpCounts {
    /// The number of operations of that kind.
    pub fn of(&self, op: OpKind) -> u64 {
        self.of[op as usize]
    }

    /// The number of operations of all kinds.
    pub fn total(&self) -> u64 {
        self.of.iter().sum()
    }
}

/// A recorded operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    /// The kind of operation.
    pub op: OpKind,
    /// The file or directory concerned.
    pub path: PathBuf,
    /// Byte offset of reads, writes and punches, else zero.
    pub offset: u64,
    /// Length of reads, writes, punches and mappings, else zero.
    pub len: u64,
    /// Whether a planned failure hit it.
    pub failed: bool,
}

struct Rule {
    op: Option<OpKind>,
    path_contains: Option<String>,
    /// Matching operations before the failing one.
    pass: u64,
    action: Action,
}

#[derive(Clone, Copy)]
pub(super) enum Action {
    Fail(Mode, io::ErrorKind),
    Crash,
}

/// How an operation is to fail.
pub(super) enum Failure {
    Injected(io::Error),
    /// The power is lost: this operation may have taken effect in part, later ones do not.
    Crashed,
}

#[derive(Default)]
pub(super) struct Faults {
    rules: Vec<Rule>,
    pub(super) counts: OpCounts,
    /// How many operations failed as planned.
    pub(super) injected: u64,
    pub(super) hash: u64,
    trace: Option<Vec<Event>>,
}

impl Faults {
    pub(super) fn plan(&mut self, op: Option<OpKind>, path_contains: Option<&str>, nth: u64, action: Action) {
        assert!(nth > 0, "operations are counted from one");
        let path_contains = path_contains.map(str::to_owned);
        self.rules.push(Rule { op, path_contains, pass: nth - 1, action });
    }

    pub(super) fn clear(&mut self) {
        self.rules.clear();
    }

    /// Counts and records an operation, and returns the failure planned for it, if any. `content` gives the
    /// bytes written.
    pub(super) fn meet(
        &mut self,
        op: OpKind,
        path: &Path,
        offset: u64,
        len: u64,
        content: &[u8],
    ) -> Option<Failure> {
        self.counts.of[op as usize] += 1;
        let failure = self.draw(op, path);
        self.injected += u64::from(matches!(failure, Some(Failure::Injected(_))));
        let mut hash = self.hash;
        let parts = [op as u64, offset, len, u64::from(failure.is_some()), digest(content)];
        for part in parts.into_iter().chain([digest(path.as_os_str().as_encoded_bytes())]) {
            hash = (hash.rotate_left(5) ^ part).wrapping_mul(0x517c_c1b7_2722_0a95);
        }
        self.hash = hash;
        if let Some(trace) = &mut self.trace {
            trace.push(Event { op, path: path.to_path_buf(), offset, len, failed: failure.is_some() });
        }
        failure
    }

    fn draw(&mut self, op: OpKind, path: &Path) -> Option<Failure> {
        let mut failure = None;
        self.rules.retain_mut(|rule| {
            let path_matches = |part: &String| path.to_string_lossy().contains(part.as_str());
            let matches = rule.op.is_none_or(|wanted| wanted == op)
                && rule.path_contains.as_ref().is_none_or(path_matches);
            if !matches {
                return true;
            }
            if rule.pass > 0 {
                rule.pass -= 1;
                return true;
            }
            match rule.action {
                Action::Fail(mode, kind) => {
                    failure.get_or_insert_with(|| {
                        Failure::Injected(io::Error::new(kind, format!("simulated failure of {op:?}")))
                    });
                    mode == Mode::Sticky
                }
                Action::Crash => {
                    failure = Some(Failure::Crashed);
                    false
                }
            }
        });
        failure
    }

    pub(super) fn record(&mut self) {
        self.trace.get_or_insert_default();
    }

    pub(super) fn take_trace(&mut self) -> Vec<Event> {
        self.trace.as_mut().map(std::mem::take).unwrap_or_default()
    }
}

fn digest(bytes: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(bytes)
}
