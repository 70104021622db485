//! The end of an SSTable in an object store, where each read is a request: one request reads the footer, the
//! properties, and for most SSTables all indices and filters.
//!
//! The header is not read then: the footer has the same fields. It is for the rescue of an SSTable without a
//! footer.

use crate::storage::ReadFile;
use std::io;
use std::sync::Arc;

/// The part of an SSTable that is requested: indices and filters take one or two hundredths of most.
const PART: u64 = 32;
const BYTES_MIN: u64 = 64 << 10;
const BYTES_MAX: u64 = 4 << 20;
/// The request begins at a multiple of this, so that disk caches get whole pieces.
const ALIGN: u64 = 64 << 10;

/// How many of an SSTable's last bytes are read together, by its size; 0 if the size is not known.
pub(crate) fn tail_bytes(table: u64) -> u64 {
    let part = (table / PART).clamp(BYTES_MIN, BYTES_MAX);
    if table == 0 { part } else { table - table.saturating_sub(part) / ALIGN * ALIGN }
}

pub(super) struct Tail {
    file: Arc<dyn ReadFile>,
    len: u64,
    bytes: Vec<u8>,
}

impl Tail {
    /// Reads the last bytes of an SSTable of about `table` bytes, if it is worth it.
    pub(super) fn read(file: &Arc<dyn ReadFile>, table: u64) -> io::Result<Option<Self>> {
        if file.request_bytes() == 0 {
            return Ok(None);
        }
        let (len, bytes) = file.tail(tail_bytes(table))?;
        Ok(Some(Self { file: file.clone(), len, bytes }))
    }

    /// Whether it has the bytes from that offset on.
    pub(super) fn has(&self, offset: u64) -> bool {
        offset >= self.len - self.bytes.len() as u64
    }
}

impl ReadFile for Tail {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let here = offset.checked_sub(self.len - self.bytes.len() as u64);
        let here = here.and_then(|at| self.bytes.get(at as usize..)?.get(..buffer.len()));
        match here {
            Some(bytes) => {
                buffer.copy_from_slice(bytes);
                Ok(())
            }
            None => self.file.read_exact_at(buffer, offset),
        }
    }

    fn read_again_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_again_at(buffer, offset)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.len)
    }
}
