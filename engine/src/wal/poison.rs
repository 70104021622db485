//! Poison: a failure of the WAL that is for good.
//!
//! After a failed sync the operating system may have dropped the bytes and call them clean, so a second try
//! would succeed and lie. The first failure is remembered for good; all later appends and syncs fail with it,
//! until a new `Wal` is opened over what recovery finds.

use crate::error::{Error, ErrorKind, Result};
use crate::sync::{AtomicBool, Mutex, Ordering};

/// Whether the WAL failed, and why.
#[derive(Default)]
pub(super) struct Poison {
    set: AtomicBool,
    cause: Mutex<Option<Error>>,
}

impl Poison {
    #[inline]
    pub(super) fn check(&self) -> Result<()> {
        if self.set.load(Ordering::Acquire) { Err(self.error()) } else { Ok(()) }
    }

    #[cold]
    fn error(&self) -> Error {
        let cause = self.cause.lock().clone();
        let cause = cause.map_or(String::new(), |cause| cause.to_string());
        let message =
            format!("the WAL failed and takes no more writes until the database is reopened: {cause}");
        Error::new(ErrorKind::Poisoned, message)
    }

    /// Remembers the first cause and returns the error everyone gets from now on.
    #[cold]
    pub(super) fn set(&self, cause: &Error) -> Error {
        self.cause.lock().get_or_insert_with(|| cause.clone());
        self.set.store(true, Ordering::Release);
        self.error()
    }
}
