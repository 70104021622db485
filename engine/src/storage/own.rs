//! Decides by their first bytes whether files found under our names are ours, before they are removed or
//! replaced.
//!
//! Files that this process created are known. Those that an open, a check or a deletion *finds* in a
//! directory may be another program's, with a name like ours. Our files begin with a magic or a checksum. A
//! crash may leave a part of it, or zeros where a sector was not written; both count as ours under a name of
//! ours, and so does an empty file.
//!
//! This holds in a directory of ours. In one that is about to become ours, a blank file may as well be
//! another program's. So a directory with a blank file is refused, and one without is *marked* before our
//! first file is created there: by an empty file with a name that nobody else uses, made durable before
//! anything else. Blank files beside the mark came after it, and are ours. The mark is removed when a file
//! with recognisable bytes is durable.

use super::{LOCK_FILE, Storage, WriteFile};
use std::io;
use std::path::Path;

/// The number of bytes examined.
const HEAD_BYTES: u64 = 128;

/// The mark of a directory in which a database or the first backup is being made.
pub(crate) const BEGUN: &str = "SILTSTONE.begun";

/// Marks a directory that was found free of blank files, durably.
pub(crate) fn mark_begun(storage: &dyn Storage, dir: &Path) -> io::Result<()> {
    match storage.create(&dir.join(BEGUN)) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => Err(e),
        // The mark of an earlier try may not be durable yet.
        _ => storage.sync_dir(dir),
    }
}

/// Removes the mark, once a file with recognisable bytes is durable.
pub(crate) fn remove_mark(storage: &dyn Storage, dir: &Path) {
    remove_own(storage, &dir.join(BEGUN), |_| false);
}

/// Whether a directory's entry is the mark.
pub(crate) fn is_mark(storage: &dyn Storage, dir: &Path, name: &str) -> io::Result<bool> {
    if name == BEGUN { is_empty(storage, &dir.join(name)) } else { Ok(false) }
}

/// The maker of a file, judged by its first bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Maker {
    /// A database or a backup.
    Us,
    /// Unknown: nothing was written to it.
    Unknown,
    /// Another program; also anything but a regular file.
    Other,
}

impl Maker {
    /// Whether the file is ours; `is_begun` says whether blank files are.
    pub(crate) fn is_ours(self, is_begun: impl FnOnce() -> bool) -> bool {
        match self {
            Maker::Us => true,
            Maker::Unknown => is_begun(),
            Maker::Other => false,
        }
    }
}

/// Whether the file, or the beginning of one, was created by a database. `begins` judges its first bytes, at
/// most 128. Anything but a regular file is not ours.
pub(crate) fn is_own(storage: &dyn Storage, path: &Path, begins: impl Fn(&[u8]) -> bool) -> io::Result<bool> {
    if planted!(Bug::RemoveForeign) {
        return storage.exists(path);
    }
    Ok(maker(storage, path, begins)? != Maker::Other)
}

/// The maker of the file. `begins` judges its first bytes, at most 128.
pub(crate) fn maker(storage: &dyn Storage, path: &Path, begins: impl Fn(&[u8]) -> bool) -> io::Result<Maker> {
    use io::ErrorKind::{InvalidInput, IsADirectory, NotFound};
    match head(storage, path) {
        Ok(head) if head.iter().all(|byte| *byte == 0) => Ok(Maker::Unknown),
        Ok(head) => Ok(if begins(&head) { Maker::Us } else { Maker::Other }),
        Err(e) if matches!(e.kind(), InvalidInput | IsADirectory | NotFound) => Ok(Maker::Other),
        Err(e) => Err(e),
    }
}

/// Whether nothing was written to the file's beginning, so that its maker is unknown.
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

/// Whether it is an empty regular file.
fn is_empty(storage: &dyn Storage, path: &Path) -> io::Result<bool> {
    Ok(maker(storage, path, |_| false)? == Maker::Unknown && storage.open(path)?.is_empty()?)
}

/// Whether bytes begin with the magic, or are a prefix of it.
pub(crate) fn begins_with(head: &[u8], magic: &[u8]) -> bool {
    let len = head.len().min(magic.len());
    head[..len] == magic[..len]
}

/// Creates a file, and first removes one of ours that an earlier try may have left under that name.
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

/// Removes the file if it, or the beginning of it, was created by a database.
pub(crate) fn remove_own(storage: &dyn Storage, path: &Path, begins: impl Fn(&[u8]) -> bool) {
    if is_own(storage, path, begins).is_ok_and(|own| own) {
        // A file that cannot be removed now is found again at the next open.
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
