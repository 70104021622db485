//! Checkpoints: an exact copy at one sequence number, while writers go on.
//!
//! One moment under the manifest's lock, with no write between log and memory, gives the log's end E; the copy's manifest is
//! ours plus "history ends at E". From then on tables and log files are held, not the lock: to another file system links
//! are copies, which take long. So a batch over several
//! families is in the copy wholly or not at all, without flushing anything. Tables are linked (they never change; a
//! linked file is never hole-punched), and so are log files that only tables need; the few files of the log itself are
//! copied, since ours are recycled later.

use super::Inner;
use super::backup::Held;
use super::log_table::needed_logs;
use crate::error::{Error, Result};
use crate::event::EventKind;
use crate::log::{LogEnd, file_name};
use crate::storage::{copy_file, create_dir_durably};
use crate::types::SeqNo;
use crate::version::edit::State;
use crate::version::manifest::Manifest;
use std::path::Path;

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
        let Held { moment, log: held_log, files: held_files, .. } = self.hold_moment()?;
        let Moment { state, manifest_number, logs, table_logs } = moment;
        let seq = state.last_seq;
        self.log()?.sync().inspect_err(|e| self.poison(e))?;
        for store in state.stores.values() {
            for (_, _, table) in store.shape.tables() {
                let name = table.id.file_name();
                let (from, target) = (self.dir.join(&name), to.join(&name));
                storage.link(&from, &target).map_err(|e| Error::io("link to", &target, e))?;
            }
        }
        // Those that the log still has are copied below.
        for name in table_logs {
            let (from, target) = (self.dir.join(&name), to.join(&name));
            storage.link(&from, &target).map_err(|e| Error::io("link to", &target, e))?;
        }
        kill_point!("checkpoint-tables-linked");
        for (name, bytes) in logs {
            copy_file(storage, &self.dir.join(&name), &to.join(&name), bytes, &mut |_| {})?;
        }
        storage.sync_dir(to).map_err(|e| Error::io("sync the directory", to, e))?;
        kill_point!("checkpoint-logs-copied");
        drop((held_log, held_files));
        // Another process may have opened it since it was closed, and removed what was held here.
        self.check_open()?;
        // The copy becomes a database by its manifest, so that comes last.
        Manifest::start(&self.env, to, manifest_number, state)?;
        kill_point!("checkpoint-manifest-written");
        Ok(seq)
    }

    /// The database between two writes. As long as the manifest stays locked its tables and log files stay too.
    pub(super) fn moment(&self, manifest: &Manifest) -> Result<Moment> {
        let log = self.log()?;
        let (last, end) = self.with_writes_held(|last| (last, log.end()))?;
        let mut state = manifest.state().clone();
        let mut logs = Vec::new();
        let mut next = end.file;
        for file in log.files() {
            next = next.max(file.file);
            if file.file >= state.log_first && file.file <= end.file {
                // Of the newest file nothing behind the end.
                let bytes = if file.file == end.file { end.offset } else { file.used };
                logs.push((file_name(file.file), bytes));
            }
        }
        let table_logs = needed_logs(&state).range(..state.log_first).map(|file| file_name(*file)).collect();
        state.last_seq = last;
        state.log_synced = end;
        state.log_ends.push(LogEnd { at: end, next: next.next() });
        // Numbered on from ours, as the log's notes speak of ours.
        Ok(Moment { state, manifest_number: manifest.mark().number + 1, logs, table_logs })
    }
}

/// What a copy of the database as it is at one moment consists of.
pub(super) struct Moment {
    /// For the copy's manifest: it ends history at this moment.
    pub(super) state: State,
    /// The number that manifest must have.
    pub(super) manifest_number: u64,
    /// Names of the log files that hold history, and how much of each does.
    pub(super) logs: Vec<(String, u64)>,
    /// Names of the log files that only tables need. They stay as long as the tables do.
    pub(super) table_logs: Vec<String>,
}
