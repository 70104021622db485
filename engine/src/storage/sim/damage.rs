//! Changes behind the database's back: damaged bytes, cut, swapped and missing files. They go straight to the
//! medium and count as no operation.

#![allow(
    clippy::disallowed_methods,
    reason = "copies a simulated directory to a real one and back, for debugging"
)]

use super::SimStorage;
use super::disk::{Node, normal, parent};
use super::inode::Inode;
use std::io;
use std::path::{Path, PathBuf};

impl SimStorage {
    /// Every file's path and length, sorted by path.
    pub fn list_all(&self) -> Vec<(PathBuf, u64)> {
        let state = self.shared.state.lock();
        let files = state.disk.names().filter_map(|(name, node)| match node {
            Node::File(id) => Some((name.to_path_buf(), state.disk.inode(id).len())),
            Node::Directory => None,
        });
        files.collect()
    }

    /// A file's bytes as a reader sees them.
    pub fn file_bytes(&self, path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
        let state = self.shared.state.lock();
        let id = state.disk.file(&normal(path.as_ref()))?;
        Ok(state.disk.inode(id).content().to_vec())
    }

    /// Flips the bits of `xor` in one byte.
    pub fn corrupt(&self, path: impl AsRef<Path>, offset: u64, xor: u8) -> io::Result<()> {
        self.change(path.as_ref(), |inode| {
            let mut byte = [0];
            inode.content().read_exact_at(&mut byte, offset)?;
            inode.write(offset, &[byte[0] ^ xor]);
            Ok(())
        })
    }

    /// Cuts the file, or extends it with zeros.
    pub fn truncate(&self, path: impl AsRef<Path>, len: u64) -> io::Result<()> {
        self.change(path.as_ref(), |inode| {
            inode.set_len(len);
            Ok(())
        })
    }

    /// Exchanges the `len` bytes at two offsets that do not overlap, as a misdirected write would.
    pub fn swap_ranges(&self, path: impl AsRef<Path>, one: u64, two: u64, len: usize) -> io::Result<()> {
        self.change(path.as_ref(), |inode| {
            let (mut first, mut second) = (vec![0; len], vec![0; len]);
            inode.content().read_exact_at(&mut first, one)?;
            inode.content().read_exact_at(&mut second, two)?;
            inode.write(one, &second);
            inode.write(two, &first);
            Ok(())
        })
    }

    /// Gives a file these bytes, making it and its directories if needed.
    pub fn replace(&self, path: impl AsRef<Path>, bytes: &[u8]) -> io::Result<()> {
        let path = normal(path.as_ref());
        let mut state = self.shared.state.lock();
        state.disk.create_dir(parent(&path))?;
        let id = state.disk.file_or_new(&path)?;
        state.disk.edit(id, |inode| *inode = Inode::durable(bytes));
        for dir in path.ancestors().skip(1) {
            state.disk.sync_dir(dir)?;
        }
        Ok(())
    }

    /// Makes a file go missing.
    pub fn delete(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let path = normal(path.as_ref());
        let mut state = self.shared.state.lock();
        state.disk.remove(&path)?;
        state.disk.sync_dir(parent(&path))
    }

    fn change(&self, path: &Path, change: impl FnOnce(&mut Inode) -> io::Result<()>) -> io::Result<()> {
        let mut state = self.shared.state.lock();
        let id = state.disk.file(&normal(path))?;
        state.disk.edit(id, |inode| {
            let result = change(inode);
            inode.sync();
            result
        })
    }

    /// Copies every file below a simulated directory into a real one.
    pub fn copy_all_to(&self, simulated: impl AsRef<Path>, real: &Path) -> io::Result<()> {
        let simulated = normal(simulated.as_ref());
        for (path, _) in self.list_all() {
            let Ok(within) = path.strip_prefix(&simulated) else { continue };
            let target = real.join(within);
            std::fs::create_dir_all(parent(&target))?;
            std::fs::write(target, self.file_bytes(&path)?)?;
        }
        Ok(())
    }

    /// Copies every file of a real directory, and of those in it, into a simulated one.
    pub fn copy_all_from(&self, real: &Path, simulated: impl AsRef<Path>) -> io::Result<()> {
        for entry in std::fs::read_dir(real)? {
            let entry = entry?;
            let target = simulated.as_ref().join(entry.file_name());
            match entry.file_type()?.is_dir() {
                true => self.copy_all_from(&entry.path(), target)?,
                false => self.replace(target, &std::fs::read(entry.path())?)?,
            }
        }
        Ok(())
    }
}
