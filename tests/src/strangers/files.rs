//! Files of other people: made by a seed, and compared later.

use crate::campaign::Checked;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use siltstone::storage::sim::Rng;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// Names that the engine gives to no file, however much they look like its own.
const FOREIGN: &[&str] = &[
    "thesis.new",
    "syslog.log",
    "notes.txt",
    ".hidden",
    ".new",
    "manifest-draft",
    "MANIFEST-000001",
    "000005.sst",
    "000003.log",
    "IDENTITY",
    "OPTIONS-000007",
    "CURRENT.bak",
    "current",
    "x.table",
    "000001-000001-000001.table",
    "0000000001.log.gz",
    "00000001.backup.txt",
    "lost+found",
    "data.mdb",
    "a b\nc.new",
    "EVENTS.new.new",
];
/// Names that it gives, too, here of files of another program. Not put where a database of ours lies.
const ALIKE: &[&str] = &[
    "CURRENT",
    "CURRENT.new",
    "manifest-00000001",
    "0000000001.log",
    "0000000007.log",
    "000001-000001-000001-0000.table",
    "000001-000001-000002-0000.table.new",
    "EVENTS",
    "EVENTS.new",
    "LOCK",
    "RESERVE",
    "DATABASE",
    "DATABASE.new",
    "OWNER",
    "OWNER.new",
    "DESTROYED",
    "lost",
    "00000001.backup",
    "00000002.backup.new",
    "00000001-manifest",
    "00000003-000001-000001-000001-0000.table",
];
/// Whether the engine gives that name to no file of its own.
pub(super) fn is_foreign_name(name: &str) -> bool {
    FOREIGN.contains(&name)
}

/// Length of a sparse file.
const GIANT: u64 = 64 << 30;
/// The largest file that is compared whole. Of larger ones the first 4 KiB, the length and the blocks in use
/// are compared.
const COMPARED: u64 = 4 << 20;

/// A file as it was.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Seen {
    inode: u64,
    mode: u32,
    what: What,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum What {
    /// Length, blocks that it takes where it is large, and its bytes or those of its ends.
    Bytes(u64, Option<u64>, Vec<u8>),
    Link(PathBuf),
    Directory,
    /// A FIFO or the like.
    Other,
}

/// Everything below a directory by its path.
pub(super) type Inventory = BTreeMap<PathBuf, Seen>;

fn failed(path: &Path) -> impl Fn(std::io::Error) -> String + '_ {
    move |e| format!("{}: {e}", path.display())
}

/// The files that exist now.
pub(super) fn inventory(dir: &Path) -> Checked<Inventory> {
    let mut found = Inventory::new();
    add(dir, &mut found)?;
    Ok(found)
}

fn add(dir: &Path, found: &mut Inventory) -> Checked {
    for entry in fs::read_dir(dir).map_err(failed(dir))? {
        let path = entry.map_err(failed(dir))?.path();
        let seen = look(&path)?;
        if seen.what == What::Directory {
            add(&path, found)?;
        }
        found.insert(path, seen);
    }
    Ok(())
}

fn look(path: &Path) -> Checked<Seen> {
    let meta = fs::symlink_metadata(path).map_err(failed(path))?;
    let kind = meta.file_type();
    let what = if kind.is_symlink() {
        What::Link(fs::read_link(path).map_err(failed(path))?)
    } else if kind.is_dir() {
        What::Directory
    } else if kind.is_fifo() || kind.is_socket() {
        What::Other
    } else if meta.len() > COMPARED {
        let mut file = File::open(path).map_err(failed(path))?;
        let mut begin = vec![0; 4_096];
        file.read_exact(&mut begin).map_err(failed(path))?;
        What::Bytes(meta.len(), Some(meta.blocks()), begin)
    } else {
        What::Bytes(meta.len(), None, fs::read(path).map_err(failed(path))?)
    };
    Ok(Seen { inode: meta.ino(), mode: meta.mode(), what })
}

/// An error that says which file of `before` is not as it was. What came is not looked at.
pub(super) fn untouched(before: &Inventory, dirs: &[&Path]) -> Checked {
    let mut now = Inventory::new();
    for dir in dirs.iter().filter(|dir| dir.exists()) {
        now.append(&mut inventory(dir)?);
    }
    for (path, seen) in before {
        match now.get(path) {
            Some(now) if now == seen => {}
            Some(now) if now.inode == seen.inode => {
                return Err(format!("{path:?} was written to or changed"));
            }
            Some(_) => return Err(format!("{path:?} was replaced")),
            None => return Err(format!("{path:?} was removed or renamed")),
        }
    }
    Ok(())
}

/// What lies there that did not before.
pub(super) fn added(before: &Inventory, dir: &Path) -> Checked<Vec<PathBuf>> {
    Ok(inventory(dir)?.into_keys().filter(|path| !before.contains_key(path)).collect())
}

/// Puts some of other people's files into a directory; links lead to files in `victims`. Names that are the
/// engine's, too, only where `alike` says so.
pub(super) fn litter(dir: &Path, victims: &Path, alike: bool, rng: &mut Rng) -> Checked {
    // Files that a crash might have left: all with a database's names, and most of them blank.
    let is_left_over = alike && rng.one_in(3);
    let mut names: Vec<&str> = if is_left_over { Vec::new() } else { FOREIGN.to_vec() };
    if alike {
        names.extend(ALIKE);
    }
    rng.shuffle(&mut names);
    names.truncate(1 + rng.index(if is_left_over { 3 } else { 9 }));
    for name in names {
        let path = &dir.join(name);
        match rng.range(0..4) {
            0 if is_left_over => write(path, b"")?,
            1 if is_left_over => write(path, &[0; 300])?,
            _ => make(path, victims, rng)?,
        }
    }
    Ok(())
}

fn make(path: &Path, victims: &Path, rng: &mut Rng) -> Checked {
    match rng.range(0..12) {
        0 => File::create(path).and_then(|file| file.set_len(GIANT)).map_err(failed(path)),
        1 => symlink(victim(victims, rng)?, path).map_err(failed(path)),
        2 => symlink("nowhere", path).map_err(failed(path)),
        3 => symlink(victims, path).map_err(failed(path)),
        4 => mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)
            .map_err(|e| format!("{}: {e}", path.display())),
        5 => {
            fs::create_dir(path).map_err(failed(path))?;
            write(&path.join("inside"), b"precious")
        }
        6 => {
            write(path, b"not to be written")?;
            fs::set_permissions(path, fs::Permissions::from_mode(0o400)).map_err(failed(path))
        }
        7 => write(path, b""),
        8 | 9 => {
            let len = rng.index(5_000);
            write(path, &rng.bytes(len))
        }
        _ => write(path, b"MANIFEST-000004\nsomebody else's\n"),
    }
}

/// A new file that a link leads to.
fn victim(victims: &Path, rng: &mut Rng) -> Checked<PathBuf> {
    let path = victims.join(format!("{:016x}", rng.next_u64()));
    write(&path, b"precious")?;
    Ok(path)
}

fn write(path: &Path, bytes: &[u8]) -> Checked {
    fs::write(path, bytes).map_err(failed(path))
}
