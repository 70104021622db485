//! Checking a database that lies on disk, and rescuing one that is damaged.
//!
//! `check` reads every byte that is of use, by the code that opens databases, and changes nothing. `rescue`
//! makes a database that opens out of what is readable: `plan` decides which manifest to believe, `tables`
//! rewrites damaged SSTables and merges SSTables whose order is not known, `logged` brings the readable part
//! of a damaged WAL into SSTables.
//!
//! Not owned here: how a byte is read. The code of SSTables, WAL and manifest can verify and salvage them;
//! this folder combines the findings, and reports what was lost.

mod check;
mod logged;
mod plan;
mod rescue;
mod tables;
#[cfg(all(test, feature = "papers"))]
mod tests;

pub use check::{check, check_with_objects};
pub use rescue::repair;

use crate::error::{Error, Result};
use crate::storage::Env;
use crate::types::{KeyRange, SeqNo};
use serde::Serialize;
use std::ops::Range;
use std::path::Path;

/// How far a check, a repair, a backup or a restore has come.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct CheckProgress {
    /// The file that is being processed.
    pub file: String,
    /// Bytes processed so far.
    pub done: u64,
    /// Bytes to be processed in all.
    pub total: u64,
}

/// A damaged place: something is not as it was written.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Damage {
    /// The file's name within the database directory.
    pub file: String,
    /// Where in the file, if that is known.
    pub offset: Option<u64>,
    /// What was expected and what was found.
    pub message: String,
}

/// What a check found.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct CheckReport {
    /// The database's number, if a manifest could be read.
    pub database: Option<u64>,
    /// Families.
    pub families: u64,
    /// SSTables in use.
    pub tables: u64,
    /// Cells in them, below clips not counted.
    pub cells: u64,
    /// Data blocks read.
    pub blocks: u64,
    /// Data blocks below a clip: of no use any more, not read.
    pub dead_blocks: u64,
    /// WAL files that hold history.
    pub log_files: u64,
    /// Frames of that history.
    pub log_frames: u64,
    /// Bytes found to be right.
    pub bytes: u64,
    /// All that is wrong. Empty for a sound database.
    pub damages: Vec<Damage>,
    /// Files of ours that nothing needs; the next open for writing removes them.
    pub leftovers: Vec<String>,
}

impl CheckReport {
    /// Whether nothing is wrong.
    pub fn is_clean(&self) -> bool {
        self.damages.is_empty()
    }
}

/// What a repair could not save, as narrowly as it is known. Everything outside of these losses is as it was.
///
/// In a lost range the newest writes are missing, so an older value of such a key may show again, or a key
/// whose deletion was lost.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Loss {
    /// The damaged file, now in `lost/`.
    pub file: String,
    /// Its unreadable bytes.
    pub bytes: Option<Range<u64>>,
    /// The family concerned; `None` for any.
    pub family: Option<String>,
    /// The keys concerned; `None` for any.
    pub keys: Option<KeyRange>,
    /// The writes concerned, first and last; `None` for any.
    pub seqs: Option<(SeqNo, SeqNo)>,
    /// What was lost.
    pub message: String,
}

/// What a repair did.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct RepairReport {
    /// Whether the list of SSTables was lost, so that every SSTable found was merged into one run.
    pub rebuilt: bool,
    /// Names of the families there are now.
    pub families: Vec<String>,
    /// SSTables left as they were.
    pub tables_kept: u64,
    /// SSTables written.
    pub tables_written: u64,
    /// Cells in those.
    pub cells_written: u64,
    /// Frames of a WAL that had to be brought into SSTables.
    pub log_frames: u64,
    /// What could not be saved.
    pub lost: Vec<Loss>,
    /// Files moved into (or copied to) `lost/`, to be removed by whoever is satisfied with the repair.
    pub moved: Vec<String>,
}

impl RepairReport {
    /// Whether nothing was lost.
    pub fn is_complete(&self) -> bool {
        self.lost.is_empty()
    }
}

struct Meter<'a> {
    progress: &'a mut dyn FnMut(CheckProgress),
    done: u64,
    total: u64,
}

impl<'a> Meter<'a> {
    fn new(progress: &'a mut dyn FnMut(CheckProgress), total: u64) -> Self {
        Self { progress, done: 0, total }
    }

    fn file(&mut self, file: &str, bytes: u64) {
        (self.progress)(CheckProgress { file: file.to_string(), done: self.done, total: self.total });
        self.done = (self.done + bytes).min(self.total);
    }

    fn end(&mut self) {
        (self.progress)(CheckProgress { file: String::new(), done: self.total, total: self.total });
    }
}

/// The names in the directory with the lengths of those files that can be measured.
fn list(env: &Env, dir: &Path) -> Result<Vec<(String, u64)>> {
    let names = env.storage.list(dir).map_err(|e| Error::io("list", dir, e))?;
    let length = |name: &str| env.storage.open(&dir.join(name)).and_then(|file| file.len()).unwrap_or(0);
    Ok(names.into_iter().map(|name| (length(&name), name)).map(|(length, name)| (name, length)).collect())
}
