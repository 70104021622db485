//! A write, wherever it goes: at once, into a batch, into a transaction.

use crate::bytes::Slice;
use crate::range::Range;
use siltstone::{Batch, Db, Durability, Family, KeyRange, Result, Timestamp, Transaction};

/// One write.
pub(crate) enum Write<'a> {
    Put { key: &'a [u8], value: &'a [u8], timestamp: Option<Timestamp> },
    Delete { key: &'a [u8], timestamp: Option<Timestamp> },
    Merge { key: &'a [u8], operand: &'a [u8], timestamp: Option<Timestamp> },
    DeleteRange(KeyRange),
}

impl Write<'_> {
    #[inline]
    pub(crate) fn put(key: Slice, value: Slice, timestamp: Option<u64>) -> Result<Self> {
        let (key, value) = (key.bytes("key")?, value.bytes("value")?);
        Ok(Self::Put { key, value, timestamp: timestamp.map(Timestamp) })
    }

    #[inline]
    pub(crate) fn delete(key: Slice, timestamp: Option<u64>) -> Result<Self> {
        Ok(Self::Delete { key: key.bytes("key")?, timestamp: timestamp.map(Timestamp) })
    }

    #[inline]
    pub(crate) fn merge(key: Slice, operand: Slice, timestamp: Option<u64>) -> Result<Self> {
        let (key, operand) = (key.bytes("key")?, operand.bytes("operand")?);
        Ok(Self::Merge { key, operand, timestamp: timestamp.map(Timestamp) })
    }

    pub(crate) fn delete_range(range: Option<&Range>) -> Result<Self> {
        Range::of(range).map(Self::DeleteRange)
    }

    pub(crate) fn add_to(self, batch: &mut Batch, family: &Family) {
        match self {
            Self::Put { key, value, timestamp: None } => batch.put(family, key, value),
            Self::Put { key, value, timestamp: Some(at) } => batch.put_at(family, key, at, value),
            Self::Delete { key, timestamp: None } => batch.delete(family, key),
            Self::Delete { key, timestamp: Some(at) } => batch.delete_at(family, key, at),
            Self::Merge { key, operand, timestamp: None } => batch.merge(family, key, operand),
            Self::Merge { key, operand, timestamp: Some(at) } => batch.merge_at(family, key, at, operand),
            Self::DeleteRange(range) => batch.delete_range(family, range),
        };
    }

    pub(crate) fn add_to_transaction(self, transaction: &mut Transaction, family: &Family) {
        match self {
            Self::Put { key, value, timestamp: None } => transaction.put(family, key, value),
            Self::Put { key, value, timestamp: Some(at) } => transaction.put_at(family, key, at, value),
            Self::Delete { key, timestamp: None } => transaction.delete(family, key),
            Self::Delete { key, timestamp: Some(at) } => transaction.delete_at(family, key, at),
            Self::Merge { key, operand, timestamp: None } => transaction.merge(family, key, operand),
            Self::Merge { key, operand, timestamp: Some(at) } => {
                transaction.merge_at(family, key, at, operand)
            }
            Self::DeleteRange(range) => transaction.delete_range(family, range),
        }
    }

    #[inline]
    pub(crate) fn at_once(self, db: &Db, family: &Family, durability: Durability) -> Result<()> {
        match self {
            Self::Put { key, value, timestamp: None } => family.put_with(key, value, durability).map(drop),
            write => {
                let mut batch = Batch::new();
                write.add_to(&mut batch, family);
                db.write_with(&batch, durability).map(drop)
            }
        }
    }
}
