//! Files of secrets and certificates: read again when their content changes, and reported while they are
//! unusable.
//!
//! The content decides, not a time: a file that is put in another's place may well have the same time and the
//! same size.

use arc_swap::{ArcSwap, Guard};
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use siltstone_compactor::file_content;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Makes something of the contents of files, which are in their order.
type Make<T> = Box<dyn Fn(&[Vec<u8>]) -> Result<T, String> + Send + Sync>;

/// A value made of files, which is made anew when their contents change.
pub(crate) struct Watched<T> {
    files: Vec<PathBuf>,
    make: Make<T>,
    now: ArcSwap<T>,
    seen: Mutex<Seen>,
    is_stale: AtomicBool,
}

/// The result of the last check.
struct Seen {
    /// Digests of the contents; none where a file could not be read.
    digests: Option<Vec<[u8; 32]>>,
    /// The error of the files.
    wrong: Option<String>,
}

impl<T> Watched<T> {
    /// # Errors
    /// A file that cannot be read, what is wrong in one.
    pub(crate) fn read(files: Vec<PathBuf>, make: Make<T>) -> Result<Self, String> {
        let contents = contents(&files)?;
        let now = ArcSwap::from_pointee(make(&contents)?);
        let seen = Mutex::new(Seen { digests: Some(digests(&contents)), wrong: None });
        Ok(Self { files, make, now, seen, is_stale: AtomicBool::new(false) })
    }

    /// The value made last.
    pub(crate) fn now(&self) -> Guard<Arc<T>> {
        self.now.load()
    }

    /// Reads the files again, and makes what they are for anew if they have changed. Whether it did.
    ///
    /// # Errors What is wrong with them, once: later checks return `Ok(false)` until they change. The last
    /// good state stays in force, so what it refuses stays refused.
    pub(crate) fn look(&self) -> Result<bool, String> {
        let mut seen = self.seen.lock();
        let (found, made) = match contents(&self.files) {
            Ok(contents) => {
                let found = digests(&contents);
                if seen.digests.as_ref() == Some(&found) {
                    return Ok(false);
                }
                (Some(found), (self.make)(&contents))
            }
            Err(why) if seen.digests.is_none() && seen.wrong.as_ref() == Some(&why) => return Ok(false),
            Err(why) => (None, Err(why)),
        };
        let (changed, wrong) = match made {
            Ok(made) => {
                self.now.store(Arc::new(made));
                (Ok(true), None)
            }
            Err(why) => (Err(why.clone()), Some(why)),
        };
        self.is_stale.store(wrong.is_some(), Ordering::Relaxed);
        *seen = Seen { digests: found, wrong };
        changed
    }

    /// Whether the files are unusable as they are. Does not wait for a running check, which may wait for the
    /// disk.
    pub(crate) fn is_stale(&self) -> bool {
        self.is_stale.load(Ordering::Relaxed)
    }
}

fn digests(contents: &[Vec<u8>]) -> Vec<[u8; 32]> {
    contents.iter().map(|content| Sha256::digest(content).into()).collect()
}

fn contents(files: &[PathBuf]) -> Result<Vec<Vec<u8>>, String> {
    files.iter().map(|file| file_content(file)).collect()
}

/// The mode of a file, if others than its owner may read or write it.
pub(crate) fn wide_mode(file: &Path) -> Option<u32> {
    let mode = std::fs::metadata(file).ok()?.permissions().mode() & 0o777;
    (mode & 0o077 != 0).then_some(mode)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    fn number(contents: &[Vec<u8>]) -> Result<u32, String> {
        let text = String::from_utf8_lossy(&contents[0]);
        text.parse().map_err(|e| format!("{text}: {e}"))
    }

    /// A file, and a number that is read from it.
    fn watched(text: &str) -> (tempfile::TempDir, PathBuf, Watched<u32>) {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("number");
        std::fs::write(&file, text).unwrap();
        let watched = Watched::read(vec![file.clone()], Box::new(number)).unwrap();
        (dir, file, watched)
    }

    #[test]
    fn a_file_is_read_again_though_time_and_size_are_as_before() {
        let (_dir, file, watched) = watched("1");
        let before = std::fs::metadata(&file).unwrap().modified().unwrap();
        assert_eq!(watched.look(), Ok(false));
        std::fs::write(&file, "2").unwrap();
        File::options().write(true).open(&file).unwrap().set_modified(before).unwrap();
        assert_eq!((watched.look(), **watched.now()), (Ok(true), 2));
        assert_eq!(watched.look(), Ok(false));
    }

    #[test]
    fn what_was_made_last_goes_on_while_the_file_cannot_be_used() {
        let (dir, file, watched) = watched("1");
        std::fs::write(&file, "2").unwrap();
        watched.look().unwrap();
        std::fs::write(&file, "nonsense").unwrap();
        assert!(watched.look().is_err() && watched.is_stale());
        // It is reported once, and stays unusable.
        assert_eq!((watched.look(), watched.is_stale(), **watched.now()), (Ok(false), true, 2));
        std::fs::remove_file(&file).unwrap();
        assert!(watched.look().unwrap_err().contains("number") && watched.is_stale());
        assert_eq!((watched.look(), watched.is_stale(), **watched.now()), (Ok(false), true, 2));
        // A directory, or a pipe, which would keep who opens it waiting.
        std::fs::create_dir(&file).unwrap();
        assert!(watched.look().unwrap_err().contains("regular"));
        std::fs::remove_dir(&file).unwrap();
        std::fs::write(dir.path().join("next"), "2").unwrap();
        std::fs::rename(dir.path().join("next"), &file).unwrap();
        assert_eq!((watched.look(), watched.is_stale(), **watched.now()), (Ok(true), false, 2));
    }

    #[test]
    fn modes_wider_than_the_owners_are_found() {
        let (_dir, file, _watched) = watched("1");
        for (mode, found) in [(0o600, None), (0o400, None), (0o640, Some(0o640)), (0o604, Some(0o604))] {
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(wide_mode(&file), found);
        }
        assert_eq!(wide_mode(Path::new("none")), None);
    }
}
