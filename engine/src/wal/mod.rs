//! The WAL: the one place every write goes to first, and what a crash is recovered from.
//!
//! A WAL is a row of preallocated files, memory-mapped where that is safe, holding frames (`head`, `frame`,
//! `delta_frame`, `encoder`), each file opening with a header that tells where the one before ended (`file`).
//! Appending needs the one [`Appender`]; syncing, reserving files ahead and giving files back go through the
//! shared [`Wal`] from any thread and neither wait for appends nor block them (`writer`, `sync`, `pool`;
//! `retained` are the files there are, `poison` a failure that is for good).
//! `recover` finds the history again and where it ends, telling a torn end (normal after a crash) from damage
//! (an error); `scan` reads a file, and `salvage` reads on behind damage. `value_positions` finds where a
//! store's values lie in closed files and `entry` reads one of them alone, for SSTables with values in the
//! WAL. `follow` reads what is being written, for streams of changes. Byte layouts: `docs/format-log.md`.
//! `forge` has the decoders, for fuzzing.
//!
//! This folder does not know memory, tables or the manifest. Its callers decide what to log under which
//! generation, when to sync, which files are no longer needed, and they record what recovery must know: the
//! first file, a position known synced, and where earlier recoveries ended ([`LogEnd`]).

mod delta_frame;
mod encoder;
mod entry;
mod file;
mod follow;
#[cfg(any(test, feature = "testing"))]
pub(crate) mod forge;
mod frame;
mod head;
mod poison;
mod pool;
mod recover;
mod retained;
mod salvage;
mod scan;
mod sync;
#[cfg(test)]
mod tests;
mod value_positions;
mod writer;

#[cfg(test)]
pub(crate) use delta_frame::decode_frame;
pub(crate) use encoder::FrameEncoder;
pub(crate) use entry::ClosedLogFile;
#[cfg(test)]
pub(crate) use file::HEADER_BYTES;
pub(crate) use file::{file_name, is_own as is_own_file, parse_file_name};
pub(crate) use follow::{Followed, Follower, still_kept};
#[cfg(test)]
pub(crate) use frame::EntryPosition;
pub(crate) use frame::{Entry, Frame, Logged, Note};
#[cfg(test)]
pub(crate) use head::{Fault, FileIdentity, HEAD_BYTES};
pub(crate) use pool::WrittenAhead;
pub(crate) use recover::{RecoverOptions, Recovered, recover};
pub(crate) use salvage::{Salvaged as SalvagedLog, databases, salvage};
#[cfg(test)]
pub(crate) use value_positions::entry_bytes;
pub(crate) use value_positions::{PlaceScan, ValuePositions};
pub(crate) use writer::{Appended, Appender, Claim, LogHold, LogOptions, LogStart, Wal};

use crate::types::{LogFileId, LogPosition, SeqNo};

/// An earlier recovery found that history ends at `at`; it goes on at the beginning of file `next`. What lies
/// between is no history.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LogEnd {
    pub(crate) at: LogPosition,
    pub(crate) next: LogFileId,
}

/// A WAL file that memory needs no more, and that is kept to be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct KeptFile {
    pub(crate) file: LogFileId,
    /// Bytes of it that are history, header included.
    pub(crate) used: u64,
    /// All entries of earlier files have smaller sequence numbers, and so have all copies in this one.
    pub(crate) first_seq: SeqNo,
}

/// A WAL file that holds history.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LogFileInfo {
    pub(crate) file: LogFileId,
    /// Bytes the file takes on disk.
    pub(crate) reserved: u64,
    /// Bytes of it that are history, header included.
    pub(crate) used: u64,
    /// All entries of earlier files have smaller sequence numbers, and so have all copies in this one.
    pub(crate) first_seq: SeqNo,
}
