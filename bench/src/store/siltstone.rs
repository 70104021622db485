//! Siltstone itself: its defaults, and the same with one thing changed.

use super::{Error, Named, Result, Session, Store, Wanted};
use crate::record::Durability;
use siltstone::strategy::MemoryPolicy;
use siltstone::{Batch, Compression, Db, Family, FamilyOptions, Options};

/// Name of the configuration, compression, what is different, and how.
type Row = (&'static str, &'static str, &'static str, fn(&mut Options, &mut FamilyOptions));

const CONFIGS: &[Row] = &[
    ("default", "lz4", "its defaults", |_, _| ()),
    ("ahead", "lz4", "log files written ahead of use", |options, _| options.log_written_ahead = true),
    ("sketch", "lz4", "in-memory compaction where sketches say that it pays", |_, family| {
        family.memory = MemoryPolicy::Sketch(Default::default());
    }),
    ("basic", "lz4", "in-memory merging of indices only", |_, family| {
        family.memory = MemoryPolicy::Basic(Default::default());
    }),
    ("eager", "lz4", "in-memory compaction at every freeze", |_, family| {
        family.memory = MemoryPolicy::Eager(Default::default());
    }),
    ("adaptive", "lz4", "Accordion's adaptive in-memory compaction, R 0.5", |_, family| {
        family.memory = MemoryPolicy::Adaptive(Default::default());
    }),
    ("logtables", "lz4", "values stay in the log at a flush where that pays", |_, family| {
        family.log_tables = true
    }),
    ("nofilter", "lz4", "without filters", |_, family| family.bloom_bits = 0),
    ("uncompressed", "none", "without compression", |_, family| family.compression = Compression::None),
];

pub(super) const NAMED: [Named; CONFIGS.len()] = {
    let (store, package) = ("siltstone", "siltstone");
    let mut named = [Named { store, config: "", compression: "", what: "", package, open }; CONFIGS.len()];
    let mut at = 0;
    while at < CONFIGS.len() {
        named[at].config = CONFIGS[at].0;
        named[at].compression = CONFIGS[at].1;
        named[at].what = CONFIGS[at].2;
        at += 1;
    }
    named
};

struct Siltstone {
    db: Db,
    family: Family,
    options: Options,
    family_options: FamilyOptions,
    durability: siltstone::Durability,
}

fn open(wanted: &Wanted<'_>, config: &'static str) -> Result<Box<dyn Store>> {
    let memory = wanted.memory;
    // One budget for what the others give to a memtable, a cache, and, beyond both, the metadata of tables.
    let mut options = Options {
        memory_budget: memory.write + memory.cache,
        write_memory: memory.write,
        ..Options::default()
    };
    let mut family_options = FamilyOptions::default();
    if let Some((.., change)) = CONFIGS.iter().find(|(name, ..)| *name == config) {
        change(&mut options, &mut family_options);
    }
    let builder = Db::builder().options(options.clone());
    let db = builder.family(siltstone::DEFAULT_FAMILY, family_options.clone()).open(wanted.dir)?;
    let durability = match wanted.durability {
        Durability::Sync => siltstone::Durability::Sync,
        Durability::Buffered | Durability::Volatile => siltstone::Durability::Buffered,
    };
    Ok(Box::new(Siltstone { family: db.default_family(), db, options, family_options, durability }))
}

impl Store for Siltstone {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(Thread { store: self, batch: Batch::new() }))
    }

    fn settle(&self) -> Result<()> {
        self.db.flush()?;
        Ok(self.db.settle()?)
    }

    fn settings(&self) -> Vec<(&'static str, String)> {
        let (options, family) = (&self.options, &self.family_options);
        let mut settings = vec![
            ("memory_budget", options.memory_budget.to_string()),
            ("write_memory", options.write_memory.to_string()),
        ];
        if options.log_written_ahead {
            settings.push(("log_written_ahead", "true".into()));
        }
        if family.bloom_bits != FamilyOptions::default().bloom_bits {
            settings.push(("bloom_bits", family.bloom_bits.to_string()));
        }
        settings
    }
}

struct Thread<'a> {
    store: &'a Siltstone,
    batch: Batch,
}

impl Session for Thread<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.store.family.put_with(key, value, self.store.durability)?;
        Ok(())
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        self.batch.clear();
        self.batch.delete(&self.store.family, key);
        self.store.db.write_with(&self.batch, self.store.durability)?;
        Ok(())
    }

    fn get(&mut self, key: &[u8], seen: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value = self.store.family.get(key)?;
        if let Some(value) = &value {
            seen(value);
        }
        Ok(value.is_some())
    }

    fn scan(&mut self, from: &[u8], each: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        for entry in self.store.family.scan(from..) {
            let entry = entry?;
            if !each(&entry.key, &entry.value) {
                break;
            }
        }
        Ok(())
    }

    fn put_many(&mut self, entries: &[(Vec<u8>, Vec<u8>)]) -> Result<()> {
        self.batch.clear();
        for (key, value) in entries {
            self.batch.put(&self.store.family, key, value);
        }
        self.store.db.write_with(&self.batch, self.store.durability)?;
        Ok(())
    }

    fn get_many(&mut self, keys: &[Vec<u8>], seen: &mut dyn FnMut(usize, &[u8])) -> Result<()> {
        let values = self.store.family.multi_get(keys).map_err(Error::from)?;
        for (at, value) in values.iter().enumerate() {
            if let Some(value) = value {
                seen(at, value);
            }
        }
        Ok(())
    }
}
