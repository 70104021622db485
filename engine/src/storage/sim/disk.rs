//! Names and files of one simulated disk, as the machine sees them and as they are on the medium.
//!
//! Every change of a name (enter, leave, move) waits in a list until the directory of one of its names is
//! synced. The effect of a power loss on the waiting changes:
//!
//! - each survives or not by its own toss, in any combination across names, as file systems that log
//!   directories separately may do; half of the time a prefix of the list survives instead, as one journal
//!   would leave it;
//! - a change is lost with any earlier lost change of a name it touches (a file cannot be renamed that was
//!   never created), so each name sees a prefix of its own history;
//! - a move is atomic: the file is under the old name or the new one (and what the new one named before is
//!   gone only with it), never under neither or both;
//! - syncing a *file* makes no name durable, and syncing a directory does not make its own name in its parent
//!   durable: both are more than POSIX promises;
//! - a file without a name is gone, and so is everything in a directory whose own name did not survive.

use super::inode::Inode;
use crate::types::Rng;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(super) type FileId = u64;
pub(super) type Name = Arc<Path>;
type Names = BTreeMap<Name, Node>;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Node {
    File(FileId),
    Directory,
}

/// A change of names that may not be on the medium.
#[derive(Clone)]
enum Change {
    Enter { name: Name, node: Node },
    Leave { name: Name },
    Move { from: Name, to: Name },
}

impl Change {
    fn names(&self) -> impl Iterator<Item = &Name> {
        let (one, two) = match self {
            Change::Enter { name, .. } | Change::Leave { name } => (name, None),
            Change::Move { from, to } => (from, Some(to)),
        };
        std::iter::once(one).chain(two)
    }

    fn apply(&self, names: &mut Names) {
        match self {
            Change::Enter { name, node } => {
                names.insert(name.clone(), *node);
            }
            Change::Leave { name } => {
                names.remove(name);
            }
            Change::Move { from, to } => {
                if let Some(node) = names.remove(from) {
                    names.insert(to.clone(), node);
                }
            }
        }
    }
}

#[derive(Clone, Default)]
struct Slot {
    inode: Arc<Inode>,
    /// Current names.
    links: u32,
    /// Open handles; a file without a name lives on while it has one.
    open: u32,
}

#[derive(Clone, Default)]
pub(super) struct Disk {
    files: BTreeMap<FileId, Slot>,
    names: Arc<Names>,
    on_medium: Arc<Names>,
    waiting: Vec<Change>,
    next_id: FileId,
    pub(super) quota: Option<u64>,
    pub(super) used: u64,
    pub(super) peak: u64,
}

impl Disk {
    pub(super) fn names(&self) -> impl Iterator<Item = (&Name, Node)> {
        self.names.iter().map(|(name, &node)| (name, node))
    }

    pub(super) fn lookup(&self, path: &Path) -> io::Result<Node> {
        if is_root(path) {
            return Ok(Node::Directory);
        }
        self.names.get(path).copied().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    pub(super) fn file(&self, path: &Path) -> io::Result<FileId> {
        match self.lookup(path)? {
            Node::File(id) => Ok(id),
            Node::Directory => Err(io::ErrorKind::IsADirectory.into()),
        }
    }

    pub(super) fn directory(&self, path: &Path) -> io::Result<()> {
        match self.lookup(path)? {
            Node::Directory => Ok(()),
            Node::File(_) => Err(io::ErrorKind::NotADirectory.into()),
        }
    }

    /// The file of that name, created if there is none.
    pub(super) fn file_or_new(&mut self, path: &Path) -> io::Result<FileId> {
        match self.file(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            found => return found,
        }
        self.directory(parent(path))?;
        let id = self.next_id;
        self.next_id += 1;
        self.files.insert(id, Slot::default());
        self.enter(path, Node::File(id));
        Ok(id)
    }

    fn enter(&mut self, path: &Path, node: Node) {
        self.change(Change::Enter { name: path.into(), node });
        if let Node::File(id) = node {
            self.slot(id).links += 1;
        }
    }

    fn change(&mut self, change: Change) {
        change.apply(Arc::make_mut(&mut self.names));
        self.waiting.push(change);
    }

    fn slot(&mut self, id: FileId) -> &mut Slot {
        self.files.get_mut(&id).expect("a file lives while it has a name or a handle")
    }

    pub(super) fn inode(&self, id: FileId) -> &Inode {
        &self.files[&id].inode
    }

    pub(super) fn links(&self, id: FileId) -> u32 {
        self.files[&id].links
    }

    pub(super) fn opened(&mut self, id: FileId) {
        self.slot(id).open += 1;
    }

    pub(super) fn closed(&mut self, id: FileId) {
        let slot = self.slot(id);
        slot.open -= 1;
        if slot.open == 0 && slot.links == 0 {
            self.reclaim();
        }
    }

    /// Changes a file and charges its growth.
    pub(super) fn edit<T>(&mut self, id: FileId, edit: impl FnOnce(&mut Inode) -> T) -> T {
        let inode = Arc::make_mut(&mut self.slot(id).inode);
        let before = inode.allocated();
        let result = edit(inode);
        let after = inode.allocated();
        self.used = self.used + after - before;
        self.peak = self.peak.max(self.used);
        result
    }

    /// Bytes still free under the quota.
    pub(super) fn free(&self) -> u64 {
        self.quota.map_or(u64::MAX / 2, |quota| quota.saturating_sub(self.used))
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let id = self.file(from)?;
        self.directory(parent(to))?;
        let replaced = match self.lookup(to) {
            Ok(Node::Directory) => return Err(io::ErrorKind::IsADirectory.into()),
            // Two names of one file, or one name: POSIX leaves both alone.
            Ok(Node::File(other)) if other == id => return Ok(()),
            Ok(Node::File(other)) => Some(other),
            Err(_) => None,
        };
        self.change(Change::Move { from: from.into(), to: to.into() });
        if let Some(other) = replaced {
            self.slot(other).links -= 1;
            self.reclaim();
        }
        Ok(())
    }

    pub(super) fn remove(&mut self, path: &Path) -> io::Result<()> {
        let id = self.file(path)?;
        self.change(Change::Leave { name: path.into() });
        self.slot(id).links -= 1;
        self.reclaim();
        Ok(())
    }

    pub(super) fn link(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let id = self.file(from)?;
        self.directory(parent(to))?;
        if self.lookup(to).is_ok() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        self.enter(to, Node::File(id));
        Ok(())
    }

    pub(super) fn create_dir(&mut self, path: &Path) -> io::Result<()> {
        let mut missing = Vec::new();
        for dir in path.ancestors() {
            match self.directory(dir) {
                Ok(()) => break,
                Err(e) if e.kind() == io::ErrorKind::NotFound => missing.push(dir),
                Err(e) => return Err(e),
            }
        }
        for dir in missing.into_iter().rev() {
            self.enter(dir, Node::Directory);
        }
        Ok(())
    }

    pub(super) fn remove_dir(&mut self, path: &Path) -> io::Result<()> {
        self.directory(path)?;
        if self.names.keys().any(|name| parent(name) == path) {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        self.change(Change::Leave { name: path.into() });
        Ok(())
    }

    /// Names of files and directories, the latter with a trailing slash.
    pub(super) fn list_all(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.directory(dir)?;
        let there = self.names.iter().filter(|(name, _)| !is_root(name) && parent(name) == dir);
        let mut names: Vec<String> = there
            .filter_map(|(name, node)| {
                let end = if *node == Node::Directory { "/" } else { "" };
                Some(name.file_name()?.to_str()?.to_owned() + end)
            })
            .collect();
        names.sort_unstable();
        Ok(names)
    }

    pub(super) fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let mut names = self.list_all(dir)?;
        names.retain(|name| !name.ends_with('/'));
        Ok(names)
    }

    /// Makes the changes of names in this directory durable, and with them those they build on.
    pub(super) fn sync_dir(&mut self, dir: &Path) -> io::Result<()> {
        self.directory(dir)?;
        let mut needed: BTreeSet<Name> = BTreeSet::new();
        let mut durable = vec![false; self.waiting.len()];
        for (change, durable) in self.waiting.iter().zip(&mut durable).rev() {
            *durable = change.names().any(|name| parent(name) == dir || needed.contains(name));
            if *durable {
                needed.extend(change.names().cloned());
            }
        }
        if durable.iter().all(|&d| d) {
            self.waiting.clear();
            self.on_medium = self.names.clone();
        } else {
            let on_medium = Arc::make_mut(&mut self.on_medium);
            let mut durable = durable.into_iter();
            self.waiting.retain(|change| {
                let durable = durable.next().expect("one mark a change");
                if durable {
                    change.apply(on_medium);
                }
                !durable
            });
        }
        self.reclaim();
        Ok(())
    }

    /// Removes files that no name or handle can reach any more, and recounts the space of the others.
    fn reclaim(&mut self) {
        let mut kept: BTreeSet<FileId> = BTreeSet::new();
        let entered = self.waiting.iter().filter_map(|change| match change {
            Change::Enter { node, .. } => Some(node),
            _ => None,
        });
        for node in self.on_medium.values().chain(entered) {
            if let Node::File(id) = node {
                kept.insert(*id);
            }
        }
        self.files.retain(|id, slot| slot.links > 0 || slot.open > 0 || kept.contains(id));
        let live = self.files.values().filter(|slot| slot.links > 0 || slot.open > 0);
        self.used = live.map(|slot| slot.inode.allocated()).sum();
    }

    /// A disk with these names and files, nothing open, and nothing unsynced.
    fn settled(&self, names: Arc<Names>, mut inode_of: impl FnMut(FileId) -> Arc<Inode>) -> Disk {
        let mut files: BTreeMap<FileId, Slot> = BTreeMap::new();
        for node in names.values() {
            if let Node::File(id) = *node {
                let slot = files.entry(id);
                slot.or_insert_with(|| Slot { inode: inode_of(id), links: 0, open: 0 }).links += 1;
            }
        }
        let used = files.values().map(|slot| slot.inode.allocated()).sum();
        Disk {
            files,
            on_medium: names.clone(),
            names,
            waiting: Vec::new(),
            next_id: self.next_id,
            quota: self.quota,
            used,
            peak: used,
        }
    }

    /// The disk after the end of the process: everything but open handles.
    pub(super) fn after_kill(&self) -> Disk {
        let mut disk = self.clone();
        for slot in disk.files.values_mut() {
            slot.open = 0;
        }
        disk.reclaim();
        disk
    }

    /// The disk after a power loss; `odds` percent is the chance of each unsynced change to survive.
    pub(super) fn after_power_loss(&self, odds: u8, rng: &mut Rng) -> Disk {
        let names = self.names_after_power_loss(odds, rng);
        self.settled(names, |id| {
            let inode = &self.files[&id].inode;
            match inode.is_clean() {
                true => inode.clone(),
                false => Arc::new(inode.after_power_loss(odds, rng)),
            }
        })
    }

    fn names_after_power_loss(&self, odds: u8, rng: &mut Rng) -> Arc<Names> {
        if self.waiting.is_empty() {
            return self.on_medium.clone();
        }
        let mut names = Names::clone(&self.on_medium);
        let mixed = odds > 0 && odds < 100;
        if mixed && rng.chance(50) {
            let survive = rng.index(self.waiting.len() + 1);
            self.waiting[..survive].iter().for_each(|change| change.apply(&mut names));
        } else {
            let mut lost: BTreeSet<&Name> = BTreeSet::new();
            for change in &self.waiting {
                if change.names().any(|name| lost.contains(name)) || !rng.chance(odds) {
                    lost.extend(change.names());
                } else {
                    change.apply(&mut names);
                }
            }
        }
        let orphans: Vec<Name> = names
            .keys()
            .filter(|name| {
                let mut above = name.ancestors().skip(1).take_while(|dir| !is_root(dir));
                above.any(|dir| names.get(dir) != Some(&Node::Directory))
            })
            .cloned()
            .collect();
        for name in &orphans {
            names.remove(name);
        }
        Arc::new(names)
    }
}

/// The directory of a name.
pub(super) fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new(""))
}

/// Whether the directory always exists.
fn is_root(path: &Path) -> bool {
    path.as_os_str().is_empty() || path == Path::new("/") || path == Path::new(".")
}

/// The path without a leading `./`, so that one file has one path.
pub(super) fn normal(path: &Path) -> PathBuf {
    path.strip_prefix(".").unwrap_or(path).to_path_buf()
}
