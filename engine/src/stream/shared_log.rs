//! The interface of a stream's owner.

use super::object::{Entry, Object};
use super::place::Place;
use crate::error::Result;
use std::fmt::Debug;

/// A log in shared storage as its owner has it: nobody else's entries come between or after its own unless it
/// was sealed. All calls block, and any thread may make them.
pub trait SharedLog: Send + Sync + Debug {
    /// Gives the next place to an entry, so that a caller fixes the order of its entries before it puts them;
    /// blocks only while the log rolls. [`SharedLog::put`] must follow, and not wait until another place is
    /// given out: all entries after this one wait for it, and so does a log that rolls or is sealed.
    ///
    /// # Errors
    /// `Invalid` if no reader would take the entry: no place is given then. `Poisoned`, `Busy` or `Closed` if
    /// nothing more is written.
    fn place(&self, entry: &Entry) -> Result<Place>;

    /// Writes an entry at the place that was given to it. Once this returns, it and all entries before it
    /// will be read by whoever comes after.
    ///
    /// # Errors
    /// `Invalid` if the place was not given to the entry, or the entry is there already. `Busy` if another
    /// process has sealed the log. What the storage meets: the entry's outcome is unknown, and each later
    /// call fails with `Poisoned`.
    fn put(&self, place: Place, entry: Entry) -> Result<()>;

    /// Writes an entry at the next place: [`SharedLog::place`] and [`SharedLog::put`].
    ///
    /// # Errors
    /// As theirs.
    fn append(&self, entry: Entry) -> Result<Place> {
        let place = self.place(&entry)?;
        self.put(place, entry)?;
        Ok(place)
    }

    /// Ends the incarnation and begins the next, so that the entries of this one may be collected; returns
    /// the place of its claim.
    ///
    /// # Errors
    /// As [`SharedLog::append`].
    fn roll(&self) -> Result<Place>;

    /// Puts a checkpoint as of a place of this owner: the manifest's state. It counts once an acknowledged
    /// entry names it.
    ///
    /// # Errors
    /// What the storage meets: call it again.
    fn put_checkpoint(&self, place: Place, payload: &[u8]) -> Result<()>;

    /// Deletes the checkpoints before that place, whose own counts; returns how many.
    ///
    /// # Errors
    /// What the storage meets; some may have been deleted.
    fn delete_checkpoints(&self, before: Place) -> Result<u64>;

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
    /// acknowledged [`Start`](super::Start) says, nor one that is slow. Returns how many. Each call lists the
    /// whole log, and costs O(objects listed) even where nothing is left to delete.
    ///
    /// # Errors
    /// What the storage meets; some may have been deleted.
    fn collect(&self, upto: Place) -> Result<u64>;
}
