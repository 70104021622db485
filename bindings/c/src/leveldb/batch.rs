//! Batches of LevelDB's: made without a database.

use super::memory::given;
use crate::bytes::Slice;
use siltstone::Family;
use std::ffi::{c_char, c_void};
use std::ops::Range;

/// Writes that take effect together.
#[derive(Clone, Default)]
pub struct WriteBatch {
    bytes: Vec<u8>,
    /// Keys, and values of those that are not deleted.
    writes: Vec<(Range<usize>, Option<Range<usize>>)>,
}

impl WriteBatch {
    fn store(&mut self, bytes: &[u8]) -> Range<usize> {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        start..self.bytes.len()
    }

    fn add(&mut self, key: &[u8], value: Option<&[u8]>) {
        let key = self.store(key);
        let value = value.map(|value| self.store(value));
        self.writes.push((key, value));
    }

    fn writes(&self) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
        let of = |range: &Range<usize>| &self.bytes[range.clone()];
        self.writes.iter().map(move |(key, value)| (of(key), value.as_ref().map(of)))
    }

    /// Its keys, in order.
    pub(super) fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.writes().map(|(key, _)| key)
    }

    /// Its writes as those of a family.
    pub(super) fn of(&self, family: &Family) -> siltstone::Batch {
        let mut batch = siltstone::Batch::new();
        for (key, value) in self.writes() {
            match value {
                Some(value) => batch.put(family, key, value),
                None => batch.delete(family, key),
            };
        }
        batch
    }
}

/// A batch without writes.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_writebatch_create() -> Option<Box<WriteBatch>> {
    Some(Box::default())
}

/// Frees a batch.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_writebatch_destroy(batch: Option<Box<WriteBatch>>) {
    drop(batch);
}

/// Forgets all writes.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_writebatch_clear(batch: Option<&mut WriteBatch>) {
    if let Some(batch) = batch {
        batch.bytes.clear();
        batch.writes.clear();
    }
}

/// Adds a put. Key and value are copied.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_writebatch_put(
    batch: Option<&mut WriteBatch>,
    key: *const c_char,
    klen: usize,
    val: *const c_char,
    vlen: usize,
) {
    if let Some(batch) = batch {
        // SAFETY: the caller's promise, as `given` asks for.
        let (key, value) = unsafe { (given(key, klen), given(val, vlen)) };
        batch.add(key, Some(value));
    }
}

/// Adds a delete.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_writebatch_delete(batch: Option<&mut WriteBatch>, key: *const c_char, klen: usize) {
    if let Some(batch) = batch {
        // SAFETY: the caller's promise, as `given` asks for.
        batch.add(unsafe { given(key, klen) }, None);
    }
}

/// Calls one of the functions for each write, in order.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_writebatch_iterate(
    batch: Option<&WriteBatch>,
    state: *mut c_void,
    put: Option<
        extern "C" fn(state: *mut c_void, k: *const c_char, klen: usize, v: *const c_char, vlen: usize),
    >,
    deleted: Option<extern "C" fn(state: *mut c_void, k: *const c_char, klen: usize)>,
) {
    let text = |bytes: &[u8]| Slice::of(bytes).data.cast();
    for (key, value) in batch.iter().flat_map(|batch| batch.writes()) {
        match (value, put, deleted) {
            (Some(value), Some(put), _) => put(state, text(key), key.len(), text(value), value.len()),
            (None, _, Some(deleted)) => deleted(state, text(key), key.len()),
            _ => {}
        }
    }
}

/// Adds all writes of `source`, which may be the same batch.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_writebatch_append(destination: *mut WriteBatch, source: *const WriteBatch) {
    // SAFETY: both are batches of this library's, or NULL; nothing else refers to them during the call, and
    // the copy is made before the one to change is referred to.
    let (source, destination) = unsafe { (source.as_ref().cloned(), destination.as_mut()) };
    if let (Some(source), Some(destination)) = (source, destination) {
        source.writes().for_each(|(key, value)| destination.add(key, value));
    }
}
