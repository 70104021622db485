//! Ingest: SSTables made elsewhere become part of a family at once, without passing through WAL and memory.
//!
//! Ingested cells are newer than everything written before and older than everything after, so they take one
//! sequence number between. Memory is searched before SSTables: a key of the ingested range that is still in
//! memory would hide the newer ingested cell. So memory is flushed until none of it overlaps, then, while
//! writers wait, the active memtable is exchanged for a fresh one (its generation orders the run below later
//! flushes) and the SSTables are added to L0.

use super::{Family, Inner};
use crate::commit::{FamilySettings, Store};
use crate::error::{Error, Result};
use crate::event::EventKind;
use crate::options::{FamilyOptions, Timestamps};
use crate::shape::{ShapeChange, TableInfo};
use crate::sstable::{Sstable, TableBuilder, TableOptions, is_own_file};
use crate::storage::{Env, is_blank};
use crate::sync::Mutex;
use crate::types::{
    CellRef, Cursor, KEY_BYTES_MAX, KeyRange, Kind, SeqNo, StoreId, TableId, Timestamp, VALUE_BYTES_MAX,
};
use crate::version::Version;
use crate::version::edit::Change;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Name of the property of an SSTable that says which kind of timestamps its cells have.
const TIMESTAMPS: &str = "timestamps";

fn timestamps_name(explicit: bool) -> &'static str {
    if explicit { "explicit" } else { "implicit" }
}

/// Writes an SSTable outside any database, to be ingested later. Keys must come in ascending order.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// use siltstone::{Db, FamilyOptions, SstableWriter};
/// let path = dir.path().join("prepared.table");
/// let mut table = SstableWriter::create(&path, &FamilyOptions::default())?;
/// for n in 0..1000u32 {
///     table.put(&n.to_be_bytes(), b"value")?;
/// }
/// table.finish()?;
/// let db = Db::open(dir.path().join("db"))?;
/// db.default_family().ingest(&[path])?;
/// assert_eq!(db.get(&7u32.to_be_bytes())?.unwrap(), b"value");
/// # Ok::<(), siltstone::Error>(())
/// ```
pub struct SstableWriter {
    builder: TableBuilder,
    explicit: bool,
    /// Moment of writing for the cells, if the family stores it.
    written: u64,
    last: Option<(Vec<u8>, Timestamp)>,
}

impl std::fmt::Debug for SstableWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SstableWriter({} bytes)", self.builder.bytes_written())
    }
}

impl SstableWriter {
    /// Creates the file on the local file system, formatted by the family's options. An SSTable of that name
    /// is replaced; another file is `Invalid`, and stays.
    pub fn create(path: impl AsRef<Path>, options: &FamilyOptions) -> Result<Self> {
        Self::create_in(&Env::local(), path, options)
    }

    /// Creates the file in another environment.
    pub fn create_in(env: &Env, path: impl AsRef<Path>, options: &FamilyOptions) -> Result<Self> {
        options.validate()?;
        let table = TableOptions {
            block_bytes: options.block_bytes,
            bloom_bits: options.bloom_bits,
            compression: options.compression,
            ..TableOptions::default()
        };
        let identity = env.random.next_u64();
        let created = env.clock.wall_us();
        // Never overwritten in place: a database that ingested the old file shares it.
        let path = path.as_ref();
        if env.storage.exists(path).map_err(|e| Error::io("look for", path, e))? {
            let looked = |e| Error::io("look at", path, e);
            let storage = &*env.storage;
            // The caller chose the name, so a file of zeros under it may be anybody's.
            let is_table = is_own_file(storage, path).map_err(looked)?
                && (!is_blank(storage, path).map_err(looked)?
                    || storage.open(path).and_then(|file| file.is_empty()).map_err(looked)?);
            if !is_table {
                return Err(Error::invalid(format!("{} is there and no table", path.display())));
            }
            env.storage.remove(path).map_err(|e| Error::io("replace", path, e))?;
        }
        let mut builder =
            TableBuilder::new(&*env.storage, path, TableId::default(), identity, &table, created)?;
        let explicit = options.timestamps == Timestamps::Explicit;
        builder.set_name(TIMESTAMPS, timestamps_name(explicit));
        let written = if options.keeps_written() { created } else { 0 };
        Ok(Self { builder, written, explicit, last: None })
    }

    /// Adds a key and its value; keys strictly ascending.
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.add(Kind::Value, key.as_ref(), Timestamp::ZERO, value.as_ref())
    }

    /// Adds a version; keys ascending, timestamps of a key descending.
    pub fn put_at(
        &mut self,
        key: impl AsRef<[u8]>,
        timestamp: Timestamp,
        value: impl AsRef<[u8]>,
    ) -> Result<()> {
        self.add(Kind::Value, key.as_ref(), timestamp, value.as_ref())
    }

    /// Adds a delete of the key.
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        let timestamp = if self.explicit { Timestamp::MAX } else { Timestamp::ZERO };
        self.add(Kind::Tombstone, key.as_ref(), timestamp, &[])
    }

    fn add(&mut self, kind: Kind, key: &[u8], timestamp: Timestamp, value: &[u8]) -> Result<()> {
        if key.len() > KEY_BYTES_MAX || value.len() > VALUE_BYTES_MAX {
            let (key, value) = (key.len(), value.len());
            return Err(Error::invalid(format!("key of {key} or value of {value} bytes is over the limit")));
        }
        let ascending = self
            .last
            .as_ref()
            .is_none_or(|(last, at)| key > last.as_slice() || (key == last.as_slice() && timestamp < *at));
        if !ascending || (timestamp != Timestamp::ZERO && !self.explicit) {
            return Err(Error::invalid(format!("key \"{}\" is out of order", key.escape_ascii())));
        }
        self.last = Some((key.to_vec(), timestamp));
        self.builder.add(&CellRef { key, timestamp, seq: SeqNo::ZERO, kind, written: self.written, value })
    }

    /// Ends and syncs the file.
    pub fn finish(self) -> Result<()> {
        if self.builder.is_empty() {
            return Err(Error::invalid("a table without cells cannot be ingested"));
        }
        self.builder.finish().map(|_| ())
    }
}

impl Family {
    /// Adds SSTables written by [`SstableWriter`] as the newest data, all or none. Their key ranges must not
    /// overlap each other, and they must have been written for a family with the same timestamps, explicit or
    /// not. Files are linked, or copied from another file system; the originals stay and may be removed or
    /// replaced, but a linked one must not be written to.
    pub fn ingest(&self, paths: &[impl AsRef<Path>]) -> Result<SeqNo> {
        let paths: Vec<PathBuf> = paths.iter().map(|p| p.as_ref().to_path_buf()).collect();
        self.db.ingest(self, &paths)
    }
}

impl Inner {
    fn ingest(self: &Arc<Self>, family: &Family, paths: &[PathBuf]) -> Result<SeqNo> {
        self.cx.check_writable()?;
        if paths.is_empty() {
            return Err(Error::invalid("no table to ingest"));
        }
        let store = &family.store;
        let settings = store.settings();
        settings.check_papers()?;
        let mut infos = self.read_foreign(paths, &settings)?;
        infos.sort_by(|(_, a), (_, b)| a.range.start.cmp(&b.range.start));
        if infos.windows(2).any(|w| w[0].1.range.overlaps(&w[1].1.range)) {
            return Err(Error::invalid("the tables to ingest overlap each other"));
        }
        let linked = self.link_foreign(store.id, &infos)?;
        // After a failure the links stay: whether the manifest names them may be unknown. If it does not, the
        // next open removes them.
        let seq = self.add_ingested(family, &linked)?;
        let numbers = [
            ("sstables", linked.len() as u64),
            ("bytes", linked.iter().map(|i| i.bytes).sum()),
            ("seq", seq.0),
        ];
        self.cx.events.record(EventKind::Ingest, &store.name, "SSTables from outside".into(), &numbers);
        Ok(seq)
    }

    /// Opens and verifies every byte of the files.
    fn read_foreign(
        &self,
        paths: &[PathBuf],
        settings: &FamilySettings,
    ) -> Result<Vec<(PathBuf, TableInfo)>> {
        let mut infos = Vec::new();
        for path in paths {
            let table = Sstable::open_unknown(&self.cx.env.storage, path, &self.catalog.cache)?;
            table.verify()?;
            let info = (**table.info()).clone();
            if info.seqs.1 != SeqNo::ZERO || info.range_tombstones > 0 {
                return Err(Error::invalid(format!("{} was not written for ingesting", path.display())));
            }
            let written_for = table.properties().names.get(TIMESTAMPS).map(String::as_str);
            let family_has = timestamps_name(settings.read.explicit);
            if let Some(written_for) = written_for.filter(|name| *name != family_has) {
                return Err(Error::invalid(format!(
                    "{} was written for a family with {written_for} timestamps, this one's are {family_has}",
                    path.display()
                )));
            }
            let timed = settings.read.explicit || settings.options.keeps_written();
            if !timed && info.times.1 != Timestamp::ZERO {
                let message = format!("{} has timestamps, the family keeps none", path.display());
                return Err(Error::invalid(message));
            }
            infos.push((path.clone(), info));
        }
        Ok(infos)
    }

    fn link_foreign(&self, store: StoreId, infos: &[(PathBuf, TableInfo)]) -> Result<Vec<TableInfo>> {
        let first = self.catalog.next_name(store);
        let mut linked = Vec::new();
        for (part, (path, info)) in infos.iter().enumerate() {
            let id = TableId { part: part as u32, ..first };
            self.catalog.tables.store().bring_in(path, &self.cx.env.storage, id, info.bytes)?;
            linked.push(TableInfo { id, ..info.clone() });
        }
        kill_point!("ingest-linked");
        self.catalog.tables.store().sync_names()?;
        Ok(linked)
    }

    fn add_ingested(self: &Arc<Self>, family: &Family, linked: &[TableInfo]) -> Result<SeqNo> {
        let store = &family.store;
        let ranges: Vec<KeyRange> = linked.iter().map(|info| info.range.clone()).collect();
        let done = Mutex::new(None);
        // Its writers wait for the flush and the one edit: else they might fill memory again and again.
        let _held = WritersPaused::new(self, store)?;
        loop {
            self.work.flush(store)?;
            // The manifest before the log stage, as everywhere.
            let mut manifest = self.catalog.manifest.lock();
            let turn = self.commit.with_one_seq(SeqNo::ZERO, |_, seq| {
                store.check_takes_writes()?;
                if memory_overlaps(&store.version_full(), &ranges)? {
                    return Ok(false);
                }
                let run = store.take_generation();
                let active = store.new_active(0);
                store.swap(|now| now.with_fresh_active(active.clone()));
                let infos = linked.iter().map(|info| {
                    Arc::new(TableInfo { ingested_at: Some(seq), seqs: (seq, seq), ..info.clone() })
                });
                let infos: Vec<_> = infos.collect();
                let opened: BTreeMap<_, _> = self.catalog.open_tables(&infos, &mut [])?;
                let added = infos.into_iter().map(|info| (0, run.0, info)).collect();
                let change = ShapeChange { range: KeyRange::all(), added, ..ShapeChange::default() };
                // Earlier writes must not be lost by a power cut that leaves the ingested SSTables (I2).
                let wal_synced = self.commit.wal()?.sync().inspect_err(|e| self.cx.poison(e))?;
                let more = vec![
                    Change::LastSeq(seq),
                    Change::WalSynced(wal_synced),
                    // The run's id is a generation: flushes after a reopening must come out above it.
                    Change::LastGeneration { store: store.id, generation: active.generation() },
                ];
                kill_point!("ingest-before-commit");
                let mark = self.catalog.install_change(&mut manifest, store, change, more, &opened)?;
                kill_point!("ingest-committed");
                *done.lock() = Some((seq, mark));
                Ok(true)
            })?;
            if turn {
                break;
            }
        }
        let (seq, mark) = done.lock().take().expect("set in the turn that ended the loop");
        self.commit.log_note(mark);
        self.cx.scheduler.notify();
        Ok(seq)
    }
}

/// Writers of a store wait as long as this is there.
struct WritersPaused<'a> {
    db: &'a Inner,
    store: &'a Store,
}

impl<'a> WritersPaused<'a> {
    fn new(db: &'a Inner, store: &'a Store) -> Result<Self> {
        store.set_held(true);
        let held = Self { db, store };
        // Writers that had passed the check are done.
        db.commit.with_writes_held(|_| ())?;
        Ok(held)
    }
}

impl Drop for WritersPaused<'_> {
    fn drop(&mut self) {
        self.store.set_held(false);
        self.db.cx.scheduler.notify();
    }
}

/// Whether memory holds any cell or range tombstone in one of the ranges.
fn memory_overlaps(version: &Version, ranges: &[KeyRange]) -> Result<bool> {
    for memtable in version.memory.all() {
        for range in ranges {
            if memtable.has_ranges() && !memtable.tombstones_within(range).is_empty() {
                return Ok(true);
            }
            let mut cursor = memtable.cursor();
            cursor.seek(&range.start)?;
            if cursor.valid() && range.ends_after(cursor.key()) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Db;

    #[test]
    fn a_table_written_where_an_ingested_one_lies_leaves_the_database_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("prepared.table");
        let db = Db::open(dir.path().join("db")).unwrap();
        for n in 0..3u8 {
            let mut table = SstableWriter::create(&path, &FamilyOptions::default()).unwrap();
            table.put([n], [n; 100]).unwrap();
            table.finish().unwrap();
            db.default_family().ingest(&[&path]).unwrap();
        }
        db.close().unwrap();
        let db = Db::open(dir.path().join("db")).unwrap();
        let found: Vec<_> = db.scan::<&str>(..).map(|e| e.unwrap().key.to_vec()).collect();
        assert_eq!(found, [[0], [1], [2]]);
    }
}
