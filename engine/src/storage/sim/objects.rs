//! A simulated object store: objects on the simulated disk, each written whole, durable when its put returns.
//! With a seed, calls take time, fail without effect, fail although they took effect (a lost answer), and
//! list an earlier state. Where a test asks for it, objects that are put once may come after later calls.

use crate::storage::{ObjectStore, PutOnce, Storage};
use crate::types::Rng;
use parking_lot::Mutex;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::SimClock;

/// A simulated object store; see the page above.
#[derive(Debug)]
pub struct SimObjects {
    storage: Arc<dyn Storage>,
    dir: PathBuf,
    clock: Arc<SimClock>,
    weather: Mutex<Option<Weather>>,
    /// Whether existing names may not be durable: of an earlier process that was killed, or a failed call.
    unsure: AtomicBool,
}

#[derive(Debug)]
struct Weather {
    rng: Rng,
    /// An earlier listing.
    listed: Option<Vec<String>>,
    /// Puts that failed and will land, if there are such.
    late: Option<Vec<Put>>,
}

/// A name, and the bytes that are put there once.
type Put = (String, Vec<u8>);

/// How often an object is put that is to be put once, before the outcome stays unknown.
const TRIES: usize = 3;
/// The stand-in for a slash in the name of a file.
const SLASH: &str = "!";

/// The fault of a call.
#[derive(PartialEq, Eq)]
enum Fate {
    Done,
    Failed,
    /// It takes effect, and the answer is lost.
    Unanswered,
}

fn failure() -> io::Error {
    io::Error::other("simulated failure of the object store")
}

impl SimObjects {
    /// Objects in that directory of the simulated disk. With a seed calls fail now and then.
    pub fn new(storage: Arc<dyn Storage>, clock: Arc<SimClock>, dir: &Path, seed: Option<u64>) -> Arc<Self> {
        let weather = seed.map(|seed| Weather { rng: Rng::new(seed), listed: None, late: None });
        let (dir, weather) = (dir.to_path_buf(), Mutex::new(weather));
        Arc::new(Self { storage, dir, clock, weather, unsure: AtomicBool::new(true) })
    }

    /// From now on a put of an object that is put once may fail and land all the same, after later calls.
    pub fn put_late(&self) {
        if let Some(weather) = &mut *self.weather.lock() {
            weather.late.get_or_insert_default();
        }
    }

    /// Draws whether a put will land late, and keeps it then.
    fn is_late(&self, name: &str, bytes: &[u8]) -> bool {
        let mut weather = self.weather.lock();
        let Some(Weather { rng, late: Some(late), .. }) = &mut *weather else { return false };
        let is_late = rng.one_in(20);
        if is_late {
            late.push((name.to_string(), bytes.to_vec()));
        }
        is_late
    }

    /// Lands one of the late puts, perhaps.
    fn land_late(&self) {
        let mut weather = self.weather.lock();
        let Some(Weather { rng, late: Some(late), .. }) = &mut *weather else { return };
        if late.is_empty() || !rng.one_in(8) {
            return;
        }
        let (name, bytes) = late.swap_remove(rng.index(late.len()));
        drop(weather);
        // Nobody waits for the answer.
        let _ = self.write_once(&name, &bytes);
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name.replace('/', SLASH))
    }

    /// Draws the fault of a call.
    fn fate(&self, changes: bool) -> Fate {
        self.land_late();
        let mut weather = self.weather.lock();
        let Some(Weather { rng, .. }) = &mut *weather else { return Fate::Done };
        if rng.one_in(4) {
            self.clock.advance_us(rng.range(1..20_000));
        }
        match rng.range(0..60) {
            0 => Fate::Failed,
            1 if changes => Fate::Unanswered,
            _ => Fate::Done,
        }
    }

    fn write(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.unsure.store(true, Ordering::SeqCst);
        self.storage.create_dir(&self.dir)?;
        let (path, new) = (self.path(name), self.path(&format!("{name}.part")));
        // The remains of a put that was not answered.
        match self.storage.remove(&new) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let mut file = self.storage.create(&new)?;
        file.write(bytes)?;
        file.sync()?;
        drop(file);
        self.storage.rename(&new, &path)?;
        self.sync_names()
    }

    fn write_once(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        match self.storage.exists(&self.path(name))? {
            true => Err(io::ErrorKind::AlreadyExists.into()),
            false => self.write(name, bytes),
        }
    }

    fn sync_names(&self) -> io::Result<()> {
        self.storage.sync_dir(&self.dir)?;
        self.storage.sync_dir(self.dir.parent().unwrap_or(Path::new("")))?;
        self.unsure.store(false, Ordering::SeqCst);
        Ok(())
    }

    /// Makes names durable before an answer mentions them.
    fn spoken_of(&self) -> io::Result<()> {
        if self.unsure.load(Ordering::SeqCst) { self.sync_names() } else { Ok(()) }
    }

    /// The names that the store lists, perhaps of an earlier moment.
    fn listed(&self) -> io::Result<Vec<String>> {
        if self.fate(false) == Fate::Failed {
            return Err(failure());
        }
        let now: Vec<String> = match self.storage.list(&self.dir) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Vec::new(),
            listed => {
                self.spoken_of()?;
                let names = listed?.into_iter().filter(|name| !name.ends_with(".part"));
                names.map(|name| name.replace(SLASH, "/")).collect()
            }
        };
        let mut weather = self.weather.lock();
        let Some(Weather { rng, listed, .. }) = &mut *weather else { return Ok(now) };
        match listed {
            Some(before) if rng.one_in(3) => Ok(before.clone()),
            _ => {
                *listed = Some(now.clone());
                Ok(now)
            }
        }
    }

    fn changed<T>(&self, change: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        match self.fate(true) {
            Fate::Failed => Err(failure()),
            Fate::Done => change(),
            Fate::Unanswered => {
                change()?;
                Err(failure())
            }
        }
    }
}

impl ObjectStore for SimObjects {
    fn location(&self) -> String {
        self.dir.display().to_string()
    }

    fn put(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.changed(|| self.write(name, bytes))
    }

    fn put_once(&self, name: &str, bytes: &[u8]) -> io::Result<PutOnce> {
        let mut unknown = failure();
        for _ in 0..TRIES {
            let is_late = self.is_late(name, bytes);
            if !is_late && self.changed(|| self.write_once(name, bytes)).is_ok() {
                return Ok(PutOnce::Mine);
            }
            match self.len(name).and_then(|len| self.get(name, 0..len)) {
                Ok(found) => return Ok(PutOnce::told_by(bytes, &found)),
                Err(e) if e.kind() != io::ErrorKind::NotFound => unknown = e,
                // It comes when the caller's patience is over.
                Err(_) if is_late => return Err(unknown),
                Err(_) => {}
            }
        }
        Err(unknown)
    }

    fn get(&self, name: &str, range: Range<u64>) -> io::Result<Vec<u8>> {
        if self.fate(false) == Fate::Failed {
            return Err(failure());
        }
        let mut bytes = vec![0; (range.end - range.start) as usize];
        self.storage.open(&self.path(name))?.read_exact_at(&mut bytes, range.start)?;
        self.spoken_of()?;
        Ok(bytes)
    }

    fn len(&self, name: &str) -> io::Result<u64> {
        if self.fate(false) == Fate::Failed {
            return Err(failure());
        }
        let len = self.storage.open(&self.path(name))?.len()?;
        self.spoken_of()?;
        Ok(len)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.listed()?.into_iter().filter(|name| !name.contains('/')).collect())
    }

    fn list_below(&self, folder: &str) -> io::Result<Vec<String>> {
        let folder = format!("{folder}/");
        Ok(self.listed()?.into_iter().filter(|name| name.starts_with(&folder)).collect())
    }

    fn delete(&self, name: &str) -> io::Result<()> {
        self.changed(|| match self.storage.remove(&self.path(name)) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        })
    }
}
