//! Reads a WAL file through a moving window, and searches for frames after a damaged one.

use super::delta_frame::{decode_frame, orphan};
use super::file::{HEADER_BYTES, Header, file_path, reserved_by};
use super::frame::Frame;
use super::head::{ALIGN, Base, Fault, FileIdentity, HEAD_BYTES, Head, SHORT_BYTES_MAX};
use crate::error::{Error, Result};
use crate::storage::{Env, ReadFile};
use crate::types::LogPosition;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes that are read at once, unless a frame is longer.
const WINDOW_BYTES: usize = 1 << 20;

/// An open WAL file and the part of it in memory.
pub(super) struct WalReader {
    pub(super) path: PathBuf,
    pub(super) length: u64,
    identity: FileIdentity,
    file: Arc<dyn ReadFile>,
    window: Vec<u8>,
    window_at: u64,
}

impl WalReader {
    /// Opens the file; `None` if it does not exist.
    pub(super) fn open(env: &Env, dir: &Path, identity: FileIdentity) -> Result<Option<Self>> {
        let path = file_path(dir, identity.file);
        let opened = env.storage.open(&path).and_then(|file| Ok((file.len()?, file)));
        match opened {
            Ok((length, file)) => {
                let mut reader = Self { path, length, identity, file, window: Vec::new(), window_at: 0 };
                // Bytes beyond the reserved length are foreign, and may be more than memory or disk.
                if let Some(reserved) = reserved_by(reader.read(0, HEADER_BYTES)?) {
                    reader.length = length.min(reserved);
                }
                // A follower reads on in a file that is being written: bytes of this moment are not kept.
                reader.window.clear();
                Ok(Some(reader))
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(Error::io("open a WAL file", &path, e)),
        }
    }

    /// This reader, as if the file ended at `end`.
    pub(super) fn up_to(mut self, end: u64) -> Self {
        self.length = self.length.min(end);
        self
    }

    /// The header, or the reason why there is none (see [`Header::decode`]).
    pub(super) fn header(&mut self, database_id: u64) -> Result<Result<Header, Fault>> {
        let (file, path) = (self.identity.file, self.path.clone());
        Header::decode(self.read(0, HEADER_BYTES)?, database_id, file, &path)
    }

    /// The frame at `offset`, with the last full one before it if that was read, or the reason why there is
    /// none. Memory for a long frame is allocated only once its head is verified and the file is long enough.
    pub(super) fn frame(&mut self, offset: u64, base: Option<&Base>) -> Result<Result<Frame<'_>, Fault>> {
        let identity = self.identity;
        let mut want = SHORT_BYTES_MAX;
        if let Ok(head) = Head::decode(self.read(offset, HEAD_BYTES as u64)?, identity, offset) {
            want = want.max(head.length);
        }
        Ok(decode_frame(self.read(offset, want)?, identity, offset, base))
    }

    /// The length of a whole short frame at `offset`, whose base was not read.
    pub(super) fn orphan(&mut self, offset: u64) -> Option<u64> {
        let identity = self.identity;
        orphan(self.read(offset, SHORT_BYTES_MAX).ok()?, identity, offset)
    }

    /// The length in the head at `offset`, if that is intact, even with a damaged body.
    pub(super) fn length_told(&mut self, offset: u64) -> Option<u64> {
        let identity = self.identity;
        let head = self.read(offset, HEAD_BYTES as u64).ok()?;
        Head::decode(head.get(..HEAD_BYTES)?, identity, offset).ok().map(|head| head.length)
    }

    /// The highest synced position in any intact head of a full frame at or after `from`: short frames have
    /// none. Looks at every offset where a frame can begin, except inside full ones, so the work is bounded
    /// by the file's length.
    pub(super) fn highest_synced(&mut self, from: u64) -> Result<Option<LogPosition>> {
        let identity = self.identity;
        let (mut at, mut highest) = (from.next_multiple_of(ALIGN), None);
        while at + HEAD_BYTES as u64 <= self.length {
            at = self.data_from(at)?;
            let window = self.read(at, WINDOW_BYTES as u64)?;
            let mut within = 0;
            while let Some(head) = window.get(within..within + HEAD_BYTES) {
                within += ALIGN as usize;
                if head[..ALIGN as usize] == [0; ALIGN as usize] {
                    continue;
                }
                if let Ok(head) = Head::decode(head, identity, at + (within - ALIGN as usize) as u64) {
                    highest = highest.max(head.synced);
                    within += (head.length - ALIGN) as usize;
                }
            }
            at += within as u64;
        }
        Ok(highest)
    }

    /// The first multiple of [`ALIGN`] from `offset` on that may not be in a hole: a long file that was never
    /// written costs no time.
    pub(super) fn data_from(&self, offset: u64) -> Result<u64> {
        let data = self.file.data_from(offset).map_err(|e| Error::io("read the WAL", &self.path, e))?;
        // Frames begin at multiples.
        Ok(offset.max(data / ALIGN * ALIGN))
    }

    /// Up to `want` bytes at `offset`, fewer only where the file ends.
    pub(super) fn read(&mut self, offset: u64, want: u64) -> Result<&[u8]> {
        let left = self.length.saturating_sub(offset);
        let want = want.min(left) as usize;
        let within = offset.checked_sub(self.window_at).and_then(|n| usize::try_from(n).ok());
        if let Some(within) = within.filter(|n| n + want <= self.window.len()) {
            return Ok(&self.window[within..within + want]);
        }
        let size = want.max(WINDOW_BYTES.min(left as usize));
        self.window_at = offset;
        self.window.resize(size, 0);
        if let Err(e) = self.file.read_exact_at(&mut self.window, offset) {
            self.window.clear();
            return Err(Error::io("read the WAL", &self.path, e));
        }
        Ok(&self.window[..want])
    }
}
