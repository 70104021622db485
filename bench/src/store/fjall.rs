//! fjall: its defaults (which include LZ4 and filters), with the memory wanted.

use super::{Named, Session, Store, Wanted};
use crate::failure::Result;
use crate::record::Durability;
use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use std::borrow::Cow;
use std::time::Duration;

pub(super) const NAMED: [Named; 1] = [Named {
    store: "fjall",
    config: Cow::Borrowed(super::DEFAULT_CONFIG),
    compression: "lz4",
    what: "its defaults, with the memory wanted",
    package: "fjall",
    open,
}];

struct Fjall {
    db: Database,
    keyspace: Keyspace,
    sync: bool,
    settings: Vec<(&'static str, String)>,
}

fn open(wanted: &Wanted<'_>, _config: &str) -> Result<Box<dyn Store>> {
    let memory = wanted.memory;
    let db = Database::builder(wanted.dir).cache_size(memory.cache).open()?;
    let keyspace =
        db.keyspace("bench", || KeyspaceCreateOptions::default().max_memtable_size(memory.write))?;
    let mut settings =
        vec![("cache_size", memory.cache.to_string()), ("max_memtable_size", memory.write.to_string())];
    settings.extend(super::no_direct_reads(wanted));
    Ok(Box::new(Fjall { db, keyspace, sync: wanted.durability == Durability::Sync, settings }))
}

impl Store for Fjall {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(Thread { store: self }))
    }

    /// It has no call for this: its flushes and compactions are counted, and it is settled when none of
    /// either was seen for a while, because one that ends can start the next.
    fn settle(&self) -> Result<()> {
        const POLL: Duration = Duration::from_millis(10);
        const QUIET_POLLS: u32 = 20;
        self.keyspace.rotate_memtable_and_wait()?;
        let (mut quiet, mut completed) = (0, self.db.compactions_completed());
        while quiet < QUIET_POLLS {
            std::thread::sleep(POLL);
            let now = self.db.compactions_completed();
            let busy =
                self.db.outstanding_flushes() > 0 || self.db.active_compactions() > 0 || now != completed;
            completed = now;
            quiet = if busy { 0 } else { quiet + 1 };
        }
        Ok(())
    }

    fn settings(&self) -> Vec<(&'static str, String)> {
        self.settings.clone()
    }

    fn merging(&self) -> Option<bool> {
        Some(self.db.active_compactions() > 0)
    }
}

struct Thread<'a> {
    store: &'a Fjall,
}

impl Thread<'_> {
    fn persist(&self) -> Result<()> {
        if self.store.sync {
            self.store.db.persist(PersistMode::SyncData)?;
        }
        Ok(())
    }
}

impl Session for Thread<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.store.keyspace.insert(key, value)?;
        self.persist()
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        self.store.keyspace.remove(key)?;
        self.persist()
    }

    fn get(&mut self, key: &[u8], seen: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value = self.store.keyspace.get(key)?;
        if let Some(value) = &value {
            seen(value);
        }
        Ok(value.is_some())
    }

    fn scan(&mut self, from: &[u8], each: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        for entry in self.store.keyspace.range(from..) {
            let (key, value) = entry.into_inner()?;
            if !each(&key, &value) {
                break;
            }
        }
        Ok(())
    }

    fn put_many(&mut self, entries: &[(Vec<u8>, Vec<u8>)]) -> Result<()> {
        let mut batch = self.store.db.batch();
        for (key, value) in entries {
            batch.insert(&self.store.keyspace, key.as_slice(), value.as_slice());
        }
        batch.commit()?;
        self.persist()
    }

    fn get_many(&mut self, keys: &[Vec<u8>], seen: &mut dyn FnMut(usize, &[u8])) -> Result<()> {
        for (at, key) in keys.iter().enumerate() {
            if let Some(value) = self.store.keyspace.get(key)? {
                seen(at, &value);
            }
        }
        Ok(())
    }
}
