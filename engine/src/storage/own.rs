//! Which files are ours, told by what they begin with, before one that was found by its name is removed or
//! replaced.
//!
//! Files that this process made are known. Those that an open, a check or a deletion *finds* in a directory
//! may be another program's with a name like ours. What we write begins with a magic or a checksum. A crash
//! may leave of it a part, or zeros where a sector was not written; both count as ours under a name of ours,
//! an empty file too.
//!
//! That holds in a directory of ours. In one that is about to become ours, a blank file may as well be
//! another program's, and it tells nothing. So a directory in which something blank lies is refused, and one
//! without is *marked* before the first file of ours is made there: by an empty file with a name that nobody
//! else gives, durable before anything else. What is blank beside the mark came after it, and is ours. The
//! mark goes when a file that tells by its bytes is durable.

use super::{LOCK_FILE, Storage, WriteFile};
use std::io;
use std::path::Path;

/// Bytes that are looked at.
const HEAD_BYTES: u64 = 128;

/// The mark of a directory in which a database or the first backup is being made.
pub(crate) const BEGUN: &str = "SILTSTONE.begun";

/// Marks a directory that was found free of blank files, durably.
pub(crate) fn mark_begun(storage: &dyn Storage, dir: &Path) -> io::Result<()> {
    match storage.create(&dir.join(BEGUN)) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => Err(e),
        // One of an earlier try may not be durable yet.
        _ => storage.sync_dir(dir),
    }
}

/// Removes the mark, once something that tells by its bytes is durable.
pub(crate) fn remove_mark(storage: &dyn Storage, dir: &Path) {
    remove_own(storage, &dir.join(BEGUN), |_| false);
}

/// Whether a directory's entry is the mark.
pub(crate) fn is_mark(storage: &dyn Storage, dir: &Path, name: &str) -> io::Result<bool> {
    if name == BEGUN { is_empty(storage, &dir.join(name)) } else { Ok(false) }
}

/// What a file's beginning tells of who made it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Maker {
    /// A database or a backup.
    Us,
    /// Nothing was written to it, so that nothing tells.
    Unknown,
    /// Another program; what is no regular file counts as another's.
    Other,
}

impl Maker {
    /// Whether the file is ours where `is_begun` says whether what is blank is.
    pub(crate) fn is_ours(self, is_begun: impl FnOnce() -> bool) -> bool {
        match self {
            Maker::Us => true,
            Maker::Unknown => is_begun(),
            Maker::Other => false,
        }
    }
}

/// Whether the file is one that was made here, or the beginning of one. `begins` judges its first bytes, at
/// most 128. What is no regular file is not ours.
pub(crate) fn is_own(storage: &dyn Storage, path: &Path, begins: impl Fn(&[u8]) -> bool) -> io::Result<bool> {
    if planted!(Bug::RemoveForeign) {
        return storage.exists(path);
    }
    Ok(maker(storage, path, begins)? != Maker::Other)
}

/// Who made the file. `begins` judges its first bytes, at most 128.
pub(crate) fn maker(storage: &dyn Storage, path: &Path, begins: impl Fn(&[u8]) -> bool) -> io::Result<Maker> {
    use io::ErrorKind::{InvalidInput, IsADirectory, NotFound};
    match head(storage, path) {
        Ok(head) if head.iter().all(|byte| *byte == 0) => Ok(Maker::Unknown),
        Ok(head) => Ok(if begins(&head) { Maker::Us } else { Maker::Other }),
        Err(e) if matches!(e.kind(), InvalidInput | IsADirectory | NotFound) => Ok(Maker::Other),
        Err(e) => Err(e),
    }
}

/// Whether nothing was written to the file's beginning, so that nothing tells whose it is.
pub(crate) fn is_blank(storage: &dyn Storage, path: &Path) -> io::Result<bool> {
    head(storage, path).map(|head| head.iter().all(|byte| *byte == 0))
}

fn head(storage: &dyn Storage, path: &Path) -> io::Result<Vec<u8>> {
    let file = storage.open(path)?;
    let mut head = vec![0; file.len()?.min(HEAD_BYTES) as usize];
    file.read_exact_at(&mut head, 0)?;
    Ok(head)
}

/// Whether a directory's entry is a lock file, which is empty.
pub(crate) fn is_own_lock(storage: &dyn Storage, dir: &Path, name: &str) -> io::Result<bool> {
    if name == LOCK_FILE { is_empty(storage, &dir.join(name)) } else { Ok(false) }
}

/// Whether it is a regular file without a byte.
fn is_empty(storage: &dyn Storage, path: &Path) -> io::Result<bool> {
    Ok(maker(storage, path, |_| false)? == Maker::Unknown && storage.open(path)?.is_empty()?)
}

/// Whether bytes begin with the magic, or are the beginning of it.
pub(crate) fn begins_with(head: &[u8], magic: &[u8]) -> bool {
    let len = head.len().min(magic.len());
    head[..len] == magic[..len]
}

/// Creates a file under a name at which an earlier try may have left its own, which goes first.
///
/// # Errors
/// `AlreadyExists` where another program's file has that name.
pub(crate) fn create_over_own(
    storage: &dyn Storage,
    path: &Path,
    begins: impl Fn(&[u8]) -> bool,
) -> io::Result<Box<dyn WriteFile>> {
    match storage.create(path) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            if !is_own(storage, path, begins)? {
                let message = "a file of that name is there, which no database made";
                return Err(io::Error::new(e.kind(), message));
            }
            storage.remove(path)?;
            storage.create(path)
        }
        created => created,
    }
}

/// Removes the file if it was made here, or is the beginning of one.
pub(crate) fn remove_own(storage: &dyn Storage, path: &Path, begins: impl Fn(&[u8]) -> bool) {
    if is_own(storage, path, begins).is_ok_and(|own| own) {
        // What cannot be removed now is found again at the next open.
        let _ = storage.remove(path);
    }
}

#[cfg(all(test, not(models)))]
#[allow(clippy::disallowed_methods, reason = "makes real files")]
mod tests {
    use super::super::LocalStorage;
    use super::*;

    #[test]
    fn only_what_begins_as_ours_or_is_empty_is_taken_for_ours() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let storage = LocalStorage::new();
        let is_own = || is_own(&storage, &path, |head| begins_with(head, b"SILT")).unwrap();
        for (bytes, ours) in
            [(&b""[..], true), (b"\0\0\0", true), (b"SI", true), (b"SILT more", true), (b"SOLD", false)]
        {
            std::fs::write(&path, bytes).unwrap();
            assert_eq!(is_own(), ours, "{bytes:?}");
        }
        std::fs::remove_file(&path).unwrap();
        assert!(!is_own(), "nothing there");
        assert!(storage.create_dir(&path).is_ok() && !is_own(), "a directory");
    }

    #[test]
    fn a_file_of_somebody_else_is_not_created_over() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let storage = LocalStorage::new();
        let create = || create_over_own(&storage, &path, |head| begins_with(head, b"SILT"));
        std::fs::write(&path, "precious").unwrap();
        assert_eq!(create().map(|_| ()).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read(&path).unwrap(), b"precious");
        std::fs::write(&path, "SILT of an earlier try").unwrap();
        create().unwrap().write(b"new").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
    }
}
