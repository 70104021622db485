//! The WAL: every write goes here first, and recovery after a crash reads it.
//!
//! A WAL is a sequence of preallocated files of frames (`head`, `frame`, `delta_frame`, `encoder`),
//! memory-mapped where that is safe; each file begins with a header that says where the previous one ended
//! (`file`). Appending needs the one [`Appender`]; syncing, reserving files ahead and releasing files go
//! through the shared [`Wal`] from any thread, and neither wait for appends nor block them (`writer`, `sync`,
//! `pool`; `retained` has the files that there are, `poison` a failure that is final). `recover` finds the
//! history and its end, and tells a torn end (normal after a crash) from damage (an error); `scan` reads a
//! file, and `salvage` reads on after damage. `value_positions` finds a store's values in closed files and
//! `entry` reads one of them alone, for SSTables with values in the WAL. `follow` reads the WAL while it is
//! written, for streams of changes, and `arriving` reads it as it comes out of a shared database's stream.
//! Byte layouts: `docs/format-wal.md`. `forge` has the decoders, for fuzzing.
//!
//! Not owned here: memory, SSTables and the manifest. Callers decide what to log under which generation, when
//! to sync, and which files are no longer needed, and they record what recovery must know: the first file, a
//! position known synced, and where earlier recoveries ended ([`WalEnd`]).

mod arriving;
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

pub(crate) use arriving::Arriving;
#[cfg(test)]
pub(crate) use delta_frame::decode_frame;
pub(crate) use encoder::FrameEncoder;
pub(crate) use entry::ClosedWalFile;
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
pub(crate) use salvage::{Salvaged as SalvagedWal, databases, salvage};
#[cfg(test)]
pub(crate) use value_positions::entry_bytes;
pub(crate) use value_positions::{PlaceScan, ValuePositions};
pub(crate) use writer::{Appended, Appender, Claim, Wal, WalHold, WalOptions, WalStart};

use crate::types::{LogFileId, LogPosition, SeqNo};

/// The end of history that an earlier recovery found: history ends at `at` and goes on at the beginning of
/// file `next`. Bytes in between are no history.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WalEnd {
    pub(crate) at: LogPosition,
    pub(crate) next: LogFileId,
}

/// A WAL file that memory needs no more, and that is retained for readers of changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RetainedFile {
    pub(crate) file: LogFileId,
    /// Bytes of history in it, header included.
    pub(crate) used: u64,
    /// A lower bound of its sequence numbers, copies apart: all entries of earlier files, and all copies in
    /// this one, have smaller ones.
    pub(crate) first_seq: SeqNo,
}

/// A WAL file with history.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WalFileInfo {
    pub(crate) file: LogFileId,
    /// Bytes of the file on disk.
    pub(crate) reserved: u64,
    /// Bytes of history in it, header included.
    pub(crate) used: u64,
    /// A lower bound of its sequence numbers, copies apart: all entries of earlier files, and all copies in
    /// this one, have smaller ones.
    pub(crate) first_seq: SeqNo,
}
