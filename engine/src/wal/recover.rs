//! Recovery: finds the history and its end.
//!
//! A crash leaves the newest bytes in any state: sectors of unsynced frames may have reached the disk or not,
//! in any order, over zeros or over an older file's frames. So history is read frame by frame until one is
//! bad, and what follows is dropped. But a bad frame may also be damage to what was durable, and dropping
//! *that* would lose acknowledged writes silently. The two are told apart by evidence of how far the WAL was
//! synced:
//!
//!  - the position the manifest knows, and the recorded ends of earlier recoveries,
//!  - the position in every full frame and file header, including all intact frame heads after the bad place
//!    and in later files (a head's checksum is enough to trust it).
//!
//! A bad place below the highest such position is corruption and an error; at or above it, it is the end.
//! That covers "a complete later file follows": a file is only begun when everything before its predecessor
//! is synced, and its header says so.
//!
//! A file is complete when another file's header names it and the offset where it ended. Without that it is
//! the newest. Where an earlier recovery ended history ([`WalEnd`]) reading goes on in the file recorded
//! there, and bytes behind the end, valid or not, are no history.
//!
//! Recovery itself only reads. Before the end is recorded in the manifest, [`Recovered::make_durable`] must
//! run: bytes that a killed process left in the page cache read like history but may not be on the disk.

use super::file::{HEADER_BYTES, Header, file_name, file_path, parse_file_name};
use super::frame::{Frame, Note};
use super::head::{Fault, FileIdentity};
use super::scan::WalReader;
use super::{WalEnd, WalFileInfo};
use crate::error::{Error, Result};
use crate::storage::{Env, Storage};
use crate::types::{LogFileId, LogPosition, SeqNo};
use std::collections::BTreeMap;
use std::path::Path;

/// What the manifest knows of the WAL.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecoverOptions<'a> {
    pub(crate) database_id: u64,
    /// The oldest file still needed.
    pub(crate) first_file: LogFileId,
    /// A position up to which the WAL is known to be durable.
    pub(crate) known_synced: LogPosition,
    /// The ends of history of earlier recoveries. Those with `next` at or below `first_file` may be left out.
    pub(crate) ends: &'a [WalEnd],
}

/// The result of a recovery.
#[derive(Clone, Debug)]
pub(crate) struct Recovered {
    /// The end of history. To be recorded as `WalEnd { at: end, next: next_file }` before anything is
    /// written.
    pub(crate) end: LogPosition,
    /// The highest sequence number assigned, without copies.
    pub(crate) max_seq: Option<SeqNo>,
    /// The note about the longest manifest.
    pub(crate) note: Option<Note>,
    /// The file to write next: above every file found or known.
    pub(crate) next_file: LogFileId,
    /// The files with history, oldest first.
    pub(crate) files: Vec<WalFileInfo>,
    /// WAL files that are no part of history, to be deleted (not recycled) once the end is recorded.
    pub(crate) stale: Vec<LogFileId>,
    pub(crate) frames: u64,
    /// Bytes of history, headers included.
    pub(crate) bytes: u64,
    /// The position up to which history was known to be durable; `make_durable` makes the rest so.
    pub(crate) durable_to: LogPosition,
}

/// Reads the history in order, calling `visit` with each frame (notes too). An error from `visit` ends it.
/// After each frame `progress` gets the bytes read and the bytes in all; the newest file counts with its
/// reserved length.
pub(crate) fn recover(
    env: &Env,
    dir: &Path,
    options: &RecoverOptions<'_>,
    visit: &mut dyn FnMut(&Frame<'_>) -> Result<()>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Recovered> {
    let mut walk = Walk::new(env, dir, options)?;
    let total = walk.found.values().filter(|file| file.header.is_ok()).map(|file| file.length).sum();
    let (mut done, mut at) = (0, LogPosition::default());
    let end = walk.history(&mut |frame| {
        visit(frame)?;
        let end = frame.end();
        done += if end.file == at.file { end.offset - at.offset } else { end.offset };
        at = end;
        progress(done, total);
        Ok(())
    })?;
    Ok(walk.finish(end))
}

/// A file's header: readable, or the reason why not.
struct FoundFile {
    header: Result<Header, Fault>,
    length: u64,
}

struct Walk<'a> {
    env: &'a Env,
    dir: &'a Path,
    options: &'a RecoverOptions<'a>,
    /// Every WAL file in the directory.
    found: BTreeMap<LogFileId, FoundFile>,
    /// The highest position the WAL is known to have been synced to.
    evidence: LogPosition,
    max_seq: Option<SeqNo>,
    /// The first sequence number of the file being read.
    first_seq: Option<SeqNo>,
    /// The sequence number of the next new write, also where there are only copies and notes, which take
    /// none.
    expected: SeqNo,
    note: Option<Note>,
    files: Vec<WalFileInfo>,
    frames: u64,
}

impl<'a> Walk<'a> {
    fn new(env: &'a Env, dir: &'a Path, options: &'a RecoverOptions<'a>) -> Result<Self> {
        let names = env.storage.list(dir).map_err(|e| Error::io("list", dir, e))?;
        let mut found = BTreeMap::new();
        for file in names.iter().filter_map(|name| parse_file_name(name)) {
            let identity = FileIdentity::new(options.database_id, file);
            let Some(mut reader) = WalReader::open(env, dir, identity)? else { continue };
            let header = if file < options.first_file {
                Err(Fault::Malformed { what: "a file that is no longer needed", at: 0 })
            } else {
                reader.header(options.database_id)?
            };
            found.insert(file, FoundFile { header, length: reader.length });
        }
        let evidence = options.ends.iter().map(|end| end.at).fold(options.known_synced, LogPosition::max);
        Ok(Self {
            env,
            dir,
            options,
            found,
            evidence,
            max_seq: None,
            first_seq: None,
            expected: SeqNo::ZERO,
            note: None,
            files: Vec::new(),
            frames: 0,
        })
    }

    /// Walks the files in order; returns where history ends.
    fn history(&mut self, visit: &mut dyn FnMut(&Frame<'_>) -> Result<()>) -> Result<LogPosition> {
        // The next file has this number, or a higher one where reserving files failed in between.
        let mut next = self.options.first_file;
        let mut previous: Option<LogPosition> = None;
        loop {
            if let Some(end) = self.recorded_end(next).filter(|end| end.at.offset == 0) {
                // An earlier recovery found nothing in this file, not even a header.
                (previous, next) = (Some(end.at), end.next);
                continue;
            }
            let (file, reserved) = match self.file_behind(previous, next) {
                Ok((header, length)) => {
                    self.evidence = self.evidence.max(header.synced);
                    (header.file, length)
                }
                Err(fault) => {
                    let start = LogPosition { file: next, offset: 0 };
                    self.check_end(start, fault)?;
                    return Ok(previous.unwrap_or(start));
                }
            };
            let stop = match self.recorded_end(file) {
                Some(end) => Some((end.at.offset, end.next)),
                None => self.successor(file),
            };
            self.first_seq = None;
            let (end, fault) = self.read_file(file, stop.map(|(offset, _)| offset), visit)?;
            let first_seq = self.first_seq.unwrap_or(self.expected);
            self.files.push(WalFileInfo { file, reserved, used: end.offset, first_seq });
            match (stop, fault) {
                (Some((_, behind)), None) => (previous, next) = (Some(end), behind),
                (_, fault) => {
                    let fault = fault.unwrap_or(Fault::Short { need: 1, have: 0 });
                    self.check_end(end, fault)?;
                    return Ok(end);
                }
            }
        }
    }

    /// Reads one file's frames up to `stop`, or up to the first bad one; returns where that is.
    fn read_file(
        &mut self,
        file: LogFileId,
        stop: Option<u64>,
        visit: &mut dyn FnMut(&Frame<'_>) -> Result<()>,
    ) -> Result<(LogPosition, Option<Fault>)> {
        let mut at = LogPosition { file, offset: HEADER_BYTES };
        let identity = FileIdentity::new(self.options.database_id, file);
        let Some(mut reader) = WalReader::open(self.env, self.dir, identity)? else {
            return Ok((at, Some(Fault::NoFile)));
        };
        let mut base = None;
        loop {
            if stop == Some(at.offset) {
                return Ok((at, None));
            }
            if planted!(Bug::DropWalTail) && stop.is_none() && at.offset > 1_000 {
                return Ok((at, Some(Fault::NoFile)));
            }
            let frame = match reader.frame(at.offset, base.as_ref())? {
                Ok(frame) => frame,
                Err(fault) => return Ok((at, Some(fault))),
            };
            if stop.is_some_and(|stop| frame.end().offset > stop) {
                let what = "a frame that passes the end of its file's history";
                return Ok((at, Some(Fault::Malformed { what, at: at.offset })));
            }
            visit(&frame)?;
            self.frames += 1;
            self.first_seq = self.first_seq.or(Some(frame.head.first_seq));
            self.expected = frame.last_seq.map_or(self.expected.max(frame.head.first_seq), SeqNo::next);
            self.max_seq = self.max_seq.max(frame.last_seq);
            self.note = self.note.max(frame.note());
            self.evidence = frame.head.synced.map_or(self.evidence, |synced| synced.max(self.evidence));
            (at, base) = (frame.end(), Some(frame.base));
        }
    }

    /// Checks whether history may end at `bad`; if not, the error says so.
    fn check_end(&mut self, bad: LogPosition, fault: Fault) -> Result<()> {
        if bad >= self.evidence {
            self.look_behind(bad)?;
        }
        if bad >= self.evidence {
            return Ok(());
        }
        let mut message = format!("expected WAL that was synced up to {}, found {fault}", self.evidence);
        if self.evidence.file > bad.file && !self.found.contains_key(&self.evidence.file) {
            message += &format!(", and no file {}", file_name(self.evidence.file));
        }
        Err(Error::corruption(file_path(self.dir, bad.file), bad.offset, message))
    }

    /// Collects the synced positions in intact headers and frame heads after `bad`.
    fn look_behind(&mut self, bad: LogPosition) -> Result<()> {
        for (&file, found) in self.found.range(bad.file..) {
            let from = if file == bad.file { bad.offset.max(HEADER_BYTES) } else { HEADER_BYTES };
            if let Ok(header) = &found.header {
                self.evidence = self.evidence.max(header.synced);
            }
            let identity = FileIdentity::new(self.options.database_id, file);
            let Some(mut reader) = WalReader::open(self.env, self.dir, identity)? else { continue };
            self.evidence = reader.highest_synced(from)?.map_or(self.evidence, |s| s.max(self.evidence));
        }
        Ok(())
    }

    /// The first file from number `next` on that goes on at `previous`; without a previous file, the one that
    /// goes on after the files no longer needed. Otherwise, the reason why there is none.
    fn file_behind(&self, previous: Option<LogPosition>, next: LogFileId) -> Result<(Header, u64), Fault> {
        let goes_on = |header: &Header| match previous {
            Some(previous) => header.previous == previous,
            None => header.previous.file < next,
        };
        let mut files = self.found.range(next..).filter_map(|(_, f)| f.header.ok().map(|h| (h, f.length)));
        files.find(|(header, _)| goes_on(header)).ok_or_else(|| match self.found.get(&next) {
            Some(FoundFile { header: Err(fault), .. }) => *fault,
            Some(_) => Fault::Malformed { what: "a header that continues elsewhere", at: 0 },
            None => Fault::NoFile,
        })
    }

    /// The end of history in `file` that an earlier recovery recorded. A recovery that found nothing after an
    /// end recorded it again, with a higher file to go on in: the highest counts.
    fn recorded_end(&self, file: LogFileId) -> Option<WalEnd> {
        let ends = self.options.ends.iter().filter(|end| end.at.file == file && end.next > file);
        ends.max_by_key(|end| end.next).copied()
    }

    /// The file begun after `file` was complete, and the offset where `file` ended.
    fn successor(&self, file: LogFileId) -> Option<(u64, LogFileId)> {
        let later = self.found.range(file.next()..).filter_map(|(_, found)| found.header.ok());
        let next = later.into_iter().find(|header| header.previous.file == file)?;
        Some((next.previous.offset, next.file))
    }

    fn finish(self, end: LogPosition) -> Recovered {
        let is_history = |file: &LogFileId| self.files.iter().any(|info| info.file == *file);
        let known = [self.options.first_file, end.file, self.evidence.file];
        let highest = (self.found.keys().chain(&known).copied())
            .chain(self.options.ends.iter().map(|end| end.next))
            .fold(LogFileId::ZERO, LogFileId::max);
        Recovered {
            end,
            max_seq: self.max_seq,
            note: self.note,
            next_file: highest.next(),
            stale: self.found.keys().filter(|file| !is_history(file)).copied().collect(),
            frames: self.frames,
            bytes: self.files.iter().map(|info| info.used).sum(),
            files: self.files,
            durable_to: self.evidence.min(end),
        }
    }
}

impl Recovered {
    /// Makes the recovered history durable. Must run before its end is recorded in the manifest.
    ///
    /// Syncing is not enough: where a sync failed before the process died, the operating system may hold
    /// bytes in memory that it calls clean and that are not on the disk. So everything not known durable is
    /// written again, in place and unchanged, and then synced. At most two files have such bytes.
    pub(crate) fn make_durable(&self, env: &Env, dir: &Path, database_id: u64) -> Result<()> {
        let unsure = |f: &&WalFileInfo| LogPosition { file: f.file, offset: f.used } > self.durable_to;
        for info in self.files.iter().filter(unsure) {
            let path = file_path(dir, info.file);
            let identity = FileIdentity::new(database_id, info.file);
            let Some(mut reader) = WalReader::open(env, dir, identity)? else {
                return Err(Error::corruption(&path, 0, "expected the WAL file just recovered, found none"));
            };
            let map = env.storage.map(&path, reader.length, false);
            let map = map.map_err(|e| Error::io("map a recovered WAL file", &path, e))?;
            let mut at = if info.file == self.durable_to.file { self.durable_to.offset } else { 0 };
            while at < info.used {
                let bytes = reader.read(at, (info.used - at).min(REWRITE_BYTES))?;
                if bytes.is_empty() {
                    return Err(Error::corruption(
                        &path,
                        at,
                        "expected the history just recovered, found the end",
                    ));
                }
                map.write(at, bytes).map_err(|e| Error::io("write recovered WAL", &path, e))?;
                at += bytes.len() as u64;
            }
            map.sync().map_err(|e| Error::io("sync recovered WAL", &path, e))?;
        }
        env.storage.sync_dir(dir).map_err(|e| Error::io("sync the directory", dir, e))
    }

    /// Frees the space reserved after the history in each file, once its end is recorded and nothing is
    /// written there again. Where holes cannot be punched it is freed with the file.
    pub(crate) fn give_back_tails(&mut self, env: &Env, dir: &Path) {
        for info in &mut self.files {
            info.reserved = give_back_tail(&*env.storage, dir, info.file, info.used, info.reserved);
        }
    }
}

/// Frees the space reserved after a file's history; returns its bytes on disk afterwards.
pub(super) fn give_back_tail(
    storage: &dyn Storage,
    dir: &Path,
    file: LogFileId,
    used: u64,
    reserved: u64,
) -> u64 {
    let from = used.next_multiple_of(HOLE_ALIGN);
    if from >= reserved || planted!(Bug::KeepWalTails) {
        return reserved;
    }
    match storage.punch_hole(&file_path(dir, file), from, reserved - from) {
        Ok(true) => from,
        _ => reserved,
    }
}

/// Holes begin at the file system's blocks.
const HOLE_ALIGN: u64 = 4096;

/// Bytes written again at once when history is made durable.
const REWRITE_BYTES: u64 = 1 << 20;
