//! Reads the WAL while it is written: all changes since a sequence number.
//!
//! Memory needs a WAL file only until it is flushed; a follower may still have to read it. So a released file
//! is *retained* first, in a list of bounded size. One bound always applies, a larger one while a follower
//! has not read past the file. Files over their bound are released for good (recycled, or left to the
//! SSTables with values in them).
//!
//! A follower reads whole frames that are visible, in order. Sequence numbers in the WAL ascend without a
//! gap, so it can name those that are missing (an ingested SSTable took them, or the file is gone). It reads
//! files that may be recycled meanwhile: a frame that does not verify is damage only if its file still
//! exists.
//!
//! The manifest lists the files retained without a follower, with the end of their history, so that the next
//! open finds them.

use super::file::{HEADER_BYTES, file_path};
use super::frame::Frame;
use super::head::{Base, FileIdentity};
use super::retained::{LiveFile, RetainedFiles};
use super::scan::WalReader;
use super::writer::Wal;
use super::{Claim, RetainedFile, WalFileInfo};
use crate::error::{Error, Result};
use crate::storage::Env;
use crate::types::{LogFileId, LogPosition, SeqNo};
use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

/// Which of the files that the manifest says are kept are there: the newest, up to that many bytes; oldest
/// first.
pub(crate) fn still_kept(
    env: &Env,
    dir: &Path,
    database: u64,
    told: impl DoubleEndedIterator<Item = RetainedFile>,
    bytes: u64,
) -> Vec<WalFileInfo> {
    let (mut kept, mut taken) = (Vec::new(), 0);
    for RetainedFile { file, used, first_seq } in told.rev() {
        taken += used;
        if taken > bytes {
            break;
        }
        // No data depends on it, so a fault in it is no reason not to open.
        let Ok(Some(mut reader)) = WalReader::open(env, dir, FileIdentity::new(database, file)) else {
            break;
        };
        if reader.length < used || !matches!(reader.header(database), Ok(Ok(_))) {
            break;
        }
        // Space reserved after its history was freed, or is useless.
        let reserved = used.next_multiple_of(4096).min(reader.length);
        kept.push(WalFileInfo { file, reserved, used, first_seq });
    }
    kept.reverse();
    kept
}

/// The state of a follower's file.
enum Look {
    /// The file does not exist any more.
    Gone,
    /// History up to `end`, and the next file if this one is complete, with its first sequence number.
    Part { end: u64, behind: Option<(LogFileId, SeqNo)>, is_kept: bool },
}

/// The result of a follower's read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Followed {
    /// Nothing new for now.
    Nothing,
    /// A frame was visited.
    Frame,
    /// Writes with these sequence numbers are not in the WAL, or not any more.
    Missing(SeqNo, SeqNo),
}

/// A follower of the WAL, for a stream of changes; see the page above. Reads some MiB at a time.
pub(crate) struct Follower {
    wal: Arc<Wal>,
    env: Env,
    id: u64,
    /// The next sequence number to report.
    next: SeqNo,
    at: Option<LogPosition>,
    /// The last full frame before that position.
    base: Option<Base>,
    reader: Option<WalReader>,
}

impl Wal {
    /// Reads from the first write after `since`.
    pub(crate) fn follow(self: &Arc<Self>, env: &Env, since: SeqNo) -> Follower {
        let mut kept = self.kept.lock();
        kept.next_follower += 1;
        let id = kept.next_follower;
        // Until it has found its file, none is released.
        kept.followers.insert(id, LogFileId::ZERO);
        Follower {
            wal: self.clone(),
            env: env.clone(),
            id,
            next: since.next(),
            at: None,
            base: None,
            reader: None,
        }
    }

    /// The oldest retained file, if there is one, and the files that will be retained once all before `front`
    /// are released: the manifest records them.
    pub(crate) fn to_keep(&self, front: LogFileId) -> Option<(LogFileId, Vec<RetainedFile>)> {
        if self.options.kept_bytes == 0 {
            return None;
        }
        let live = self.live.lock();
        let kept = self.kept.lock();
        let released = live.iter().filter(|f| f.file < front);
        let released = released
            .filter_map(|f| f.used.map(|used| RetainedFile { file: f.file, used, first_seq: f.first_seq }));
        let released: Vec<_> = released.collect();
        let oldest = kept.files.iter().next().map(|f| f.file).or(released.first().map(|f| f.file));
        Some((oldest.unwrap_or(front), released))
    }

    /// The oldest file that still exists.
    pub(crate) fn oldest(&self) -> LogFileId {
        let live = self.live.lock();
        let kept = self.kept.lock();
        let oldest = kept.files.iter().chain(live.iter()).next().map(|f| f.file);
        oldest.unwrap_or_else(|| self.end().file)
    }

    /// Bytes of history in files that memory needs no more.
    pub(crate) fn kept_bytes(&self) -> u64 {
        self.kept.lock().bytes()
    }

    /// Releases retained files that are over their bound.
    pub(crate) fn trim_kept(&self, claim: &dyn Fn(LogFileId) -> Claim) -> Result<()> {
        let over = self.take_unless_held(|kept| self.take_over(kept));
        self.let_go(&over, claim)
    }

    /// Releases all retained files that may be; returns whether there were any.
    pub(crate) fn drop_kept(&self, claim: &dyn Fn(LogFileId) -> Claim) -> bool {
        let all = self.take_unless_held(|kept| kept.take_over(0, 0));
        let _ = self.let_go(&all, claim);
        !all.is_empty()
    }

    /// Takes nothing while live files are being copied.
    fn take_unless_held(&self, take: impl FnOnce(&mut RetainedFiles) -> Vec<LiveFile>) -> Vec<LiveFile> {
        let _live = self.live.lock();
        if self.is_held() { Vec::new() } else { take(&mut self.kept.lock()) }
    }

    /// The oldest file that may have writes from `seq` on; otherwise the first sequence number in any file.
    fn file_of(&self, seq: SeqNo) -> Result<LogFileId, Option<SeqNo>> {
        let live = self.live.lock();
        let kept = self.kept.lock();
        let before = |files: &VecDeque<LiveFile>| files.partition_point(|f| f.first_seq <= seq);
        let last = match before(&live) {
            0 => before(&kept.files).checked_sub(1).map(|at| &kept.files[at]),
            at => live.get(at - 1),
        };
        last.map(|f| f.file).ok_or_else(|| kept.files.iter().chain(live.iter()).next().map(|f| f.first_seq))
    }

    fn look(&self, file: LogFileId) -> Look {
        let live = self.live.lock();
        let kept = self.kept.lock();
        let is_kept = live.front().is_none_or(|first| file < first.file);
        let files = if is_kept { &kept.files } else { &*live };
        let at = files.partition_point(|f| f.file < file);
        let Some(found) = files.get(at).filter(|f| f.file == file) else { return Look::Gone };
        let end = self.end();
        let unfinished = if end.file == file { end.offset } else { HEADER_BYTES };
        let behind = files.get(at + 1).or_else(|| live.front().filter(|_| is_kept));
        match found.used {
            Some(used) => Look::Part { end: used, behind: behind.map(|f| (f.file, f.first_seq)), is_kept },
            None => Look::Part { end: unfinished, behind: None, is_kept },
        }
    }
}

impl Follower {
    /// The last sequence number that it has read.
    pub(crate) fn position(&self) -> SeqNo {
        SeqNo(self.next.0 - 1)
    }

    /// The file that it reads.
    pub(crate) fn file(&self) -> Option<LogFileId> {
        self.at.map(|at| at.file)
    }

    /// Visits the next frame that is visible as a whole, with its first sequence number that is new. Only
    /// durable frames are visited: if necessary, the WAL is synced.
    pub(crate) fn next(
        &mut self,
        visible: SeqNo,
        visit: &mut dyn FnMut(&Frame<'_>, SeqNo),
    ) -> Result<Followed> {
        loop {
            if self.next > visible {
                // There may be thousands of waiting followers; none keeps a file open or a buffer.
                self.reader = None;
                return Ok(Followed::Nothing);
            }
            let Some(at) = self.at else {
                match self.wal.file_of(self.next) {
                    Ok(file) => self.stand(LogPosition { file, offset: HEADER_BYTES }),
                    Err(first) => {
                        return Ok(self.missing(first.map_or(visible.next(), |f| f.min(visible.next()))));
                    }
                }
                continue;
            };
            let Look::Part { end, behind, .. } = self.wal.look(at.file) else {
                (self.at, self.reader) = (None, None);
                continue;
            };
            if at.offset >= end {
                match behind {
                    Some((file, _)) => self.stand(LogPosition { file, offset: HEADER_BYTES }),
                    // Everything visible was in the WAL before this check.
                    None => return Ok(self.missing(visible.next())),
                }
                continue;
            }
            if self.reader.is_none() {
                let identity = FileIdentity::new(self.wal.database(), at.file);
                self.reader = WalReader::open(&self.env, &self.wal.dir, identity)?;
            }
            let frame = match frame(&mut self.reader, at.offset, end, self.base.as_ref()) {
                Ok(frame) => frame,
                Err(fault) => match self.unreadable(at, fault)? {
                    Some(missing) => return Ok(missing),
                    None => continue,
                },
            };
            let (first, behind, base) = (frame.head.first_seq, frame.end(), Some(frame.base));
            let Some(last) = frame.last_seq.filter(|last| *last >= self.next) else {
                (self.at, self.base) = (Some(behind), base);
                continue;
            };
            if last > visible {
                return Ok(Followed::Nothing);
            }
            if first > self.next {
                return Ok(self.missing(first));
            }
            if self.wal.synced() < behind {
                self.wal.sync()?;
            }
            visit(&frame, self.next);
            (self.next, self.at, self.base) = (last.next(), Some(behind), base);
            return Ok(Followed::Frame);
        }
    }

    fn stand(&mut self, at: LogPosition) {
        (self.at, self.base, self.reader) = (Some(at), None, None);
        self.wal.kept.lock().followers.insert(self.id, at.file);
    }

    /// Goes on at that sequence number, and reports the missing ones.
    fn missing(&mut self, until: SeqNo) -> Followed {
        let from = std::mem::replace(&mut self.next, until);
        Followed::Missing(from, SeqNo(until.0 - 1))
    }

    /// The result for an unreadable frame: nothing, if its file was released meanwhile; writes lost up to the
    /// next file, if it is only retained; otherwise damage.
    fn unreadable(&mut self, at: LogPosition, fault: String) -> Result<Option<Followed>> {
        match self.wal.look(at.file) {
            Look::Gone => {
                (self.at, self.reader) = (None, None);
                Ok(None)
            }
            Look::Part { is_kept: true, behind: Some((file, first)), .. } => {
                self.stand(LogPosition { file, offset: HEADER_BYTES });
                Ok((first > self.next).then(|| self.missing(first)))
            }
            Look::Part { .. } => {
                let message = format!("expected a frame of the WAL, found {fault}");
                Err(Error::corruption(file_path(&self.wal.dir, at.file), at.offset, message))
            }
        }
    }
}

/// The frame at that position, in a file whose history ends at `end`; or the reason why there is none.
fn frame<'r>(
    reader: &'r mut Option<WalReader>,
    offset: u64,
    end: u64,
    base: Option<&Base>,
) -> Result<Frame<'r>, String> {
    let Some(reader) = reader else { return Err("no such file".into()) };
    reader.length = end;
    reader.frame(offset, base).map_err(|e| e.to_string())?.map_err(|fault| fault.to_string())
}

impl std::fmt::Debug for Follower {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "before {} at {:?}", self.next, self.at)
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.wal.kept.lock().followers.remove(&self.id);
    }
}
