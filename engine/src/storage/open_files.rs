//! A set of files for reading that limits how many are open at a time: those read last.
//!
//! A database may have more SSTables than a process may have descriptors. So an SSTable has not an open file
//! but a [`ReopeningFile`], which opens itself again when it is read. The clock algorithm decides which ones
//! are closed: a hand goes round over the open ones, spares each that was read since its last visit, and
//! closes the first that was not. A read of an open file costs one more uncontended lock.

use super::{MappedRead, ReadFile, Storage};
// Plain locks: models need no switch in the middle of a read, which uses a buffer of its thread.
use parking_lot::Mutex;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

/// Files for reading, of which a limited number is open; see the page above.
pub(crate) struct OpenFiles {
    storage: Arc<dyn Storage>,
    /// The most open files, apart from those being read at the moment.
    most: usize,
    clock: Mutex<Hand>,
}

#[derive(Default)]
struct Hand {
    open: Vec<Weak<ReopeningFile>>,
    at: usize,
}

/// A file that is closed when it has not been read for a while.
pub(crate) struct ReopeningFile {
    path: PathBuf,
    direct: bool,
    of: Arc<OpenFiles>,
    file: Mutex<Option<Arc<dyn ReadFile>>>,
    read_lately: AtomicBool,
}

impl OpenFiles {
    pub(crate) fn new(storage: Arc<dyn Storage>, most: usize) -> Arc<Self> {
        Arc::new(Self { storage, most: most.max(1), clock: Mutex::default() })
    }

    /// Opens a file for reading.
    pub(crate) fn open(self: &Arc<Self>, path: &Path, direct: bool) -> io::Result<Arc<dyn ReadFile>> {
        let kept = Arc::new(ReopeningFile {
            path: path.to_path_buf(),
            direct,
            of: self.clone(),
            file: Mutex::new(None),
            read_lately: AtomicBool::new(false),
        });
        kept.clone().opened()?;
        Ok(Arc::new(Handle(kept)))
    }

    /// The number of open files.
    #[cfg(all(test, not(models)))]
    fn open_now(&self) -> usize {
        let clock = self.clock.lock();
        clock.open.iter().filter_map(Weak::upgrade).filter(|kept| kept.file.lock().is_some()).count()
    }

    /// Counts another open file, and closes others if there are too many.
    fn enter(&self, kept: &Arc<ReopeningFile>) {
        if self.most == usize::MAX {
            // No file is ever closed.
            return;
        }
        let mut clock = self.clock.lock();
        clock.open.push(Arc::downgrade(kept));
        while clock.open.len() > self.most {
            let at = clock.at % clock.open.len();
            let spared =
                clock.open[at].upgrade().is_some_and(|kept| kept.read_lately.swap(false, Ordering::Relaxed));
            if spared {
                clock.at = at + 1;
                continue;
            }
            if let Some(kept) = clock.open.swap_remove(at).upgrade() {
                // A running read keeps it open until its end.
                drop(kept.file.lock().take());
            }
        }
    }
}

impl ReopeningFile {
    fn opened(self: Arc<Self>) -> io::Result<Arc<dyn ReadFile>> {
        let mut file = self.file.lock();
        if let Some(file) = &*file {
            return Ok(file.clone());
        }
        let storage = &self.of.storage;
        let opened = match self.direct {
            true => storage.open_direct(&self.path)?,
            false => storage.open(&self.path)?,
        };
        *file = Some(opened.clone());
        drop(file);
        self.of.enter(&self);
        Ok(opened)
    }
}

/// An SSTable's handle of the file.
struct Handle(Arc<ReopeningFile>);

impl Handle {
    #[inline]
    fn file(&self) -> io::Result<Arc<dyn ReadFile>> {
        if !self.0.read_lately.load(Ordering::Relaxed) {
            self.0.read_lately.store(true, Ordering::Relaxed);
        }
        let open = self.0.file.lock().clone();
        open.map_or_else(|| self.0.clone().opened(), Ok)
    }
}

impl ReadFile for Handle {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.file()?.read_exact_at(buffer, offset)
    }

    fn read_again_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.file()?.read_again_at(buffer, offset)
    }

    fn tail(&self, bytes: u64) -> io::Result<(u64, Vec<u8>)> {
        self.file()?.tail(bytes)
    }

    fn mapped(&self) -> Option<Arc<dyn MappedRead>> {
        self.file().ok()?.mapped()
    }

    fn request_bytes(&self) -> usize {
        // For a closed file it does not matter.
        self.0.file.lock().as_ref().map_or(0, |file| file.request_bytes())
    }

    fn len(&self) -> io::Result<u64> {
        self.file()?.len()
    }
}

#[cfg(all(test, not(models)))]
mod tests {
    use super::*;
    use crate::storage::sim::{OpKind, SimWorld};

    #[test]
    fn of_many_files_only_some_are_open_and_those_read_lately_stay_so() {
        let world = SimWorld::new(1);
        let storage = world.env().storage;
        storage.create_dir("d".as_ref()).unwrap();
        let files = OpenFiles::new(storage.clone(), 10);
        let kept: Vec<_> = (0..100u8)
            .map(|n| {
                let path = PathBuf::from(format!("d/{n}"));
                storage.create(&path).unwrap().write(&[n]).unwrap();
                files.open(&path, false).unwrap()
            })
            .collect();
        let read = |n: usize| {
            let mut byte = [0];
            kept[n].read_exact_at(&mut byte, 0).unwrap();
            assert_eq!(byte[0] as usize, n);
        };
        for round in 0..3 {
            (0..100).for_each(read);
            assert!(files.open_now() <= 10, "{} in round {round}", files.open_now());
        }
        // A file that is read all the time is not opened again.
        let opens = || world.storage.op_counts().of(OpKind::Open);
        read(0);
        let before = opens();
        for n in 1..100 {
            read(n);
            read(0);
        }
        assert!(opens() - before <= 99 + 2, "{} opens", opens() - before);
        drop(kept);
        assert_eq!(files.open_now(), 0);
    }
}
