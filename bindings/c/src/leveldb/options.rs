//! Options of databases, reads and writes.

use super::order::{Comparator, FilterPolicy, Order};
use crate::text::handed_out;
use siltstone::{Compression, Durability, FamilyOptions, Options as DbOptions, Result};
use std::ffi::{c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

/// The default size of the block cache: as in LevelDB.
const CACHE_BYTES: u64 = 8 << 20;
/// Bytes that LevelDB writes to an SSTable before it begins the next.
const FILE_BYTES: usize = 2 << 20;
/// Bytes of its write buffer.
const BUFFER_BYTES: usize = 4 << 20;
/// Bytes of WAL, a quarter of which a batch may take.
const LOG_BYTES: u64 = 1 << 30;
/// `leveldb_no_compression`; all else means the fast one.
const UNCOMPRESSED: c_int = 0;

/// How a database is opened.
pub struct LevelOptions {
    create_if_missing: bool,
    error_if_exists: bool,
    compressed: bool,
    buffer_bytes: usize,
    cache_bytes: u64,
    block_bytes: usize,
    file_bytes: usize,
    open_files: usize,
    filter_bits: u32,
    pub(super) order: Option<Arc<Order>>,
}

impl Default for LevelOptions {
    fn default() -> Self {
        Self {
            create_if_missing: false,
            error_if_exists: false,
            compressed: true,
            buffer_bytes: BUFFER_BYTES,
            cache_bytes: CACHE_BYTES,
            block_bytes: 4 << 10,
            file_bytes: FILE_BYTES,
            open_files: 1_000,
            filter_bits: 0,
            order: None,
        }
    }
}

impl LevelOptions {
    /// The engine's, as near as can be.
    pub(super) fn engine(&self) -> Result<(DbOptions, FamilyOptions)> {
        // LevelDB fills one buffer while it writes another.
        let write_memory = 2 * (self.buffer_bytes as u64).clamp(64 << 10, 1 << 30);
        let options = DbOptions {
            create_if_missing: self.create_if_missing,
            error_if_exists: self.error_if_exists,
            write_memory,
            memory_budget: write_memory + self.cache_bytes.clamp(1 << 20, 1 << 40),
            open_files_max: self.open_files,
            // So that batches may be much larger than the memory for writes, as in LevelDB.
            wal_bytes_max: LOG_BYTES.max(4 * write_memory),
            ..DbOptions::default()
        };
        let mut family = FamilyOptions {
            block_bytes: self.block_bytes.clamp(64, 16 << 20),
            bloom_bits: self.filter_bits,
            compression: if self.compressed { Compression::Lz4 } else { Compression::None },
            ..FamilyOptions::default()
        };
        let sstable_bytes = self.file_bytes.clamp(1 << 20, 1 << 30);
        family.set("strategy", &format!("leveled{{sstable_bytes={sstable_bytes}}}"))?;
        Ok((options, family))
    }
}

/// Options as they are by default.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_options_create() -> Option<Box<LevelOptions>> {
    Some(Box::default())
}

/// Frees options.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_options_destroy(options: Option<Box<LevelOptions>>) {
    drop(options);
}

fn set(options: Option<&mut LevelOptions>, set: impl FnOnce(&mut LevelOptions)) {
    if let Some(options) = options {
        set(options);
    }
}

/// Keys are in this order, which must be that of their bytes: calls fail where it is seen to be another.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_options_set_comparator(
    options: Option<&mut LevelOptions>,
    comparator: Option<&Comparator>,
) {
    set(options, |options| options.order = comparator.map(|comparator| comparator.0.clone()));
}

/// SSTables get filters, or none for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_options_set_filter_policy(
    options: Option<&mut LevelOptions>,
    policy: Option<&FilterPolicy>,
) {
    set(options, |options| options.filter_bits = policy.map_or(0, |policy| policy.bits_per_key));
}

/// Whether a database is made where there is none. Default 0.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_options_set_create_if_missing(options: Option<&mut LevelOptions>, create: u8) {
    set(options, |options| options.create_if_missing = create != 0);
}

/// Whether opening fails where there is a database. Default 0.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_options_set_error_if_exists(options: Option<&mut LevelOptions>, error: u8) {
    set(options, |options| options.error_if_exists = error != 0);
}

/// Does nothing: everything that is read is checked.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_options_set_paranoid_checks(options: Option<&mut LevelOptions>, check: u8) {
    let _ = (options, check);
}

/// Does nothing: there is one environment.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_options_set_env(options: Option<&mut LevelOptions>, env: Option<&Environment>) {
    let _ = (options, env);
}

/// Does nothing.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_options_set_info_log(options: Option<&mut LevelOptions>, logger: Option<&Logger>) {
    let _ = (options, logger);
}

/// LevelDB hands none out.
pub struct Logger(());

/// Bytes of writes in memory before they are flushed to SSTables; twice as much may be in memory. Default 4
/// MiB.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_options_set_write_buffer_size(options: Option<&mut LevelOptions>, bytes: usize) {
    set(options, |options| options.buffer_bytes = bytes);
}

/// Files open at a time. Default 1,000.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_options_set_max_open_files(options: Option<&mut LevelOptions>, files: c_int) {
    set(options, |options| options.open_files = usize::try_from(files).unwrap_or_default());
}

/// The block cache gets as much as this one was made for; each database has its own. Default 8 MiB.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_options_set_cache(options: Option<&mut LevelOptions>, cache: Option<&Cache>) {
    set(options, |options| options.cache_bytes = cache.map_or(CACHE_BYTES, |cache| cache.bytes));
}

/// Bytes of a block. Default 4 KiB.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_options_set_block_size(options: Option<&mut LevelOptions>, bytes: usize) {
    set(options, |options| options.block_bytes = bytes);
}

/// Does nothing: blocks are made otherwise here.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_options_set_block_restart_interval(
    options: Option<&mut LevelOptions>,
    keys: c_int,
) {
    let _ = (options, keys);
}

/// Bytes of an SSTable. Default 2 MiB; less than 1 MiB is taken for that.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_options_set_max_file_size(options: Option<&mut LevelOptions>, bytes: usize) {
    set(options, |options| options.file_bytes = bytes);
}

/// 0 for SSTables without compression; all else compresses with lz4. Default: compressed.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_options_set_compression(options: Option<&mut LevelOptions>, compression: c_int) {
    set(options, |options| options.compressed = compression != UNCOMPRESSED);
}

/// A snapshot.
pub struct LevelSnapshot(pub(super) siltstone::Snapshot);

/// How to read.
#[derive(Default)]
pub struct ReadOptions {
    pub(super) snapshot: Option<siltstone::Snapshot>,
}

/// Reads of the present.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_readoptions_create() -> Option<Box<ReadOptions>> {
    Some(Box::default())
}

/// Frees options.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_readoptions_destroy(options: Option<Box<ReadOptions>>) {
    drop(options);
}

/// Does nothing: everything that is read is checked.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_readoptions_set_verify_checksums(options: Option<&mut ReadOptions>, verify: u8) {
    let _ = (options, verify);
}

/// Does nothing: what scans read once leaves the cache first.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_readoptions_set_fill_cache(options: Option<&mut ReadOptions>, fill: u8) {
    let _ = (options, fill);
}

/// Reads of that moment, or of the present for NULL. The moment stays readable until these options have
/// another one or are freed.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_readoptions_set_snapshot(
    options: Option<&mut ReadOptions>,
    snapshot: Option<&LevelSnapshot>,
) {
    if let Some(options) = options {
        options.snapshot = snapshot.map(|snapshot| snapshot.0.clone());
    }
}

/// How to write.
#[derive(Default)]
pub struct WriteOptions {
    sync: bool,
}

impl WriteOptions {
    pub(super) fn durability(options: Option<&Self>) -> Durability {
        if options.is_some_and(|options| options.sync) { Durability::Sync } else { Durability::Buffered }
    }
}

/// Writes that a kill of the process cannot lose.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_writeoptions_create() -> Option<Box<WriteOptions>> {
    Some(Box::default())
}

/// Frees options.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_writeoptions_destroy(options: Option<Box<WriteOptions>>) {
    drop(options);
}

/// Whether a power loss cannot lose them either. Default 0.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_writeoptions_set_sync(options: Option<&mut WriteOptions>, sync: u8) {
    if let Some(options) = options {
        options.sync = sync != 0;
    }
}

/// How large a block cache is to be.
pub struct Cache {
    bytes: u64,
}

/// A block cache of that many bytes.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_cache_create_lru(capacity: usize) -> Option<Box<Cache>> {
    Some(Box::new(Cache { bytes: capacity as u64 }))
}

/// Frees it; databases keep theirs.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_cache_destroy(cache: Option<Box<Cache>>) {
    drop(cache);
}

/// The files of this machine.
pub struct Environment(());

/// The one environment.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_create_default_env() -> Option<Box<Environment>> {
    Some(Box::new(Environment(())))
}

/// Frees it.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_env_destroy(env: Option<Box<Environment>>) {
    drop(env);
}

/// A directory for tests: what `TEST_TMPDIR` says, or one of the user's among the temporary files. Freed with
/// `leveldb_free`.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_env_get_test_directory(env: Option<&Environment>) -> *mut c_char {
    let _ = env;
    // SAFETY: it cannot fail.
    let user = unsafe { libc::getuid() };
    let made = || std::env::temp_dir().join(format!("leveldbtest-{user}"));
    let dir = std::env::var_os("TEST_TMPDIR").map_or_else(made, Into::into);
    // As in LevelDB: using it returns what is wrong with it.
    let _ = std::fs::create_dir_all(&dir);
    handed_out(dir.as_os_str().as_bytes())
}
