//! zstd, if the crate is built with it (feature `zstd`, which needs a C compiler). Otherwise nothing can be
//! written or read with it, and options and SSTables that need it are refused.

#[cfg(feature = "zstd")]
pub(super) use with::{Compressor, compress_bound, decompress};
#[cfg(not(feature = "zstd"))]
pub(super) use without::{Compressor, compress_bound, decompress};

pub(super) const WITHOUT_ZSTD: &str = "zstd is not there: the crate was built without its feature `zstd`";

#[cfg(feature = "zstd")]
mod with {
    use crate::cache::buffers;
    use std::cell::RefCell;

    pub(in super::super) type Compressor = zstd::bulk::Compressor<'static>;
    pub(in super::super) use zstd::zstd_safe::compress_bound;

    thread_local! {
        /// Creating a context costs more than decompressing a block.
        static CONTEXT: RefCell<Option<zstd::bulk::Decompressor<'static>>> = const { RefCell::new(None) };
    }

    /// A block of zstd gives at most this many bytes,
    const BLOCK_RAW_MAX: usize = 128 << 10;
    /// and takes at least this many: its header and one byte to repeat.
    const BLOCK_STORED_MIN: usize = 4;

    /// The `raw_len` bytes that were compressed to `stored`.
    pub(in super::super) fn decompress(stored: &[u8], raw_len: usize) -> Result<Vec<u8>, String> {
        // No memory is allocated beyond what the stored bytes can hold and the frame states.
        if raw_len.div_ceil(BLOCK_RAW_MAX).saturating_mul(BLOCK_STORED_MIN) > stored.len() {
            return Err(format!("{} bytes of zstd cannot hold the expected {raw_len}", stored.len()));
        }
        match zstd::zstd_safe::get_frame_content_size(stored) {
            Ok(Some(n)) if n == raw_len as u64 => {}
            other => return Err(format!("zstd frame says {other:?}, expected {raw_len} bytes")),
        }
        CONTEXT.with_borrow_mut(|slot| {
            let context = match slot {
                Some(context) => context,
                None => slot.insert(zstd::bulk::Decompressor::new().map_err(|e| format!("zstd: {e}"))?),
            };
            let mut raw = buffers::take(raw_len);
            raw.clear();
            context.decompress_to_buffer(stored, &mut raw).map_err(|e| format!("zstd: {e}"))?;
            Ok(raw)
        })
    }
}

#[cfg(not(feature = "zstd"))]
mod without {
    use std::io;

    /// A build without zstd has none.
    pub(in super::super) enum Compressor {}

    impl Compressor {
        pub(in super::super) fn new(_level: i32) -> io::Result<Self> {
            Err(io::Error::new(io::ErrorKind::Unsupported, super::WITHOUT_ZSTD))
        }

        pub(in super::super) fn compress_to_buffer(
            &mut self,
            _raw: &[u8],
            _to: &mut [u8],
        ) -> io::Result<usize> {
            match *self {}
        }
    }

    pub(in super::super) fn compress_bound(raw: usize) -> usize {
        raw
    }

    pub(in super::super) fn decompress(_stored: &[u8], _raw_len: usize) -> Result<Vec<u8>, String> {
        Err(super::WITHOUT_ZSTD.into())
    }
}
