//! Opening a shared database once the process that has it is gone.

use super::Db;
use super::builder::Builder;
use crate::error::{Error, ErrorKind, Result};
use crate::lease::{Claimed, Waiting};
use crate::options::Options;
use std::path::Path;

impl Builder {
    /// Waits until the process that has the shared database is gone, and opens it then. The directory, which
    /// is not that of the other process, is locked from the beginning.
    ///
    /// The owner notices a standby within a minute, and from then on answers reads only while it keeps a
    /// lease in the store (otherwise they fail with `Busy`). So no read is answered late: the standby takes
    /// over at once where the owner closes the database, or ends on the same machine (Linux); elsewhere when
    /// the lease has ended, about seven seconds after the owner's end. An owner that is stopped, and goes on
    /// later, finds its writes and reads refused.
    ///
    /// `goes_on` is called about once a second, with what it waits for; where it returns `false` the call
    /// ends with `None`. An owner that ends before it has noticed the standby, and without closing the
    /// database, leaves it waiting, unless it has kept a lease for another one: then [`Builder::open`] is for
    /// those who know that the owner is gone.
    ///
    /// # Errors
    /// `Invalid` if the database is not a shared one, `NotFound` if there is none; and as [`Builder::open`].
    pub fn stand_by(
        mut self,
        dir: impl AsRef<Path>,
        mut goes_on: impl FnMut(&Waiting) -> bool,
    ) -> Result<Option<Db>> {
        if self.shared.is_none() && self.options.shared.is_none() {
            return Err(Error::invalid(
                "only a shared database can have a standby: option shared is not set",
            ));
        }
        self.options = Options { create_if_missing: false, error_if_exists: false, ..self.options };
        let mut has_left = false;
        let opened = self.open_by(dir.as_ref(), &mut |with| {
            Claimed::by_waiting(with, &mut goes_on)?.ok_or_else(|| {
                has_left = true;
                Error::new(ErrorKind::Canceled, "the standby waits no more")
            })
        });
        match opened {
            Err(_) if has_left => Ok(None),
            opened => opened.map(Some),
        }
    }
}
