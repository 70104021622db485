//! An SSTable's file whose blocks are read from the memory of the process that wrote it, as long as that has
//! them (OFF-4, RC).

use super::{RemoteCache, RemoteRead};
use crate::storage::ReadFile;
use crate::types::TableId;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// How long a reader waits for the other end. Then it reads from storage, as all do from then on.
const PATIENCE: Duration = Duration::from_millis(200);

/// Larger reads are those of compactions, which go to storage: a worker does not wait for another process,
/// and their latency is no measure of a reader's.
const BYTES_MAX: usize = 128 << 10;

pub(crate) struct RemoteFile {
    file: Arc<dyn ReadFile>,
    table: TableId,
    remote: Arc<dyn RemoteCache>,
    /// Set once it lacked a block, or did not answer: then it is not asked any more.
    is_over: AtomicBool,
    /// Counts the bytes that came from there.
    bytes: Arc<AtomicU64>,
}

impl RemoteFile {
    pub(crate) fn new(
        file: Arc<dyn ReadFile>,
        table: TableId,
        remote: Arc<dyn RemoteCache>,
        bytes: Arc<AtomicU64>,
    ) -> Self {
        Self { file, table, remote, is_over: AtomicBool::new(false), bytes }
    }

    fn read_there(&self, buffer: &mut [u8], offset: u64) -> Option<()> {
        if self.is_over.load(Ordering::Relaxed) || buffer.len() > BYTES_MAX {
            return None;
        }
        let end = offset.checked_add(buffer.len() as u64)?;
        let mut read: Box<dyn RemoteRead> =
            self.remote.read(self.table, std::iter::once(offset..end).collect());
        let bytes = read.advance(PATIENCE).ok().flatten().filter(|bytes| bytes.len() == buffer.len());
        let Some(bytes) = bytes else {
            self.is_over.store(true, Ordering::Relaxed);
            return None;
        };
        buffer.copy_from_slice(&bytes);
        self.bytes.fetch_add(buffer.len() as u64, Ordering::Relaxed);
        Some(())
    }
}

impl ReadFile for RemoteFile {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        match self.read_there(buffer, offset) {
            Some(()) => Ok(()),
            None => self.file.read_exact_at(buffer, offset),
        }
    }

    fn read_again_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.is_over.store(true, Ordering::Relaxed);
        self.file.read_again_at(buffer, offset)
    }

    fn tail(&self, bytes: u64) -> io::Result<(u64, Vec<u8>)> {
        self.file.tail(bytes)
    }

    fn request_bytes(&self) -> usize {
        self.file.request_bytes()
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }
}
