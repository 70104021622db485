//! The identity of a shared database: the objects `id/<n>` in its place, each put once, of which the highest
//! counts. The first one makes the place a database. Every process reads it before anything else, and asks
//! the store for the one thing that all else rests on: that of two puts of one name one is refused.

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

impl SharedId {
    /// The id that counts in that place; `None` if no database is there.
    pub(super) fn find(store: &dyn ObjectStore) -> Result<Option<Self>> {
        let (mut number, mut found) = (1, None);
        while let Some(id) = read(store, &name(number))? {
            (number, found) = (number + 1, Some(id));
        }
        Ok(found)
    }

    /// Makes the place a database of that number, unless another does first: then its id is returned.
    pub(super) fn create(store: &dyn ObjectStore, database: u64, random: &dyn Random) -> Result<Self> {
        let id = Self { database: format!("{database:016x}"), format: FORMAT, nonce: random.next_u64() };
        let bytes = serde_json::to_vec(&id).map_err(|e| Error::invalid(format!("id: {e}")))?;
        let name = name(1);
        store.put_once(&name, &bytes).map_err(|e| Error::io("put", &name, e))?;
        let found = Self::find(store)?;
        found.ok_or_else(|| Error::corruption(name, 0, "id is missing, expected it where it was just put"))
    }

    /// The database's number.
    pub(super) fn number(&self) -> u64 {
        u64::from_str_radix(&self.database, 16).unwrap_or_default()
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
