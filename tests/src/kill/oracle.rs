//! The file in which a child notes what it is about to do and what the database acknowledged.

use crate::kill::work::STREAMS;
use std::fs::{File, OpenOptions};
use std::io::Result;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// One number of the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Slot {
    /// The first batch number of a stream in this round; 0 until the database was open.
    Began(usize),
    /// The newest batch handed to the database.
    Started(usize),
    /// The newest batch acknowledged.
    Acked(usize),
    /// The newest ingest begun.
    IngestStarted,
    /// The newest ingest acknowledged.
    IngestAcked,
    /// Creations (odd) and drops (even) of the passing family begun.
    FamilyStarted,
    /// Creations (odd) and drops (even) of the passing family acknowledged.
    FamilyAcked,
    /// What was acknowledged of a stream before this round's checkpoint began.
    CheckpointFrom(usize),
    /// The checkpoint was acknowledged.
    CheckpointDone,
    /// What was acknowledged of a stream before the newest acknowledged backup began.
    BackupFrom(usize),
    /// The number of that backup.
    BackupDone,
    /// The passing family is being moved, with so many cells and one; 0 if it is not.
    MovingCells,
    /// The passing family is cut in two and put together again, with so many cells and one; 0 if it is not.
    CutCells,
    /// A closed database of so many rows and one moves into shared storage; 0 if none does.
    AdoptedRows,
}

impl Slot {
    fn offset(self) -> u64 {
        let slot = match self {
            Slot::Began(stream) => stream,
            Slot::Started(stream) => STREAMS + stream,
            Slot::Acked(stream) => 2 * STREAMS + stream,
            Slot::CheckpointFrom(stream) => 3 * STREAMS + stream,
            Slot::IngestStarted => 4 * STREAMS,
            Slot::IngestAcked => 4 * STREAMS + 1,
            Slot::FamilyStarted => 4 * STREAMS + 2,
            Slot::FamilyAcked => 4 * STREAMS + 3,
            Slot::CheckpointDone => 4 * STREAMS + 4,
            Slot::BackupDone => 4 * STREAMS + 5,
            Slot::MovingCells => 4 * STREAMS + 6,
            Slot::CutCells => 4 * STREAMS + 7,
            Slot::AdoptedRows => 4 * STREAMS + 8,
            Slot::BackupFrom(stream) => 4 * STREAMS + 9 + stream,
        };
        8 * slot as u64
    }
}

/// The open file.
#[derive(Debug)]
pub struct Oracle(File);

impl Oracle {
    /// Opens the file, making one full of zeros if there is none.
    pub fn open(path: &Path) -> Result<Self> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        file.set_len(Slot::BackupFrom(STREAMS).offset())?;
        Ok(Self(file))
    }

    /// A number.
    pub fn get(&self, slot: Slot) -> u64 {
        let mut bytes = [0; 8];
        self.0.read_exact_at(&mut bytes, slot.offset()).expect("the oracle file can be read");
        u64::from_le_bytes(bytes)
    }

    /// Sets a number; no kill of this process undoes it.
    pub fn set(&self, slot: Slot, number: u64) {
        self.0.write_all_at(&number.to_le_bytes(), slot.offset()).expect("the oracle file can be written");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_slot_keeps_its_own_number_for_the_next_process() {
        use Slot::*;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("oracle");
        let mut slots = vec![
            IngestStarted,
            IngestAcked,
            FamilyStarted,
            FamilyAcked,
            CheckpointDone,
            BackupDone,
            MovingCells,
            CutCells,
            AdoptedRows,
        ];
        for stream in 0..STREAMS {
            slots.extend([
                Began(stream),
                Started(stream),
                Acked(stream),
                CheckpointFrom(stream),
                BackupFrom(stream),
            ]);
        }
        let oracle = Oracle::open(&path).unwrap();
        slots.iter().enumerate().for_each(|(n, slot)| oracle.set(*slot, n as u64 + 1));
        drop(oracle);
        let oracle = Oracle::open(&path).unwrap();
        slots
            .iter()
            .enumerate()
            .for_each(|(n, slot)| assert_eq!(oracle.get(*slot), n as u64 + 1, "{slot:?}"));
    }
}
