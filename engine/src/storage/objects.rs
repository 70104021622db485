//! Object stores as a place for SSTables: the trait of a store, and its objects as files that are written
//! whole.

use super::{ReadFile, Storage, WriteFile, unsupported};
use std::fmt::Debug;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// A store of named objects, each written whole. All calls block. A call that fails may have taken effect,
/// even later, and a listing may lack recent changes. Nothing else is tolerated: once [`ObjectStore::put`] or
/// [`ObjectStore::put_once`] has returned, the object is durable, and every later `get` and `len` sees it.
/// A slash in a name separates folders.
///
/// ```
/// use siltstone::storage::{ObjectStore, PutOnce};
/// use std::{collections::BTreeMap, io, ops::Range, sync::Mutex};
///
/// #[derive(Debug, Default)]
/// struct InMemory(Mutex<BTreeMap<String, Vec<u8>>>);
///
/// impl ObjectStore for InMemory {
///     fn location(&self) -> String {
///         "memory".into()
///     }
///     fn put(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
///         self.0.lock().unwrap().insert(name.into(), bytes.into());
///         Ok(())
///     }
///     fn put_once(&self, name: &str, bytes: &[u8]) -> io::Result<PutOnce> {
///         let mut objects = self.0.lock().unwrap();
///         let found = objects.entry(name.into()).or_insert_with(|| bytes.into());
///         Ok(PutOnce::told_by(bytes, found))
///     }
///     fn get(&self, name: &str, range: Range<u64>) -> io::Result<Vec<u8>> {
///         let objects = self.0.lock().unwrap();
///         let object = objects.get(name).ok_or(io::ErrorKind::NotFound)?;
///         let range = range.start as usize..range.end as usize;
///         Ok(object.get(range).ok_or(io::ErrorKind::UnexpectedEof)?.to_vec())
///     }
///     fn len(&self, name: &str) -> io::Result<u64> {
///         Ok(self.0.lock().unwrap().get(name).ok_or(io::ErrorKind::NotFound)?.len() as u64)
///     }
///     fn list(&self) -> io::Result<Vec<String>> {
///         let objects = self.0.lock().unwrap();
///         Ok(objects.keys().filter(|name| !name.contains('/')).cloned().collect())
///     }
///     fn list_below(&self, folder: &str) -> io::Result<Vec<String>> {
///         let (objects, folder) = (self.0.lock().unwrap(), format!("{folder}/"));
///         Ok(objects.keys().filter(|name| name.starts_with(&folder)).cloned().collect())
///     }
///     fn delete(&self, name: &str) -> io::Result<()> {
///         self.0.lock().unwrap().remove(name);
///         Ok(())
///     }
/// }
///
/// # let dir = tempfile::tempdir().unwrap();
/// let store = std::sync::Arc::new(InMemory::default());
/// let db = siltstone::Db::builder().object_store(store.clone()).open(dir.path())?;
/// db.put(b"river", b"silt")?;
/// db.flush()?;
/// assert!(store.list()?.iter().any(|name| name.ends_with(".table")));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait ObjectStore: Send + Sync + Debug {
    /// The store's location, for people; the same at every open.
    fn location(&self) -> String;

    /// Stores a whole object under that name, replacing an existing one.
    fn put(&self, name: &str, bytes: &[u8]) -> io::Result<()>;

    /// Begins to store an object piece by piece; `None` if the caller must hold it in memory and `put` it.
    fn upload(&self, _name: &str) -> io::Result<Option<Box<dyn Upload>>> {
        Ok(None)
    }

    /// Stores an object unless there is one of that name, and says whose lies there now. Of two calls with
    /// different bytes one is refused, whatever happens to their answers. Where an answer does not tell (it
    /// is lost, late or a conflict), the implementation reads the object back ([`PutOnce::told_by`]), and
    /// tries again while there is none. Callers are told apart by their bytes alone, which therefore hold a
    /// nonce or an id.
    ///
    /// # Errors
    /// The outcome is unknown still: the object may be there, or come later. Or the store refused for good.
    fn put_once(&self, name: &str, bytes: &[u8]) -> io::Result<PutOnce>;

    /// A part of an object. `NotFound` if there is no such object, `UnexpectedEof` if it ends before.
    fn get(&self, name: &str, range: Range<u64>) -> io::Result<Vec<u8>>;

    /// A part of an object, read past any cache in between, after `get` returned wrong bytes.
    fn get_again(&self, name: &str, range: Range<u64>) -> io::Result<Vec<u8>> {
        self.get(name, range)
    }

    /// An object's length. `NotFound` if there is no such object.
    fn len(&self, name: &str) -> io::Result<u64>;

    /// An object's length, and at most that many of its last bytes. `NotFound` if there is no such object.
    fn tail(&self, name: &str, bytes: u64) -> io::Result<(u64, Vec<u8>)> {
        let len = self.len(name)?;
        Ok((len, self.get(name, len.saturating_sub(bytes)..len)?))
    }

    /// The whole object, read past any cache in between, by one request where the store can. `NotFound` if
    /// there is no such object.
    fn get_whole(&self, name: &str) -> io::Result<Vec<u8>> {
        let len = self.len(name)?;
        self.get_again(name, 0..len)
    }

    /// What [`ObjectStore::get_whole`] returns for each of these names, in their order. The objects are read
    /// at about the same time, in any order, where the store can, and one after the other elsewhere.
    fn get_all(&self, names: &[String]) -> Vec<io::Result<Vec<u8>>> {
        names.iter().map(|name| self.get_whole(name)).collect()
    }

    /// Announces objects that will be opened soon, each by a [`ObjectStore::tail`] of that many bytes: the
    /// tails may be fetched together.
    fn expect(&self, _tails: &[(String, u64)]) {}

    /// Tells the store that its cached bytes of the object seem to be wrong, so that it is fetched anew.
    /// Returns whether anything may have been cached.
    fn forget(&self, _name: &str) -> bool {
        false
    }

    /// The bytes that one `get` may take for little more than the time of a small one.
    fn request_bytes(&self) -> usize {
        1 << 20
    }

    /// The names of all objects that lie in no folder, in any order.
    fn list(&self) -> io::Result<Vec<String>>;

    /// The whole names of all objects in a folder and in those below it, in any order.
    fn list_below(&self, folder: &str) -> io::Result<Vec<String>>;

    /// Removes an object, if it exists.
    fn delete(&self, name: &str) -> io::Result<()>;

    /// Removes those of these objects that exist, by few requests where the store can. After an error some
    /// may be gone.
    fn delete_all(&self, names: &[String]) -> io::Result<()> {
        names.iter().try_for_each(|name| self.delete(name))
    }
}

/// The outcome of [`ObjectStore::put_once`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PutOnce {
    /// The object has the caller's bytes.
    Mine,
    /// The object has other bytes.
    Theirs,
}

impl PutOnce {
    /// The outcome of a put of `mine`, where the object reads as `found`.
    pub fn told_by(mine: &[u8], found: &[u8]) -> Self {
        let is_mine = match mine == found {
            true => !planted!(Bug::TakeOwnPutForTheirs),
            false => planted!(Bug::TakeTheirsForOwn),
        };
        if is_mine { Self::Mine } else { Self::Theirs }
    }
}

/// An object that is being stored piece by piece. Dropped before it is finished, it leaves nothing visible.
pub trait Upload: Send {
    /// Appends the bytes.
    fn write(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Completes the object: durable and visible to all once this returns. After an error it may exist all
    /// the same.
    fn finish(self: Box<Self>) -> io::Result<()>;
}

/// Finds the object store of a location such as `s3://bucket/prefix`; see [`crate::Builder::object_stores`].
pub type OpenObjectStore = dyn Fn(&str) -> io::Result<Arc<dyn ObjectStore>> + Send + Sync;

/// A [`Storage`] whose files are objects, in a single directory.
#[derive(Debug)]
pub(crate) struct ObjectFiles(pub(crate) Arc<dyn ObjectStore>);

fn name_of(path: &Path) -> io::Result<&str> {
    path.file_name().and_then(|name| name.to_str()).ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

/// An object being written. It is there, whole, from its one sync on.
enum Putting {
    InMemory { store: Arc<dyn ObjectStore>, name: String, bytes: Vec<u8> },
    Upload(Box<dyn Upload>),
    Done,
    Failed,
}

impl WriteFile for Putting {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Putting::InMemory { bytes: before, .. } => before.extend_from_slice(bytes),
            Putting::Upload(upload) => upload.write(bytes)?,
            Putting::Done | Putting::Failed => return unsupported(),
        }
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        // After a failed call the object may or may not exist: the call is not repeated (I2).
        match std::mem::replace(self, Putting::Failed) {
            Putting::InMemory { store, name, bytes } => store.put(&name, &bytes)?,
            Putting::Upload(upload) => upload.finish()?,
            Putting::Done => {}
            Putting::Failed => return Err(io::Error::other("an object that could not be put")),
        }
        *self = Putting::Done;
        Ok(())
    }
}

/// An object being read: no request before it is read or measured.
struct Getting {
    store: Arc<dyn ObjectStore>,
    name: String,
    len: OnceLock<u64>,
}

fn fill(buffer: &mut [u8], bytes: &[u8]) -> io::Result<()> {
    if bytes.len() != buffer.len() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    buffer.copy_from_slice(bytes);
    Ok(())
}

fn range(buffer: &[u8], offset: u64) -> Range<u64> {
    offset..offset + buffer.len() as u64
}

impl ReadFile for Getting {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let range = range(buffer, offset);
        fill(buffer, &self.store.get(&self.name, range)?)
    }

    fn read_again_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let range = range(buffer, offset);
        fill(buffer, &self.store.get_again(&self.name, range)?)
    }

    fn len(&self) -> io::Result<u64> {
        match self.len.get() {
            Some(len) => Ok(*len),
            None => {
                let len = self.store.len(&self.name)?;
                Ok(*self.len.get_or_init(|| len))
            }
        }
    }

    fn tail(&self, bytes: u64) -> io::Result<(u64, Vec<u8>)> {
        let (len, tail) = self.store.tail(&self.name, bytes)?;
        self.len.get_or_init(|| len);
        Ok((len, tail))
    }

    fn request_bytes(&self) -> usize {
        self.store.request_bytes()
    }
}

impl Storage for ObjectFiles {
    fn create(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        let name = name_of(path)?;
        Ok(Box::new(match self.0.upload(name)? {
            Some(upload) => Putting::Upload(upload),
            None => Putting::InMemory { store: self.0.clone(), name: name.into(), bytes: Vec::new() },
        }))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>> {
        let name = name_of(path)?.into();
        Ok(Arc::new(Getting { store: self.0.clone(), name, len: OnceLock::new() }))
    }

    /// Puts the object under its new name and then deletes the old one: after an error both may be there. For
    /// small objects.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let (from, to) = (name_of(from)?, name_of(to)?);
        let bytes = self.0.get(from, 0..self.0.len(from)?)?;
        self.0.put(to, &bytes)?;
        self.0.delete(from)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.0.delete(name_of(path)?)
    }

    fn list(&self, _dir: &Path) -> io::Result<Vec<String>> {
        let mut names = self.0.list()?;
        names.sort();
        Ok(names)
    }

    fn create_dir(&self, _dir: &Path) -> io::Result<()> {
        Ok(())
    }

    fn remove_dir(&self, _dir: &Path) -> io::Result<()> {
        Ok(())
    }

    fn sync_dir(&self, _dir: &Path) -> io::Result<()> {
        Ok(())
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        match self.0.len(name_of(path)?) {
            Ok(_) => Ok(true),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(e) => Err(e),
        }
    }

    fn forget(&self, path: &Path) -> bool {
        name_of(path).is_ok_and(|name| self.0.forget(name))
    }
}
