//! The limits of one core and of the memory: copying, checksums, compression. Bytes a second of the plain
//! data.

use super::{limit, noise};
use crate::record::LimitRecord;
use std::hint::black_box;
use std::io;
use std::time::{Duration, Instant};

const BLOCK: usize = 4 << 10;
const TABLE_BLOCK: usize = 16 << 10;
/// A value as the workloads write them: its first half does not compress, its second repeats the first.
const VALUE: usize = 100;

/// How long is measured; less in tests.
pub(super) struct Effort {
    /// The median of so many windows counts.
    pub(super) windows: usize,
    pub(super) window: Duration,
    /// Bytes copied at once; more than the caches hold.
    pub(super) copy_bytes: usize,
}

impl Effort {
    pub(super) fn full() -> Self {
        Self { windows: 5, window: Duration::from_millis(80), copy_bytes: 128 << 20 }
    }
}

pub(super) fn measure(effort: &Effort) -> io::Result<Vec<LimitRecord>> {
    let mut found = Vec::new();
    let mut add = |what: &str, bytes: usize, once: &mut dyn FnMut()| {
        found.push(limit(what, throughput(effort, bytes, once), "GB/s"));
    };

    let source = noise(effort.copy_bytes, 1);
    let mut target = vec![0; effort.copy_bytes];
    add("memcpy", source.len(), &mut || black_box(&mut target).copy_from_slice(black_box(&source)));

    let block = &source[..BLOCK];
    add("crc32c_4k", BLOCK, &mut || {
        black_box(crc32c::crc32c(black_box(block)));
    });
    add("xxh3_4k", BLOCK, &mut || {
        black_box(xxhash_rust::xxh3::xxh3_64(black_box(block)));
    });

    let plain = half_compressible(TABLE_BLOCK);
    let mut packed = vec![0; lz4_flex::block::get_maximum_output_size(plain.len())];
    let packed_len = lz4_flex::block::compress_into(&plain, &mut packed).map_err(io::Error::other)?;
    let stored = packed[..packed_len].to_vec();
    add("lz4_compress_16k", plain.len(), &mut || {
        // The buffer takes the longest output, so it fits whatever the input.
        let _ = black_box(lz4_flex::block::compress_into(black_box(&plain), &mut packed));
    });
    let mut unpacked = vec![0; plain.len()];
    let len = lz4_flex::block::decompress_into(&stored, &mut unpacked).map_err(io::Error::other)?;
    if unpacked[..len] != plain {
        return Err(io::Error::other("lz4 does not give back what it was given"));
    }
    add("lz4_decompress_16k", plain.len(), &mut || {
        // The same input was taken above.
        let _ = black_box(lz4_flex::block::decompress_into(black_box(&stored), &mut unpacked));
    });
    Ok(found)
}

/// Bytes of values one after another; LZ4 makes about half of it.
fn half_compressible(len: usize) -> Vec<u8> {
    let fresh = noise(len, 4);
    let values = fresh.chunks(VALUE / 2).flat_map(|half| [half, half]);
    values.flatten().copied().take(len).collect()
}

/// GB/s at `bytes` bytes a call: the median of the windows.
fn throughput(effort: &Effort, bytes: usize, once: &mut dyn FnMut()) -> f64 {
    once();
    // The clock is read about every 64 KiB.
    let calls = (64_usize << 10).div_ceil(bytes);
    let mut rates: Vec<f64> = (0..effort.windows)
        .map(|_| {
            let (started, mut done) = (Instant::now(), 0);
            while started.elapsed() < effort.window {
                (0..calls).for_each(|_| once());
                done += calls;
            }
            (done * bytes) as f64 / 1e9 / started.elapsed().as_secs_f64()
        })
        .collect();
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_data_for_lz4_shrinks_to_about_half() {
        let plain = half_compressible(TABLE_BLOCK);
        let ratio = plain.len() as f64 / lz4_flex::block::compress(&plain).len() as f64;
        assert!((1.7..2.1).contains(&ratio), "{ratio}");
    }

    #[test]
    fn throughput_is_bytes_over_time() {
        let effort = Effort { windows: 3, window: Duration::from_millis(1), copy_bytes: 0 };
        let rate = throughput(&effort, 1 << 20, &mut || std::thread::sleep(Duration::from_millis(2)));
        assert!((0.01..0.53).contains(&rate), "1 MiB each 2 ms is at most 0.52 GB/s, not {rate}");
    }
}
