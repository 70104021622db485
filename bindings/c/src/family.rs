//! Families: reading and writing.

use crate::bytes::{Slice, Value, check_row, slices, utf8};
use crate::error::{Answer, Error, answer, invalid};
use crate::handle::{Place, check_open, emptied, free, given, no_handle};
use crate::iterator::Iterator;
use crate::options::of_family;
use crate::range::Range;
use crate::snapshot::Snapshot;
use crate::text::text;
use crate::write::Write;
use siltstone::{Db, Durability, Pinned, Result, Timestamp};
use std::ffi::{CString, c_char};
use std::mem::MaybeUninit;

/// The call returns once the write survives a kill of the process. A power loss may lose the newest writes.
pub const SILTSTONE_BUFFERED: i32 = 0;
/// The call returns once the write survives a power loss.
pub const SILTSTONE_SYNC: i32 = 1;

/// The durability that a write waits for.
#[inline]
pub(crate) fn durability(number: i32) -> Result<Durability> {
    match number {
        SILTSTONE_BUFFERED => Ok(Durability::Buffered),
        SILTSTONE_SYNC => Ok(Durability::Sync),
        other => Err(invalid(format!("durability is SILTSTONE_BUFFERED or SILTSTONE_SYNC, not {other}"))),
    }
}

/// A column family: an ordered map of keys to values. May be used by several threads at once.
pub struct Family {
    db: Db,
    pub(crate) family: siltstone::Family,
    name: CString,
}

impl Family {
    pub(crate) fn boxed(db: Db, family: siltstone::Family) -> Box<Self> {
        let name = text(family.name().as_bytes());
        Box::new(Self { db, family, name })
    }

    #[inline]
    fn get(&self, snapshot: Option<&Snapshot>, key: &[u8]) -> Result<Option<Pinned>> {
        match snapshot {
            None => self.family.get(key),
            Some(snapshot) => self.family.at(&snapshot.0).get(key),
        }
    }
}

/// One write, at once.
#[inline]
fn write<'a>(family: Option<&Family>, write: impl FnOnce() -> Result<Write<'a>>, how: i32) -> Answer {
    answer(|| {
        let Family { db, family, .. } = given(family, "family")?;
        write()?.at_once(db, family, durability(how)?)
    })
}

/// The family's name; lives as long as the handle. NULL for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_family_name(family: Option<&Family>) -> *const c_char {
    family.map_or(std::ptr::null(), |family| family.name.as_ptr())
}

/// Frees a family's handle and sets the pointer to NULL. NULL, and a pointer to NULL, are fine.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_family_free(family: Option<&mut Option<Box<Family>>>) {
    free(family);
}

/// Changes options by TOML text (`bloom_bits = 12`), without rewriting data. `timestamps` cannot change.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_family_alter(family: Option<&Family>, toml: *const c_char) -> Option<Box<Error>> {
    answer(|| {
        let family = &given(family, "family")?.family;
        family.alter(of_family(family.options(), utf8(toml, "toml")?)?)
    })
}

/// Sets a key's value. With explicit timestamps the version gets the current time. `durability` is
/// `SILTSTONE_BUFFERED` or `SILTSTONE_SYNC`.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_put(
    family: Option<&Family>,
    key: Slice,
    value: Slice,
    durability: i32,
) -> Option<Box<Error>> {
    write(family, || Write::put(key, value, None), durability)
}

/// Sets the version of that timestamp, where timestamps are explicit.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_put_at(
    family: Option<&Family>,
    key: Slice,
    timestamp: u64,
    value: Slice,
    durability: i32,
) -> Option<Box<Error>> {
    write(family, || Write::put(key, value, Some(timestamp)), durability)
}

/// Deletes a key, with all its versions. A key that is not there may be deleted.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_delete(
    family: Option<&Family>,
    key: Slice,
    durability: i32,
) -> Option<Box<Error>> {
    write(family, || Write::delete(key, None), durability)
}

/// Deletes a key's versions up to that timestamp, where timestamps are explicit.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_delete_at(
    family: Option<&Family>,
    key: Slice,
    timestamp: u64,
    durability: i32,
) -> Option<Box<Error>> {
    write(family, || Write::delete(key, Some(timestamp)), durability)
}

/// Adds an operand for the family's merge operator, which readers and compactions apply.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_merge(
    family: Option<&Family>,
    key: Slice,
    operand: Slice,
    durability: i32,
) -> Option<Box<Error>> {
    write(family, || Write::merge(key, operand, None), durability)
}

/// Adds an operand at a timestamp of choice.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_merge_at(
    family: Option<&Family>,
    key: Slice,
    timestamp: u64,
    operand: Slice,
    durability: i32,
) -> Option<Box<Error>> {
    write(family, || Write::merge(key, operand, Some(timestamp)), durability)
}

/// Deletes all keys of a range, at the cost of one write; all keys for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_delete_range(
    family: Option<&Family>,
    range: Option<&Range>,
    durability: i32,
) -> Option<Box<Error>> {
    write(family, || Write::delete_range(range), durability)
}

/// Puts the key's newest value into `*value`: now, or at a snapshot if that is not NULL. `value->data` is
/// NULL where the key is not there. Free it with `siltstone_value_free` before it is used for another key.
/// What `*value` was before does not matter.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_get(
    family: Option<&Family>,
    snapshot: Option<&Snapshot>,
    key: Slice,
    value: Option<&mut MaybeUninit<Value>>,
) -> Option<Box<Error>> {
    answer(|| {
        let place = emptied(value, "value", Value::NONE)?;
        *place = Value::of(given(family, "family")?.get(snapshot, key.bytes("key")?)?);
        Ok(())
    })
}

/// Puts the values of `count` keys into `values`, as of one moment. Cheaper than a `siltstone_get` each. If
/// it fails all of `values` are empty; else each is freed with `siltstone_value_free`.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_get_many(
    family: Option<&Family>,
    snapshot: Option<&Snapshot>,
    keys: *const Slice,
    count: usize,
    values: *mut Value,
) -> Option<Box<Error>> {
    answer(|| {
        check_row(values, count, "values")?;
        let places: &mut [MaybeUninit<Value>] = match count {
            0 => &mut [],
            // SAFETY: the caller's promise, that there is room for `count` of them, which there can be.
            _ => unsafe { std::slice::from_raw_parts_mut(values.cast(), count) },
        };
        for place in places.iter_mut() {
            place.write(Value::NONE);
        }
        // SAFETY: the caller's promise, that there are `count` of them.
        let keys = unsafe { slices(keys, count, "keys") }?;
        let keys: Vec<&[u8]> = keys.iter().map(|key| key.bytes("a key of keys")).collect::<Result<_>>()?;
        let family = &given(family, "family")?.family;
        let found = match snapshot {
            None => family.multi_get(&keys),
            Some(snapshot) => family.at(&snapshot.0).multi_get(&keys),
        }?;
        for (place, found) in places.iter_mut().zip(found) {
            place.write(Value::of(found));
        }
        Ok(())
    })
}

fn scan(
    family: Option<&Family>,
    snapshot: Option<&Snapshot>,
    range: Option<&Range>,
    times: Option<std::ops::Range<Timestamp>>,
    iterator: Place<'_, Option<Box<Iterator>>>,
) -> Answer {
    answer(|| {
        let (place, range) = (no_handle(iterator, "iterator")?, Range::of(range)?);
        let Family { db, family, .. } = given(family, "family")?;
        check_open(db)?;
        let scan = match snapshot {
            None => family.scan(range),
            Some(snapshot) => family.at(&snapshot.0).scan(range),
        };
        let scan = if let Some(times) = times { scan.times(times) } else { scan };
        *place = Some(Box::new(Iterator::new(db.clone(), scan)));
        Ok(())
    })
}

/// Puts an iterator over a range (all keys for NULL) into `*iterator`, which sees the family as it is now, or
/// at a snapshot. It stands nowhere yet. With explicit timestamps it stands at each version, newest first.
/// Freed with `siltstone_iterator_free`.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_scan(
    family: Option<&Family>,
    snapshot: Option<&Snapshot>,
    range: Option<&Range>,
    iterator: Option<&mut MaybeUninit<Option<Box<Iterator>>>>,
) -> Option<Box<Error>> {
    scan(family, snapshot, range, None, iterator)
}

/// Puts an iterator into `*iterator` as `siltstone_scan` does, over versions with timestamps from `from` up
/// to, but not including, `to`. Where timestamps are explicit.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_scan_times(
    family: Option<&Family>,
    snapshot: Option<&Snapshot>,
    range: Option<&Range>,
    from: u64,
    to: u64,
    iterator: Option<&mut MaybeUninit<Option<Box<Iterator>>>>,
) -> Option<Box<Error>> {
    scan(family, snapshot, range, Some(Timestamp(from)..Timestamp(to)), iterator)
}

/// Flushes the family's memory to SSTables.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_family_flush(family: Option<&Family>) -> Option<Box<Error>> {
    answer(|| given(family, "family")?.family.flush())
}

/// Compacts all that was written in a range (all keys for NULL) into the last level.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_compact(family: Option<&Family>, range: Option<&Range>) -> Option<Box<Error>> {
    answer(|| given(family, "family")?.family.compact(Range::of(range)?))
}

/// About how many bytes and cells of SSTables a range has; nothing of memory counts. `bytes` and `cells` may
/// be NULL.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_estimate(
    family: Option<&Family>,
    range: Option<&Range>,
    bytes: Option<&mut u64>,
    cells: Option<&mut u64>,
) -> Option<Box<Error>> {
    answer(|| {
        let Family { db, family, .. } = given(family, "family")?;
        check_open(db)?;
        let estimate = family.estimate(Range::of(range)?)?;
        if let Some(bytes) = bytes {
            *bytes = estimate.bytes;
        }
        if let Some(cells) = cells {
            *cells = estimate.cells;
        }
        Ok(())
    })
}
