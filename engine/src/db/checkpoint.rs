//! Checkpoints: an exact copy at one sequence number, while writers go on.
//!
//! The manifest's lock is held, so tables and log files stay as they are. One moment with no write between log and
//! memory gives the log's end E; the copy's manifest is ours plus "history ends at E". So a batch over several
//! families is in the copy wholly or not at all, without flushing anything. Tables are linked (they never change; a
//! linked file is never hole-punched), and so are log files that only tables need; the few files of the log itself are
//! copied, since ours are recycled later.

use super::Inner;
use super::log_table::needed_logs;
use crate::error::{Error, Result};
use crate::event::EventKind;
use crate::log::{LogEnd, file_name};
use crate::storage::{Storage, create_dir_durably};
use crate::types::SeqNo;
use crate::version::manifest::Manifest;
use std::path::Path;

/// Log files are copied in pieces of this size.
const PIECE: u64 = 1 << 20;

impl Inner {
    pub(super) fn checkpoint(&self, to: &Path) -> Result<SeqNo> {
        self.check_writable()?;
        let storage = &self.env.storage;
        let exists = storage.exists(to).map_err(|e| Error::io("look for", to, e))?;
        if exists {
            return Err(Error::invalid(format!(
                "{} exists; a checkpoint needs a new directory",
                to.display()
            )));
        }
        create_dir_durably(&**storage, to).map_err(|e| Error::io("create the directory", to, e))?;
        let seq = match self.copy_to(to) {
            Ok(seq) => seq,
            Err(e) => {
                // A copy without its manifest is no database; what cannot be removed says so at the next try.
                for name in storage.list(to).unwrap_or_default() {
                    let _ = storage.remove(&to.join(name));
                }
                let _ = storage.remove_dir(to);
                return Err(e);
            }
        };
        self.events.record(EventKind::Checkpoint, "", format!("into {}", to.display()), &[("seq", seq.0)]);
        Ok(seq)
    }

    fn copy_to(&self, to: &Path) -> Result<SeqNo> {
        let storage = &*self.env.storage;
        let manifest = self.manifest.lock();
        let log = self.log()?;
        let (last, end) = self.with_writes_held(|last| (last, log.end()))?;
        log.sync().inspect_err(|e| self.poison(e))?;
        let mut state = manifest.state().clone();
        for store in state.stores.values() {
            for (_, _, table) in store.shape.tables() {
                let name = table.id.file_name();
                let (from, target) = (self.dir.join(&name), to.join(&name));
                storage.link(&from, &target).map_err(|e| Error::io("link to", &target, e))?;
            }
        }
        // Those that the log still has are copied below.
        for file in needed_logs(&state).range(..state.log_first) {
            let (from, target) = (self.dir.join(file_name(*file)), to.join(file_name(*file)));
            storage.link(&from, &target).map_err(|e| Error::io("link to", &target, e))?;
        }
        kill_point!("checkpoint-tables-linked");
        let mut next = end.file;
        for file in log.files() {
            next = next.max(file.file);
            if file.file >= state.log_first && file.file <= end.file {
                let name = file_name(file.file);
                // Of the newest file nothing behind the end.
                let bytes = if file.file == end.file { end.offset } else { file.used };
                copy(storage, &self.dir.join(&name), &to.join(&name), bytes)?;
            }
        }
        state.last_seq = last;
        state.log_synced = end;
        state.log_ends.push(LogEnd { at: end, next: next.next() });
        storage.sync_dir(to).map_err(|e| Error::io("sync the directory", to, e))?;
        kill_point!("checkpoint-logs-copied");
        // The copy becomes a database by its manifest, so that comes last.
        // Numbered on from ours, as the log's notes speak of ours.
        Manifest::start(&self.env, to, manifest.mark().number + 1, state)?;
        kill_point!("checkpoint-manifest-written");
        Ok(last)
    }
}

fn copy(storage: &dyn Storage, from: &Path, to: &Path, bytes: u64) -> Result<()> {
    let reading = |e| Error::io("read", from, e);
    let writing = |e| Error::io("write", to, e);
    let source = storage.open(from).map_err(reading)?;
    let mut target = storage.create(to).map_err(writing)?;
    let mut at = 0;
    while at < bytes {
        let mut piece = vec![0; (bytes - at).min(PIECE) as usize];
        source.read_exact_at(&mut piece, at).map_err(reading)?;
        target.write(&piece).map_err(writing)?;
        at += piece.len() as u64;
    }
    target.sync().map_err(writing)
}
