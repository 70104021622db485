//! A directory for a measurement, new when it begins and gone when it ends, however it ends.

use std::path::{Path, PathBuf};

pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new(dir: &Path) -> Self {
        let _ = std::fs::remove_dir_all(dir);
        Self(dir.to_path_buf())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
