//! Handles on their way in and out: checked for NULL, put where the caller wants them, freed once.

use crate::error::invalid;
use siltstone::{Error, ErrorKind, Result};
use std::mem::MaybeUninit;

/// An argument that must be there.
#[inline]
pub(crate) fn given<T>(argument: Option<T>, name: &str) -> Result<T> {
    argument.ok_or_else(|| invalid(format!("{name} is NULL")))
}

/// `Closed` once it was closed.
#[inline]
pub(crate) fn check_open(db: &siltstone::Db) -> Result<()> {
    if db.is_closed() { Err(Error::new(ErrorKind::Closed, "the database is closed")) } else { Ok(()) }
}

/// The destination of a call's result, which may be undefined before.
pub(crate) type Place<'a, T> = Option<&'a mut MaybeUninit<T>>;

/// Checks the place for what a call will make, and empties it, so that it is defined also where the call
/// fails.
#[inline]
pub(crate) fn emptied<'a, T>(place: Place<'a, T>, name: &str, empty: T) -> Result<&'a mut T> {
    Ok(given(place, name)?.write(empty))
}

/// Checks and empties the place for a handle.
#[inline]
pub(crate) fn no_handle<'a, T>(
    place: Place<'a, Option<Box<T>>>,
    name: &str,
) -> Result<&'a mut Option<Box<T>>> {
    emptied(place, name, None)
}

/// Frees a handle and sets its pointer to NULL.
pub(crate) fn free<T>(handle: Option<&mut Option<Box<T>>>) {
    drop(handle.and_then(Option::take));
}
