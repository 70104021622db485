//! Rescue: every frame of a damaged WAL that can still be read.
//!
//! Recovery stops at the first bad place, because what follows is either no history or evidence of damage.
//! Here damage is known, so the walk goes on at the next whole frame. A frame's checksums prove which file
//! and offset it was written for; so only frames of history are taken for history, except those after the
//! place where an earlier recovery ended it, which recorded ends and the headers of later files show.

use super::WalEnd;
use super::file::{HEADER_BYTES, Header, file_name, file_path, parse_file_name};
use super::frame::{Frame, Note};
use super::head::{ALIGN, FileIdentity};
use super::scan::WalReader;
use crate::error::{Error, Result};
use crate::storage::Env;
use crate::types::{LogFileId, LogPosition, SeqNo};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

/// Bytes without a frame after which the file is checked for a hole.
const HOLE_LOOK_BYTES: u64 = 64 << 10;

/// A part of the history that cannot be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Lost {
    pub(crate) file: LogFileId,
    /// The unreadable bytes; empty if the whole file is missing.
    pub(crate) bytes: Range<u64>,
    /// The first sequence number that may be lost; 0 if no earlier one is known.
    pub(crate) first: SeqNo,
    /// The last one; `None` if no frame follows.
    pub(crate) last: Option<SeqNo>,
}

/// The result of salvaging a WAL.
#[derive(Clone, Debug, Default)]
pub(crate) struct Salvaged {
    pub(crate) frames: u64,
    pub(crate) note: Option<Note>,
    pub(crate) max_seq: Option<SeqNo>,
    /// Every WAL file in the directory.
    pub(crate) files: Vec<LogFileId>,
    pub(crate) lost: Vec<Lost>,
}

/// The numbers of the databases that the headers of WAL files name.
pub(crate) fn databases(env: &Env, dir: &Path) -> Result<Vec<u64>> {
    let names = env.storage.list(dir).map_err(|e| Error::io("list", dir, e))?;
    let mut found = Vec::new();
    for file in names.iter().filter_map(|name| parse_file_name(name)) {
        let Ok(Some(mut reader)) = WalReader::open(env, dir, FileIdentity::new(0, file)) else { continue };
        let Ok(bytes) = reader.read(0, HEADER_BYTES) else { continue };
        // The header's checksum does not depend on the database, so its own number will do.
        let Some(word) = bytes.get(16..24).and_then(|word| word.first_chunk::<8>()) else { continue };
        let database = u64::from_le_bytes(*word);
        let header = Header::decode(bytes, database, file, &file_path(dir, file));
        if matches!(header, Ok(Ok(_))) && !found.contains(&database) {
            found.push(database);
        }
    }
    Ok(found)
}

/// Visits every readable frame of the history, from file `first` on, and reports what is lost in between.
pub(crate) fn salvage(
    env: &Env,
    dir: &Path,
    database: u64,
    first: LogFileId,
    synced: LogPosition,
    ends: &[WalEnd],
    visit: &mut dyn FnMut(&Frame<'_>) -> Result<()>,
) -> Result<Salvaged> {
    let names = env.storage.list(dir).map_err(|e| Error::io("list", dir, e))?;
    let files: Vec<LogFileId> = names.iter().filter_map(|name| parse_file_name(name)).collect();
    let mut headers = BTreeMap::new();
    for file in files.iter().filter(|file| **file >= first) {
        let identity = FileIdentity::new(database, *file);
        if let Ok(Some(mut reader)) = WalReader::open(env, dir, identity)
            && let Ok(Ok(header)) = reader.header(database)
        {
            headers.insert(*file, header);
        }
    }
    let mut walk = Walk {
        salvaged: Salvaged { files: files.clone(), ..Salvaged::default() },
        evidence: headers
            .values()
            .map(|h| h.synced)
            .chain(ends.iter().map(|end| end.at))
            .fold(synced, LogPosition::max),
        expected: SeqNo::ZERO,
        gap: None,
        tails: Vec::new(),
    };
    let begun_after =
        |file: LogFileId| headers.values().find(|h| h.previous.file == file).map(|h| h.previous.offset);
    let mut needed: Vec<LogFileId> =
        headers.values().map(|h| h.previous.file).filter(|file| *file >= first).collect();
    needed.extend(files.iter().filter(|file| **file >= first));
    needed.sort_unstable();
    needed.dedup();
    for file in needed {
        let ended =
            ends.iter().filter(|end| end.at.file == file && end.next > file).max_by_key(|end| end.next);
        let stop = ended.map(|end| end.at.offset).or(begun_after(file));
        let reserved = headers.get(&file).map_or(0, |header| header.reserved);
        walk.file(env, dir, FileIdentity::new(database, file), stop, reserved, visit)?;
    }
    Ok(walk.finish())
}

struct Walk {
    salvaged: Salvaged,
    /// A position up to which the WAL was surely durable.
    evidence: LogPosition,
    /// The first sequence number of the next frame, if none is lost.
    expected: SeqNo,
    /// Bad bytes in the file being read, up to the next frame.
    gap: Option<Lost>,
    /// Bad bytes at ends of files, which may never have been history: judged when all evidence is collected.
    tails: Vec<(Lost, bool)>,
}

impl Walk {
    fn file(
        &mut self,
        env: &Env,
        dir: &Path,
        identity: FileIdentity,
        stop: Option<u64>,
        reserved: u64,
        visit: &mut dyn FnMut(&Frame<'_>) -> Result<()>,
    ) -> Result<()> {
        let file = identity.file;
        let mut at = HEADER_BYTES;
        let mut cut_short = false;
        // Whether whole frames whose base is lost follow the last one that was read: they are history,
        // wherever it ends.
        let mut orphaned = false;
        // A file that cannot be opened or read further is lost from there, not an error.
        if let Ok(Some(mut reader)) = WalReader::open(env, dir, identity) {
            let end = stop.unwrap_or(reader.length).min(reader.length);
            cut_short = reader.length < reserved;
            let mut base = None;
            while at < end {
                match reader.frame(at, base.as_ref()) {
                    Ok(Ok(frame)) => {
                        orphaned = false;
                        self.frame(&frame);
                        visit(&frame)?;
                        (at, base) = (frame.end().offset, Some(frame.base));
                    }
                    _ => {
                        let gap = Lost { file, bytes: at..at, first: self.expected, last: None };
                        let orphan = reader.orphan(at);
                        orphaned |= orphan.is_some();
                        // There is no frame inside another one: what looks like one is a value's bytes.
                        let mut next = at + orphan.or_else(|| reader.length_told(at)).unwrap_or(ALIGN);
                        if next.is_multiple_of(HOLE_LOOK_BYTES) {
                            next = reader.data_from(next)?;
                        }
                        let next = next.min(end);
                        self.gap.get_or_insert(gap).bytes.end = next;
                        at = next;
                    }
                }
            }
        }
        // The end of this file's history is known, or its end was cut off: a file has its full length before
        // it has a header.
        let end = stop.or(cut_short.then_some(reserved));
        match (end, self.gap.take()) {
            // A file that was cut short always lost something.
            (Some(end), tail) if stop.is_none() || at < end || tail.is_some() => {
                let from = tail.map_or(at, |tail| tail.bytes.start);
                let first = self.expected;
                self.tails.push((Lost { file, bytes: from..end, first, last: None }, true));
            }
            (None, Some(tail)) => self.tails.push((tail, orphaned)),
            _ => {}
        }
        Ok(())
    }

    fn frame(&mut self, frame: &Frame<'_>) {
        let head = &frame.head;
        let before = SeqNo(head.first_seq.0.saturating_sub(1));
        self.salvaged.lost.extend(self.gap.take().map(|gap| Lost { last: Some(before), ..gap }));
        for (tail, _) in self.tails.iter_mut().filter(|(tail, _)| tail.last.is_none()) {
            tail.last = Some(before);
        }
        self.evidence = head.synced.map_or(self.evidence, |synced| synced.max(self.evidence));
        self.expected = frame.last_seq.map_or(self.expected.max(head.first_seq), SeqNo::next);
        self.salvaged.frames += 1;
        self.salvaged.note = self.salvaged.note.max(frame.note());
        self.salvaged.max_seq = self.salvaged.max_seq.max(frame.last_seq);
    }

    fn finish(mut self) -> Salvaged {
        let evidence = self.evidence;
        for (tail, known) in self.tails {
            if known || (LogPosition { file: tail.file, offset: tail.bytes.start }) < evidence {
                self.salvaged.lost.push(tail);
            }
        }
        if evidence.offset > HEADER_BYTES && !self.salvaged.files.contains(&evidence.file) {
            let bytes = 0..evidence.offset;
            self.salvaged.lost.push(Lost { file: evidence.file, bytes, first: self.expected, last: None });
        }
        self.salvaged.lost.sort_by_key(|lost| (lost.file, lost.bytes.start));
        self.salvaged
    }
}

impl std::fmt::Display for Lost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "bytes {} to {} of {}", self.bytes.start, self.bytes.end, file_name(self.file))
    }
}
