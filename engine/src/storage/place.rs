//! Binds calls on local files to the directory that a database was opened in, whatever its name leads to
//! later.
//!
//! Each call looks its path up anew. If another directory takes the database's name (it was renamed and
//! another one created, or the process changed its working directory), calls would find foreign files under
//! our names: WAL files and SSTables are numbered, so two databases have equal names. So a database's
//! directory is *bound*: it is opened once, and calls with paths in it use that handle (`openat(2)` and the
//! like). A renamed database goes on in its directory; the one that took its name is never touched.
//!
//! In a bound directory all names are ours, and none of them is a symbolic link: a link is refused instead of
//! followed. Every file that is opened must be a regular one: a FIFO would block its reader for ever, a
//! device never end.

use super::FileAccess;
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, RenameFlags, Stat};
use rustix::io::{Errno, retry_on_intr};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// A directory that is held open.
#[derive(Debug)]
pub(super) struct BoundDir {
    path: PathBuf,
    dir: File,
}

impl BoundDir {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let dir = open_dir(CWD, path)?;
        Ok(Self { path: path.to_path_buf(), dir: File::from(dir) })
    }

    /// Whether its path still names it.
    pub(super) fn is_named(&self) -> io::Result<bool> {
        is_same(&self.dir, &self.path)
    }

    pub(super) fn file(&self) -> &File {
        &self.dir
    }
}

fn open_dir(at: BorrowedFd<'_>, path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(retry_on_intr(|| rustix::fs::openat(at, path, flags, Mode::empty()))?)
}

/// Whether the path still names this open file or directory.
pub(super) fn is_same(file: &File, path: &Path) -> io::Result<bool> {
    let (there, ours) = (fs::metadata(path)?, file.metadata()?);
    Ok((there.dev(), there.ino()) == (ours.dev(), ours.ino()))
}

/// The resolution of a path: a directory that is held open, or the working directory, and the remaining path.
pub(super) struct Place<'a> {
    dir: Option<&'a BoundDir>,
    path: &'a Path,
}

impl<'a> Place<'a> {
    /// Looks the path up in those directories.
    pub(super) fn of(path: &'a Path, bound: &'a [std::sync::Arc<BoundDir>]) -> Self {
        for dir in bound.iter().rev() {
            if let Ok(rest) = path.strip_prefix(&dir.path) {
                let rest = if rest.as_os_str().is_empty() { Path::new(".") } else { rest };
                return Self { dir: Some(dir), path: rest };
            }
        }
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        Self { dir: None, path }
    }

    /// The bound directory, if the path is that of one.
    pub(super) fn bound_itself(&self) -> Option<&'a BoundDir> {
        self.dir.filter(|_| self.path == Path::new("."))
    }

    fn at(&self) -> BorrowedFd<'_> {
        self.dir.map_or(CWD, |dir| dir.dir.as_fd())
    }

    /// Flags that follow links if the name is not ours.
    fn follow(&self) -> AtFlags {
        if self.dir.is_some() { AtFlags::SYMLINK_NOFOLLOW } else { AtFlags::empty() }
    }

    /// Opens a regular file.
    pub(super) fn open(&self, flags: OFlags, mode: u32) -> io::Result<File> {
        // Without NONBLOCK, opening a FIFO would wait. Regular files are not affected.
        let mut flags = flags | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        if self.dir.is_some() {
            flags |= OFlags::NOFOLLOW;
        }
        let mode = Mode::from_raw_mode(mode as _);
        let opened = retry_on_intr(|| rustix::fs::openat(self.at(), self.path, flags, mode));
        let file = match opened {
            Ok(file) => File::from(file),
            Err(Errno::LOOP) if self.dir.is_some() => return Err(irregular("a symbolic link")),
            // A FIFO without readers, or a socket.
            Err(Errno::NXIO) => return Err(irregular("no regular file")),
            Err(e) => return Err(e.into()),
        };
        match file.metadata()?.file_type() {
            kind if kind.is_file() => Ok(file),
            kind if kind.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
            _ => Err(irregular("no regular file")),
        }
    }

    pub(super) fn stat(&self) -> io::Result<Stat> {
        Ok(rustix::fs::statat(self.at(), self.path, self.follow())?)
    }

    pub(super) fn exists(&self) -> io::Result<bool> {
        match self.stat() {
            Ok(_) => Ok(true),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(e) => Err(e),
        }
    }

    pub(super) fn remove(&self) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(self.at(), self.path, AtFlags::empty())?)
    }

    pub(super) fn rename(&self, to: &Self) -> io::Result<()> {
        Ok(rustix::fs::renameat(self.at(), self.path, to.at(), to.path)?)
    }

    /// Renames if the new name is free.
    pub(super) fn rename_new(&self, to: &Self) -> io::Result<()> {
        #[cfg(target_os = "linux")]
        match rustix::fs::renameat_with(self.at(), self.path, to.at(), to.path, RenameFlags::NOREPLACE) {
            // Some file systems cannot do that.
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {}
            renamed => return Ok(renamed?),
        }
        if to.exists()? {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        self.rename(to)
    }

    /// Makes `to` a second name of the file; for a link, of its target.
    pub(super) fn link(&self, to: &Self) -> io::Result<()> {
        if FileType::from_raw_mode(self.stat()?.st_mode) != FileType::RegularFile {
            return Err(irregular("no regular file"));
        }
        let follow = if self.dir.is_some() { AtFlags::empty() } else { AtFlags::SYMLINK_FOLLOW };
        Ok(rustix::fs::linkat(self.at(), self.path, to.at(), to.path, follow)?)
    }

    /// Names and kinds of all entries of the directory.
    pub(super) fn entries(&self) -> io::Result<Vec<(Vec<u8>, FileType)>> {
        let mut entries = Vec::new();
        for entry in Dir::new(open_dir(self.at(), self.path)?)? {
            let entry = entry?;
            let name = entry.file_name();
            if [c".", c".."].contains(&name) {
                continue;
            }
            let kind = match entry.file_type() {
                // Some file systems do not return it.
                FileType::Unknown => {
                    let path = self.path.join(OsStr::from_bytes(name.to_bytes()));
                    let stat = rustix::fs::statat(self.at(), &path, AtFlags::SYMLINK_NOFOLLOW)?;
                    FileType::from_raw_mode(stat.st_mode)
                }
                kind => kind,
            };
            entries.push((name.to_bytes().to_vec(), kind));
        }
        Ok(entries)
    }

    /// Creates the directory and its missing parents.
    pub(super) fn create_dir(&self, access: FileAccess) -> io::Result<()> {
        if self.dir.is_none() {
            return fs::DirBuilder::new().recursive(true).mode(access.dir_mode()).create(self.path);
        }
        let mut path = PathBuf::new();
        for part in self.path.components() {
            path.push(part);
            match rustix::fs::mkdirat(self.at(), &path, Mode::from_raw_mode(access.dir_mode() as _)) {
                Ok(()) => {}
                Err(Errno::EXIST) => {
                    // A link to a directory may be followed: it is for copies that users request.
                    let stat = rustix::fs::statat(self.at(), &path, AtFlags::empty())?;
                    if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
                        return Err(io::ErrorKind::AlreadyExists.into());
                    }
                }
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }

    pub(super) fn remove_dir(&self) -> io::Result<()> {
        match self.bound_itself() {
            Some(dir) if !dir.is_named()? => Err(io::ErrorKind::NotFound.into()),
            Some(dir) => fs::remove_dir(&dir.path),
            None => Ok(rustix::fs::unlinkat(self.at(), self.path, AtFlags::REMOVEDIR)?),
        }
    }

    /// The directory, opened to be synced.
    pub(super) fn open_as_dir(&self) -> io::Result<File> {
        Ok(File::from(open_dir(self.at(), self.path)?))
    }
}

fn irregular(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("it is {what}, expected a regular file"))
}
