//! A shared database as a follower has it: the manifest's state and memory, as of a place of its stream.
//!
//! Entries are taken in the stream's order: an edit changes the state, a frame goes into memory
//! (`logged_memory`). So between two entries a follower has what somebody would find who took the database
//! over there, and nothing of the stream is kept. Edits lead from checkpoint to checkpoint but for one: what
//! an open changes is in no edit, but in the checkpoint as of its claim, which its first entry names. That is
//! read, too.
//!
//! Not owned here: SSTables, which may be gone by the time that they are opened.

use super::logged_memory::{LoggedMemory, heirs};
use super::shared::{items_of, stream_of};
use super::shared_id::SharedId;
use crate::error::{Error, ErrorKind, Result};
use crate::memtable::Memtable;
use crate::storage::{ObjectStore, Random};
use crate::stream::{Entry, Item, Place, Stream};
use crate::types::{LogPosition, SeqNo, StoreId};
use crate::version::edit::{Change, State};
use crate::version::manifest;
use crate::wal::Arriving;
use std::collections::BTreeSet;
use std::sync::Arc;

/// See the page above.
pub(crate) struct Following {
    stream: Stream,
    state: State,
    memory: LoggedMemory,
    frames: Arriving,
    /// The checkpoint that the state came from, which has the edits up to its place.
    checkpoint: Option<Place>,
    /// The first place that was not read.
    next: Place,
    /// How many entries were applied.
    applied: u64,
    /// The highest sequence number in a frame.
    max_seq: SeqNo,
    newest_write_us: Option<u64>,
    /// Stores that are not as they were when the changed ones were last taken.
    changed: BTreeSet<StoreId>,
    /// Whether an entry was applied in part.
    is_broken: bool,
}

/// The manifest's state in the checkpoint as of that place.
fn state_at(stream: &Stream, place: Place) -> Result<State> {
    let name = stream.checkpoint_name(place);
    let Some(payload) = stream.checkpoint(place)? else {
        let message = format!("{name} is not there any more: a reader is to begin anew");
        return Err(Error::new(ErrorKind::NotFound, message));
    };
    let mut state = State::default();
    manifest::apply_encoded(&mut state, &payload).map_err(|why| Error::corruption(&name, 0, why))?;
    Ok(state)
}

impl Following {
    /// The stream of the shared database in that place, and its number.
    ///
    /// # Errors
    /// `NotFound` if there is none.
    pub(crate) fn find(store: &Arc<dyn ObjectStore>, random: &Arc<dyn Random>) -> Result<(Stream, u64)> {
        let Some(id) = SharedId::find(&**store)? else {
            let message = format!("{} holds no shared database", store.location());
            return Err(Error::new(ErrorKind::NotFound, message));
        };
        Ok((stream_of(store, id.number(), random), id.number()))
    }

    /// Reads a stream from where its readers start. The hint is an incarnation that may be near the newest.
    ///
    /// # Errors
    /// `NotFound` if something was collected meanwhile: call it again.
    pub(crate) fn begin(stream: &Stream, database: u64, hint: u64) -> Result<Self> {
        let begun = stream.begin_following(hint)?;
        let checkpoint = begun.start.checkpoint;
        let state = match checkpoint {
            Some(place) => state_at(stream, place)?,
            // Nothing was recorded yet.
            None => State { database, ..State::default() },
        };
        let mut following = Self {
            stream: stream.clone(),
            changed: state.stores.keys().copied().collect(),
            state,
            memory: LoggedMemory::default(),
            frames: Arriving::new(database),
            checkpoint,
            next: begun.next,
            applied: 0,
            max_seq: SeqNo::ZERO,
            newest_write_us: None,
            is_broken: false,
        };
        for (place, entry) in begun.entries {
            following.apply(place, &entry)?;
        }
        following.next = begun.next;
        if following.state.database != database {
            let name = stream.name(begun.start.first);
            return Err(Error::corruption(name, 0, "stream is of another database"));
        }
        Ok(following)
    }

    /// Reads on, as far as the stream goes. After an error what was read before it stays.
    ///
    /// # Errors
    /// `NotFound` if something was collected that was to be read: begin anew.
    pub(crate) fn read_on(&mut self) -> Result<()> {
        let stream = self.stream.clone();
        self.next = stream.follow(self.next, &mut |place, entry| self.apply(place, &entry))?;
        Ok(())
    }

    /// The manifest's state.
    pub(crate) fn state(&self) -> &State {
        &self.state
    }

    /// The first place that was not read.
    pub(crate) fn place(&self) -> Place {
        self.next
    }

    /// How many entries were applied.
    pub(crate) fn applied(&self) -> u64 {
        self.applied
    }

    /// The sequence number of the newest write.
    pub(crate) fn last_seq(&self) -> SeqNo {
        self.max_seq.max(self.state.last_seq)
    }

    /// When the newest write was made, by its writer's wall clock (microseconds).
    pub(crate) fn newest_write_us(&self) -> Option<u64> {
        self.newest_write_us
    }

    /// Whether an error has left an entry half applied, so that it has to begin anew.
    pub(crate) fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// The memtables of a store, those that share keys newest first.
    pub(crate) fn memory_of(&self, store: StoreId) -> Result<Vec<Memtable>> {
        self.memory.of(&self.state, store)
    }

    /// The stores that have changed, or are gone, since this was last forgotten.
    pub(crate) fn changed(&self) -> &BTreeSet<StoreId> {
        &self.changed
    }

    /// Forgets which stores have changed, and memory that none needs.
    pub(crate) fn forget_changed(&mut self) {
        if !self.changed.is_empty() {
            self.memory.forget(&self.state);
            self.changed.clear();
        }
    }

    fn apply(&mut self, place: Place, entry: &Entry) -> Result<()> {
        self.take_checkpoint(place, entry)?;
        let name = self.stream.name(place);
        self.is_broken = true;
        for item in items_of(&self.stream, place, entry) {
            match item? {
                Item::Edit(payload) if self.checkpoint < Some(place) => self.edit(&name, payload)?,
                Item::Edit(_) => {}
                // Memory needs nothing of that file, whose beginning may be missing here.
                Item::Wal(at, _) if at.file < self.state.wal_first => {}
                Item::Wal(at, bytes) => self.log(&name, at, bytes)?,
            }
        }
        self.is_broken = false;
        self.next = place.next();
        self.applied += 1;
        Ok(())
    }

    /// Takes the state from the checkpoint as of the claim, if the entry names that.
    fn take_checkpoint(&mut self, place: Place, entry: &Entry) -> Result<()> {
        let claim = Place::new(place.incarnation, 0);
        let is_named = entry.start.is_some_and(|start| start.checkpoint == Some(claim));
        if !is_named || Some(claim) <= self.checkpoint {
            return Ok(());
        }
        let state = state_at(&self.stream, claim)?;
        // An owner that rolls may name one, too, and has changed nothing.
        if state != self.state {
            self.changed.extend(self.state.stores.keys().chain(state.stores.keys()));
            self.state = state;
        }
        self.checkpoint = Some(claim);
        Ok(())
    }

    fn edit(&mut self, name: &str, payload: &[u8]) -> Result<()> {
        let wrong = |why: String| Error::corruption(name, 0, why);
        let edit = manifest::decoded(payload).map_err(wrong)?;
        let first = self.state.wal_first;
        manifest::apply_edit(&mut self.state, &edit).map_err(wrong)?;
        self.changed.extend(edit.iter().flat_map(Change::stores));
        if self.state.wal_first > first {
            for logged_for in self.memory.logged_before(self.state.wal_first) {
                self.changed.extend(heirs(&self.state, logged_for));
            }
        }
        Ok(())
    }

    fn log(&mut self, name: &str, at: LogPosition, bytes: &[u8]) -> Result<()> {
        let Some(frame) = self.frames.take(name, at, bytes)? else { return Ok(()) };
        self.max_seq = self.max_seq.max(frame.last_seq.unwrap_or_default());
        self.newest_write_us = self.newest_write_us.max(Some(frame.head.wall_us));
        for logged in frame.entries() {
            if self.memory.add(&self.state, &logged) {
                self.changed.extend(heirs(&self.state, logged.store));
            }
        }
        Ok(())
    }
}
