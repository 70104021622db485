//! A directory that is being filled, which after a failure is left as it was: what was put there goes again,
//! and nothing else.

use super::Env;
use std::path::{Path, PathBuf};

/// See the page above. Dropped before [`Copied::keep`] it takes its files away, that by which they would be a
/// database first, and the directory if nothing else lies there.
pub(crate) struct Copied {
    env: Env,
    dir: PathBuf,
    files: Vec<String>,
    /// Whether the directory was made for this.
    is_new: bool,
}

impl Copied {
    /// Of a directory that was made for it.
    pub(crate) fn new(env: &Env, dir: &Path) -> Self {
        Self::of(env, dir, true)
    }

    /// The same of a directory that was there.
    pub(crate) fn in_existing(env: &Env, dir: &Path) -> Self {
        Self::of(env, dir, false)
    }

    fn of(env: &Env, dir: &Path, is_new: bool) -> Self {
        Self { env: env.clone(), dir: dir.to_path_buf(), files: Vec::new(), is_new }
    }

    /// Which it is.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// The path of a file that is about to be made. One that is there already, which somebody else put there
    /// meanwhile, is not taken away.
    pub(crate) fn file(&mut self, name: &str) -> PathBuf {
        let path = self.dir.join(name);
        if self.env.storage.exists(&path).is_ok_and(|exists| !exists) {
            self.files.push(name.to_string());
        }
        path
    }

    /// A file was made, and goes again with the others.
    pub(crate) fn made(&mut self, name: &str) {
        self.files.push(name.to_string());
    }

    /// All was made: it stays.
    pub(crate) fn keep(mut self) {
        (self.files, self.is_new) = (Vec::new(), false);
    }
}

impl Drop for Copied {
    fn drop(&mut self) {
        for name in self.files.iter().rev() {
            // What cannot be removed says so at the next try.
            let _ = self.env.storage.remove(&self.dir.join(name));
        }
        if self.is_new {
            let _ = self.env.storage.remove_dir(&self.dir);
        }
    }
}
