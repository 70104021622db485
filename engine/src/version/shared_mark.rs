//! The mark in the manifest of a local database that moves into shared storage. Releases that do not know it
//! cannot read such a manifest, and those that do refuse it: only the move itself goes on from there
//! (`catalog/adopt.rs`).

use crate::error::Error;
use std::path::Path;

/// The place that a database moves to, and the number by which the move is known there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SharedMark {
    pub(crate) location: String,
    pub(crate) nonce: u64,
}

impl SharedMark {
    /// The error of all other calls on a directory whose manifest has the mark.
    pub(crate) fn refusal(&self, dir: &Path) -> Error {
        let (dir, place) = (dir.display(), &self.location);
        Error::invalid(format!(
            "{dir} becomes the shared database in {place}: `siltstone shared adopt {dir} {place}` goes on with \
             that, or with --undo makes it a local database again"
        ))
    }
}
