//! Optimistic transactions.

use crate::bytes::{Slice, Value};
use crate::db::{Db, open};
use crate::error::{Answer, Error, answer, invalid};
use crate::family::{Family, durability};
use crate::handle::{Place, emptied, free, given, no_handle};
use crate::iterator::Entry;
use crate::range::Range;
use crate::write::Write;
use siltstone::{Isolation, Pinned, Result};
use std::ffi::c_void;
use std::mem::MaybeUninit;

/// Sees one moment under its own writes, which take effect together at the commit, or not at all. To be used
/// by one thread at a time.
pub struct Transaction(siltstone::Transaction);

/// A commit fails where others wrote to anything that the transaction read.
pub const SILTSTONE_SERIALIZABLE: i32 = 0;
/// A commit fails where others wrote to what the transaction wrote, or read for update.
pub const SILTSTONE_SNAPSHOT: i32 = 1;

/// Is called with each entry of a scan, which is valid during that call; true goes on, false ends the scan.
pub type EntryFunction = Option<extern "C" fn(context: *mut c_void, entry: &Entry) -> bool>;

/// Begins a transaction; `isolation` is `SILTSTONE_SERIALIZABLE` or `SILTSTONE_SNAPSHOT`. End it with
/// `siltstone_commit`, or with `siltstone_transaction_free`, which discards its writes.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_begin(
    db: Option<&Db>,
    isolation: i32,
    transaction: Option<&mut MaybeUninit<Option<Box<Transaction>>>>,
) -> Option<Box<Error>> {
    answer(|| {
        let (place, db) = (no_handle(transaction, "transaction")?, open(db)?);
        let isolation = match isolation {
            SILTSTONE_SERIALIZABLE => Isolation::Serializable,
            SILTSTONE_SNAPSHOT => Isolation::Snapshot,
            other => return Err(invalid(format!("there is no isolation {other}"))),
        };
        *place = Some(Box::new(Transaction(db.begin_with(isolation))));
        Ok(())
    })
}

/// Commits a transaction, or answers `SILTSTONE_KIND_CONFLICT`. Either way the transaction is freed and its
/// pointer set to NULL. `seq` gets the last sequence number; it may be NULL.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_commit(
    transaction: Option<&mut Option<Box<Transaction>>>,
    durability: i32,
    seq: Option<&mut u64>,
) -> Option<Box<Error>> {
    answer(|| {
        let transaction = given(given(transaction, "transaction")?.take(), "*transaction")?;
        let last = transaction.0.commit(self::durability(durability)?)?;
        if let Some(seq) = seq {
            *seq = last.0;
        }
        Ok(())
    })
}

/// Discards a transaction and sets its pointer to NULL. NULL, and a pointer to NULL, are fine.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_transaction_free(transaction: Option<&mut Option<Box<Transaction>>>) {
    free(transaction);
}

/// Puts what a transaction reads of a key into its place.
fn read(
    transaction: Option<&Transaction>,
    family: Option<&Family>,
    key: Slice,
    value: Place<'_, Value>,
    get: impl FnOnce(&siltstone::Transaction, &siltstone::Family, &[u8]) -> Result<Option<Pinned>>,
) -> Answer {
    answer(|| {
        let place = emptied(value, "value", Value::NONE)?;
        let (transaction, family) = (given(transaction, "transaction")?, given(family, "family")?);
        *place = Value::of(get(&transaction.0, &family.family, key.bytes("key")?)?);
        Ok(())
    })
}

/// `siltstone_get` of what the transaction sees. The commit fails if others write to the key before, unless
/// the isolation is `SILTSTONE_SNAPSHOT`.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_transaction_get(
    transaction: Option<&Transaction>,
    family: Option<&Family>,
    key: Slice,
    value: Option<&mut MaybeUninit<Value>>,
) -> Option<Box<Error>> {
    read(transaction, family, key, value, |transaction, family, key| transaction.get(family, key))
}

/// `siltstone_get` of what the transaction sees. The commit fails if others write to the key before, whatever
/// the isolation.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_transaction_get_for_update(
    transaction: Option<&Transaction>,
    family: Option<&Family>,
    key: Slice,
    value: Option<&mut MaybeUninit<Value>>,
) -> Option<Box<Error>> {
    read(transaction, family, key, value, |transaction, family, key| transaction.get_for_update(family, key))
}

/// Calls `function` with each entry of a range (all keys for NULL) that the transaction sees, in order, from
/// the end where `reverse` says so. It must not use the transaction meanwhile.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_transaction_scan(
    transaction: Option<&Transaction>,
    family: Option<&Family>,
    range: Option<&Range>,
    reverse: bool,
    function: EntryFunction,
    context: *mut c_void,
) -> Option<Box<Error>> {
    answer(|| {
        let (transaction, family) = (given(transaction, "transaction")?, given(family, "family")?);
        let function = given(function, "function")?;
        let mut scan = transaction.0.scan(&family.family, Range::of(range)?);
        while let Some(entry) = if reverse { scan.next_back() } else { scan.next() } {
            let entry = entry?;
            let (key, value) = (Slice::of(&entry.key), Slice::of(&entry.value));
            if !function(context, &Entry { key, value, timestamp: entry.timestamp.0 }) {
                break;
            }
        }
        Ok(())
    })
}

fn add<'a>(
    transaction: Option<&mut Transaction>,
    family: Option<&Family>,
    write: impl FnOnce() -> Result<Write<'a>>,
) -> Answer {
    answer(|| {
        let (transaction, family) = (given(transaction, "transaction")?, given(family, "family")?);
        write()?.add_to_transaction(&mut transaction.0, &family.family);
        Ok(())
    })
}

/// See `siltstone_put`. Key and value are copied.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_transaction_put(
    transaction: Option<&mut Transaction>,
    family: Option<&Family>,
    key: Slice,
    value: Slice,
) -> Option<Box<Error>> {
    add(transaction, family, || Write::put(key, value, None))
}

/// See `siltstone_put_at`.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_transaction_put_at(
    transaction: Option<&mut Transaction>,
    family: Option<&Family>,
    key: Slice,
    timestamp: u64,
    value: Slice,
) -> Option<Box<Error>> {
    add(transaction, family, || Write::put(key, value, Some(timestamp)))
}

/// See `siltstone_delete`.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_transaction_delete(
    transaction: Option<&mut Transaction>,
    family: Option<&Family>,
    key: Slice,
) -> Option<Box<Error>> {
    add(transaction, family, || Write::delete(key, None))
}

/// See `siltstone_delete_at`.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_transaction_delete_at(
    transaction: Option<&mut Transaction>,
    family: Option<&Family>,
    key: Slice,
    timestamp: u64,
) -> Option<Box<Error>> {
    add(transaction, family, || Write::delete(key, Some(timestamp)))
}

/// See `siltstone_merge`.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_transaction_merge(
    transaction: Option<&mut Transaction>,
    family: Option<&Family>,
    key: Slice,
    operand: Slice,
) -> Option<Box<Error>> {
    add(transaction, family, || Write::merge(key, operand, None))
}

/// See `siltstone_merge_at`.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_transaction_merge_at(
    transaction: Option<&mut Transaction>,
    family: Option<&Family>,
    key: Slice,
    timestamp: u64,
    operand: Slice,
) -> Option<Box<Error>> {
    add(transaction, family, || Write::merge(key, operand, Some(timestamp)))
}

/// See `siltstone_delete_range`.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_transaction_delete_range(
    transaction: Option<&mut Transaction>,
    family: Option<&Family>,
    range: Option<&Range>,
) -> Option<Box<Error>> {
    add(transaction, family, || Write::delete_range(range))
}

/// Marks this moment, for `siltstone_transaction_rollback`. Marks may be nested.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_transaction_savepoint(
    transaction: Option<&mut Transaction>,
) -> Option<Box<Error>> {
    answer(|| {
        given(transaction, "transaction")?.0.savepoint();
        Ok(())
    })
}

/// Forgets what was written since the newest mark, and that mark. `SILTSTONE_KIND_NOT_FOUND` if there is
/// none.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_transaction_rollback(
    transaction: Option<&mut Transaction>,
) -> Option<Box<Error>> {
    answer(|| match given(transaction, "transaction")?.0.rollback_to_savepoint() {
        true => Ok(()),
        false => Err(siltstone::Error::new(siltstone::ErrorKind::NotFound, "there is no savepoint")),
    })
}
