//! The end of a table that lies far away, where each read is a request: footer, properties, and of most
//! tables all indices and filters come with one.
//!
//! The header is not read then: what it says stands in the footer, too. It is for the rescue of a table
//! without one.

use crate::storage::ReadFile;
use std::io;
use std::sync::Arc;

/// The part of a table that is asked for: its indices and filters take one or two hundredths of most.
const PART: u64 = 32;
const BYTES_MIN: u64 = 64 << 10;
const BYTES_MAX: u64 = 4 << 20;
/// It begins at a multiple of this, so that caches get whole pieces.
const ALIGN: u64 = 64 << 10;

/// How many of the last bytes of a table of that size are read together; 0 where the size is not known.
pub(crate) fn tail_bytes(table: u64) -> u64 {
    let part = (table / PART).clamp(BYTES_MIN, BYTES_MAX);
    if table == 0 { part } else { table - table.saturating_sub(part) / ALIGN * ALIGN }
}

/// A file of which the last bytes are here.
pub(super) struct Tail {
    file: Arc<dyn ReadFile>,
    len: u64,
    bytes: Vec<u8>,
}

impl Tail {
    /// Reads them, if it is worth it: of a table of about `table` bytes.
    pub(super) fn read(file: &Arc<dyn ReadFile>, table: u64) -> io::Result<Option<Self>> {
        if file.request_bytes() == 0 {
            return Ok(None);
        }
        let (len, bytes) = file.tail(tail_bytes(table))?;
        Ok(Some(Self { file: file.clone(), len, bytes }))
    }

    /// Whether what lies from there on is here.
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
