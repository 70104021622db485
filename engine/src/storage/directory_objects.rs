//! Objects as files of a directory that processes share: on NFS, on another disk, or in a test. A slash in an
//! object's name is a real sub-directory.
//!
//! **Objects appear whole.** The bytes go to a temporary file in the same folder, and are synced before the
//! file gets the object's name. `put` renames it. `put_once` makes the name as a hard link (`link(2)`), which
//! is refused in one step where the name is taken. `Storage::rename_new` would not do: where the file system
//! has no `RENAME_NOREPLACE`, as NFS, local storage looks for the name and then renames, and two callers may
//! both succeed. A link that is refused may be one's own whose answer was lost, so the object is read back.
//!
//! **An answer speaks of durable names only.** A name is seen as soon as it is made, and survives a power
//! loss only once its folder is synced: another process may read an object before its writer has come that
//! far. So the folder is synced between seeing a name and answering, whoever made the name:
//!
//! - `put`, `put_once` and a finished upload sync it after the name is made;
//! - `get`, `len` and `tail` open the file, sync its folder and answer then, and so does a `put_once` that
//!   finds an object there; lists are read, then synced for;
//! - the folder's own name is durable by then, as each process makes it so before its first object there, no
//!   matter who created the folder; nobody removes folders here;
//! - the bytes are durable before the file has the name.
//!
//! A sync that fails is that call's error, and the next call that speaks of the name syncs again. Names known
//! to be durable are remembered, and read without a sync. The first read in a folder syncs for all that lies
//! there, so that opening many SSTables costs one. This leaves one gap: an object that is replaced, or
//! deleted and put anew, may be read before that is durable by a process which remembers the former one.
//! Names that are used once, as those of SSTables and of the stream, have no such gap.
//!
//! A deletion is not synced for: an object that a power loss brings back is garbage once more, and its name
//! is not used again.
//!
//! **Temporary files** of killed processes stay. They may as well be those of another machine that is writing
//! them, so nobody removes them; whoever knows that no process uses the directory may. Names of objects and
//! of their folders do not begin with a dot, and lists leave out what does: temporary files, and what file
//! systems add (`.nfs...`, `.snapshot`).

use super::{ObjectStore, PutOnce, Random, ReadFile, Storage, Upload, WriteFile, create_dir_durably};
use crate::sync::Mutex;
use std::collections::BTreeSet;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How often an object is put that is to be put once, while its name is taken and nothing is found there.
const TRIES: usize = 8;
/// The most names that are remembered of a kind: a few MB.
const SEEN_MAX: usize = 50_000;

/// An object store in a directory, for processes that share it.
///
/// The file system must have hard links for [`ObjectStore::put_once`]. On NFS the server must export the
/// directory with `sync`, the default, and clients must mount it with `lookupcache=positive` or `none`: else
/// a client may answer for a minute that there is no object where another one has put it.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// use siltstone::storage::{DirectoryObjects, Env, ObjectStore, PutOnce};
/// let env = Env::local();
/// let objects = DirectoryObjects::new(&env.storage, env.random.clone(), dir.path())?;
/// assert_eq!(objects.put_once("d/one/1", b"mine")?, PutOnce::Mine);
/// assert_eq!(objects.put_once("d/one/1", b"theirs")?, PutOnce::Theirs);
/// assert_eq!(objects.get("d/one/1", 0..4)?, b"mine");
/// assert_eq!(objects.list_below("d")?, ["d/one/1"]);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct DirectoryObjects {
    directory: Arc<Directory>,
}

impl DirectoryObjects {
    /// The objects in that directory, which is created if it is missing.
    ///
    /// # Errors
    /// The directory cannot be created, or its name not be made durable.
    pub fn new(storage: &Arc<dyn Storage>, random: Arc<dyn Random>, dir: &Path) -> io::Result<Arc<Self>> {
        // Written in one way, without a slash at the end.
        let dir: PathBuf = storage.absolute(dir)?.components().collect();
        create_dir_durably(&**storage, &dir)?;
        let directory = Directory {
            storage: storage.clone(),
            random,
            dir,
            made: Seen::default(),
            listed: Seen::default(),
            durable: Seen::default(),
        };
        directory.made.add([""]);
        Ok(Arc::new(Self { directory: Arc::new(directory) }))
    }
}

/// Names of which something is known, as many as are remembered.
#[derive(Debug, Default)]
struct Seen(Mutex<BTreeSet<String>>);

impl Seen {
    fn has(&self, name: &str) -> bool {
        self.0.lock().contains(name)
    }

    fn add<'a>(&self, names: impl IntoIterator<Item = &'a str>) {
        let mut seen = self.0.lock();
        for name in names {
            if seen.len() >= SEEN_MAX {
                seen.clear();
            }
            seen.insert(name.into());
        }
    }

    fn forget(&self, name: &str) {
        self.0.lock().remove(name);
    }
}

/// The directory, shared with uploads. Folders are named as objects are; its own name is empty.
#[derive(Debug)]
struct Directory {
    storage: Arc<dyn Storage>,
    random: Arc<dyn Random>,
    dir: PathBuf,
    /// Folders that this process made durable.
    made: Seen,
    /// Folders whose objects were made durable together.
    listed: Seen,
    /// Objects whose names are known to be durable.
    durable: Seen,
}

/// Refuses what is no name of an object or of a folder.
fn check(name: &str) -> io::Result<()> {
    if name.split('/').any(|part| part.is_empty() || part.starts_with('.') || part.contains('\0')) {
        let why = "expected parts between single slashes, none empty or with a dot at its start";
        let message = format!("{name:?} is no name of an object: {why}");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    Ok(())
}

fn folder_of(name: &str) -> &str {
    name.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// Whether the error says that there is no such file: also where a folder has that name, or a file that of a
/// folder above.
fn is_absent(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::IsADirectory | io::ErrorKind::NotADirectory)
}

impl Directory {
    fn path(&self, name: &str) -> PathBuf {
        if name.is_empty() { self.dir.clone() } else { self.dir.join(name) }
    }

    /// A new temporary file in the object's folder.
    fn begin(&self, name: &str) -> io::Result<Part> {
        check(name)?;
        let folder = folder_of(name);
        let dir = self.path(folder);
        if !self.made.has(folder) {
            create_dir_durably(&*self.storage, &dir)?;
            self.made.add([folder]);
        }
        loop {
            let path = dir.join(format!(".{:016x}.part", self.random.next_u64()));
            match self.storage.create(&path) {
                // The remains of a killed process, by chance.
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                created => {
                    let (file, storage) = (Some(created?), self.storage.clone());
                    return Ok(Part { storage, path, file, is_renamed: false });
                }
            }
        }
    }

    /// Gives the temporary file the object's name, whatever has it.
    fn replace(&self, name: &str, mut part: Part) -> io::Result<()> {
        part.sync()?;
        self.storage.rename(&part.path, &self.path(name))?;
        part.is_renamed = true;
        self.settle(name)
    }

    /// Makes the object's name, which was seen, durable.
    fn settle(&self, name: &str) -> io::Result<()> {
        self.storage.sync_dir(&self.path(folder_of(name)))?;
        self.durable.add([name]);
        Ok(())
    }

    /// The object's file; its name may not be durable.
    fn find(&self, name: &str) -> io::Result<Arc<dyn ReadFile>> {
        check(name)?;
        match self.storage.open(&self.path(name)) {
            Err(e) if is_absent(&e) => {
                Err(io::Error::new(io::ErrorKind::NotFound, format!("there is no object {name}")))
            }
            opened => opened,
        }
    }

    /// The object's file, its name durable.
    fn open(&self, name: &str) -> io::Result<Arc<dyn ReadFile>> {
        let file = self.find(name)?;
        let folder = folder_of(name);
        if !self.durable.has(name) && !self.listed.has(folder) {
            self.entries(folder)?;
        }
        if !self.durable.has(name) {
            self.settle(name)?;
        }
        Ok(file)
    }

    /// What lies in the folder, by whole names: objects, which are durable, and folders with a slash at the
    /// end.
    fn entries(&self, folder: &str) -> io::Result<Vec<String>> {
        let path = self.path(folder);
        let mut entries = match self.storage.list_all(&path) {
            Err(e) if is_absent(&e) => return Ok(Vec::new()),
            listed => listed?,
        };
        entries.retain(|entry| !entry.starts_with('.'));
        if !folder.is_empty() {
            entries.iter_mut().for_each(|entry| *entry = format!("{folder}/{entry}"));
        }
        if !entries.is_empty() {
            self.storage.sync_dir(&path)?;
        }
        self.durable.add(entries.iter().map(String::as_str).filter(|entry| !entry.ends_with('/')));
        self.listed.add([folder]);
        Ok(entries)
    }
}

/// A temporary file; it is removed when this is dropped, unless it became an object.
struct Part {
    storage: Arc<dyn Storage>,
    path: PathBuf,
    /// The open file, until it is synced or a call has failed.
    file: Option<Box<dyn WriteFile>>,
    is_renamed: bool,
}

impl Part {
    fn file(&mut self) -> io::Result<Box<dyn WriteFile>> {
        self.file.take().ok_or_else(|| io::Error::other("an object that could not be written"))
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut file = self.file()?;
        file.write(bytes)?;
        self.file = Some(file);
        Ok(())
    }

    /// Makes the bytes durable and closes the file. A sync that failed is not repeated (I2).
    fn sync(&mut self) -> io::Result<()> {
        self.file()?.sync()
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // Closed first: NFS keeps an open file that is removed under yet another name.
        self.file = None;
        if !self.is_renamed {
            // What stays is not listed.
            let _ = self.storage.remove(&self.path);
        }
    }
}

/// An upload into a temporary file.
struct Uploading {
    directory: Arc<Directory>,
    name: String,
    part: Part,
}

impl Upload for Uploading {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.part.write(bytes)
    }

    fn finish(self: Box<Self>) -> io::Result<()> {
        let Self { directory, name, part } = *self;
        directory.replace(&name, part)
    }
}

/// Requests have the trait's size, though reads are local: each opens the file anew, so that the operating
/// system reads nothing ahead.
impl ObjectStore for DirectoryObjects {
    fn location(&self) -> String {
        self.directory.dir.display().to_string()
    }

    fn put(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let mut part = self.directory.begin(name)?;
        part.write(bytes)?;
        self.directory.replace(name, part)
    }

    fn upload(&self, name: &str) -> io::Result<Option<Box<dyn Upload>>> {
        let (directory, part) = (self.directory.clone(), self.directory.begin(name)?);
        Ok(Some(Box::new(Uploading { directory, name: name.into(), part })))
    }

    fn put_once(&self, name: &str, bytes: &[u8]) -> io::Result<PutOnce> {
        let directory = &*self.directory;
        let mut part = directory.begin(name)?;
        part.write(bytes)?;
        part.sync()?;
        let path = directory.path(name);
        for _ in 0..TRIES {
            match directory.storage.second_name(&part.path, &path) {
                Ok(true) => {
                    // First, so that the sync makes this durable, too.
                    drop(part);
                    directory.settle(name)?;
                    return Ok(PutOnce::Mine);
                }
                Ok(false) => {
                    let message = format!("hard links cannot be made in {}", self.location());
                    return Err(io::Error::new(io::ErrorKind::Unsupported, message));
                }
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(e),
            }
            match directory.find(name).and_then(|file| read(&*file, 0..file.len()?)) {
                Ok(found) => {
                    directory.settle(name)?;
                    return Ok(PutOnce::told_by(bytes, &found));
                }
                // It was deleted meanwhile.
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => return Err(e),
            }
        }
        Err(io::Error::other(format!("the name {name} is taken, and there is no object to be read")))
    }

    fn get(&self, name: &str, range: Range<u64>) -> io::Result<Vec<u8>> {
        read(&*self.directory.open(name)?, range)
    }

    fn len(&self, name: &str) -> io::Result<u64> {
        self.directory.open(name)?.len()
    }

    fn tail(&self, name: &str, bytes: u64) -> io::Result<(u64, Vec<u8>)> {
        self.directory.open(name)?.tail(bytes)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = self.directory.entries("")?;
        names.retain(|name| !name.ends_with('/'));
        Ok(names)
    }

    fn list_below(&self, folder: &str) -> io::Result<Vec<String>> {
        check(folder)?;
        let (mut names, mut folders) = (Vec::new(), vec![folder.to_string()]);
        while let Some(folder) = folders.pop() {
            for name in self.directory.entries(&folder)? {
                match name.strip_suffix('/') {
                    Some(below) => folders.push(below.into()),
                    None => names.push(name),
                }
            }
        }
        Ok(names)
    }

    fn delete(&self, name: &str) -> io::Result<()> {
        check(name)?;
        match self.directory.storage.remove(&self.directory.path(name)) {
            Err(e) if !is_absent(&e) => return Err(e),
            _ => {}
        }
        self.directory.durable.forget(name);
        Ok(())
    }
}

/// A part of a file. The length is looked at first, as a range may be longer than memory.
fn read(file: &dyn ReadFile, range: Range<u64>) -> io::Result<Vec<u8>> {
    if range.end > file.len()? {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let mut bytes = vec![0; range.end.saturating_sub(range.start) as usize];
    file.read_exact_at(&mut bytes, range.start)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::sim::{Mode, OpKind, SimRandom, SimStorage, Survive};
    use crate::storage::{LocalStorage, OsRandom};

    /// A process's view of the simulated disk.
    fn on(disk: &SimStorage, seed: u64) -> io::Result<Arc<DirectoryObjects>> {
        let storage: Arc<dyn Storage> = Arc::new(disk.clone());
        DirectoryObjects::new(&storage, Arc::new(SimRandom::new(seed)), Path::new("objects"))
    }

    /// A process's view of a directory of this machine.
    fn local(dir: &Path) -> Arc<DirectoryObjects> {
        let storage: Arc<dyn Storage> = Arc::new(LocalStorage::new());
        DirectoryObjects::new(&storage, Arc::new(OsRandom::new()), dir).unwrap()
    }

    /// Stores of both kinds, each empty, for what is the same in both.
    fn with_each(test: impl Fn(&DirectoryObjects)) {
        test(&on(&SimStorage::new(1), 1).unwrap());
        test(&local(tempfile::tempdir().unwrap().path()));
    }

    fn whole(store: &dyn ObjectStore, name: &str) -> io::Result<Vec<u8>> {
        store.get(name, 0..store.len(name)?)
    }

    fn below(store: &dyn ObjectStore, folder: &str) -> Vec<String> {
        let mut names = store.list_below(folder).unwrap();
        names.sort();
        names
    }

    fn kind<T>(result: io::Result<T>) -> io::ErrorKind {
        result.map(|_| ()).unwrap_err().kind()
    }

    #[test]
    fn objects_are_read_in_parts_and_an_end_that_is_passed_is_told_from_absence() {
        with_each(|store| {
            store.put("a", b"first, longer").unwrap();
            store.put("a", b"silt").unwrap();
            assert_eq!((store.len("a").unwrap(), store.get("a", 1..3).unwrap()), (4, b"il".to_vec()));
            assert_eq!(store.get("a", 4..4).unwrap(), b"");
            assert_eq!(store.tail("a", 2).unwrap(), (4, b"lt".to_vec()));
            assert_eq!(store.tail("a", 100).unwrap(), (4, b"silt".to_vec()));
            for range in [0..5, 5..5, 2..u64::MAX] {
                assert_eq!(kind(store.get("a", range)), io::ErrorKind::UnexpectedEof);
            }
            store.put("d/b", b"").unwrap();
            // A folder is no object, and nothing lies below an object.
            for absent in ["b", "d", "d/c", "e/f", "a/b"] {
                assert_eq!(kind(store.get(absent, 0..1)), io::ErrorKind::NotFound, "{absent}");
                assert_eq!(kind(store.len(absent)), io::ErrorKind::NotFound, "{absent}");
                assert_eq!(kind(store.tail(absent, 1)), io::ErrorKind::NotFound, "{absent}");
                store.delete(absent).unwrap();
            }
            assert!(store.put("a/b", b"").is_err() && store.put_once("d", b"").is_err());
            assert_eq!(whole(store, "a").unwrap(), b"silt");
        });
    }

    #[test]
    fn a_slash_separates_folders_and_lists_have_whole_names() {
        with_each(|store| {
            for name in ["a", "d/one/1/0", "d/one/1/1", "d/one/x", "d/ones", "t/b.table"] {
                store.put(name, name.as_bytes()).unwrap();
            }
            assert_eq!(store.list().unwrap(), ["a"]);
            assert_eq!(below(store, "d"), ["d/one/1/0", "d/one/1/1", "d/one/x", "d/ones"]);
            assert_eq!(below(store, "d/one/1"), ["d/one/1/0", "d/one/1/1"]);
            for nothing in ["e", "a", "d/one/2"] {
                assert!(below(store, nothing).is_empty(), "{nothing}");
            }
            store.delete("d/one/1/0").unwrap();
            assert_eq!(below(store, "d/one"), ["d/one/1/1", "d/one/x"]);
            assert_eq!(whole(store, "d/one/x").unwrap(), b"d/one/x");
        });
    }

    #[test]
    fn names_that_leave_the_directory_or_are_hidden_are_refused_by_name() {
        with_each(|store| {
            for name in ["", "/", "/a", "a/", "a//b", ".", "..", "a/../b", "../a", "a/.b", ".b/a", "a\0b"] {
                let refused = [
                    store.put(name, b"").unwrap_err(),
                    store.put_once(name, b"").unwrap_err(),
                    store.upload(name).map(|_| ()).unwrap_err(),
                    store.get(name, 0..0).unwrap_err(),
                    store.len(name).unwrap_err(),
                    store.tail(name, 1).unwrap_err(),
                    store.list_below(name).unwrap_err(),
                    store.delete(name).unwrap_err(),
                ];
                for e in refused {
                    assert_eq!(e.kind(), io::ErrorKind::InvalidInput);
                    assert!(e.to_string().contains(&format!("{name:?}")), "{e}");
                }
            }
            assert!(store.list().unwrap().is_empty());
        });
    }

    #[test]
    fn an_upload_is_seen_when_it_is_finished_and_never_when_it_is_dropped() {
        with_each(|store| {
            let mut upload = store.upload("t/a").unwrap().unwrap();
            upload.write(b"one ").unwrap();
            assert!(below(store, "t").is_empty() && store.len("t/a").is_err());
            upload.write(b"two").unwrap();
            upload.finish().unwrap();
            assert_eq!(whole(store, "t/a").unwrap(), b"one two");
            let mut dropped = store.upload("t/b").unwrap().unwrap();
            dropped.write(b"half").unwrap();
            drop(dropped);
            store.put_once("t/c", b"").unwrap();
            assert_eq!(store.put_once("t/c", b"other").unwrap(), PutOnce::Theirs);
            assert_eq!(below(store, "t"), ["t/a", "t/c"]);
            let Directory { storage, dir, .. } = &*store.directory;
            assert_eq!(storage.list(&dir.join("t")).unwrap(), ["a", "c"], "no temporary file stays");
        });
    }

    #[test]
    fn a_failed_write_can_not_be_finished() {
        let disk = SimStorage::new(1);
        let store = on(&disk, 1).unwrap();
        let mut upload = store.upload("a").unwrap().unwrap();
        disk.fail_at(OpKind::Write, 1, Mode::Once, io::ErrorKind::StorageFull);
        assert_eq!(kind(upload.write(b"one")), io::ErrorKind::StorageFull);
        assert!(upload.write(b"two").is_err() && upload.finish().is_err());
        assert!(store.list().unwrap().is_empty() && disk.list_all().is_empty());
    }

    #[test]
    fn of_many_callers_with_different_bytes_one_puts_its_object() {
        let dir = tempfile::tempdir().unwrap();
        let stores: Vec<_> = (0..8).map(|_| local(dir.path())).collect();
        for place in 0..20 {
            let name = format!("d/one/{}/{place}", place / 5);
            let outcomes: Vec<PutOnce> = std::thread::scope(|scope| {
                let put = |caller: usize| {
                    let (store, name) = (&stores[caller], &name);
                    scope.spawn(move || store.put_once(name, format!("of {caller}").as_bytes()).unwrap())
                };
                let puts: Vec<_> = (0..stores.len()).map(put).collect();
                puts.into_iter().map(|put| put.join().unwrap()).collect()
            });
            let mine: Vec<usize> = (0..stores.len()).filter(|at| outcomes[*at] == PutOnce::Mine).collect();
            assert_eq!(mine.len(), 1, "{outcomes:?}");
            for store in &stores {
                assert_eq!(whole(&**store, &name).unwrap(), format!("of {}", mine[0]).as_bytes());
            }
        }
    }

    #[test]
    fn the_location_is_absolute_and_written_in_one_way() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("not/there");
        let location = local(&path).location();
        assert_eq!(location, path.display().to_string());
        assert_eq!(local(Path::new(&format!("{location}/./"))).location(), location);
        let storage: Arc<dyn Storage> = Arc::new(LocalStorage::new());
        let nowhere = DirectoryObjects::new(&storage, Arc::new(OsRandom::new()), Path::new(""));
        assert!(nowhere.is_err());
    }

    const OBJECTS: [(&str, &[u8]); 4] =
        [("a", &[1; 700]), ("d/one/1/0", &[2; 1500]), ("d/one/2/0", b"short"), ("t/a.table", &[3; 5000])];

    /// Puts all objects in several ways, and notes which of them were acknowledged.
    fn put_all(disk: &SimStorage, acknowledged: &mut Vec<usize>) -> io::Result<()> {
        let store = on(disk, 1)?;
        for (at, (name, bytes)) in OBJECTS.into_iter().enumerate() {
            match at {
                0 => store.put(name, bytes)?,
                3 => {
                    let mut upload = store.upload(name)?.expect("uploads are taken");
                    for piece in bytes.chunks(2000) {
                        upload.write(piece)?;
                    }
                    upload.finish()?;
                }
                _ => {
                    assert_eq!(store.put_once(name, bytes)?, PutOnce::Mine);
                    assert_eq!(store.put_once(name, b"late")?, PutOnce::Theirs);
                }
            }
            acknowledged.push(at);
        }
        Ok(())
    }

    #[test]
    fn what_was_acknowledged_survives_power_lost_at_any_call_and_nothing_is_there_in_part() {
        let mut ends = 0;
        for nth in 1.. {
            let (disk, mut acknowledged) = (SimStorage::new(nth), Vec::new());
            disk.crash_at(nth);
            let put = put_all(&disk, &mut acknowledged);
            for (seed, survive) in (0..).zip([Survive::None, Survive::Half, Survive::Half, Survive::All]) {
                // Temporary files of the former life have the names that this one draws first.
                let store = on(&disk.clone_crashed(survive, nth * 4 + seed), 1).unwrap();
                let mut found = store.list().unwrap();
                found.extend(below(&*store, "d").into_iter().chain(below(&*store, "t")));
                for name in &found {
                    let (_, bytes) = OBJECTS.into_iter().find(|(of, _)| of == name).unwrap();
                    assert_eq!(whole(&*store, name).unwrap(), bytes, "{name} after call {nth}");
                }
                for at in &acknowledged {
                    assert!(found.iter().any(|name| name == OBJECTS[*at].0), "call {nth}: {found:?}");
                }
                put_others(&*store, &found);
            }
            if put.is_ok() {
                break;
            }
            ends += 1;
        }
        assert!(ends > 40, "{ends}");
    }

    /// Puts other bytes wherever nothing was found, and the same bytes after that.
    fn put_others(store: &dyn ObjectStore, found: &[String]) {
        for (name, bytes) in OBJECTS {
            let expected = if found.iter().any(|of| of == name) { PutOnce::Theirs } else { PutOnce::Mine };
            assert_eq!(store.put_once(name, b"next").unwrap(), expected);
            assert_eq!(store.put_once(name, bytes).unwrap() == PutOnce::Mine, expected == PutOnce::Theirs);
        }
    }

    #[test]
    fn what_was_answered_survives_though_its_writer_never_made_it_durable() {
        type Answer = fn(&DirectoryObjects);
        let answers: [Answer; 6] = [
            |store| assert_eq!(store.get("d/b", 0..1).unwrap(), b"2"),
            |store| assert_eq!(store.len("d/b").unwrap(), 1),
            |store| assert_eq!(store.tail("d/b", 9).unwrap(), (1, b"2".to_vec())),
            |store| assert_eq!(store.put_once("d/b", b"3").unwrap(), PutOnce::Theirs),
            |store| assert_eq!(store.put_once("d/b", b"2").unwrap(), PutOnce::Mine),
            |store| assert_eq!(below(store, "d"), ["d/a", "d/b"]),
        ];
        for (at, answer) in answers.into_iter().enumerate() {
            for is_put_once in [true, false] {
                let disk = SimStorage::new(1);
                let (writer, reader) = (on(&disk, 1).unwrap(), on(&disk, 2).unwrap());
                writer.put("d/a", b"1").unwrap();
                if at % 2 == 0 {
                    // A reader that looked into the folder before.
                    reader.len("d/a").unwrap();
                }
                disk.fail_at(OpKind::SyncDir, 1, Mode::Once, io::ErrorKind::Other);
                let unknown = match is_put_once {
                    true => writer.put_once("d/b", b"2").map(|_| ()),
                    false => writer.put("d/b", b"2"),
                };
                assert!(unknown.is_err());
                let lost = || disk.clone_crashed(Survive::None, 1).file_bytes("objects/d/b");
                assert_eq!(kind(lost()), io::ErrorKind::NotFound, "it would be lost here");
                answer(&reader);
                assert_eq!(lost().unwrap(), b"2", "answer {at}");
            }
        }
    }

    #[test]
    fn a_put_once_that_failed_at_any_call_has_one_outcome() {
        for nth in 1.. {
            let disk = SimStorage::new(nth);
            let (one, other) = (on(&disk, 1).unwrap(), on(&disk, 2).unwrap());
            disk.fail_at_any(nth, Mode::Once, io::ErrorKind::Other);
            let first = one.put_once("d/a", b"mine");
            disk.clear_faults();
            let theirs = other.put_once("d/a", b"theirs").unwrap();
            let mine = one.put_once("d/a", b"mine").unwrap();
            assert_ne!(mine, theirs, "call {nth}");
            if let Ok(first) = first {
                assert_eq!(first, mine, "call {nth}");
            }
            assert_eq!(below(&*one, "d"), ["d/a"]);
            let after = on(&disk.clone_crashed(Survive::None, 1), 3).unwrap();
            let bytes: &[u8] = if mine == PutOnce::Mine { b"mine" } else { b"theirs" };
            assert_eq!(whole(&*after, "d/a").unwrap(), bytes, "call {nth}");
            if disk.faults_injected() == 0 {
                assert!(nth > 8);
                break;
            }
        }
    }

    #[test]
    fn calls_on_what_is_known_cost_no_more_than_they_must() {
        let disk = SimStorage::new(1);
        let (writer, reader) = (on(&disk, 1).unwrap(), on(&disk, 2).unwrap());
        writer.put("t/0", b"bytes").unwrap();
        let counted = |call: &dyn Fn()| {
            let before = disk.op_counts();
            call();
            let after = disk.op_counts();
            let of = |op| after.of(op) - before.of(op);
            (after.total() - before.total(), of(OpKind::SyncDir), of(OpKind::List))
        };
        assert_eq!(counted(&|| writer.put("t/1", b"bytes").unwrap()), (5, 1, 0), "create to sync");
        let put_once = || assert_eq!(writer.put_once("t/2", b"bytes").unwrap(), PutOnce::Mine);
        assert_eq!(counted(&put_once), (6, 1, 0), "create to remove and sync");
        let get = |store: &DirectoryObjects, at: usize| {
            assert_eq!(store.get(&format!("t/{at}"), 0..5).unwrap(), b"bytes");
        };
        assert_eq!(counted(&|| get(&writer, 1)), (3, 0, 0), "open, length, bytes");
        assert_eq!(counted(&|| (0..3).for_each(|at| get(&reader, at))), (9 + 2, 1, 1), "one sync for all");
        writer.put("t/3", b"bytes").unwrap();
        assert_eq!(counted(&|| get(&reader, 3)), (4, 1, 0), "one for what is new");
        assert_eq!(counted(&|| get(&reader, 3)), (3, 0, 0));
    }

    #[test]
    fn names_are_remembered_within_a_bound() {
        let seen = Seen::default();
        let names: Vec<String> = (0..=SEEN_MAX).map(|n| n.to_string()).collect();
        seen.add(names.iter().map(String::as_str));
        assert!(!seen.has("0") && seen.has(&names[SEEN_MAX]), "forgotten when there are too many");
        seen.forget(&names[SEEN_MAX]);
        assert!(!seen.has(&names[SEEN_MAX]));
    }
}
