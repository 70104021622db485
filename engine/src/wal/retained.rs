//! The files of a WAL that is written: those that hold history, and those that memory needs no more and that
//! are kept to be read. `follow` has what they are kept for.

use super::WalFileInfo;
use crate::storage::MappedFile;
use crate::types::{LogFileId, LogPosition, SeqNo};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// A file that holds history. It has a `map` from the first byte until a sync finds the file complete.
pub(super) struct LiveFile {
    pub(super) file: LogFileId,
    pub(super) reserved: u64,
    /// Bytes of history, known when the file is complete.
    pub(super) used: Option<u64>,
    /// Before this offset every block was written, by this history or one before it; known when the file is
    /// complete.
    pub(super) written_to: u64,
    pub(super) first_seq: SeqNo,
    pub(super) map: Option<Arc<dyn MappedFile>>,
}

impl LiveFile {
    /// A file of a history that was recovered.
    pub(super) fn recovered(info: &WalFileInfo) -> Self {
        let WalFileInfo { file, reserved, used, first_seq } = *info;
        Self { file, reserved, used: Some(used), written_to: used, first_seq, map: None }
    }

    /// What it is to others, with so many bytes of history.
    pub(super) fn info(&self, used: u64) -> WalFileInfo {
        WalFileInfo { file: self.file, reserved: self.reserved, used, first_seq: self.first_seq }
    }

    /// Whether it is complete, and all of it lies before `synced`.
    pub(super) fn is_complete_within(&self, synced: LogPosition) -> bool {
        self.used.is_some_and(|offset| LogPosition { file: self.file, offset } <= synced)
    }
}

/// Files that memory needs no more.
#[derive(Default)]
pub(super) struct RetainedFiles {
    pub(super) files: VecDeque<LiveFile>,
    /// Where each follower is.
    pub(super) followers: BTreeMap<u64, LogFileId>,
    pub(super) next_follower: u64,
}

impl RetainedFiles {
    pub(super) fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.used.unwrap_or(file.reserved)).sum()
    }

    /// Takes out what is over its bound, oldest first.
    pub(super) fn take_over(&mut self, always: u64, followed: u64) -> Vec<LiveFile> {
        let slowest = self.followers.values().min().copied();
        let mut bytes = self.bytes();
        let mut over = Vec::new();
        while let Some(first) = self.files.front() {
            let is_followed = slowest.is_some_and(|slowest| slowest <= first.file);
            if bytes <= if is_followed { always.max(followed) } else { always } {
                break;
            }
            bytes -= first.used.unwrap_or(first.reserved);
            over.extend(self.files.pop_front());
        }
        over
    }
}
