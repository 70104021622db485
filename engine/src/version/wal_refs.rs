//! Which WAL files tables need: those with values of SSTables (TRI-4).
//!
//! A WAL file has two kinds of owners: the WAL, while memory needs it for recovery, and the tables whose
//! values are in it. It is removed when the last of both has let go. The WAL lets go when the manifest says
//! that it begins later (`Wal::release_unless`), a table when nobody reads it any more and the manifest no
//! longer names it; both ask here, under one lock, so that exactly one of them removes the file.
//!
//! A file that was ever on the shelf is never recycled: a checkpoint may have linked it, and a recycled file
//! is written over in place.

use crate::sync::Mutex;
use crate::types::LogFileId;
use crate::wal::Claim;
use std::collections::BTreeMap;

/// See the page above.
#[derive(Default)]
pub(crate) struct Shelf {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Files before this one were no part of the WAL when the database was opened.
    first: LogFileId,
    files: BTreeMap<LogFileId, Shelved>,
}

struct Shelved {
    /// Open tables with values in it.
    tables: usize,
    in_wal: bool,
}

impl Shelf {
    /// The WAL begins with this file. To be said before any table is opened.
    pub(crate) fn set_first(&self, first: LogFileId) {
        self.state.lock().first = first;
    }

    /// A table with values in these files was opened.
    pub(crate) fn hold(&self, files: &[LogFileId]) {
        if files.is_empty() {
            return;
        }
        let mut state = self.state.lock();
        for file in files {
            let in_wal = *file >= state.first;
            state.files.entry(*file).or_insert(Shelved { tables: 0, in_wal }).tables += 1;
        }
    }

    /// Such a table is gone; which files are to be removed, if the manifest does not name it any more.
    pub(crate) fn let_go(&self, files: &[LogFileId], obsolete: bool) -> Vec<LogFileId> {
        let mut free = Vec::new();
        if files.is_empty() {
            return free;
        }
        let mut state = self.state.lock();
        for file in files {
            let Some(shelved) = state.files.get_mut(file) else { continue };
            shelved.tables -= 1;
            if obsolete && shelved.tables == 0 && !shelved.in_wal {
                state.files.remove(file);
                free.push(*file);
            }
        }
        free
    }

    /// The WAL lets go of the file; what tables want of it.
    pub(crate) fn claim(&self, file: LogFileId) -> Claim {
        let mut state = self.state.lock();
        let Some(shelved) = state.files.get_mut(&file) else { return Claim::Never };
        shelved.in_wal = false;
        if shelved.tables > 0 {
            return Claim::Held;
        }
        state.files.remove(&file);
        Claim::Past
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILES: [LogFileId; 2] = [LogFileId(3), LogFileId(4)];

    #[test]
    fn a_file_goes_once_wal_and_tables_have_let_go_whoever_is_last() {
        let shelf = Shelf::default();
        shelf.hold(&FILES);
        shelf.hold(&FILES[1..]);
        assert_eq!(shelf.claim(LogFileId(2)), Claim::Never, "no table ever had values in it");
        assert_eq!(shelf.claim(FILES[0]), Claim::Held);
        assert_eq!(shelf.let_go(&FILES, true), [FILES[0]], "the WAL went first");
        assert_eq!(shelf.let_go(&FILES[1..], true), [], "the WAL still has it");
        assert_eq!(shelf.claim(FILES[1]), Claim::Past, "the tables went first");
        assert_eq!(shelf.claim(FILES[1]), Claim::Never);
    }

    #[test]
    fn closing_a_database_removes_nothing() {
        let shelf = Shelf::default();
        shelf.set_first(LogFileId(9));
        shelf.hold(&FILES);
        assert_eq!(shelf.let_go(&FILES, false), []);
    }
}
