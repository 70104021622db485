//! Iterators: a place in a range that can be moved both ways.

use crate::bytes::Slice;
use crate::error::{Answer, Error, answer};
use crate::handle::{Place, check_open, emptied, free, given};
use siltstone::{Cursor, Db, Result, Scan};
use std::mem::MaybeUninit;
use std::ptr::null;

/// A place among the entries of a range. To be used by one thread at a time.
pub struct Iterator {
    cursor: Cursor,
    db: Db,
    /// The key that is sought: the caller's may be that of the entry, which goes as the cursor moves.
    sought: Vec<u8>,
    entry: Entry,
}

/// The entry of an iterator. Valid until the iterator is moved or freed.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// The key.
    pub key: Slice,
    /// Its value.
    pub value: Slice,
    /// Zero where timestamps are implicit.
    pub timestamp: u64,
}

impl Iterator {
    pub(crate) fn new(db: Db, scan: Scan) -> Self {
        let entry = Entry { key: Slice::NONE, value: Slice::NONE, timestamp: 0 };
        Self { cursor: scan.cursor(), db, sought: Vec::new(), entry }
    }
}

/// Moves an iterator and says where it stands then.
#[inline]
fn moved(
    iterator: Option<&mut Iterator>,
    entry: Place<'_, *const Entry>,
    by: impl FnOnce(&mut Cursor, &mut Vec<u8>) -> Result<bool>,
) -> Answer {
    answer(|| {
        let place = emptied(entry, "entry", null())?;
        let iterator = given(iterator, "iterator")?;
        check_open(&iterator.db)?;
        if by(&mut iterator.cursor, &mut iterator.sought)?
            && let Some(at) = iterator.cursor.entry()
        {
            let (key, value) = (Slice::of(&at.key), Slice::of(&at.value));
            iterator.entry = Entry { key, value, timestamp: at.timestamp.0 };
            *place = &raw const iterator.entry;
        }
        Ok(())
    })
}

/// Moves an iterator to where a key is, or next to it.
#[inline]
fn sought(
    iterator: Option<&mut Iterator>,
    key: Slice,
    entry: Place<'_, *const Entry>,
    to: impl FnOnce(&mut Cursor, &[u8]) -> Result<bool>,
) -> Answer {
    moved(iterator, entry, |cursor, sought| {
        sought.clear();
        sought.extend_from_slice(key.bytes("key")?);
        to(cursor, sought)
    })
}

/// Moves to the first entry. `*entry` is where the iterator stands then, or NULL where there is no entry.
/// After an error, which also sets `*entry` to NULL, the iterator stands nowhere and may be put somewhere
/// again.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_iterator_first(
    iterator: Option<&mut Iterator>,
    entry: Option<&mut MaybeUninit<*const Entry>>,
) -> Option<Box<Error>> {
    moved(iterator, entry, |cursor, _| cursor.first())
}

/// Moves to the last entry.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_iterator_last(
    iterator: Option<&mut Iterator>,
    entry: Option<&mut MaybeUninit<*const Entry>>,
) -> Option<Box<Error>> {
    moved(iterator, entry, |cursor, _| cursor.last())
}

/// Moves to the first entry at or after that key.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_iterator_seek(
    iterator: Option<&mut Iterator>,
    key: Slice,
    entry: Option<&mut MaybeUninit<*const Entry>>,
) -> Option<Box<Error>> {
    sought(iterator, key, entry, |cursor, key| cursor.seek(key))
}

/// Moves to the last entry at or before that key.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_iterator_seek_back(
    iterator: Option<&mut Iterator>,
    key: Slice,
    entry: Option<&mut MaybeUninit<*const Entry>>,
) -> Option<Box<Error>> {
    sought(iterator, key, entry, |cursor, key| cursor.seek_back(key))
}

/// Moves to the entry behind this one. Where it stands nowhere, it stays there.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_iterator_next(
    iterator: Option<&mut Iterator>,
    entry: Option<&mut MaybeUninit<*const Entry>>,
) -> Option<Box<Error>> {
    moved(iterator, entry, |cursor, _| cursor.next())
}

/// Moves to the entry before this one. Where it stands nowhere, it stays there.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_iterator_prev(
    iterator: Option<&mut Iterator>,
    entry: Option<&mut MaybeUninit<*const Entry>>,
) -> Option<Box<Error>> {
    moved(iterator, entry, |cursor, _| cursor.prev())
}

/// Frees an iterator and sets the pointer to NULL. NULL, and a pointer to NULL, are fine.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_iterator_free(iterator: Option<&mut Option<Box<Iterator>>>) {
    free(iterator);
}
