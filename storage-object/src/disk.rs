//! Bytes of objects on the local disk, under a budget: what was read once costs no request again, also after
//! a restart.
//!
//! An object is cached in chunks of 32 KiB, so that a read of any range finds what an earlier one fetched; a
//! read fetches what it lacks, rounded to chunks, by one request. Reads of 256 KiB and more, as compactions
//! and long scans make them, pass by: they would push out what gets come back for. The ends of SSTables, with
//! all their indices and filters, are cached when SSTables are opened.
//!
//! Which chunks go when the budget is used up, how they lie on the disk, their checksums and what survives a
//! crash is up to [`foyer`]. Remaining damage the database finds by its own checksums, and then reads past
//! the disk cache.

use bytes::Bytes;
use foyer::{
    BlockEngineConfig, Code, DeviceBuilder, FileDeviceBuilder, HybridCache, HybridCacheBuilder,
    HybridCachePolicy, RecoverMode,
};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::fmt::Debug;
use std::fs::{File, TryLockError};
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use xxhash_rust::xxh3::xxh3_128;

/// Bytes cached together.
const CHUNK_BYTES: u64 = 32 << 10;
/// Reads of so many bytes and more pass by.
const READ_BYTES_MAX: u64 = 256 << 10;
/// Bytes that it holds in memory until they are on the disk.
const MEMORY_BYTES: usize = 16 << 20;
/// Bytes that are written and dropped together on the disk.
const REGION_BYTES: usize = 4 << 20;
/// With less it could not hold what is being written.
const BUDGET_MIN: u64 = 64 << 20;
/// The number of the entry with the object's length, which is no chunk.
const LEN: u32 = u32::MAX;

/// The options of the disk cache.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DiskCache {
    /// A directory for nothing else, of one process at a time.
    pub dir: PathBuf,
    /// Bytes it may take there, at least 64 MiB.
    pub bytes: u64,
}

/// Counts of a disk cache since it was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DiskUse {
    /// Bytes of reads that were there.
    pub found_bytes: u64,
    /// Bytes of reads that were fetched from the object store, rounded to chunks.
    pub fetched_bytes: u64,
    /// Bytes written to the disk.
    pub written_bytes: u64,
}

/// A chunk of an object.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Chunk {
    object: u128,
    number: u32,
}

impl Code for Chunk {
    fn encode(&self, writer: &mut impl Write) -> foyer::Result<()> {
        self.object.encode(writer)?;
        self.number.encode(writer)
    }

    fn decode(reader: &mut impl io::Read) -> foyer::Result<Self> {
        Ok(Self { object: u128::decode(reader)?, number: u32::decode(reader)? })
    }

    fn estimated_size(&self) -> usize {
        size_of::<u128>() + size_of::<u32>()
    }
}

/// The part of [`foyer`] that a disk cache uses. Its types are so deep that the compiler takes more than a
/// second to see that they may be sent between threads, in each function that asks, of which a server has
/// dozens.
trait Chunks: Debug + Send + Sync {
    fn get(&self, chunk: Chunk) -> Soon<'_, Option<Bytes>>;
    fn insert(&self, chunk: Chunk, bytes: Bytes);
    fn remove(&self, chunk: Chunk);
    fn written_bytes(&self) -> u64;
    fn close(&self) -> Soon<'_, ()>;
}

type Soon<'c, T> = Pin<Box<dyn Future<Output = foyer::Result<T>> + Send + 'c>>;

impl Chunks for HybridCache<Chunk, Bytes> {
    fn get(&self, chunk: Chunk) -> Soon<'_, Option<Bytes>> {
        Box::pin(async move { Ok(self.get(&chunk).await?.map(|entry| entry.value().clone())) })
    }

    fn insert(&self, chunk: Chunk, bytes: Bytes) {
        self.insert(chunk, bytes);
    }

    fn remove(&self, chunk: Chunk) {
        self.remove(&chunk);
    }

    fn written_bytes(&self) -> u64 {
        self.statistics().disk_write_bytes() as u64
    }

    fn close(&self) -> Soon<'_, ()> {
        Box::pin(self.close())
    }
}

/// An open disk cache; clones are the same one.
#[derive(Clone, Debug)]
pub(crate) struct Disk {
    cache: Arc<dyn Chunks>,
    counts: Arc<Counts>,
    /// Objects of which the cache had wrong bytes, and how often: later chunks of them have other numbers.
    forgotten: Arc<Mutex<HashMap<u128, u64>>>,
    /// Held while it is open.
    _lock: Arc<File>,
}

#[derive(Debug, Default)]
struct Counts {
    found: AtomicU64,
    fetched: AtomicU64,
}

fn failed(e: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    io::Error::other(e)
}

/// Says that a directory is a disk cache.
const CLAIM: &str = "DISK-CACHE";
const CLAIM_TEXT: &[u8] = b"siltstone disk cache 1\n";

/// Makes the directory a disk cache if it is absent or empty; refuses one that holds other things.
fn claim(dir: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    let claim = dir.join(CLAIM);
    if std::fs::read(&claim).is_ok_and(|text| text == CLAIM_TEXT) {
        return Ok(());
    }
    for entry in std::fs::read_dir(dir)? {
        let name = entry?.file_name();
        // An empty claim is one that a crash cut short.
        let is_begun = name == CLAIM && std::fs::metadata(&claim)?.len() == 0;
        if name != "lost+found" && !is_begun {
            let why = format!("it holds other things (`{}`), expected an empty directory", name.display());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
    }
    let mut file = open_own(&claim)?;
    file.write_all(CLAIM_TEXT)?;
    file.sync_all()
}

/// Opens a file of a claimed directory, or makes it, for its user alone; a link is not followed.
fn open_own(path: &Path) -> io::Result<File> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    File::options().create(true).truncate(false).write(true).mode(0o600).custom_flags(flags).open(path)
}

impl Disk {
    pub(crate) async fn open(at: DiskCache) -> io::Result<Self> {
        let named = |e: io::Error| io::Error::new(e.kind(), format!("disk cache {}: {e}", at.dir.display()));
        if at.bytes < BUDGET_MIN {
            let why = format!("a budget of {} bytes is less than 64 MiB", at.bytes);
            return Err(named(io::Error::new(io::ErrorKind::InvalidInput, why)));
        }
        claim(&at.dir).map_err(named)?;
        let lock = open_own(&at.dir.join("LOCK")).map_err(named)?;
        lock.try_lock().map_err(|e| match e {
            TryLockError::WouldBlock => {
                named(io::Error::new(io::ErrorKind::AlreadyExists, "another process uses it"))
            }
            TryLockError::Error(e) => named(e),
        })?;
        // One file, and so one descriptor. It never grows over its budget, and shrinks with it.
        let path = at.dir.join("chunks");
        let file = open_own(&path).map_err(named)?;
        if file.metadata().map_err(named)?.len() > at.bytes {
            file.set_len(at.bytes).map_err(named)?;
        }
        let device = FileDeviceBuilder::new(&path).with_capacity(at.bytes as usize);
        let device = device.build().map_err(failed).map_err(named)?;
        let engine = BlockEngineConfig::new(device).with_block_size(REGION_BYTES).with_flushers(1);
        let cache = HybridCacheBuilder::new()
            .with_name("siltstone")
            .with_policy(HybridCachePolicy::WriteOnInsertion)
            .memory(MEMORY_BYTES)
            .with_weighter(|_: &Chunk, bytes: &Bytes| size_of::<Chunk>() + bytes.len())
            .storage()
            .with_engine_config(engine)
            // Unreadable parts count as not cached.
            .with_recover_mode(RecoverMode::Quiet)
            .build()
            .await
            .map_err(failed)
            .map_err(named)?;
        let cache: Arc<dyn Chunks> = Arc::new(cache);
        Ok(Self { cache, counts: Arc::default(), forgotten: Arc::default(), _lock: Arc::new(lock) })
    }

    /// Whether the bytes of a read are cached.
    pub(crate) fn keeps_reads_of(range: &Range<u64>) -> bool {
        range.end - range.start < READ_BYTES_MAX
    }

    /// The number under which an object's chunks are kept.
    pub(crate) fn object(&self, place: &str, name: &str) -> u128 {
        let object = first_number(place, name);
        match self.forgotten.lock().get(&object) {
            Some(times) => xxh3_128(format!("{object} {times}").as_bytes()),
            None => object,
        }
    }

    /// Forgets an object; returns whether anything of it can be cached. Remembered for the life of this
    /// process.
    pub(crate) fn forget_all(&self, place: &str, name: &str) -> bool {
        let object = first_number(place, name);
        // Its length goes, so that it is not found after a restart; removing takes its time.
        self.cache.remove(Chunk { object, number: LEN });
        *self.forgotten.lock().entry(object).or_default() += 1;
        true
    }

    pub(crate) fn used(&self) -> DiskUse {
        DiskUse {
            found_bytes: self.counts.found.load(Ordering::Relaxed),
            fetched_bytes: self.counts.fetched.load(Ordering::Relaxed),
            written_bytes: self.cache.written_bytes(),
        }
    }

    pub(crate) async fn close(&self) -> io::Result<()> {
        self.cache.close().await.map_err(failed)
    }

    /// A chunk, if it is there. What the disk cannot give is not there.
    async fn chunk(&self, object: u128, number: u32) -> Option<Bytes> {
        self.cache.get(Chunk { object, number }).await.unwrap_or_else(|error| {
            tracing::warn!(%error, "the disk cache could not be read");
            None
        })
    }

    pub(crate) async fn len(&self, object: u128) -> Option<u64> {
        let bytes = self.chunk(object, LEN).await?;
        Some(u64::from_le_bytes(bytes[..].try_into().ok()?))
    }

    pub(crate) fn keep_len(&self, object: u128, len: u64) {
        self.cache.insert(Chunk { object, number: LEN }, Bytes::copy_from_slice(&len.to_le_bytes()));
    }

    /// Keeps the chunks that these bytes, which begin at `from`, are the whole of. They end at a chunk's end,
    /// or at the object's.
    pub(crate) fn keep(&self, object: u128, from: u64, bytes: &[u8]) {
        let first = from.div_ceil(CHUNK_BYTES);
        let chunks = bytes.get((first * CHUNK_BYTES - from) as usize..).unwrap_or_default();
        for (at, chunk) in chunks.chunks(CHUNK_BYTES as usize).enumerate() {
            let Ok(number) = u32::try_from(first + at as u64) else { return };
            self.cache.insert(Chunk { object, number }, Bytes::copy_from_slice(chunk));
        }
    }

    /// These bytes, if all of them are there.
    pub(crate) async fn get(&self, object: u128, range: Range<u64>) -> Option<Vec<u8>> {
        let mut bytes = Vec::with_capacity((range.end - range.start) as usize);
        for number in chunks_of(&range)? {
            let chunk = self.chunk(object, number).await?;
            bytes.extend_from_slice(part(&chunk, number, &range)?);
        }
        self.counts.found.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Some(bytes)
    }

    /// The bytes of a range; what the disk lacks comes by one call of `fetch`, and is kept. Fewer bytes where
    /// the object ends before.
    pub(crate) async fn read<F: Future<Output = io::Result<Bytes>>>(
        &self,
        object: u128,
        range: Range<u64>,
        fetch: impl FnOnce(Range<u64>) -> F,
    ) -> io::Result<Vec<u8>> {
        let Some(numbers) = chunks_of(&range) else { return Ok(fetch(range).await?.into()) };
        let mut chunks = Vec::new();
        for number in numbers.clone() {
            chunks.push(self.chunk(object, number).await);
        }
        let missing = |chunk: &Option<Bytes>| chunk.is_none();
        if let (Some(first), Some(last)) = (chunks.iter().position(missing), chunks.iter().rposition(missing))
        {
            let from = (u64::from(*numbers.start()) + first as u64) * CHUNK_BYTES;
            let upto = (u64::from(*numbers.start()) + last as u64 + 1) * CHUNK_BYTES;
            let fetched = fetch(from..upto).await?;
            self.counts.fetched.fetch_add(fetched.len() as u64, Ordering::Relaxed);
            // Where it is short, the object ends there.
            self.keep(object, from, &fetched);
            for (at, chunk) in chunks[first..=last].iter_mut().enumerate() {
                let begin = (at * CHUNK_BYTES as usize).min(fetched.len());
                let end = (begin + CHUNK_BYTES as usize).min(fetched.len());
                *chunk = Some(fetched.slice(begin..end));
            }
        } else {
            self.counts.found.fetch_add(range.end - range.start, Ordering::Relaxed);
        }
        let parts = numbers.zip(&chunks).map(|(number, chunk)| part(chunk.as_ref()?, number, &range));
        let parts: Option<Vec<&[u8]>> = parts.collect();
        parts.map(|parts| parts.concat()).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    /// Drops what is there of these bytes.
    pub(crate) fn forget(&self, object: u128, range: Range<u64>) {
        for number in chunks_of(&range).into_iter().flatten() {
            self.cache.remove(Chunk { object, number });
        }
    }
}

/// An object's number until something of it is forgotten.
fn first_number(place: &str, name: &str) -> u128 {
    xxh3_128(format!("{place}/{name}").as_bytes())
}

/// The chunks that a range lies in; `None` where it lies in none, or too far behind.
fn chunks_of(range: &Range<u64>) -> Option<std::ops::RangeInclusive<u32>> {
    let last = range.end.checked_sub(1).filter(|last| *last >= range.start)? / CHUNK_BYTES;
    let last = u32::try_from(last).ok().filter(|last| *last < LEN)?;
    Some((range.start / CHUNK_BYTES) as u32..=last)
}

/// The part of a chunk that lies in the range; `None` where the chunk ends before it should.
fn part<'c>(chunk: &'c Bytes, number: u32, range: &Range<u64>) -> Option<&'c [u8]> {
    let begin = u64::from(number) * CHUNK_BYTES;
    let from = range.start.saturating_sub(begin);
    let upto = (range.end - begin).min(CHUNK_BYTES);
    chunk.get(from as usize..upto as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_directory_with_other_things_is_no_cache_and_stays_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let (cache, link) = (dir.path().join("cache"), dir.path().join("linked"));
        claim(&cache).unwrap();
        claim(&cache).unwrap();
        drop(open_own(&cache.join("chunks")).unwrap());
        for file in [&cache, &cache.join("chunks"), &cache.join(CLAIM)] {
            assert_eq!(fs::metadata(file).unwrap().permissions().mode() & 0o077, 0, "{}", file.display());
        }
        fs::create_dir(&link).unwrap();
        for name in ["LOCK", "chunks", "notes"] {
            let file = link.join(name);
            fs::write(&file, "precious").unwrap();
            assert!(claim(&link).unwrap_err().to_string().contains(name));
            assert_eq!(fs::read(&file).unwrap(), b"precious");
            fs::remove_file(&file).unwrap();
        }
        fs::write(dir.path().join("victim"), "precious").unwrap();
        std::os::unix::fs::symlink("../victim", cache.join("LOCK")).unwrap();
        assert!(open_own(&cache.join("LOCK")).is_err());
        assert_eq!(fs::read(dir.path().join("victim")).unwrap(), b"precious");
    }
}
