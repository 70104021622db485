//! Batches: writes that take effect together.

use crate::bytes::Slice;
use crate::error::{Answer, Error, answer};
use crate::family::Family;
use crate::handle::{free, given};
use crate::range::Range;
use crate::write::Write;
use siltstone::Result;

/// Writes, of any families of one database, for `siltstone_write`. To be used by one thread at a time.
#[derive(Default)]
pub struct Batch(pub(crate) siltstone::Batch);

fn add<'a>(
    batch: Option<&mut Batch>,
    family: Option<&Family>,
    write: impl FnOnce() -> Result<Write<'a>>,
) -> Answer {
    answer(|| {
        let (batch, family) = (given(batch, "batch")?, given(family, "family")?);
        write()?.add_to(&mut batch.0, &family.family);
        Ok(())
    })
}

/// A batch without writes.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_batch_new() -> Option<Box<Batch>> {
    Some(Box::default())
}

/// See `siltstone_put`. Key and value are copied.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_batch_put(
    batch: Option<&mut Batch>,
    family: Option<&Family>,
    key: Slice,
    value: Slice,
) -> Option<Box<Error>> {
    add(batch, family, || Write::put(key, value, None))
}

/// See `siltstone_put_at`.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_batch_put_at(
    batch: Option<&mut Batch>,
    family: Option<&Family>,
    key: Slice,
    timestamp: u64,
    value: Slice,
) -> Option<Box<Error>> {
    add(batch, family, || Write::put(key, value, Some(timestamp)))
}

/// See `siltstone_delete`.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_batch_delete(
    batch: Option<&mut Batch>,
    family: Option<&Family>,
    key: Slice,
) -> Option<Box<Error>> {
    add(batch, family, || Write::delete(key, None))
}

/// See `siltstone_delete_at`.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_batch_delete_at(
    batch: Option<&mut Batch>,
    family: Option<&Family>,
    key: Slice,
    timestamp: u64,
) -> Option<Box<Error>> {
    add(batch, family, || Write::delete(key, Some(timestamp)))
}

/// See `siltstone_merge`.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_batch_merge(
    batch: Option<&mut Batch>,
    family: Option<&Family>,
    key: Slice,
    operand: Slice,
) -> Option<Box<Error>> {
    add(batch, family, || Write::merge(key, operand, None))
}

/// See `siltstone_merge_at`.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_batch_merge_at(
    batch: Option<&mut Batch>,
    family: Option<&Family>,
    key: Slice,
    timestamp: u64,
    operand: Slice,
) -> Option<Box<Error>> {
    add(batch, family, || Write::merge(key, operand, Some(timestamp)))
}

/// See `siltstone_delete_range`.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_batch_delete_range(
    batch: Option<&mut Batch>,
    family: Option<&Family>,
    range: Option<&Range>,
) -> Option<Box<Error>> {
    add(batch, family, || Write::delete_range(range))
}

/// How many writes it has; 0 for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_batch_count(batch: Option<&Batch>) -> usize {
    batch.map_or(0, |batch| batch.0.len())
}

/// Bytes of all its keys and values; 0 for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_batch_bytes(batch: Option<&Batch>) -> usize {
    batch.map_or(0, |batch| batch.0.user_bytes())
}

/// Forgets all writes and keeps the memory.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_batch_clear(batch: Option<&mut Batch>) {
    if let Some(batch) = batch {
        batch.0.clear();
    }
}

/// Frees a batch and sets the pointer to NULL. NULL, and a pointer to NULL, are fine.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_batch_free(batch: Option<&mut Option<Box<Batch>>>) {
    free(batch);
}
