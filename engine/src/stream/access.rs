//! The calls to the store that has a stream's objects.

use super::object::{Body, Claim, Entry, OBJECT_BYTES_MAX, Object, PAYLOAD_BYTES_MAX, Start, decode, encode};
use super::place::Place;
use crate::error::{Error, ErrorKind, Result};
use crate::storage::{ObjectStore, PutOnce, Random};
use std::io;
use std::sync::Arc;

/// A stream: its objects in a store, below a prefix.
///
/// ```
/// # #[cfg(feature = "testing")] {
/// use siltstone::storage::sim::{SimClock, SimObjects, SimRandom, SimStorage};
/// use siltstone::stream::{Entry, SharedLog, Stream, Terms};
/// use std::{path::Path, sync::Arc};
///
/// let (disk, clock) = (Arc::new(SimStorage::new(1)), Arc::new(SimClock::default()));
/// let store = SimObjects::new(disk, clock, Path::new("objects"), None);
/// let stream = Stream::new(store, "d/one", Arc::new(SimRandom::new(1)));
/// stream.create(7, 0)?;
/// let terms = Terms { revision: 0, numbers_ahead: 1_000_000 };
/// let owner = stream.recover(1, terms)?.writer;
/// owner.append(Entry { numbers_upto: 1_000_000, start: None, payload: b"written".to_vec() })?;
/// drop(owner);
/// let next = stream.recover(1, terms)?;
/// assert_eq!(next.entries[0].1.payload, b"written");
/// # }
/// # Ok::<(), siltstone::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Stream {
    store: Arc<dyn ObjectStore>,
    prefix: String,
    random: Arc<dyn Random>,
}

impl Stream {
    /// The stream below that prefix. Asks nothing of the store.
    pub fn new(store: Arc<dyn ObjectStore>, prefix: impl Into<String>, random: Arc<dyn Random>) -> Self {
        Self { store, prefix: prefix.into(), random }
    }

    /// Begins the stream: puts the claim of incarnation 1, in which nothing is ever written, and says that
    /// sequence numbers up to that one are taken. May be called again with the same nonce and number.
    ///
    /// # Errors
    /// `Conflict` if another began it. What the store meets: call it again.
    pub fn create(&self, nonce: u128, numbers_upto: u64) -> Result<()> {
        let start = Start { checkpoint: None, first: Place::new(1, 1) };
        let claim = Claim { follows: None, start, revision: 0, numbers_upto };
        match self.put_as(Place::new(1, 0), nonce, &Body::Claim(claim))? {
            PutOnce::Mine => Ok(()),
            PutOnce::Theirs => {
                let message = format!("another began the stream in {}", self.name(Place::new(1, 0)));
                Err(Error::new(ErrorKind::Conflict, message))
            }
        }
    }

    /// The object at a place, past every cache; `None` if there is none.
    ///
    /// # Errors
    /// What the store meets; `Corruption` if the object is damaged, `Unsupported` if a newer release wrote
    /// it.
    pub fn read(&self, place: Place) -> Result<Option<Object>> {
        self.object(place, self.store.get_whole(&self.name(place)))
    }

    /// The bytes of the objects at those places, read together past every cache.
    pub(super) fn fetch(&self, places: &[Place]) -> Vec<io::Result<Vec<u8>>> {
        let names = self.names(places);
        let mut found = self.store.get_all(&names);
        found.resize_with(names.len(), || Err(io::Error::other("the store gave no answer")));
        found
    }

    /// The object at a place, from what the store has there.
    pub(super) fn object(&self, place: Place, found: io::Result<Vec<u8>>) -> Result<Option<Object>> {
        let name = self.name(place);
        let bytes = match found {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(Error::io("read", name, e)),
        };
        let len = bytes.len() as u64;
        if len > OBJECT_BYTES_MAX {
            let message = format!("object has {len} bytes, expected at most {OBJECT_BYTES_MAX}");
            return Err(Error::corruption(name, OBJECT_BYTES_MAX, message));
        }
        decode(&name, place, &bytes).map(Some)
    }

    /// The claim of an incarnation, if there is one.
    pub(super) fn claim(&self, incarnation: u64) -> Result<Option<Claim>> {
        Ok(self.read(Place::new(incarnation, 0))?.and_then(Object::into_claim))
    }

    /// Puts an object once, and says whose lies there and which nonce the own one has.
    pub(super) fn put(&self, place: Place, body: &Body) -> Result<(PutOnce, u128)> {
        let nonce = u128::from(self.random.next_u64()) << 64 | u128::from(self.random.next_u64());
        Ok((self.put_as(place, nonce, body)?, nonce))
    }

    fn put_as(&self, place: Place, nonce: u128, body: &Body) -> Result<PutOnce> {
        let (name, bytes) = (self.name(place), encode(place, nonce, body));
        self.store.put_once(&name, &bytes).map_err(|e| Error::io("put", name, e))
    }

    /// The places that the store lists: some may be missing, and some gone.
    pub(super) fn listed(&self) -> Result<Vec<Place>> {
        let names = self.store.list_below(&self.prefix);
        let names = names.map_err(|e| Error::io("list", &self.prefix, e))?;
        let below = |name: &String| Place::parse(name.strip_prefix(&self.prefix)?.strip_prefix('/')?);
        Ok(names.iter().filter_map(below).collect())
    }

    pub(super) fn delete_all(&self, places: &[Place]) -> Result<()> {
        let deleted = self.store.delete_all(&self.names(places));
        deleted.map_err(|e| Error::io("delete objects of", &self.prefix, e))
    }

    pub(super) fn store(&self) -> &dyn ObjectStore {
        &*self.store
    }

    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The name of an object in the store.
    pub(crate) fn name(&self, place: Place) -> String {
        format!("{}/{}", self.prefix, place.name())
    }

    fn names(&self, places: &[Place]) -> Vec<String> {
        places.iter().map(|place| self.name(*place)).collect()
    }
}

/// Refuses an entry that no reader would take.
pub(super) fn check(entry: &Entry, place: Place) -> Result<()> {
    if entry.payload.len() > PAYLOAD_BYTES_MAX {
        let message = format!("entry of {} bytes, at most {PAYLOAD_BYTES_MAX}", entry.payload.len());
        return Err(Error::invalid(message));
    }
    match entry.start {
        Some(start) if !start.fits(place) => Err(Error::invalid(format!("{start:?} is after {place}"))),
        _ => Ok(()),
    }
}
