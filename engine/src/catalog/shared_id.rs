//! The identity of a shared database: the objects `id/<n>` in its place, each put once, of which the highest
//! counts. The first one makes the place a database. Every process reads it before anything else, and asks
//! the store for the one thing that all else rests on: that of two puts of one name one is refused.
//!
//! A local database that moves to the place puts two, with a nonce of its own. The first reserves the place,
//! the second, once everything is there, makes it that database. Who undoes the move puts another second one,
//! after which the place is free: as each name is put once, a move has one end, whoever is how late.

use crate::error::{Error, ErrorKind, Result};
use crate::storage::{ObjectStore, PutOnce, Random};
use serde::{Deserialize, Serialize};
use std::io;
use std::sync::Arc;

/// The format of everything in the place that this release writes, and the highest that it reads.
const FORMAT: u32 = 1;
/// An id is shorter by far.
const ID_BYTES_MAX: u64 = 64 << 10;

/// What is known of a shared database before it is opened.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct SharedId {
    /// The database's number, in hexadecimal.
    pub(super) database: String,
    /// The lowest format of the releases that may have it open.
    pub(super) format: u32,
    /// A number that no other such object has.
    nonce: u64,
    #[serde(default, skip_serializing_if = "Says::is_database")]
    says: Says,
}

/// What an id makes of the place.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Says {
    /// A database is there.
    #[default]
    Database,
    /// A database moves there, and nobody else makes one.
    Moving,
    /// It does not: the place is free.
    Undone,
}

impl Says {
    fn is_database(&self) -> bool {
        *self == Self::Database
    }
}

/// How far the move with a nonce has come.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Move {
    /// The place is free, and the next id has that number.
    Free(u64),
    /// The place is reserved for it, and the id of that number ends it.
    Begun(u64),
    /// The place is the database that moved.
    Done,
    /// It was undone.
    Undone,
    /// The place is, or is reserved for, the database of that number, by another move or none.
    Taken(u64),
}

fn name(number: u64) -> String {
    format!("id/{number:016x}")
}

fn read(store: &dyn ObjectStore, name: &str) -> Result<Option<SharedId>> {
    let bytes = match store.tail(name, ID_BYTES_MAX) {
        Ok((_, bytes)) => bytes,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(Error::io("read", name, e)),
    };
    let id: SharedId = serde_json::from_slice(&bytes)
        .map_err(|e| Error::corruption(name, 0, format!("id of a shared database: {e}")))?;
    if id.format > FORMAT {
        let message = format!("{name} has format {}, this release reads up to {FORMAT}", id.format);
        return Err(Error::new(ErrorKind::Unsupported, message));
    }
    match u64::from_str_radix(&id.database, 16) {
        Ok(number) if number != 0 => Ok(Some(id)),
        _ => Err(Error::corruption(name, 0, "id of a shared database: field database is no number")),
    }
}

/// All ids of a place, in their order.
fn all(store: &dyn ObjectStore) -> Result<Vec<SharedId>> {
    let mut ids = Vec::new();
    while let Some(id) = read(store, &name(ids.len() as u64 + 1))? {
        ids.push(id);
    }
    Ok(ids)
}

/// Puts an id, unless another has that number.
fn put(store: &dyn ObjectStore, number: u64, database: u64, nonce: u64, says: Says) -> Result<()> {
    let id = SharedId { database: format!("{database:016x}"), format: FORMAT, nonce, says };
    let bytes = serde_json::to_vec(&id).map_err(|e| Error::invalid(format!("id: {e}")))?;
    let name = name(number);
    store.put_once(&name, &bytes).map(|_| ()).map_err(|e| Error::io("put", &name, e))
}

impl SharedId {
    /// The id that counts in that place; `None` if no database is there.
    ///
    /// # Errors
    /// `Invalid` if the place is reserved for a database that is moving there.
    pub(super) fn find(store: &dyn ObjectStore) -> Result<Option<Self>> {
        match all(store)?.pop() {
            Some(id) if id.says == Says::Moving => Err(Error::invalid(format!(
                "a local database is moving to {}: `siltstone shared adopt` has to end first, or be undone",
                store.location()
            ))),
            found => Ok(found.filter(|id| id.says == Says::Database)),
        }
    }

    /// Makes the place a database of that number, unless another does first: then its id is returned.
    pub(super) fn create(store: &dyn ObjectStore, database: u64, random: &dyn Random) -> Result<Self> {
        let ids = all(store)?;
        if ids.last().is_none_or(|id| id.says == Says::Undone) {
            put(store, ids.len() as u64 + 1, database, random.next_u64(), Says::Database)?;
        }
        let missing = || Error::corruption(name(1), 0, "id is missing, expected it where it was just put");
        Self::find(store)?.ok_or_else(missing)
    }

    /// The database's number.
    pub(super) fn number(&self) -> u64 {
        u64::from_str_radix(&self.database, 16).unwrap_or_default()
    }
}

impl Move {
    /// How far the move with that nonce has come.
    pub(super) fn find(store: &dyn ObjectStore, nonce: u64) -> Result<Self> {
        let ids = all(store)?;
        let next = ids.len() as u64 + 1;
        let begun = ids.iter().position(|id| id.says == Says::Moving && id.nonce == nonce);
        let end = begun.map(|at| ids.get(at + 1).map(|id| id.says));
        Ok(match (end, ids.last()) {
            (Some(None), _) => Self::Begun(next),
            (Some(Some(Says::Database)), _) => Self::Done,
            (Some(Some(_)), _) => Self::Undone,
            (None, Some(last)) if last.says != Says::Undone => Self::Taken(last.number()),
            (None, _) => Self::Free(next),
        })
    }

    /// Reserves the place for the move of that database, if it is free.
    pub(super) fn begin(store: &dyn ObjectStore, database: u64, nonce: u64) -> Result<Self> {
        loop {
            match Self::find(store, nonce)? {
                Self::Free(number) => put(store, number, database, nonce, Says::Moving)?,
                found => return Ok(found),
            }
        }
    }

    /// Makes the place the database that has moved there, if it is reserved for that.
    pub(super) fn end(
        store: &dyn ObjectStore,
        database: u64,
        nonce: u64,
        random: &dyn Random,
    ) -> Result<Self> {
        if let Self::Begun(number) = Self::find(store, nonce)? {
            put(store, number, database, random.next_u64(), Says::Database)?;
        }
        Self::find(store, nonce)
    }

    /// Undoes the move, unless it is done: then `false` is returned. After `true` it never will be, however
    /// late an object comes that it has put.
    pub(super) fn undo(
        store: &dyn ObjectStore,
        database: u64,
        nonce: u64,
        random: &dyn Random,
    ) -> Result<bool> {
        loop {
            let (number, is_free) = match Self::find(store, nonce)? {
                Self::Free(number) => (number, true),
                Self::Begun(number) => (number, false),
                Self::Done => return Ok(false),
                // It reserved no number beyond those that are taken.
                Self::Undone | Self::Taken(_) => return Ok(true),
            };
            put(store, number, database, random.next_u64(), Says::Undone)?;
            // The number that it may have meant to reserve is taken now, by it or not.
            if is_free && matches!(Self::find(store, nonce)?, Self::Free(_) | Self::Taken(_)) {
                return Ok(true);
            }
        }
    }
}

/// Refuses a store that does not refuse the second of two puts of one name.
pub(super) fn probe(store: &Arc<dyn ObjectStore>, random: &dyn Random) -> Result<()> {
    let number = random.next_u64();
    let name = format!("probe/{number:016x}");
    let put = |bytes: &[u8]| store.put_once(&name, bytes).map_err(|e| Error::io("put", &name, e));
    let (first, second) = (put(b"first")?, put(b"second")?);
    // An object that stays is garbage.
    let _ = store.delete(&name);
    if (first, second) == (PutOnce::Mine, PutOnce::Theirs) {
        return Ok(());
    }
    let message = format!(
        "{} does not refuse to put an object over another (If-None-Match), and a shared database needs that",
        store.location()
    );
    Err(Error::new(ErrorKind::Unsupported, message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::sim::{SimClock, SimObjects, SimRandom, SimStorage};
    use std::path::Path;

    #[test]
    fn a_move_has_one_end_and_what_is_undone_leaves_the_place_free() {
        let disk = Arc::new(SimStorage::new(1));
        let store = SimObjects::new(disk, Arc::new(SimClock::default()), Path::new("o"), None);
        let random = SimRandom::new(1);
        assert_eq!(Move::begin(&*store, 7, 100).unwrap(), Move::Begun(2));
        assert_eq!(Move::begin(&*store, 7, 100).unwrap(), Move::Begun(2), "again");
        assert_eq!(Move::begin(&*store, 7, 200).unwrap(), Move::Taken(7), "another copy of the directory");
        let refused = SharedId::find(&*store).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
        assert!(SharedId::create(&*store, 9, &random).is_err());
        assert!(Move::undo(&*store, 7, 200, &random).unwrap(), "it had reserved nothing");
        assert_eq!(Move::find(&*store, 100).unwrap(), Move::Begun(2));
        assert!(Move::undo(&*store, 7, 100, &random).unwrap());
        assert_eq!(Move::end(&*store, 7, 100, &random).unwrap(), Move::Undone);
        assert_eq!(SharedId::find(&*store).unwrap(), None);

        // What was put before it was undone comes too late.
        assert_eq!(Move::find(&*store, 300).unwrap(), Move::Free(3));
        assert!(Move::undo(&*store, 7, 300, &random).unwrap());
        put(&*store, 3, 7, 300, Says::Moving).unwrap();
        assert_eq!(Move::find(&*store, 300).unwrap(), Move::Free(4));

        assert_eq!(Move::begin(&*store, 7, 400).unwrap(), Move::Begun(5));
        assert_eq!(Move::end(&*store, 7, 400, &random).unwrap(), Move::Done);
        assert!(!Move::undo(&*store, 7, 400, &random).unwrap());
        assert_eq!(Move::begin(&*store, 7, 200).unwrap(), Move::Taken(7));
        assert_eq!(SharedId::create(&*store, 9, &random).unwrap().number(), 7);
        assert_eq!(SharedId::find(&*store).unwrap().unwrap().number(), 7);
    }

    #[test]
    fn the_first_to_create_counts_and_what_cannot_be_read_says_so() {
        let disk = Arc::new(SimStorage::new(1));
        let store = SimObjects::new(disk, Arc::new(SimClock::default()), Path::new("o"), None);
        let random = SimRandom::new(1);
        assert_eq!(SharedId::find(&*store).unwrap(), None);
        assert_eq!(SharedId::create(&*store, 7, &random).unwrap().number(), 7);
        assert_eq!(SharedId::create(&*store, 9, &random).unwrap().number(), 7);
        let second = |text: &str| {
            store.put(&name(2), text.as_bytes()).unwrap();
            SharedId::find(&*store).unwrap_err()
        };
        let newer = second(r#"{"database":"07","format":2,"nonce":1}"#);
        assert_eq!(newer.kind(), ErrorKind::Unsupported, "{newer}");
        for bad in ["", "{}", r#"{"database":"0","format":1,"nonce":1}"#] {
            let error = second(bad);
            assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
            assert!(error.to_string().contains("id/0000000000000002"), "{error}");
        }
    }
}
