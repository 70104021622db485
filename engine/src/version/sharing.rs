//! The manifest of a shared database: its edits go into the stream, and the whole state into checkpoints.

use super::code;
use super::edit::{Edit, State};
use super::manifest::{Manifest, Mark, Sharing};
use crate::error::{Error, ErrorKind, Result};
use crate::storage::Env;
use crate::stream::{Outbox, Start};
use std::path::Path;
use std::sync::Arc;

impl Manifest {
    /// The manifest of a shared database: puts the whole state as its first checkpoint.
    pub(crate) fn start_shared(
        env: &Env,
        dir: &Path,
        outbox: &Arc<Outbox>,
        state: State,
    ) -> Result<Manifest> {
        let (env, dir, mark) = (env.clone(), dir.to_path_buf(), Mark::default());
        let shared = Some(Sharing { outbox: outbox.clone(), collect: None });
        let mut manifest = Manifest { env, dir, state, mark, file: None, base: 0, poisoned: false, shared };
        manifest.checkpoint()?;
        Ok(manifest)
    }

    /// Whether it is that of a shared database.
    pub(crate) fn is_shared(&self) -> bool {
        self.shared.is_some()
    }

    /// Takes from where readers of a shared database's stream start, if that has changed: what lies before
    /// may be collected.
    pub(crate) fn take_collectable(&mut self) -> Option<(Arc<Outbox>, Start)> {
        let shared = self.shared.as_mut()?;
        Some((shared.outbox.clone(), shared.collect.take()?))
    }

    /// Brings an edit into the stream.
    pub(super) fn share(&mut self, edit: &Edit) -> Result<()> {
        let Some(shared) = &mut self.shared else { return Ok(()) };
        let payload = code::encode(edit);
        shared.outbox.edit(&payload);
        if let Err(e) = shared.outbox.ship() {
            self.poisoned = true;
            return Err(Error::new(
                ErrorKind::Poisoned,
                format!("the manifest's edit is not in the stream: {e}"),
            ));
        }
        self.mark.length += payload.len() as u64;
        Ok(())
    }

    /// Puts the next checkpoint of a shared database, if there is much in the stream since the last one.
    /// Without it readers start further back.
    pub(crate) fn checkpoint_if_due(&mut self) -> Result<()> {
        let Some(shared) = self.shared.as_ref().filter(|_| !self.poisoned) else { return Ok(()) };
        let outbox = shared.outbox.clone();
        let grown = self.mark.length > (4 * self.base).max(256 << 10);
        if !grown && !outbox.is_far() {
            return Ok(());
        }
        let put = self.checkpoint();
        self.poisoned |= outbox.check().is_err();
        put
    }

    /// Puts the whole state as a checkpoint that counts.
    fn checkpoint(&mut self) -> Result<()> {
        let Some(shared) = &mut self.shared else { return Ok(()) };
        let whole = code::encode(&self.state.to_edit());
        shared.collect = Some(shared.outbox.checkpoint(&whole, self.state.wal_oldest())?);
        self.base = whole.len() as u64;
        self.mark = Mark { number: self.mark.number + 1, length: self.base };
        Ok(())
    }
}
