//! Iterators of LevelDB's.

use super::db::LevelDb;
use super::memory::{given, told};
use super::options::ReadOptions;
use super::order::Order;
use crate::bytes::Slice;
use siltstone::{Cursor, Error, KeyRange, Result};
use std::ffi::c_char;
use std::ptr::null;
use std::sync::Arc;

/// A place among the entries of a database.
pub struct LevelIterator {
    cursor: Cursor,
    order: Option<Arc<Order>>,
    failed: Option<Error>,
    /// The key that is sought: the caller's may be that of the entry, which goes as the cursor moves.
    sought: Vec<u8>,
}

impl LevelIterator {
    /// Moves, and notes what failed: then it stands nowhere.
    fn moved(&mut self, to: impl FnOnce(&mut Cursor) -> Result<bool>) {
        self.failed = to(&mut self.cursor).err();
    }

    /// Moves to the first entry at or after the key in `sought`.
    fn seek(&mut self) {
        self.failed = self.cursor.seek(&self.sought).err();
        let (Some(order), Some(at)) = (&self.order, self.cursor.entry()) else { return };
        self.failed = self.failed.take().or_else(|| order.check(&self.sought, &at.key).err());
    }

    /// Moves by one. A comparator of the caller's is asked about the two keys.
    fn stepped(&mut self, forward: bool) {
        let step = if forward { Cursor::next } else { Cursor::prev };
        let Some(order) = self.order.clone() else { return self.moved(step) };
        let Some(from) = self.cursor.entry().map(|entry| entry.key.clone()) else { return };
        self.moved(step);
        let Some(to) = self.entry().map(|entry| entry.key.clone()) else { return };
        let (left, right) = if forward { (&from, &to) } else { (&to, &from) };
        self.failed = order.check(left, right).err();
    }

    fn entry(&self) -> Option<&siltstone::Entry> {
        self.cursor.entry().filter(|_| self.failed.is_none())
    }
}

/// An iterator over the whole database, as it is now or as the options say. It stands nowhere yet.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_create_iterator(
    db: Option<&LevelDb>,
    options: Option<&ReadOptions>,
) -> Option<Box<LevelIterator>> {
    let db = db?;
    let scan = match options.and_then(|options| options.snapshot.as_ref()) {
        None => db.family.scan(KeyRange::all()),
        Some(snapshot) => db.family.at(snapshot).scan(KeyRange::all()),
    };
    Some(Box::new(LevelIterator {
        cursor: scan.cursor(),
        order: db.order.clone(),
        failed: None,
        sought: Vec::new(),
    }))
}

/// Frees an iterator.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_iter_destroy(iterator: Option<Box<LevelIterator>>) {
    drop(iterator);
}

/// Whether it stands at an entry.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_iter_valid(iterator: Option<&LevelIterator>) -> u8 {
    iterator.and_then(LevelIterator::entry).is_some().into()
}

/// Moves to the first entry.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_iter_seek_to_first(iterator: Option<&mut LevelIterator>) {
    if let Some(iterator) = iterator {
        iterator.moved(Cursor::first);
    }
}

/// Moves to the last entry.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_iter_seek_to_last(iterator: Option<&mut LevelIterator>) {
    if let Some(iterator) = iterator {
        iterator.moved(Cursor::last);
    }
}

/// Moves to the first entry at or after that key.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_iter_seek(iterator: Option<&mut LevelIterator>, k: *const c_char, klen: usize) {
    if let Some(iterator) = iterator {
        iterator.sought.clear();
        // SAFETY: the caller's promise, as `given` asks for.
        iterator.sought.extend_from_slice(unsafe { given(k, klen) });
        iterator.seek();
    }
}

/// Moves to the next entry.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_iter_next(iterator: Option<&mut LevelIterator>) {
    if let Some(iterator) = iterator {
        iterator.stepped(true);
    }
}

/// Moves to the entry before.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_iter_prev(iterator: Option<&mut LevelIterator>) {
    if let Some(iterator) = iterator {
        iterator.stepped(false);
    }
}

fn handed_out(bytes: Option<&[u8]>, len: Option<&mut usize>) -> *const c_char {
    if let Some(len) = len {
        *len = bytes.map_or(0, <[u8]>::len);
    }
    bytes.map_or(null(), |bytes| Slice::of(bytes).data.cast())
}

/// The key where it stands, valid until it is moved.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_iter_key(
    iterator: Option<&LevelIterator>,
    klen: Option<&mut usize>,
) -> *const c_char {
    handed_out(iterator.and_then(LevelIterator::entry).map(|entry| &*entry.key), klen)
}

/// The value where it stands, valid until it is moved.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_iter_value(
    iterator: Option<&LevelIterator>,
    vlen: Option<&mut usize>,
) -> *const c_char {
    handed_out(iterator.and_then(LevelIterator::entry).map(|entry| &*entry.value), vlen)
}

/// The error of its last move, if there was one.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_iter_get_error(iterator: Option<&LevelIterator>, errptr: Option<&mut *mut c_char>) {
    if let Some(failed) = iterator.and_then(|iterator| iterator.failed.clone()) {
        told::<()>(Err(failed), errptr);
    }
}
