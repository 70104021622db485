//! A directory that is being filled. After a failure only the files put there are removed.

use super::Env;
use std::path::{Path, PathBuf};

/// The files put into a directory so far. Dropped before [`Copied::keep`], it removes them, first those that
/// make the directory a database, and the directory if nothing else is in it.
pub(crate) struct Copied {
    env: Env,
    dir: PathBuf,
    files: Vec<String>,
    /// Whether the directory was created for these files.
    is_new: bool,
}

impl Copied {
    /// Begins to fill a directory, which was just created for this if it `is_new`.
    pub(crate) fn new(env: &Env, dir: &Path, is_new: bool) -> Self {
        Self { env: env.clone(), dir: dir.to_path_buf(), files: Vec::new(), is_new }
    }

    /// The path of the directory.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// The path of a file about to be created. A file of that name that somebody else created meanwhile is
    /// not removed on drop.
    pub(crate) fn file(&mut self, name: &str) -> PathBuf {
        let path = self.dir.join(name);
        if self.env.storage.exists(&path).is_ok_and(|exists| !exists) {
            self.files.push(name.to_string());
        }
        path
    }

    /// Records that the file was created, so that it is removed on drop.
    pub(crate) fn made(&mut self, name: &str) {
        self.files.push(name.to_string());
    }

    /// Ends the filling: the directory is complete and stays.
    pub(crate) fn keep(mut self) {
        (self.files, self.is_new) = (Vec::new(), false);
    }
}

impl Drop for Copied {
    fn drop(&mut self) {
        for name in self.files.iter().rev() {
            // A file that cannot be removed is reported at the next try.
            let _ = self.env.storage.remove(&self.dir.join(name));
        }
        if self.is_new {
            let _ = self.env.storage.remove_dir(&self.dir);
        }
    }
}
