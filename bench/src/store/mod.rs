//! The stores that are measured: one trait, one file a store, and the table of what can be named.
//!
//! Every store gets the same memory, the same durability and, where it can, LZ4. What a store does with its
//! threads and its files is its own affair; what it is set to is said in its file and printed with the
//! results. `siltstone` is ours; beside it are `rocksdb`, `fjall`, `lmdb` and `pebble`.

#[cfg(feature = "peers")]
mod fjall;
#[cfg(feature = "peers")]
mod lmdb;
#[cfg(feature = "peers")]
mod pebble;
#[cfg(feature = "peers")]
mod rocksdb;
mod siltstone;

use crate::failure::Result;
use crate::record::Durability;
use crate::workload::Memory;
use ::siltstone::strategy::StrategyOptions;
use std::borrow::Cow;
use std::path::Path;

/// What a store is opened with.
pub(crate) struct Wanted<'a> {
    pub(crate) dir: &'a Path,
    pub(crate) memory: Memory,
    /// The durability of every write.
    pub(crate) durability: Durability,
    /// SSTables are read past the page cache, so that the store's own is the only one.
    pub(crate) direct_reads: bool,
}

/// The setting of a store that cannot read past the page cache, where that is wanted.
#[cfg(feature = "peers")]
fn no_direct_reads(wanted: &Wanted<'_>) -> Option<(&'static str, String)> {
    wanted
        .direct_reads
        .then(|| ("direct_reads", "not with this store: it reads through the page cache".into()))
}

/// How often a store found data blocks in its cache, since some beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CacheCount {
    pub(crate) hits: u64,
    pub(crate) misses: u64,
}

impl CacheCount {
    /// The look-ups since `earlier`.
    pub(crate) fn since(&self, earlier: &CacheCount) -> CacheCount {
        CacheCount { hits: self.hits - earlier.hits, misses: self.misses - earlier.misses }
    }

    /// The share of lookups that found their block in the cache.
    pub(crate) fn ratio(&self) -> Option<f64> {
        let CacheCount { hits, misses } = *self;
        (hits + misses > 0).then(|| hits as f64 / (hits + misses) as f64)
    }
}

/// A store's own counts of its writing since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Written {
    /// Bytes of SSTables by flushes, and by compactions.
    pub(crate) flushed_bytes: u64,
    pub(crate) compaction_written_bytes: u64,
    /// Bytes of WAL, with what was written ahead of use.
    pub(crate) wal_bytes: u64,
    /// Flushes and compactions that wrote SSTables.
    pub(crate) flushes: u64,
    pub(crate) compactions: u64,
}

impl Written {
    /// The writing since `earlier`.
    pub(crate) fn since(&self, earlier: &Written) -> Written {
        Written {
            flushed_bytes: self.flushed_bytes - earlier.flushed_bytes,
            compaction_written_bytes: self.compaction_written_bytes - earlier.compaction_written_bytes,
            wal_bytes: self.wal_bytes - earlier.wal_bytes,
            flushes: self.flushes - earlier.flushes,
            compactions: self.compactions - earlier.compactions,
        }
    }
}

/// An open store. Threads work through sessions of their own.
pub(crate) trait Store: Sync {
    fn session(&self) -> Result<Box<dyn Session + '_>>;
    /// Writes memory out and waits until no compaction is due.
    fn settle(&self) -> Result<()>;
    /// It has been loaded: where its storage is to be slow, it is from now on.
    fn slow_down(&self) -> Result<()> {
        Ok(())
    }
    /// Waits until nothing that is due is left to do; memory stays as it is where the store can tell the two
    /// apart.
    fn drain(&self) -> Result<()> {
        self.settle()
    }
    /// Settings that differ from the store's defaults.
    fn settings(&self) -> Vec<(&'static str, String)>;
    /// Its counts of writing, if it reports them.
    fn written(&self) -> Option<Written> {
        None
    }
    /// Compacts everything into one run, and waits for it.
    fn major(&self) -> Result<()> {
        Err("this store has no compaction that could be asked for".into())
    }
    /// Runs of SSTables that may hold one key, if it reports them: files over the same keys, one of each
    /// sorted level.
    fn runs(&self) -> Option<u64> {
        None
    }
    /// The most bytes that one compaction read and wrote since the store was opened, if it reports that.
    fn largest_merge_bytes(&self) -> Option<u64> {
        None
    }
    /// Hits and misses of its block cache, if it reports them; compactions not counted.
    fn cache(&self) -> Option<CacheCount> {
        None
    }
    /// Whether a compaction runs now, if it reports that.
    fn merging(&self) -> Option<bool> {
        None
    }
    /// Its compaction debt in bytes, if it reports that.
    fn debt(&self) -> Option<u64> {
        None
    }
}

/// The calls of one thread to a store. Values are handed out where they lie: a store that can do without
/// copying may.
pub(crate) trait Session {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()>;
    fn delete(&mut self, key: &[u8]) -> Result<()>;
    /// Whether the key is there; `seen` gets its value.
    fn get(&mut self, key: &[u8], seen: &mut dyn FnMut(&[u8])) -> Result<bool>;
    /// Entries in order of keys from `from` on, until `each` answers false.
    fn scan(&mut self, from: &[u8], each: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()>;
    /// Puts all, as one.
    fn put_many(&mut self, entries: &[(Vec<u8>, Vec<u8>)]) -> Result<()>;
    /// Gets all; `seen` gets the place in `keys` of each found and its value.
    fn get_many(&mut self, keys: &[Vec<u8>], seen: &mut dyn FnMut(usize, &[u8])) -> Result<()>;
    /// How the cache of blocks does for this session, where the store tells that of sessions only; from the
    /// first call on.
    fn cache(&mut self) -> Option<CacheCount> {
        None
    }
}

/// A store and its configuration, as named on the command line: `rocksdb:tuned`.
#[derive(Clone, Debug)]
pub(crate) struct Named {
    pub(crate) store: &'static str,
    pub(crate) config: Cow<'static, str>,
    /// `lz4`, `none`.
    pub(crate) compression: &'static str,
    /// Its description.
    pub(crate) what: &'static str,
    /// The package whose version it has.
    package: &'static str,
    open: fn(&Wanted<'_>, &str) -> Result<Box<dyn Store>>,
}

/// Every store of this build.
pub(crate) fn all() -> Vec<Named> {
    [
        &siltstone::all()[..],
        #[cfg(feature = "peers")]
        &rocksdb::NAMED,
        #[cfg(feature = "peers")]
        &fjall::NAMED,
        #[cfg(feature = "peers")]
        &lmdb::NAMED,
        #[cfg(feature = "peers")]
        pebble::all(),
    ]
    .concat()
}

/// The store of a name; a name without a configuration means its first one. Our own configurations are put
/// together from parts, so `siltstone:basic+s2` is one, though no list can hold them all.
pub(crate) fn named(name: &str) -> Result<Named, String> {
    let (store, config) = name.split_once(':').unwrap_or((name, ""));
    if store == siltstone::STORE && !config.is_empty() {
        return siltstone::named(config).map_err(|why| format!("no such store: {name}: {why}"));
    }
    let found = all().into_iter().find(|n| n.store == store && (config.is_empty() || config == n.config));
    let without = if cfg!(feature = "peers") {
        " (or not built: cargo xtask peers)"
    } else {
        " (this build has no peers: --features peers)"
    };
    found.ok_or_else(|| format!("no such store: {name}{without}"))
}

/// The compaction strategy of a configuration of Siltstone.
pub(crate) fn strategy(config: &str) -> Result<StrategyOptions, String> {
    siltstone::strategy(config)
}

impl Named {
    /// `siltstone`, `rocksdb:tuned`.
    pub(crate) fn name(&self) -> String {
        if self.config == DEFAULT_CONFIG && self.store == siltstone::STORE {
            self.store.to_string()
        } else {
            format!("{}:{}", self.store, self.config)
        }
    }

    /// The durability of writes, if it is asked for. Pebble leaves the WAL in the process, or syncs it.
    pub(crate) fn keeps(&self, wanted: Durability) -> Durability {
        if self.store == "pebble" && wanted == Durability::Buffered { Durability::Volatile } else { wanted }
    }

    pub(crate) fn open(&self, wanted: &Wanted<'_>) -> Result<Box<dyn Store>> {
        (self.open)(wanted, &self.config)
    }

    /// The library's version, from the lock file that this program was built with. RocksDB's own follows its
    /// binding's; Pebble's is in the file of its own.
    pub(crate) fn version(&self) -> &'static str {
        if let Some(required) = include_str!("../../pebble/go.mod").split(self.package).nth(1) {
            return required.split_whitespace().next().unwrap_or_default().trim_start_matches('v');
        }
        let lock = include_str!("../../../Cargo.lock");
        let entry = lock.split("[[package]]").find(|entry| {
            entry.trim_start().lines().next() == Some(format!("name = \"{}\"", self.package).as_str())
        });
        let version = entry.and_then(|entry| entry.split("version = \"").nth(1)?.split('"').next());
        let version = version.unwrap_or("unknown");
        version.split_once('+').map_or(version, |(_, library)| library)
    }
}

/// The configuration that a store's name alone means.
const DEFAULT_CONFIG: &str = "default";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_found_by_its_name_with_and_without_configuration() {
        assert_eq!(named("siltstone").unwrap().name(), "siltstone");
        assert_eq!(named("siltstone:default").unwrap().name(), "siltstone");
        assert_eq!(named("siltstone:none+defer").unwrap().config, "none+defer");
        assert_eq!(named("siltstone:s2").unwrap().config, "s2");
        for method in ["auto", "sma4", "sma2", "nomerge", "geo2", "geo3", "geop2", "remerge", "exploring"] {
            assert!(named(&format!("siltstone:none+{method}")).is_ok(), "{method}");
        }
        for wrong in
            ["warp", "basic+", "s99", "basic+s99", "basic+s2.5", "basic2", "adaptive+r2", "sma1", "sma4+l4"]
        {
            assert!(named(&format!("siltstone:{wrong}")).is_err(), "{wrong}");
        }
        assert!(named("siltstone:warp").is_err() && named("bdb").is_err());
        assert_eq!(named("siltstone").unwrap().version(), env!("CARGO_PKG_VERSION"));
    }

    /// All stores answer alike, so what is measured is the same.
    #[test]
    fn every_store_puts_gets_scans_and_deletes() {
        assert!(all().iter().any(|store| store.config == "uncompressed"), "every example is a configuration");
        // Compaction servers are this program again, which a test is not.
        for store in all().into_iter().filter(|store| !store.config.contains("served")) {
            let dir = tempfile::tempdir().unwrap();
            let memory = Memory { write: 4 << 20, cache: 4 << 20 };
            let wanted =
                Wanted { dir: dir.path(), memory, durability: Durability::Buffered, direct_reads: false };
            let open = store.open(&wanted).unwrap();
            let mut session = open.session().unwrap();
            session.put(b"a", b"1").unwrap();
            let many = [(b"b".to_vec(), b"2".to_vec()), (b"c".to_vec(), b"3".to_vec())];
            session.put_many(&many).unwrap();
            session.delete(b"b").unwrap();
            open.settle().unwrap();
            if let Some(written) = open.written() {
                // One for each family that has a key.
                let flushes = if store.config == "families64" { 3 } else { 1 };
                assert!(written.flushed_bytes > 0 && written.wal_bytes > 0, "{written:?}");
                assert_eq!(written.flushes, flushes, "{written:?}");
            }
            let name = store.name();
            let mut seen = Vec::new();
            assert!(session.get(b"a", &mut |value| seen.extend_from_slice(value)).unwrap(), "{name}");
            assert_eq!(seen, b"1", "{name}");
            assert!(!session.get(b"b", &mut |_| ()).unwrap(), "{name}");
            let keys = [b"c".to_vec(), b"b".to_vec(), b"a".to_vec()];
            let mut found = Vec::new();
            session.get_many(&keys, &mut |at, value| found.push((at, value.to_vec()))).unwrap();
            assert_eq!(found, [(0, b"3".to_vec()), (2, b"1".to_vec())], "{name}");
            let mut entries = Vec::new();
            let mut each = |key: &[u8], value: &[u8]| {
                entries.push((key.to_vec(), value.to_vec()));
                entries.len() < 2
            };
            session.scan(b"", &mut each).unwrap();
            assert_eq!(entries, [(b"a".to_vec(), b"1".to_vec()), (b"c".to_vec(), b"3".to_vec())], "{name}");
        }
    }
}
