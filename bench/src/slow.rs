//! A local storage of which each read takes longer, as one does that lies behind a network, or which gives so
//! many bytes a second and no more. Writes are as they are: they are few and large, and nobody waits for
//! them.

use siltstone::storage::{Env, MappedFile, ReadFile, Storage, WriteFile};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// See the page above.
#[derive(Debug)]
pub(crate) struct Slow {
    storage: Arc<dyn Storage>,
    pace: Pace,
    on: Switch,
}

/// Says whether reads are slow now.
pub(crate) type Switch = Arc<AtomicBool>;

/// How slow reads are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Pace {
    /// Each read takes this much longer.
    pub(crate) by: Duration,
    /// Bytes a second that one reader gets; 0 for all that there are.
    pub(crate) rate: u64,
}

impl Slow {
    /// An environment whose storage is slow while the switch is on; `env` itself where the pace slows nothing
    /// down.
    pub(crate) fn env(env: Env, pace: Pace, on: &Switch) -> Env {
        if pace == Pace::default() {
            return env;
        }
        Env { storage: Arc::new(Self { storage: env.storage.clone(), pace, on: on.clone() }), ..env }
    }

    fn slow(&self, file: Arc<dyn ReadFile>) -> Arc<dyn ReadFile> {
        Arc::new(SlowFile { file, pace: self.pace, on: self.on.clone() })
    }
}

struct SlowFile {
    file: Arc<dyn ReadFile>,
    pace: Pace,
    on: Switch,
}

impl ReadFile for SlowFile {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        if self.on.load(Ordering::Relaxed) {
            let bytes = match self.pace.rate {
                0 => Duration::ZERO,
                rate => Duration::from_secs_f64(buffer.len() as f64 / rate as f64),
            };
            std::thread::sleep(self.pace.by + bytes);
        }
        self.file.read_exact_at(buffer, offset)
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }
}

impl Storage for Slow {
    fn create(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        self.storage.create(path)
    }
    fn append(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        self.storage.append(path)
    }
    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>> {
        Ok(self.slow(self.storage.open(path)?))
    }
    fn open_direct(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>> {
        Ok(self.slow(self.storage.open_direct(path)?))
    }
    fn map(&self, path: &Path, len: u64, written_ahead: bool) -> io::Result<Box<dyn MappedFile>> {
        self.storage.map(path, len, written_ahead)
    }
    fn writes_in_place(&self, dir: &Path) -> bool {
        self.storage.writes_in_place(dir)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.storage.rename(from, to)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.storage.remove(path)
    }
    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.storage.link(from, to)
    }
    fn second_name(&self, from: &Path, to: &Path) -> io::Result<bool> {
        self.storage.second_name(from, to)
    }
    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.storage.list(dir)
    }
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        self.storage.create_dir(dir)
    }
    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        self.storage.remove_dir(dir)
    }
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.storage.sync_dir(dir)
    }
    fn lock(&self, path: &Path, create: bool) -> io::Result<Box<dyn Send + Sync>> {
        self.storage.lock(path, create)
    }
    fn open_files_max(&self) -> Option<u64> {
        self.storage.open_files_max()
    }
    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.storage.exists(path)
    }
    fn punch_hole(&self, path: &Path, offset: u64, len: u64) -> io::Result<bool> {
        self.storage.punch_hole(path, offset, len)
    }
}
