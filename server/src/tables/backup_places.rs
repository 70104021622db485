//! The places of backups: a directory, or an object store that several servers may share.
//!
//! In an object store each server has a place of its own, named by a number that it draws once: only it
//! writes there. Copies of backups that another server's database made lie in one place for each such server,
//! since a place holds backups of one database. Beside the places is `names`, with an object for each backup
//! that says whose it is and where: by these, servers find each other's backups. What a server's own records
//! say holds; `names` follows them.

use crate::config::BackupLocation;
use crate::status::{overloaded, told};
use crate::tables::backup_records::Backup;
use serde::{Deserialize, Serialize};
use siltstone::Backups;
use siltstone::storage::{Env, ObjectStore, OpenObjectStore, PutOnce};
use std::fmt::Write as _;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use tokio::sync::Semaphore;
use tonic::Status;

/// The place of the names of backups.
const NAMES: &str = "names";
/// The most bytes of the entry of a backup there.
const PUBLISHED_MAX: u64 = 16 << 20;
/// The most calls at a time that search for a backup there: each may wait for the store, and occupies a
/// thread.
const LOOKS_MAX: usize = 32;

/// See the page above.
pub(crate) enum BackupPlaces {
    Directory(PathBuf),
    Store(BackupStore),
}

/// An object store of backups.
pub(crate) struct BackupStore {
    location: String,
    open: Box<OpenObjectStore>,
    /// The place of this server.
    own: OnceLock<String>,
    /// Permits of calls that search for a backup of another server.
    looks: Semaphore,
}

/// A backup as other servers find it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Published {
    /// Whose it is, by its place.
    pub(crate) server: String,
    pub(crate) backup: Backup,
}

impl Published {
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, Status> {
        let wrong = |what: String| Status::data_loss(format!("the object of a backup: {what}"));
        let published: Self = serde_json::from_slice(bytes).map_err(|e| wrong(e.to_string()))?;
        let place = &published.backup.place;
        let is_place = place.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
        // Others could lead anywhere, or to what is ours.
        match is_place && place.split('-').next() == Some(&*published.server) && !place.is_empty() {
            true => Ok(published),
            false => Err(wrong(format!("\"{}\" is no place of its server", place.escape_debug()))),
        }
    }
}

/// The name of the object of a backup: letters, digits, `-` and `_` as they are, others as a dot and their
/// number.
fn object_of(name: &str) -> String {
    let mut object = String::with_capacity(name.len() + 16);
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => object.push(char::from(byte)),
            // Writing to a text cannot fail.
            other => _ = write!(object, ".{other:02x}"),
        }
    }
    object
}

#[expect(clippy::needless_pass_by_value, reason = "as `map_err` wants it")]
fn failed(error: io::Error) -> Status {
    Status::unavailable(told(&format!("the object store of backups: {error}")))
}

impl BackupPlaces {
    /// The places in a directory, or in an object store.
    pub(crate) fn new(location: BackupLocation) -> Self {
        match location {
            BackupLocation::Directory(dir) => Self::Directory(dir),
            BackupLocation::Store(location, open) => {
                let location = location.trim_end_matches('/').to_string();
                let (own, looks) = (OnceLock::new(), Semaphore::new(LOOKS_MAX));
                Self::Store(BackupStore { location, open, own, looks })
            }
        }
    }

    /// The object store, if they lie in one.
    pub(crate) fn in_store(&self) -> Option<&BackupStore> {
        match self {
            Self::Directory(_) => None,
            Self::Store(store) => Some(store),
        }
    }

    /// The place of new backups of this server's tables; empty for the directory.
    pub(crate) fn own(&self) -> &str {
        self.in_store().map_or("", BackupStore::own)
    }

    /// Whether that place can be reached with the settings as they are.
    pub(crate) fn reaches(&self, place: &str) -> bool {
        self.in_store().is_some() != place.is_empty()
    }

    /// The engine's backups of a place, of which these are surely there.
    pub(crate) fn at(&self, place: &str, known: &[u64]) -> Result<Backups, Status> {
        match self {
            Self::Directory(dir) if place.is_empty() => Ok(Backups::new(&Env::local(), dir)),
            Self::Store(store) if !place.is_empty() => {
                Ok(Backups::in_object_store(store.open(place)?, known))
            }
            Self::Directory(_) => Err(Status::failed_precondition(
                "the backup lies in an object store, and the setting `backups` names a directory",
            )),
            Self::Store(_) => Err(Status::failed_precondition(
                "the backup lies in a directory, and the setting `backups` names an object store",
            )),
        }
    }
}

impl BackupStore {
    fn open(&self, place: &str) -> Result<Arc<dyn ObjectStore>, Status> {
        (self.open)(&format!("{}/{place}", self.location)).map_err(failed)
    }

    /// Says which place is this server's.
    pub(crate) fn own_is(&self, place: String) {
        self.own.get_or_init(|| place);
    }

    fn own(&self) -> &str {
        self.own.get().map_or("", String::as_str)
    }

    /// Whether it is a location that can be opened. Nothing is asked of the store.
    pub(crate) fn check(&self) -> Result<(), Status> {
        self.open(NAMES).map(drop)
    }

    /// Whether a place is another server's.
    pub(crate) fn is_foreign(&self, place: &str) -> bool {
        place.split('-').next() != Some(self.own())
    }

    /// The place for copies of backups of that place.
    pub(crate) fn for_copies_of(&self, place: &str) -> String {
        match place.rsplit('-').next() {
            // Of tables of ours, which another server has a copy of.
            Some(origin) if origin != self.own() => format!("{}-{origin}", self.own()),
            _ => self.own().to_string(),
        }
    }

    /// The entry of a backup of that name, of any server.
    fn published(&self, name: &str) -> Result<Option<Published>, Status> {
        // One request, so that an object that is replaced meanwhile is seen as it was or as it is.
        match self.open(NAMES)?.tail(&object_of(name), PUBLISHED_MAX) {
            Ok((len, bytes)) if len == bytes.len() as u64 => Published::parse(&bytes).map(Some),
            Ok((len, _)) => Err(Status::data_loss(format!("the object of backup {name} has {len} bytes"))),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(failed(e)),
        }
    }

    /// The backup of that name, if it is another server's.
    ///
    /// # Errors
    /// `UNAVAILABLE` where as many look for one as may at a time, or where the store does not answer.
    pub(crate) fn find_foreign(&self, name: &str) -> Result<Option<Backup>, Status> {
        let Ok(_look) = self.looks.try_acquire() else {
            let why = format!("{LOOKS_MAX} calls look for backups in the object store, the most");
            return Err(overloaded(tonic::Code::Unavailable, &why));
        };
        // What is said of one of ours that our records do not have will go.
        let foreign = self.published(name)?.filter(|published| published.server != self.own());
        Ok(foreign.map(|published| published.backup))
    }

    /// Writes or removes the entry of a backup of this server, by its records. Entries of other servers stay.
    pub(crate) fn publish(&self, name: &str, backup: Option<&Backup>) -> Result<(), Status> {
        let (names, object) = (self.open(NAMES)?, object_of(name));
        let is_foreign = |of: &Published| of.server != self.own();
        match backup {
            Some(backup) => {
                let published = Published { server: self.own().to_string(), backup: backup.clone() };
                let json = serde_json::to_vec(&published).map_err(|e| Status::internal(e.to_string()))?;
                if names.put_once(&object, &json).map_err(failed)? == PutOnce::Mine {
                    return Ok(());
                }
                if self.published(name)?.is_some_and(|of| is_foreign(&of)) {
                    tracing::warn!(
                        backup = name,
                        "another server has a backup of that name: it alone is found by others"
                    );
                    return Ok(());
                }
                names.put(&object, &json).map_err(failed)
            }
            None if self.published(name)?.is_none_or(|of| is_foreign(&of)) => Ok(()),
            None => names.delete(&object).map_err(failed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cells::row_key;
    use crate::config::Config;
    use crate::net::auth::{Right, Who};
    use crate::proto::admin;
    use crate::tables::attached::were_attached;
    use crate::tables::backup_records::NewBackup;
    use crate::tables::registry::Tables;
    use crate::tables::schema;
    use parking_lot::Mutex;
    use siltstone::{Batch, Durability, ErrorKind, SeqNo, Timestamp};
    use std::collections::BTreeMap;
    use std::ops::Range;
    use std::path::Path;
    use std::sync::atomic::{AtomicBool, Ordering};
    use tonic::Code;

    const TABLE: &str = "projects/p/instances/i/tables/t";
    const HOUR_US: u64 = 3_600_000_000;

    type ByKey = BTreeMap<String, Vec<u8>>;

    /// All objects of all locations, in memory, and whether the store is down.
    #[derive(Clone, Debug, Default)]
    struct Objects(Arc<(Mutex<ByKey>, AtomicBool)>);

    #[derive(Debug)]
    struct Location(String, Objects);

    impl Objects {
        fn names(&self) -> Vec<String> {
            self.0.0.lock().keys().cloned().collect()
        }

        fn go_down(&self, is_down: bool) {
            self.0.1.store(is_down, Ordering::Relaxed);
        }

        /// A server on this directory, with its backups here.
        fn server(&self, dir: &Path) -> Tables {
            let config = Config { dir: dir.join("data"), ..Config::default() };
            let db = schema::builder(config.options()).open(&config.dir).unwrap();
            let objects = self.clone();
            let open = move |location: &str| -> io::Result<Arc<dyn ObjectStore>> {
                Ok(Arc::new(Location(location.to_string(), objects.clone())))
            };
            let mut directories = config.directories();
            directories.backups = BackupLocation::Store("memory://backups".to_string(), Box::new(open));
            Tables::open(db, config.store_settings(), directories).unwrap()
        }
    }

    impl Location {
        fn with<T>(
            &self,
            name: &str,
            work: impl FnOnce(&mut BTreeMap<String, Vec<u8>>, String) -> io::Result<T>,
        ) -> io::Result<T> {
            let Objects(shared) = &self.1;
            match shared.1.load(Ordering::Relaxed) {
                true => Err(io::Error::other("down")),
                false => work(&mut shared.0.lock(), format!("{}/{name}", self.0)),
            }
        }
    }

    impl ObjectStore for Location {
        fn location(&self) -> String {
            self.0.clone()
        }

        fn put(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
            self.with(name, |all, name| {
                all.insert(name, bytes.to_vec());
                Ok(())
            })
        }

        fn put_once(&self, name: &str, bytes: &[u8]) -> io::Result<PutOnce> {
            self.with(name, |all, name| {
                let found = all.entry(name).or_insert_with(|| bytes.to_vec());
                Ok(PutOnce::told_by(bytes, found))
            })
        }

        fn get(&self, name: &str, range: Range<u64>) -> io::Result<Vec<u8>> {
            self.with(name, |all, name| {
                let bytes = all.get(&name).ok_or(io::ErrorKind::NotFound)?;
                let range = usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap();
                Ok(bytes.get(range).ok_or(io::ErrorKind::UnexpectedEof)?.to_vec())
            })
        }

        fn len(&self, name: &str) -> io::Result<u64> {
            self.with(name, |all, name| Ok(all.get(&name).ok_or(io::ErrorKind::NotFound)?.len() as u64))
        }

        fn list(&self) -> io::Result<Vec<String>> {
            self.with("", |all, prefix| {
                let names = all.keys().filter_map(|name| name.strip_prefix(&prefix));
                Ok(names.filter(|name| !name.contains('/')).map(str::to_string).collect())
            })
        }

        fn list_below(&self, folder: &str) -> io::Result<Vec<String>> {
            self.with("", |all, prefix| {
                let names = all.keys().filter_map(|name| name.strip_prefix(&prefix));
                let is_below =
                    |name: &&str| name.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'));
                Ok(names.filter(is_below).map(str::to_string).collect())
            })
        }

        fn delete(&self, name: &str) -> io::Result<()> {
            self.with(name, |all, name| {
                all.remove(&name);
                Ok(())
            })
        }
    }

    fn named(id: &str) -> String {
        format!("projects/p/instances/i/clusters/c/backups/{id}")
    }

    fn for_hours(hours: u64) -> NewBackup {
        NewBackup { expire_us: crate::time::now_us() + hours * HOUR_US, hot: false, hot_until_us: None }
    }

    /// Makes a table with one cell.
    fn fill(tables: &Tables) {
        let families = [("f".to_string(), admin::ColumnFamily::default())].into();
        let table = admin::Table { column_families: families, ..Default::default() };
        let table = tables.create(TABLE, &table, &[""; 0]).unwrap();
        let mut batch = Batch::new();
        let store = table.now().families[0].regions[0].store.clone();
        batch.put_at(&store, row_key::cell_key(b"row", b"q"), Timestamp(1_000), "v");
        tables.db.write_with(&batch, Durability::Sync).unwrap();
        // As an SSTable, too, which backups share.
        tables.db.flush().unwrap();
    }

    /// Restores a backup, and checks the cell.
    fn restores(tables: &Tables, backup: &str, id: &str) {
        let name = format!("projects/p/instances/i/tables/{id}");
        let (table, _) = tables.restore(&named(backup), &name, &Who::ANYONE).unwrap();
        let layout = table.now();
        let found = layout.families[0].regions[0].store.get(row_key::cell_key(b"row", b"q")).unwrap();
        assert!(found.is_some_and(|value| value[..] == *b"v"), "{id}");
    }

    #[test]
    fn servers_with_one_object_store_find_restore_and_copy_each_others_backups() {
        let (objects, dirs) = (Objects::default(), [(); 2].map(|()| tempfile::tempdir().unwrap()));
        let [a, b] = dirs.each_ref().map(|dir| objects.server(dir.path()));
        let all = Who::ANYONE;
        fill(&a);
        a.create_backup(&named("one"), TABLE, &for_hours(8)).unwrap();
        let tables = || objects.names().iter().filter(|name| name.ends_with(".table")).count();
        let before = tables();
        a.create_backup(&named("two"), TABLE, &for_hours(8)).unwrap();
        assert!(before > 0 && tables() == before, "tables are there once: {:?}", objects.names());
        // Found by name, and in no list; taken, and changed by its own server alone.
        assert_eq!(b.backup(&named("one"), &all).unwrap(), a.backup(&named("one"), &all).unwrap());
        assert!(b.backups("", |_| true).unwrap().is_empty());
        let asked = admin::Backup { name: named("one"), ..Default::default() };
        let refused = [
            b.create_backup(&named("one"), TABLE, &for_hours(8)).unwrap_err().code(),
            b.delete_backup(&named("one"), &all).unwrap_err().code(),
            b.update_backup(&asked, &["expire_time".into()], &all).unwrap_err().code(),
            b.backup(&named("none"), &all).unwrap_err().code(),
        ];
        let expected =
            [Code::AlreadyExists, Code::FailedPrecondition, Code::FailedPrecondition, Code::NotFound];
        assert_eq!(refused, expected);
        restores(&b, "one", "t2");
        // A copy is another server's own, and stays when the first is gone.
        let expires = crate::time::now_us() + 8 * HOUR_US;
        let copy = b.copy_backup(&named("copy"), &named("one"), expires, &all).unwrap();
        assert_eq!(
            (copy.source_backup.as_str(), b.backups("", |_| true).unwrap().len()),
            (&*named("one"), 1)
        );
        a.delete_backup(&named("one"), &all).unwrap();
        a.delete_backup(&named("two"), &all).unwrap();
        let gone = b.restore(&named("one"), TABLE, &all).err().map(|e| e.code());
        assert_eq!(gone, Some(Code::NotFound));
        restores(&b, "copy", "t3");
        // And back.
        a.copy_backup(&named("back"), &named("copy"), expires, &all).unwrap();
        // A server finds its own again.
        a.db.close().unwrap();
        drop(a);
        let a = objects.server(dirs[0].path());
        a.tend_backups(crate::time::now_us()).unwrap();
        restores(&a, "back", "t4");
        for server in [&a, &b] {
            server.tend_backups(expires).unwrap();
            assert!(server.backups("", |_| true).unwrap().is_empty());
            server.db.close().unwrap();
        }
        assert_eq!(objects.names(), [""; 0], "nothing is left");
    }

    /// Whether all numbers after that one which the WAL does not hold were skipped by attaching stores.
    fn nothing_is_lost(tables: &Tables, since: SeqNo) -> bool {
        let mut changes = tables.db.changes_since(since).unwrap();
        loop {
            match changes.next_batch() {
                Ok(Some(_)) => {}
                Ok(None) => return true,
                Err(e) => {
                    assert_eq!(e.kind(), ErrorKind::ChangesLost);
                    let (first, last) = changes.lost().unwrap();
                    if !were_attached(&tables.records, first, last).unwrap() {
                        return false;
                    }
                }
            }
        }
    }

    #[test]
    fn a_backup_of_a_server_that_is_far_ahead_is_no_loss_to_who_streams_changes() {
        let (objects, dirs) = (Objects::default(), [(); 2].map(|()| tempfile::tempdir().unwrap()));
        let [a, b] = dirs.each_ref().map(|dir| objects.server(dir.path()));
        let go_ahead = || {
            let mut batch = Batch::new();
            for n in 0..1_000u64 {
                batch.put(&a.records, n.to_be_bytes(), []);
            }
            a.db.write_with(&batch, Durability::Sync).unwrap();
        };
        go_ahead();
        fill(&a);
        fill(&b);
        a.create_backup(&named("one"), TABLE, &for_hours(8)).unwrap();
        let since = b.db.snapshot().seq();
        assert!(since < SeqNo(500));
        restores(&b, "one", "t2");
        assert!(b.db.snapshot().seq() > SeqNo(1_000));
        assert!(nothing_is_lost(&b, since) && nothing_is_lost(&b, SeqNo(900)));
        let table = b.get("projects/p/instances/i/tables/t2").unwrap();
        let store = table.now().families[0].regions[0].store.clone();
        let (from, at) = (store.attached_from().unwrap(), store.attached_at().unwrap());
        assert!(
            were_attached(&b.records, from, at).unwrap()
                && !were_attached(&b.records, SeqNo(from.0 - 1), at).unwrap()
        );
        drop((table, store));
        // A crash behind the copies: the next start drops them, and knows what they took.
        go_ahead();
        let store = a.get(TABLE).unwrap().now().families[0].regions[0].store.clone();
        b.db.copy_families(&a.db, &[(store.name(), "t999.1")]).unwrap();
        let ahead = b.db.snapshot().seq();
        b.db.close().unwrap();
        drop(b);
        let b = objects.server(dirs[1].path());
        assert!(ahead > SeqNo(2_000) && b.db.family("t999.1").is_err());
        assert!(nothing_is_lost(&b, since));
        for server in [&a, &b] {
            server.db.close().unwrap();
        }
    }

    #[test]
    fn a_backup_that_is_known_goes_with_its_files() {
        let (objects, dir) = (Objects::default(), tempfile::tempdir().unwrap());
        let server = objects.server(dir.path());
        fill(&server);
        let place = server.backup_places.own().to_string();
        let at = |known: &[u64]| server.backup_places.at(&place, known).unwrap();
        let make =
            |known: &[u64]| server.db.backup_families_to(&at(known), &|_| true, &mut |_| {}).unwrap().id;
        let numbers =
            |backups: &Backups| backups.list().unwrap().iter().map(|made| made.id).collect::<Vec<_>>();
        assert_eq!(make(&[]), 1);
        let first = objects.names();
        assert_eq!(make(&[1]), 2);
        assert!(objects.names().len() > first.len());
        let backups = at(&[1, 2]);
        backups.delete(2).unwrap();
        assert_eq!((objects.names(), numbers(&backups)), (first, vec![1]));
        assert_eq!(make(&[1]), 2);
        let backups = at(&[1, 2]);
        assert_eq!(backups.keep_last(1).unwrap(), [1]);
        assert_eq!(numbers(&backups), [2]);
        backups.delete(2).unwrap();
        assert!(numbers(&backups).is_empty() && objects.names().is_empty());
        server.db.close().unwrap();
    }

    #[test]
    fn what_a_killed_server_or_a_store_that_is_down_leaves_is_put_right() {
        let (objects, dir) = (Objects::default(), tempfile::tempdir().unwrap());
        let server = objects.server(dir.path());
        fill(&server);
        // Killed after the engine's backup, and after the record of another, before the object store had it.
        let place = server.backup_places.own().to_string();
        server.create_backup(&named("one"), TABLE, &for_hours(8)).unwrap();
        let whole = objects.names();
        let note = [&1u64.to_be_bytes()[..], place.as_bytes()].concat();
        server.records.put("making-backup", note).unwrap();
        let backups = server.backup_places.at(&place, &[1]).unwrap();
        server.db.backup_families_to(&backups, &|_| true, &mut |_| {}).unwrap();
        server.records.put(format!("untold-backup/{}", named("one")), []).unwrap();
        objects.0.0.lock().retain(|name, _| !name.contains("/names/"));
        server.db.close().unwrap();
        drop(server);
        let server = objects.server(dir.path());
        server.tend_backups(crate::time::now_us()).unwrap();
        assert_eq!(objects.names(), whole);
        // The store is down.
        objects.go_down(true);
        assert!(server.create_backup(&named("two"), TABLE, &for_hours(8)).is_err());
        server.delete_backup(&named("one"), &Who::ANYONE).unwrap();
        assert!(server.backups("", |_| true).unwrap().is_empty());
        server.tend_backups(crate::time::now_us()).unwrap();
        objects.go_down(false);
        assert_eq!(objects.names(), whole);
        server.tend_backups(crate::time::now_us()).unwrap();
        assert_eq!(objects.names(), [""; 0]);
        server.db.close().unwrap();
    }

    #[test]
    fn the_object_store_is_asked_for_who_has_a_right_in_the_instance_and_for_so_many_at_once() {
        let (objects, dirs) = (Objects::default(), [(); 2].map(|()| tempfile::tempdir().unwrap()));
        let [a, b] = dirs.each_ref().map(|dir| objects.server(dir.path()));
        fill(&a);
        a.create_backup(&named("one"), TABLE, &for_hours(8)).unwrap();
        let own = Who::with(Right::Read, TABLE);
        let beside = Who::with(Right::Read, "projects/p/instances/i/tables/other");
        let elsewhere = Who::with(Right::Admin, "projects/p/instances/j/*");
        assert!(b.backup(&named("one"), &own).is_ok());
        let code = |who: &Who| b.backup(&named("one"), who).unwrap_err().code();
        assert_eq!((code(&beside), code(&elsewhere)), (Code::NotFound, Code::NotFound));
        // Who has no right there does not wait for it.
        objects.go_down(true);
        assert_eq!((code(&own), code(&beside)), (Code::Unavailable, Code::Unavailable));
        assert_eq!(code(&elsewhere), Code::NotFound);
        assert_eq!(b.delete_backup(&named("one"), &elsewhere).unwrap_err().code(), Code::NotFound);
        objects.go_down(false);
        let store = b.backup_places.in_store().unwrap();
        let others: Vec<_> = (0..LOOKS_MAX).map(|_| store.looks.try_acquire().unwrap()).collect();
        assert_eq!(code(&own), Code::Unavailable);
        assert!(a.backup(&named("one"), &own).is_ok(), "its own server has not to ask");
        drop(others);
        assert!(b.backup(&named("one"), &own).is_ok());
        [a, b].iter().for_each(|server| server.db.close().unwrap());
    }

    #[test]
    fn what_is_said_of_a_backup_leads_to_a_place_of_who_says_it() {
        let of = |server: &str, place: &str| {
            let backup = Backup { place: place.into(), ..Backup::default() };
            serde_json::to_vec(&Published { server: server.into(), backup }).unwrap()
        };
        assert!(Published::parse(&of("aa", "aa")).is_ok() && Published::parse(&of("aa", "aa-bb")).is_ok());
        for (server, place) in [("aa", "bb"), ("aa", "bb-aa"), ("aa", "aa-../.."), ("", ""), ("aa", "")] {
            let wrong = Published::parse(&of(server, place)).unwrap_err();
            assert_eq!(wrong.code(), Code::DataLoss, "{server} {place}");
        }
    }

    #[test]
    fn names_of_objects_are_told_apart() {
        let names = ["projects/p/x", "projects/p.x", "projects/p.2fx", "projects/p\u{e9}x", "projects-p-x"];
        let objects: std::collections::BTreeSet<_> = names.iter().map(|name| object_of(name)).collect();
        assert_eq!(objects.len(), names.len());
        assert!(objects.iter().all(|object| !object.contains('/')), "{objects:?}");
        assert_eq!(object_of("a/b-1_c"), "a.2fb-1_c");
    }

    #[test]
    fn each_server_has_places_of_its_own_and_one_for_each_whose_backups_it_copies() {
        let open: Box<OpenObjectStore> = Box::new(|_| Err(io::ErrorKind::Other.into()));
        let places = BackupPlaces::new(BackupLocation::Store("s3://b/p/".to_string(), open));
        let store = places.in_store().unwrap();
        store.own_is("aa".into());
        assert!(!store.is_foreign("aa") && !store.is_foreign("aa-bb") && store.is_foreign("bb-aa"));
        for (place, copies) in [("bb", "aa-bb"), ("cc-bb", "aa-bb"), ("bb-aa", "aa")] {
            assert_eq!(store.for_copies_of(place), copies, "{place}");
        }
        assert!(places.reaches("aa") && !places.reaches(""));
        assert_eq!(places.at("", &[]).unwrap_err().code(), Code::FailedPrecondition);
        assert_eq!(places.at("aa", &[]).unwrap_err().code(), Code::Unavailable);
    }
}
