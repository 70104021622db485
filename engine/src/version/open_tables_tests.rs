//! Tables in a store whose answers a test holds up or makes fail.

use super::*;
use crate::error::ErrorKind;
use crate::sstable::{TableBuilder, TableOptions};
use crate::storage::sim::SimWorld;
use crate::storage::{ObjectStore, PutOnce};
use crate::sync::Condvar;
use crate::types::{CellRef, Kind, SeqNo, Timestamp};
use crate::version::Dead;
use std::io;
use std::ops::Range;
use std::path::Path;

/// Objects in memory.
#[derive(Debug, Default)]
struct Held {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    objects: BTreeMap<String, Vec<u8>>,
    /// The ends that were asked for.
    asked: Vec<String>,
    /// How many were announced together, each time.
    announced: Vec<usize>,
    /// Whether ends come only later.
    is_shut: bool,
    /// Whether the next end does not come.
    fails: bool,
}

impl State {
    fn whole(&self, name: &str) -> io::Result<Vec<u8>> {
        Ok(self.objects.get(name).ok_or(io::ErrorKind::NotFound)?.clone())
    }
}

impl Held {
    fn shut(&self, is_shut: bool) {
        self.state.lock().is_shut = is_shut;
        self.changed.notify_all();
    }

    fn wait_until_asked(&self) {
        let mut state = self.state.lock();
        while state.asked.is_empty() {
            self.changed.wait(&mut state);
        }
    }

    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().asked)
    }
}

impl ObjectStore for Held {
    fn location(&self) -> String {
        "memory".into()
    }
    fn put(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.state.lock().objects.insert(name.into(), bytes.into());
        Ok(())
    }
    fn put_once(&self, name: &str, bytes: &[u8]) -> io::Result<PutOnce> {
        self.put(name, bytes).map(|()| PutOnce::Mine)
    }
    fn get(&self, name: &str, range: Range<u64>) -> io::Result<Vec<u8>> {
        let bytes = self.state.lock().whole(name)?;
        let part = bytes.get(range.start as usize..range.end as usize);
        Ok(part.ok_or(io::ErrorKind::UnexpectedEof)?.to_vec())
    }
    fn len(&self, name: &str) -> io::Result<u64> {
        Ok(self.state.lock().whole(name)?.len() as u64)
    }
    fn tail(&self, name: &str, bytes: u64) -> io::Result<(u64, Vec<u8>)> {
        let mut state = self.state.lock();
        state.asked.push(name.into());
        self.changed.notify_all();
        while state.is_shut {
            self.changed.wait(&mut state);
        }
        if std::mem::take(&mut state.fails) {
            return Err(io::Error::other("no answer"));
        }
        let object = state.whole(name)?;
        let from = object.len().saturating_sub(bytes as usize);
        Ok((object.len() as u64, object[from..].to_vec()))
    }
    fn expect(&self, tails: &[(String, u64)]) {
        self.state.lock().announced.push(tails.len());
    }
    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.state.lock().objects.keys().cloned().collect())
    }
    fn list_below(&self, _folder: &str) -> io::Result<Vec<String>> {
        Ok(Vec::new())
    }
    fn delete(&self, name: &str) -> io::Result<()> {
        self.state.lock().objects.remove(name);
        Ok(())
    }
}

/// A place, and the SSTables that were made there.
struct Place {
    cache: Arc<BlockCache>,
    tables: Arc<OpenTables>,
    made: Vec<Arc<TableInfo>>,
}

impl Place {
    fn new(store: TableStore, count: u32) -> Self {
        let storage: Arc<dyn Storage> = SimWorld::new(1).env().storage;
        let (cache, graveyard) = (BlockCache::new(1 << 20), Arc::new(Graveyard::default()));
        let files = OpenFiles::new(store.storage().clone(), usize::MAX);
        let make = |part: u32| {
            let id = TableId { epoch: 1, job: 1, part, ..TableId::default() };
            let (options, path) = (TableOptions::default(), store.path(id));
            let identity = u64::from(part) + 1;
            let mut builder =
                TableBuilder::new(&**store.storage(), &path, id, identity, &options, 0).unwrap();
            let (key, timestamp, seq) = (part.to_be_bytes(), Timestamp::ZERO, SeqNo(1));
            let (kind, written, value) = (Kind::Value, 0, &b"v"[..]);
            builder.add(&CellRef { key: &key, timestamp, seq, kind, written, value }).unwrap();
            Arc::new(builder.finish().unwrap())
        };
        let made = (0..count).map(make).collect();
        let dir = PathBuf::from("/");
        let tables = OpenTables::new(store, &storage, dir, &cache, &files, &graveyard, Through::PageCache);
        Self { cache, tables, made }
    }

    /// The SSTables as an open has them.
    fn named(&self) -> Vec<Arc<TableHandle>> {
        self.made.iter().map(|info| self.tables.open_named(info).unwrap()).collect()
    }
}

fn far(count: u32) -> (Arc<Held>, Place) {
    let store = Arc::new(Held::default());
    let place = Place::new(TableStore::objects(store.clone()), count);
    assert_eq!(store.asked(), [""; 0]);
    (store, place)
}

#[test]
fn local_tables_are_open_from_the_beginning_and_far_ones_when_they_are_needed() {
    let storage: Arc<dyn Storage> = SimWorld::new(2).env().storage;
    let local = Place::new(TableStore::beside(&storage, Path::new("/")), 2);
    assert!(local.named().iter().all(|handle| handle.opened().is_some()));
    let (store, place) = far(2);
    let named = place.named();
    assert!(named.iter().all(|handle| handle.opened().is_none()));
    place.cache.fit(1 << 20, 0);
    for _ in 0..2 {
        assert_eq!(named[1].table().unwrap().info(), &place.made[1]);
    }
    assert_eq!(store.asked(), [place.made[1].id.file_name()]);
    assert!(named[0].opened().is_none());
    assert!(place.cache.table_memory() > 0);
    assert_eq!(place.cache.capacity(), (1 << 20) - place.cache.table_memory());
    // Whoever asks for it has the same handle.
    let again = place.tables.open(&place.made[0], None).unwrap();
    assert!(Arc::ptr_eq(&again, &named[0]) && named[0].opened().is_some());
}

#[test]
fn of_all_that_need_a_table_at_the_same_time_one_asks_for_it() {
    let (store, place) = far(1);
    let handle = place.named().remove(0);
    place.tables.open_behind(place.made.iter().map(|info| info.id));
    store.shut(true);
    std::thread::scope(|scope| {
        let read = || handle.table().map(|table| table.info().id);
        let readers: Vec<_> = (0..4).map(|_| scope.spawn(read)).collect();
        let behind = scope.spawn(|| place.tables.open_next());
        store.wait_until_asked();
        store.shut(false);
        for reader in readers {
            assert_eq!(reader.join().unwrap().unwrap(), place.made[0].id);
        }
        // It may have come when the table was open.
        assert!(behind.join().unwrap().is_none_or(|opened| opened.is_ok()));
    });
    assert_eq!(store.asked().len(), 1);
    assert!(!place.tables.is_behind());
}

#[test]
fn an_error_is_of_the_caller_who_meets_it_and_what_is_missing_is_damage() {
    let (store, place) = far(1);
    let handle = place.named().remove(0);
    store.state.lock().fails = true;
    assert_eq!(handle.table().unwrap_err().kind(), ErrorKind::Io);
    let name = place.made[0].id.file_name();
    let object = store.state.lock().objects.remove(&name).unwrap();
    let missing = handle.table().unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::Corruption);
    assert!(missing.to_string().contains("table is missing, expected it by the manifest"), "{missing}");
    store.put(&name, &object).unwrap();
    handle.table().unwrap();
    assert_eq!(store.asked().len(), 3);
}

#[test]
fn tables_are_opened_behind_in_the_order_that_was_said_each_once_and_announced_some_at_a_time() {
    let (store, place) = far(100);
    let named = place.named();
    assert!(!place.tables.is_behind() && place.tables.open_next().is_none());
    place.tables.open_behind(place.made.iter().rev().map(|info| info.id));
    assert!(place.tables.is_behind());
    // A reader was first with one, another table fails, and nobody has a third one any more.
    named[98].table().unwrap();
    store.asked();
    let mut named: Vec<_> = named.into_iter().map(Some).collect();
    named[97] = None;
    store.state.lock().fails = true;
    assert!(place.tables.open_next().unwrap().is_err());
    while let Some(opened) = place.tables.open_next() {
        opened.unwrap();
    }
    let expected = (0..97).rev().map(|n| &place.made[n]);
    let expected = std::iter::once(&place.made[99]).chain(expected).map(|info| info.id.file_name());
    assert_eq!(store.asked(), expected.collect::<Vec<_>>());
    assert_eq!(store.state.lock().announced, [62, 36]);
    assert!(!place.tables.is_behind());
    // What failed is left to whoever needs it.
    assert!(named[99].as_ref().is_some_and(|handle| handle.opened().is_none()));
    named.iter().flatten().for_each(|handle| assert!(handle.table().is_ok()));
    assert_eq!(store.asked(), [place.made[99].id.file_name()]);
}

#[test]
fn a_table_that_nobody_ever_opened_is_removed_like_others() {
    let (_, place) = far(2);
    let named = place.named();
    named[0].table().unwrap();
    named.iter().for_each(|handle| handle.make_obsolete());
    drop(named);
    let graveyard = &place.tables.graveyard;
    let dead = std::iter::from_fn(|| graveyard.next_file()).map(|dead| match dead {
        Dead::Sstable(table, open) => (table, open.is_some()),
        Dead::Wal(file) => panic!("{file:?} is needed by no table"),
    });
    let expected = [(place.made[0].id, true), (place.made[1].id, false)];
    assert_eq!(dead.collect::<Vec<_>>(), expected);
}
