//! LMDB through heed. It has no compression and no memory of its own but the map of its file, so it is marked
//! uncompressed and the memory wanted means nothing to it: the page cache is its cache.
//!
//! Where writes need only survive the end of the process, it writes into a shared map and never syncs; where
//! they must survive a power cut, it runs with its defaults.
#![expect(
    unsafe_code,
    reason = "opening a map is unsafe: the directory is ours alone, nobody else changes the file"
)]

use super::{Named, Session, Store, Wanted};
use crate::failure::Result;
use crate::record::Durability;
use heed::types::Bytes;
use heed::{CommitOrAbort, Database, Env, EnvFlags, EnvOpenOptions};
use std::borrow::Cow;

pub(super) const NAMED: [Named; 1] = [Named {
    store: "lmdb",
    config: Cow::Borrowed(super::DEFAULT_CONFIG),
    compression: "none",
    what: "a shared map without syncs where durability is buffered; uncompressed",
    package: "lmdb-master-sys",
    open,
}];

/// Address space, not memory: the file grows as it is used.
const MAP_BYTES: usize = 256 << 30;
const READERS: u32 = 256;

struct Lmdb {
    env: Env,
    database: Database<'static, Bytes, Bytes>,
    settings: Vec<(&'static str, String)>,
}

fn open(wanted: &Wanted<'_>, _config: &str) -> Result<Box<dyn Store>> {
    let mut options = EnvOpenOptions::new();
    options.map_size(MAP_BYTES).max_readers(READERS);
    let flags = match wanted.durability {
        Durability::Sync => EnvFlags::empty(),
        Durability::Buffered | Durability::Volatile => EnvFlags::WRITE_MAP | EnvFlags::NO_SYNC,
    };
    // SAFETY: only this process opens the file, once, and nothing truncates it.
    let env = unsafe {
        options.flags(flags);
        options.open(wanted.dir)?
    };
    let created = env.create_databases_and_commit(env.write_txn()?, |opener, transaction| {
        opener.create_database(transaction, None).map(CommitOrAbort::<_, ()>::Commit)
    })?;
    let database = created.unwrap_commit();
    let mut settings = vec![("flags", format!("{flags:?}")), ("map_size", MAP_BYTES.to_string())];
    settings.extend(super::no_direct_reads(wanted));
    Ok(Box::new(Lmdb { env, database, settings }))
}

impl Store for Lmdb {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(Thread { store: self }))
    }

    /// Nothing is ever due.
    fn settle(&self) -> Result<()> {
        Ok(())
    }

    fn settings(&self) -> Vec<(&'static str, String)> {
        self.settings.clone()
    }
}

struct Thread<'a> {
    store: &'a Lmdb,
}

impl Session for Thread<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let mut transaction = self.store.env.write_txn()?;
        self.store.database.put(&mut transaction, key, value)?;
        Ok(transaction.commit()?)
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        let mut transaction = self.store.env.write_txn()?;
        self.store.database.delete(&mut transaction, key)?;
        Ok(transaction.commit()?)
    }

    fn get(&mut self, key: &[u8], seen: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let transaction = self.store.env.read_txn()?;
        let value = self.store.database.get(&transaction, key)?;
        if let Some(value) = value {
            seen(value);
        }
        Ok(value.is_some())
    }

    fn scan(&mut self, from: &[u8], each: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        let transaction = self.store.env.read_txn()?;
        // An empty key is no key to it, and the first one of a byte comes before all others.
        let from = if from.is_empty() { &[0] } else { from };
        let range = (std::ops::Bound::Included(from), std::ops::Bound::Unbounded);
        let entries = self.store.database.range(&transaction, &range)?;
        for entry in entries {
            let (key, value) = entry?;
            if !each(key, value) {
                break;
            }
        }
        Ok(())
    }

    fn put_many(&mut self, entries: &[(Vec<u8>, Vec<u8>)]) -> Result<()> {
        let mut transaction = self.store.env.write_txn()?;
        for (key, value) in entries {
            self.store.database.put(&mut transaction, key, value)?;
        }
        Ok(transaction.commit()?)
    }

    fn get_many(&mut self, keys: &[Vec<u8>], seen: &mut dyn FnMut(usize, &[u8])) -> Result<()> {
        let transaction = self.store.env.read_txn()?;
        for (at, key) in keys.iter().enumerate() {
            if let Some(value) = self.store.database.get(&transaction, key)? {
                seen(at, value);
            }
        }
        Ok(())
    }
}
