//! Pebble, through the C functions of a library in Go (`bench/pebble`), which `cargo xtask peers` builds: its
//! defaults with filters, with the memory wanted. It compresses by Snappy: LZ4 it does not have.
//!
//! Its `NoSync` leaves the WAL in the process until another thread writes it, so a killed process loses the
//! last writes: where `buffered` is wanted it is `volatile`, and ratios to it are made for reads and `Sync`
//! only.
#![expect(unsafe_code, reason = "a library in another language")]

use super::{CacheCount, Named, Session, Store, Wanted, Written};
use crate::failure::Result;
use crate::record::Durability;
use libloading::{Library, Symbol};
use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::OnceLock;

const STORE: &str = "pebble";

const NAMED: [Named; 1] = [Named {
    store: STORE,
    config: Cow::Borrowed(super::DEFAULT_CONFIG),
    compression: "snappy",
    what: "its defaults and filters, with the memory wanted; killed, it loses its last writes",
    package: "github.com/cockroachdb/pebble/v2",
    open,
}];

/// Pebble, if its library was built.
pub(super) fn all() -> &'static [Named] {
    if path().is_file() { &NAMED } else { &[] }
}

/// The place where `cargo xtask peers` puts the library.
fn path() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../target/peers/libpebble.so"))
}

/// What the library's functions answer beside a count.
const FAILED: i64 = -1;
const MISSING: i64 = -2;
/// Room for what they answer, at first.
const ROOM: usize = 16 << 10;
/// Entries that a step of a scan asks for at most. Each step asks for twice as many as the one before, from
/// one on.
const STEP_MAX: i64 = 128;

/// Functions of the library, as `pebble.go` has them.
struct Functions {
    close: unsafe extern "C" fn(usize),
    put: unsafe extern "C" fn(usize, *const u8, i64, *const u8, i64, *mut u8, i64) -> i64,
    delete: unsafe extern "C" fn(usize, *const u8, i64, *mut u8, i64) -> i64,
    put_many: unsafe extern "C" fn(usize, *const u8, i64, *mut u8, i64) -> i64,
    get: unsafe extern "C" fn(usize, *const u8, i64, *mut u8, i64) -> i64,
    scan: unsafe extern "C" fn(usize, *const u8, i64, *mut usize, *mut u8, i64) -> i64,
    next: unsafe extern "C" fn(usize, i64, *mut u8, i64) -> i64,
    end: unsafe extern "C" fn(usize),
    settle: unsafe extern "C" fn(usize, *mut u8, i64) -> i64,
    major: unsafe extern "C" fn(usize, *mut u8, i64) -> i64,
    numbers: unsafe extern "C" fn(usize, *mut u64),
    open: OpenFn,
}

type OpenFn = unsafe extern "C" fn(*const u8, i64, i64, i64, i64, *mut usize, *mut u8, i64) -> i64;

impl Functions {
    /// Loads the library and finds its functions. It stays loaded: Go's runtime cannot be ended.
    fn load() -> Result<Self> {
        // SAFETY: loading runs nothing but Go's runtime.
        let library: &Library = Box::leak(Box::new(unsafe { Library::new(path())? }));
        macro_rules! named {
            ($name:literal) => {{
                // SAFETY: the types are those of the header that Go writes beside the library.
                let symbol: Symbol<'static, _> = unsafe { library.get($name)? };
                *symbol
            }};
        }
        Ok(Self {
            open: named!(b"pebble_open"),
            close: named!(b"pebble_close"),
            put: named!(b"pebble_put"),
            delete: named!(b"pebble_delete"),
            put_many: named!(b"pebble_put_many"),
            get: named!(b"pebble_get"),
            scan: named!(b"pebble_scan"),
            next: named!(b"pebble_next"),
            end: named!(b"pebble_end"),
            settle: named!(b"pebble_settle"),
            major: named!(b"pebble_major"),
            numbers: named!(b"pebble_numbers"),
        })
    }
}

fn functions() -> Result<&'static Functions> {
    static LOADED: OnceLock<Result<Functions, String>> = OnceLock::new();
    LOADED
        .get_or_init(|| Functions::load().map_err(|e| e.to_string()))
        .as_ref()
        .map_err(|e| e.as_str().into())
}

/// A buffer that the library answers into.
struct Room(Vec<u8>);

impl Room {
    fn new() -> Self {
        Room(vec![0; ROOM])
    }

    /// What the call answers, which gets the buffer and its size; it is called again with a larger one if it
    /// says so.
    fn ask(&mut self, call: impl Fn(*mut u8, i64) -> i64) -> Result<Option<&[u8]>> {
        loop {
            match call(self.0.as_mut_ptr(), self.0.len() as i64) {
                FAILED => {
                    let text = self.0.split(|byte| *byte == 0).next().unwrap_or_default();
                    return Err(format!("pebble: {}", String::from_utf8_lossy(text)).into());
                }
                MISSING => return Ok(None),
                count if count as usize <= self.0.len() => return Ok(Some(&self.0[..count as usize])),
                count => self.0.resize(count as usize, 0),
            }
        }
    }
}

struct Pebble {
    functions: &'static Functions,
    handle: usize,
    settings: Vec<(&'static str, String)>,
}

fn open(wanted: &Wanted<'_>, _config: &str) -> Result<Box<dyn Store>> {
    let functions = functions()?;
    let dir = wanted.dir.as_os_str().as_encoded_bytes();
    // It takes memtables out of its cache's memory: the one that is written, and one that it keeps for the
    // next.
    let memtable = wanted.memory.write as i64;
    let cache = wanted.memory.cache as i64 + 2 * memtable;
    let sync = i64::from(wanted.durability == Durability::Sync);
    let handle = std::cell::Cell::new(0);
    // SAFETY: all buffers live as long as the call, with the sizes named.
    Room::new().ask(|out, room| unsafe {
        (functions.open)(dir.as_ptr(), dir.len() as i64, memtable, cache, sync, handle.as_ptr(), out, room)
    })?;
    let mut settings = vec![
        ("CacheSize", format!("{cache}, of which memtables are a part")),
        ("MemTableSize", memtable.to_string()),
        ("FilterPolicy", "bloom, 10 bits a key".to_string()),
        ("write", if sync == 0 { "NoSync: killed, it loses its last writes" } else { "Sync" }.to_string()),
    ];
    settings.extend(super::no_direct_reads(wanted));
    Ok(Box::new(Pebble { functions, handle: handle.get(), settings }))
}

impl Pebble {
    fn numbers(&self) -> [u64; 8] {
        let mut numbers = [0; 8];
        // SAFETY: it writes eight numbers.
        unsafe { (self.functions.numbers)(self.handle, numbers.as_mut_ptr()) };
        numbers
    }
}

impl Drop for Pebble {
    fn drop(&mut self) {
        // SAFETY: nobody has a session or a scan any more, as these borrow it.
        unsafe { (self.functions.close)(self.handle) };
    }
}

impl Store for Pebble {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(Thread { store: self, room: Room::new(), entries: Vec::new() }))
    }

    fn settle(&self) -> Result<()> {
        // SAFETY: the buffer lives as long as the call.
        Room::new().ask(|out, room| unsafe { (self.functions.settle)(self.handle, out, room) })?;
        Ok(())
    }

    fn settings(&self) -> Vec<(&'static str, String)> {
        self.settings.clone()
    }

    fn written(&self) -> Option<Written> {
        let [flushed_bytes, compaction_written_bytes, wal_bytes, flushes, compactions, ..] = self.numbers();
        Some(Written { flushed_bytes, compaction_written_bytes, wal_bytes, flushes, compactions })
    }

    fn major(&self) -> Result<()> {
        // SAFETY: the buffer lives as long as the call.
        Room::new().ask(|out, room| unsafe { (self.functions.major)(self.handle, out, room) })?;
        Ok(())
    }

    fn cache(&self) -> Option<CacheCount> {
        let [.., hits, misses, _] = self.numbers();
        Some(CacheCount { hits, misses })
    }

    fn merging(&self) -> Option<bool> {
        let [.., running] = self.numbers();
        Some(running > 0)
    }
}

struct Thread<'a> {
    store: &'a Pebble,
    room: Room,
    entries: Vec<u8>,
}

/// An iterator of the library.
struct Iterator(&'static Functions, usize);

impl Drop for Iterator {
    fn drop(&mut self) {
        // SAFETY: it was opened, and is used by nobody else.
        unsafe { (self.0.end)(self.1) };
    }
}

/// The first of some entries as the library packs them, and the others.
fn first_of(entries: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let (key, rest) = entries.split_first_chunk::<4>()?;
    let (value, rest) = rest.split_first_chunk::<4>()?;
    let (key, rest) = rest.split_at_checked(u32::from_le_bytes(*key) as usize)?;
    let (value, rest) = rest.split_at_checked(u32::from_le_bytes(*value) as usize)?;
    Some((key, value, rest))
}

// SAFETY of all calls here: the pointers are of slices that live as long as the call, with their lengths; the
// library copies what it keeps.
impl Session for Thread<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let Pebble { functions, handle, .. } = self.store;
        let (k, v) = (key.as_ptr(), value.as_ptr());
        self.room.ask(|out, room| unsafe {
            (functions.put)(*handle, k, key.len() as i64, v, value.len() as i64, out, room)
        })?;
        Ok(())
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        let Pebble { functions, handle, .. } = self.store;
        self.room.ask(|out, room| unsafe {
            (functions.delete)(*handle, key.as_ptr(), key.len() as i64, out, room)
        })?;
        Ok(())
    }

    fn get(&mut self, key: &[u8], seen: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let Pebble { functions, handle, .. } = self.store;
        let value = self.room.ask(|out, room| unsafe {
            (functions.get)(*handle, key.as_ptr(), key.len() as i64, out, room)
        })?;
        Ok(value.map(seen).is_some())
    }

    fn scan(&mut self, from: &[u8], each: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        let Pebble { functions, handle, .. } = self.store;
        let iterator = std::cell::Cell::new(0);
        self.room.ask(|out, room| unsafe {
            (functions.scan)(*handle, from.as_ptr(), from.len() as i64, iterator.as_ptr(), out, room)
        })?;
        let iterator = Iterator(functions, iterator.get());
        let mut most = 1;
        loop {
            let entries =
                self.room.ask(|out, room| unsafe { (functions.next)(iterator.1, most, out, room) })?;
            let mut rest = entries.unwrap_or_default();
            if rest.is_empty() {
                return Ok(());
            }
            while let Some((key, value, others)) = first_of(rest) {
                if !each(key, value) {
                    return Ok(());
                }
                rest = others;
            }
            most = (2 * most).min(STEP_MAX);
        }
    }

    fn put_many(&mut self, entries: &[(Vec<u8>, Vec<u8>)]) -> Result<()> {
        self.entries.clear();
        for (key, value) in entries {
            self.entries.extend_from_slice(&(key.len() as u32).to_le_bytes());
            self.entries.extend_from_slice(&(value.len() as u32).to_le_bytes());
            self.entries.extend_from_slice(key);
            self.entries.extend_from_slice(value);
        }
        let Pebble { functions, handle, .. } = self.store;
        let all = &self.entries;
        self.room.ask(|out, room| unsafe {
            (functions.put_many)(*handle, all.as_ptr(), all.len() as i64, out, room)
        })?;
        Ok(())
    }

    fn get_many(&mut self, keys: &[Vec<u8>], seen: &mut dyn FnMut(usize, &[u8])) -> Result<()> {
        for (at, key) in keys.iter().enumerate() {
            self.get(key, &mut |value| seen(at, value))?;
        }
        Ok(())
    }
}
