//! Databases of LevelDB's interface: opening, reading, writing.

use super::batch::WriteBatch;
use super::memory::{given, told};
use super::options::{LevelOptions, LevelSnapshot, ReadOptions, WriteOptions};
use super::order::Order;
use crate::bytes::path;
use crate::error::invalid;
use crate::text::handed_out;
use parking_lot::Mutex;
use siltstone::storage::Env;
use siltstone::{Db, ErrorKind, Family, KeyRange, Result};
use std::ffi::{c_char, c_int};
use std::fmt::Write;
use std::path::Path;
use std::ptr::{null, null_mut};
use std::sync::Arc;

/// An open database.
pub struct LevelDb {
    db: Db,
    pub(super) family: Family,
    pub(super) order: Option<Arc<Order>>,
    /// The key of the call before, where a comparator is asked about it.
    last: Mutex<Option<Vec<u8>>>,
}

impl LevelDb {
    /// Asks a comparator of the caller's about a key.
    fn check(&self, key: &[u8]) -> Result<()> {
        let Some(order) = &self.order else { return Ok(()) };
        let mut last = self.last.lock();
        last.as_ref().map_or(Ok(()), |last| order.check(last, key))?;
        let last = last.get_or_insert_default();
        last.clear();
        last.extend_from_slice(key);
        Ok(())
    }
}

/// Refuses a directory of LevelDB's own.
fn check_is_ours(dir: &Path) -> Result<()> {
    let current = std::fs::read(dir.join("CURRENT")).unwrap_or_default();
    match current.starts_with(b"MANIFEST-") {
        true => {
            Err(invalid(format!("{} is LevelDB's database, which Siltstone does not read", dir.display())))
        }
        false => Ok(()),
    }
}

fn opened(options: Option<&LevelOptions>, name: *const c_char) -> Result<LevelDb> {
    let dir = path(name, "name")?;
    check_is_ours(dir)?;
    let defaults = LevelOptions::default();
    let options = options.unwrap_or(&defaults);
    let (engine, family) = options.engine()?;
    let db = Db::builder().options(engine).family(siltstone::DEFAULT_FAMILY, family).open(dir)?;
    Ok(LevelDb { family: db.default_family(), db, order: options.order.clone(), last: Mutex::default() })
}

/// Opens a database.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_open(
    options: Option<&LevelOptions>,
    name: *const c_char,
    errptr: Option<&mut *mut c_char>,
) -> Option<Box<LevelDb>> {
    told(opened(options, name).map(Box::new), errptr)
}

/// Closes a database and frees its handle.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_close(db: Option<Box<LevelDb>>) {
    if let Some(db) = db {
        // There is no way to tell what fails: what was written without `sync` is as safe as it was before.
        let _ = db.db.close();
    }
}

/// Sets a key's value.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_put(
    db: Option<&LevelDb>,
    options: Option<&WriteOptions>,
    key: *const c_char,
    keylen: usize,
    val: *const c_char,
    vallen: usize,
    errptr: Option<&mut *mut c_char>,
) {
    let put = |db: &LevelDb| {
        // SAFETY: the caller's promise, as `given` asks for.
        let (key, value) = unsafe { (given(key, keylen), given(val, vallen)) };
        db.check(key)?;
        db.family.put_with(key, value, WriteOptions::durability(options))
    };
    told(of(db).and_then(put), errptr);
}

fn of(db: Option<&LevelDb>) -> Result<&LevelDb> {
    crate::handle::given(db, "db")
}

/// Deletes a key, which need not be there.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_delete(
    db: Option<&LevelDb>,
    options: Option<&WriteOptions>,
    key: *const c_char,
    keylen: usize,
    errptr: Option<&mut *mut c_char>,
) {
    let delete = |db: &LevelDb| {
        // SAFETY: the caller's promise, as `given` asks for.
        let (mut batch, key) = (siltstone::Batch::new(), unsafe { given(key, keylen) });
        db.check(key)?;
        batch.delete(&db.family, key);
        db.db.write_with(&batch, WriteOptions::durability(options))
    };
    told(of(db).and_then(delete), errptr);
}

/// Writes all of a batch or nothing.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_write(
    db: Option<&LevelDb>,
    options: Option<&WriteOptions>,
    batch: Option<&WriteBatch>,
    errptr: Option<&mut *mut c_char>,
) {
    let write = |db: &LevelDb| {
        let batch = crate::handle::given(batch, "batch")?;
        batch.keys().try_for_each(|key| db.check(key))?;
        db.db.write_with(&batch.of(&db.family), WriteOptions::durability(options))
    };
    told(of(db).and_then(write), errptr);
}

/// The key's value, to be freed with `leveldb_free`, or NULL.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_get(
    db: Option<&LevelDb>,
    options: Option<&ReadOptions>,
    key: *const c_char,
    keylen: usize,
    vallen: Option<&mut usize>,
    errptr: Option<&mut *mut c_char>,
) -> *mut c_char {
    let get = |db: &LevelDb| {
        // SAFETY: the caller's promise, as `given` asks for.
        let key = unsafe { given(key, keylen) };
        db.check(key)?;
        match options.and_then(|options| options.snapshot.as_ref()) {
            None => db.family.get(key),
            Some(snapshot) => db.family.at(snapshot).get(key),
        }
    };
    let found = told(of(db).and_then(get), errptr).flatten();
    if let Some(len) = vallen {
        *len = found.as_ref().map_or(0, |value| value.len());
    }
    found.map_or(null_mut(), |value| handed_out(&value))
}

/// A snapshot of now, for `leveldb_readoptions_set_snapshot`.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_create_snapshot(db: Option<&LevelDb>) -> *const LevelSnapshot {
    db.map_or(null(), |db| Box::into_raw(Box::new(LevelSnapshot(db.db.snapshot()))))
}

/// Frees a snapshot.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_release_snapshot(db: Option<&LevelDb>, snapshot: *const LevelSnapshot) {
    let _ = db;
    if !snapshot.is_null() {
        // SAFETY: it came from `leveldb_create_snapshot`, and is released once.
        drop(unsafe { Box::from_raw(snapshot.cast_mut()) });
    }
}

impl LevelDb {
    /// The value of a property, if it exists.
    fn property(&self, name: &str) -> Option<String> {
        let shape = || self.family.shape();
        match name.strip_prefix("leveldb.")? {
            "approximate-memory-usage" => Some(self.family.statistics().memory_bytes.to_string()),
            "stats" => {
                let mut text = String::from("Level  Runs  Tables  Size(MB)\n");
                for (number, level) in shape().levels.iter().enumerate() {
                    let tables: usize = level.runs.iter().map(|run| run.tables().len()).sum();
                    let size = level.live_bytes() as f64 / f64::from(1 << 20);
                    writeln!(text, "{number:>5} {:>5} {tables:>7} {size:>9.1}", level.runs.len()).ok()?;
                }
                Some(text)
            }
            "sstables" => {
                let mut text = String::new();
                for (level, run, table) in shape().tables() {
                    writeln!(text, "level {level} run {} table {} bytes {}", run.id, table.id, table.bytes)
                        .ok()?;
                }
                Some(text)
            }
            other => {
                let level: usize = other.strip_prefix("num-files-at-level")?.parse().ok()?;
                let shape = shape();
                let runs = shape.levels.get(level).map_or(&[][..], |level| &level.runs);
                Some(runs.iter().map(|run| run.tables().len()).sum::<usize>().to_string())
            }
        }
    }
}

/// A property of the database, to be freed with `leveldb_free`: `leveldb.stats`, `leveldb.sstables`,
/// `leveldb.num-files-at-level<N>`, `leveldb.approximate-memory-usage`. NULL for other names.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_property_value(db: Option<&LevelDb>, propname: *const c_char) -> *mut c_char {
    let name = crate::bytes::utf8(propname, "propname").ok();
    let said = db.zip(name).and_then(|(db, name)| db.property(name));
    said.map_or(null_mut(), |text| handed_out(text.as_bytes()))
}

/// A key in an array of keys.
///
/// # Safety
/// The caller's promise: there are more than `n` keys and lengths, and the key is as `given` asks for.
unsafe fn nth<'a>(keys: *const *const c_char, lengths: *const usize, n: usize) -> &'a [u8] {
    // SAFETY: the caller's promise.
    unsafe { given(keys.add(n).read(), lengths.add(n).read()) }
}

/// About how many bytes of SSTables each of the ranges has. A range that cannot be read has 0.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_approximate_sizes(
    db: Option<&LevelDb>,
    num_ranges: c_int,
    range_start_key: *const *const c_char,
    range_start_key_len: *const usize,
    range_limit_key: *const *const c_char,
    range_limit_key_len: *const usize,
    sizes: *mut u64,
) {
    let Some(db) = db else { return };
    for n in 0..usize::try_from(num_ranges).unwrap_or_default() {
        // SAFETY: the caller's promise, that there are `num_ranges` of each.
        let (start, limit) = unsafe {
            (nth(range_start_key, range_start_key_len, n), nth(range_limit_key, range_limit_key_len, n))
        };
        let estimate = db.family.estimate(KeyRange::new(start, limit)).unwrap_or_default();
        // SAFETY: as above.
        unsafe { sizes.add(n).write(estimate.bytes) };
    }
}

/// Compacts all of a range into the last level; a NULL key does not bound it.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_compact_range(
    db: Option<&LevelDb>,
    start_key: *const c_char,
    start_key_len: usize,
    limit_key: *const c_char,
    limit_key_len: usize,
) {
    let Some(db) = db else { return };
    // SAFETY: the caller's promise, as `given` asks for.
    let (start, limit) = unsafe { (given(start_key, start_key_len), given(limit_key, limit_key_len)) };
    // With its end, as in LevelDB: one byte more is behind the limit and before all other keys.
    let end = (!limit_key.is_null()).then(|| [limit, b"\0"].concat());
    // This call cannot return an error; it is among the database's events, and the next compaction tries
    // again.
    let _ = db.family.compact(KeyRange { start: start.to_vec(), end });
}

/// Deletes a database that is closed, with all that it holds. What is not a database's is left there; where
/// there is none, nothing is done.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_destroy_db(
    options: Option<&LevelOptions>,
    name: *const c_char,
    errptr: Option<&mut *mut c_char>,
) {
    let _ = options;
    let destroy = |dir| {
        check_is_ours(dir)?;
        match siltstone::destroy(&Env::local(), dir) {
            Err(why) if why.kind() == ErrorKind::NotFound => Ok(()),
            ended => ended,
        }
    };
    told(path(name, "name").and_then(destroy), errptr);
}

/// Saves what can be saved of a damaged database that is closed.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_repair_db(
    options: Option<&LevelOptions>,
    name: *const c_char,
    errptr: Option<&mut *mut c_char>,
) {
    let _ = options;
    let repair = |dir| {
        check_is_ours(dir)?;
        siltstone::repair(&Env::local(), dir, &mut |_| {}).map(drop)
    };
    told(path(name, "name").and_then(repair), errptr);
}
