//! Checkpoints: an exact copy at one sequence number, while writers go on.
//!
//! The copy has the database at one moment (`catalog/moment.rs`), so a batch over several families is in it
//! wholly or not at all, without flushing anything. SSTables are linked (they never change; a linked file is
//! never hole-punched), and so are WAL files that only SSTables need; the few files of the WAL itself are
//! copied, since the database recycles its own. Links to another file system are copies, which take long.

use super::Inner;
use crate::catalog::PinnedCopy;
use crate::error::{Error, Result};
use crate::event::EventKind;
use crate::storage::{Copied, Env, absolute, copy_file, create_dir_durably};
use crate::types::SeqNo;
use crate::version::manifest::{self, Manifest};
use std::path::Path;

impl Inner {
    pub(crate) fn checkpoint(&self, to: &Path) -> Result<SeqNo> {
        self.cx.check_writable()?;
        let to = &absolute(&self.cx.env, to)?;
        let storage = &self.cx.env.storage;
        if storage.exists(to).map_err(|e| Error::io("look for", to, e))? {
            let message = format!("{} exists; a checkpoint needs a new directory", to.display());
            return Err(Error::invalid(message));
        }
        create_dir_durably(&**storage, to).map_err(|e| Error::io("create the directory", to, e))?;
        let env = self.cx.env.bound_to(to)?;
        let mut copied = Copied::new(&env, to, true);
        let seq = self.copy_to(&env, to, &mut copied)?;
        copied.keep();
        self.cx.events.record(EventKind::Checkpoint, "", format!("into {}", to.display()), &[("seq", seq.0)]);
        Ok(seq)
    }

    fn copy_to(&self, env: &Env, to: &Path, copied: &mut Copied) -> Result<SeqNo> {
        let storage = &*env.storage;
        let held = self.catalog.hold_moment(&|_| true)?;
        let PinnedCopy {
            state,
            manifest_number,
            logs,
            wal_files_of_tables,
            tables,
            held_wal,
            held_tables,
            ..
        } = held;
        let seq = state.last_seq;
        self.commit.wal()?.sync().inspect_err(|e| self.cx.poison(e))?;
        for info in &tables {
            let target = copied.file(&info.id.file_name());
            self.catalog.tables.store().take_out(info.id, &target, &env.storage, info.bytes)?;
        }
        // Files that the WAL still has are copied below.
        for name in wal_files_of_tables {
            let (from, target) = (self.catalog.dir.join(&name), copied.file(&name));
            storage.link(&from, &target).map_err(|e| Error::io("link to", &target, e))?;
        }
        kill_point!("checkpoint-sstables-linked");
        for (name, bytes) in logs {
            let (from, target) = (self.catalog.dir.join(&name), copied.file(&name));
            copy_file(storage, &from, storage, &target, bytes, &mut |_| {})?;
        }
        storage.sync_dir(to).map_err(|e| Error::io("sync the directory", to, e))?;
        kill_point!("checkpoint-wal-copied");
        drop((held_wal, held_tables));
        // Another process may have opened it since it was closed, and removed the files to be copied.
        self.cx.check_open()?;
        // The copy becomes a database by its manifest, so that comes last.
        manifest::files_of_start(manifest_number).iter().for_each(|name| drop(copied.file(name)));
        Manifest::start(env, to, manifest_number, state)?;
        kill_point!("checkpoint-manifest-written");
        Ok(seq)
    }
}
