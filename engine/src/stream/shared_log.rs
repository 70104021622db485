//! The interface of a stream's owner.

use super::object::{Entry, Object};
use super::place::Place;
use crate::error::Result;
use std::fmt::Debug;

/// A log in shared storage as its owner has it: nobody else's entries come between or after its own unless it
/// was sealed. All calls block, and any thread may make them.
pub trait SharedLog: Send + Sync + Debug {
    /// Writes an entry at the next place. Once this returns, it and all entries before it will be read by
    /// whoever comes after.
    ///
    /// # Errors
    /// `Busy` if another process has sealed the log. What the storage meets: the entry's outcome is unknown,
    /// and each later call fails with `Poisoned`.
    fn append(&self, entry: Entry) -> Result<Place>;

    /// Ends the log for ever, after all entries before; returns the seal's place.
    ///
    /// # Errors
    /// As [`SharedLog::append`].
    fn seal(&self) -> Result<Place>;

    /// The object at a place, past every cache; `None` if there is none.
    ///
    /// # Errors
    /// What the storage meets; `Corruption` if the object is damaged.
    fn read(&self, place: Place) -> Result<Option<Object>>;

    /// Deletes entries below that place which no reader needs: neither one that starts where the newest
    /// acknowledged [`Start`](super::Start) says, nor one that is slow. Returns how many.
    ///
    /// # Errors
    /// What the storage meets; some may have been deleted.
    fn collect(&self, upto: Place) -> Result<u64>;
}
