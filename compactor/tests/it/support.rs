//! Databases and compaction servers in one directory.

use siltstone::storage::Env;
use siltstone::{Db, FamilyOptions, MergeOperator, Options, Rng, Tuning};
use siltstone_compactor::{CompactorConfig, CompactorServer, Compactors, CompactorsOptions};
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Operands behind each other.
struct Concat;

impl MergeOperator for Concat {
    fn merge(&self, _key: &[u8], value: Option<&[u8]>, operands: &[&[u8]]) -> siltstone::Result<Vec<u8>> {
        let mut merged = value.unwrap_or_default().to_vec();
        operands.iter().for_each(|operand| merged.extend_from_slice(operand));
        merged.truncate(200);
        Ok(merged)
    }
}

pub(crate) struct World {
    pub(crate) dir: tempfile::TempDir,
}

/// A database, and the servers that it knows.
pub(crate) struct Opened {
    db: Option<Db>,
    pub(crate) compactors: Option<Arc<Compactors>>,
    pub(crate) dir: PathBuf,
}

impl Deref for Opened {
    type Target = Db;

    fn deref(&self) -> &Db {
        self.db.as_ref().unwrap()
    }
}

pub(crate) fn builder() -> siltstone::Builder {
    builder_with(|_| {})
}

/// A builder with options changed by `change`.
pub(crate) fn builder_with(change: impl Fn(&mut Options)) -> siltstone::Builder {
    let mut options = Options {
        write_memory: 64 << 10,
        memory_budget: 2 << 20,
        tuning: Tuning { compaction_step_bytes: 64 << 10, ..Tuning::default() },
        ..Options::default()
    };
    change(&mut options);
    let family = FamilyOptions {
        merge_operator: Some("concat".into()),
        strategy: "leveled{sstable_bytes=32KiB}".parse().unwrap(),
        ..FamilyOptions::default()
    };
    Db::builder().options(options).merge_operator("concat", Arc::new(Concat)).family("default", family)
}

/// Settings with which every compaction goes to a server, and silence is noticed soon.
pub(crate) fn options() -> CompactorsOptions {
    let patience = Duration::from_secs(3);
    CompactorsOptions { bytes_min: 0, by_cost: false, patience, ..CompactorsOptions::default() }
}

pub(crate) fn connect(servers: &[&CompactorServer]) -> Arc<Compactors> {
    let addresses = servers.iter().map(|server| server.listens_at().to_string());
    Arc::new(Compactors::connect_with(addresses, options()).unwrap())
}

/// Waits for something that will come.
pub(crate) fn eventually(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(60), "{what}: it did not come to that");
        std::thread::sleep(Duration::from_millis(10));
    }
}

impl World {
    pub(crate) fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn open(&self, name: &str, servers: Option<&[&CompactorServer]>) -> Opened {
        self.open_with(name, servers.map(connect))
    }

    pub(crate) fn open_with(&self, name: &str, compactors: Option<Arc<Compactors>>) -> Opened {
        self.open_as(name, builder(), compactors)
    }

    pub(crate) fn open_as(
        &self,
        name: &str,
        builder: siltstone::Builder,
        compactors: Option<Arc<Compactors>>,
    ) -> Opened {
        let dir = self.dir.path().join(name);
        let builder = match &compactors {
            Some(compactors) => {
                let all = || compactors.servers().iter().all(|server| server.state.is_some());
                eventually("the servers answer", all);
                builder.offload(compactors.clone())
            }
            None => builder,
        };
        Opened { db: Some(builder.open(&dir).unwrap()), compactors, dir }
    }
}

impl Opened {
    /// Closes the database, opens it again without servers, and checks that it has these contents, and that
    /// nothing is wrong with it or left over.
    pub(crate) fn reopened_has(mut self, expected: &[(Vec<u8>, Vec<u8>)]) {
        self.db.take().unwrap().close().unwrap();
        let report = siltstone::check(&Env::local(), &self.dir, &mut |_| {}).unwrap();
        assert!(report.damages.is_empty(), "{report:?}");
        let db = builder().open(&self.dir).unwrap();
        assert!(contents(&db) == expected, "opened again");
    }
}

/// A server that may work in the world's directory, with so many slots.
pub(crate) fn server(world: &World, slots: u64) -> CompactorServer {
    let config = CompactorConfig {
        tables: vec![world.dir.path().into()],
        // An eighth is not for compactions.
        memory: (slots + 1) << 20,
        merge_memory: 1 << 20,
        ..CompactorConfig::default()
    };
    CompactorServer::start(config, builder()).unwrap()
}

/// Writes that depend on the seed alone.
pub(crate) fn write(db: &Db, seed: u64, count: u64) {
    let (mut rng, family) = (Rng::new(seed), db.family("default").unwrap());
    for _ in 0..count {
        let key = format!("key{:05}", rng.range(0..3_000));
        match rng.range(0..10) {
            0 => db.delete(key.as_bytes()).unwrap(),
            1 => family.merge(key.as_bytes(), rng.bytes(5)).unwrap(),
            2 if rng.one_in(20) => family.delete_range(key.clone()..format!("{key}~~")).unwrap(),
            _ => {
                let len = rng.range(0..200) as usize;
                db.put(key.as_bytes(), rng.bytes(len)).unwrap()
            }
        };
    }
}

/// Compacts all SSTables into one level.
pub(crate) fn merged(db: &Db) {
    db.family("default").unwrap().compact::<&str>(..).unwrap();
    db.wait_idle().unwrap();
}

pub(crate) fn contents(db: &Db) -> Vec<(Vec<u8>, Vec<u8>)> {
    db.scan::<&str>(..).map(|entry| entry.unwrap()).map(|entry| (entry.key, entry.value.to_vec())).collect()
}
