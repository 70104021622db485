//! A simulated object store: objects on the simulated disk, each written whole, durable when its put returns.
//! With a seed, calls take time, fail without effect, fail although they took effect (a lost answer), and
//! list an earlier state.

use crate::storage::{ObjectStore, Storage};
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
}

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
        let weather = seed.map(|seed| Weather { rng: Rng::new(seed), listed: None });
        let (dir, weather) = (dir.to_path_buf(), Mutex::new(weather));
        Arc::new(Self { storage, dir, clock, weather, unsure: AtomicBool::new(true) })
    }

    /// Draws the fault of a call.
    fn fate(&self, changes: bool) -> Fate {
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
        let (path, new) = (self.dir.join(name), self.dir.join(format!("{name}.part")));
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

    fn put_if_absent(&self, name: &str, bytes: &[u8]) -> io::Result<bool> {
        self.changed(|| {
            let absent = !self.storage.exists(&self.dir.join(name))?;
            if absent {
                self.write(name, bytes)?;
            } else {
                self.spoken_of()?;
            }
            Ok(absent)
        })
    }

    fn get(&self, name: &str, range: Range<u64>) -> io::Result<Vec<u8>> {
        if self.fate(false) == Fate::Failed {
            return Err(failure());
        }
        let mut bytes = vec![0; (range.end - range.start) as usize];
        self.storage.open(&self.dir.join(name))?.read_exact_at(&mut bytes, range.start)?;
        self.spoken_of()?;
        Ok(bytes)
    }

    fn len(&self, name: &str) -> io::Result<u64> {
        if self.fate(false) == Fate::Failed {
            return Err(failure());
        }
        let len = self.storage.open(&self.dir.join(name))?.len()?;
        self.spoken_of()?;
        Ok(len)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        if self.fate(false) == Fate::Failed {
            return Err(failure());
        }
        let now = match self.storage.list(&self.dir) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Vec::new(),
            listed => {
                self.spoken_of()?;
                listed?.into_iter().filter(|name| !name.ends_with(".part")).collect()
            }
        };
        let mut weather = self.weather.lock();
        let Some(Weather { rng, listed }) = &mut *weather else { return Ok(now) };
        match listed {
            Some(before) if rng.one_in(3) => Ok(before.clone()),
            _ => {
                *listed = Some(now.clone());
                Ok(now)
            }
        }
    }

    fn delete(&self, name: &str) -> io::Result<()> {
        self.changed(|| match self.storage.remove(&self.dir.join(name)) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        })
    }
}
