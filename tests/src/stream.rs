//! The expected contents of a stream of changes: the batches that were written, whole, in order, each once.

use crate::campaign::{Checked, failed};
use crate::model::Op;
use crate::subject::Setup;
use siltstone::{Change, ChangeKind, Changes, Db, ErrorKind, SeqNo};
use std::collections::VecDeque;

/// An item of a stream: a batch, or the numbers that are not in the WAL.
#[derive(PartialEq, Eq, Debug)]
pub enum Told {
    /// A batch.
    Batch(Vec<Op>),
    /// Numbers that were taken without being logged, or are not there any more.
    Lost,
}

/// A stream beside the writes that it has still to show.
pub struct Watched {
    changes: Option<Changes>,
    last: SeqNo,
    expected: VecDeque<Told>,
}

impl Watched {
    /// From the present on.
    pub fn begin(db: &Db) -> Result<Self, String> {
        let last = db.snapshot().seq();
        let changes = Some(db.changes_since(last).map_err(failed("begin a stream"))?);
        Ok(Self { changes, last, expected: VecDeque::new() })
    }

    /// Expects the writes made now.
    pub fn expect(&mut self, told: Told) {
        // Missing numbers in a row are reported together.
        let again = told == Told::Lost && self.expected.back() == Some(&Told::Lost);
        if !again && told != Told::Batch(Vec::new()) {
            self.expected.push_back(told);
        }
    }

    /// Reads some of what there is.
    pub fn check(&mut self, setup: &Setup, most: u64) -> Checked {
        let changes = self.changes.as_mut().expect("it was begun");
        for _ in 0..most {
            let told = match changes.next_batch() {
                Ok(None) => None,
                Ok(Some(batch)) => Some(told_of(setup, &batch.changes)?),
                Err(e) if e.kind() == ErrorKind::ChangesLost => Some(Told::Lost),
                Err(e) => return Err(format!("a stream of changes: {e:?}")),
            };
            self.last = changes.seq();
            let expected = self.expected.pop_front();
            if told != expected {
                return Err(format!("a stream of changes: expected {expected:?}, found {told:?}"));
            }
            if told.is_none() {
                break;
            }
        }
        Ok(())
    }

    /// The database is closed.
    pub fn end(&mut self) {
        self.changes = None;
    }

    /// The database is opened again: goes on where it was if the WAL is retained, else at the present.
    pub fn go_on(&mut self, db: &Db, is_kept: bool) -> Checked {
        if !is_kept {
            *self = Self::begin(db)?;
            return Ok(());
        }
        self.changes = Some(db.changes_since(self.last).map_err(failed("go on with a stream"))?);
        Ok(())
    }
}

/// What the WAL still holds must be the last of these batches.
pub fn check_tail(db: &Db, setup: &Setup, batches: &[&[Op]]) -> Checked {
    let mut shown = Vec::new();
    for batch in db.changes_since(SeqNo::ZERO).map_err(failed("begin a stream"))? {
        match batch {
            // A family was moved away.
            Ok(batch) if batch.changes.iter().any(|change| change.family.is_none()) => return Ok(()),
            Ok(batch) => shown.push(told_of(setup, &batch.changes)?),
            // Old ones are gone, and the numbers of those that a power loss took are not given out again.
            Err(e) if e.kind() == ErrorKind::ChangesLost => {}
            Err(e) => return Err(format!("a stream of changes after {} batches: {e:?}", shown.len())),
        }
    }
    let written: Vec<_> = batches.iter().filter(|ops| !ops.is_empty()).collect();
    let from = written.len().checked_sub(shown.len());
    let from =
        from.ok_or_else(|| format!("a stream of {} batches, of {} written", shown.len(), written.len()))?;
    for (n, (shown, written)) in shown.iter().zip(&written[from..]).enumerate() {
        if *shown != Told::Batch(written.to_vec()) {
            let n = from + n;
            return Err(format!("a stream of changes at batch {n}: wrote {written:?}, it shows {shown:?}"));
        }
    }
    Ok(())
}

fn told_of(setup: &Setup, changes: &[Change]) -> Result<Told, String> {
    let op_of = |change: &Change| {
        let name = change.family.as_deref().ok_or("a change of a family without a name")?;
        let family = setup.families.iter().position(|family| family.name == name);
        let family = family.ok_or_else(|| format!("a change of family {name}"))?;
        Ok(match change.kind.clone() {
            ChangeKind::Put { key, timestamp, value } => {
                Op::Put { family, key, timestamp: timestamp.0, value }
            }
            ChangeKind::Merge { key, timestamp, operand } => {
                Op::Merge { family, key, timestamp: timestamp.0, operand }
            }
            ChangeKind::Delete { key, timestamp } => Op::Delete { family, key, timestamp: timestamp.0 },
            ChangeKind::DeleteRange { range, from, to } => {
                Op::DeleteRange { family, range, from: from.0, to: to.0 }
            }
            other => return Err(format!("an unknown change {other:?}")),
        })
    };
    changes.iter().map(op_of).collect::<Result<_, String>>().map(Told::Batch)
}
