//! Checkpoints: objects beside the stream, each with the manifest as of one of its places.

use super::access::Stream;
use super::place::Place;
use crate::error::{Error, ErrorKind, Result};
use std::io;

const MAGIC: &[u8; 8] = b"SILTCKP1";
const FOLDER: &str = "checkpoint";
const SUM_BYTES: usize = 4;

fn sum(place: Place, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(place.name().as_bytes()), bytes)
}

impl Stream {
    pub(crate) fn checkpoint_name(&self, place: Place) -> String {
        format!("{}/{FOLDER}/{}", self.prefix(), place.name().replace('/', "-"))
    }

    /// Puts the checkpoint as of that place, which is of the caller's own incarnation. It counts once an
    /// acknowledged entry names it.
    pub(crate) fn put_checkpoint(&self, place: Place, payload: &[u8]) -> Result<()> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(payload);
        let sum = sum(place, &bytes);
        bytes.extend_from_slice(&sum.to_le_bytes());
        let name = self.checkpoint_name(place);
        self.store().put(&name, &bytes).map_err(|e| Error::io("put", name, e))
    }

    /// The payload of the checkpoint as of that place; `None` if there is none (any more).
    pub(crate) fn checkpoint(&self, place: Place) -> Result<Option<Vec<u8>>> {
        let name = self.checkpoint_name(place);
        let mut bytes = match self.store().get_whole(&name) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(Error::io("read", name, e)),
        };
        let wrong = |at: usize, what: &str| Err(Error::corruption(&name, at as u64, what));
        if bytes.get(..7) != Some(&MAGIC[..7]) {
            return wrong(0, "magic: no checkpoint of a stream");
        }
        if bytes.get(7) != Some(&MAGIC[7]) {
            let message = format!("{name}: format version: of another release, expected 1");
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        let Some((signed, found)) = bytes.split_last_chunk::<SUM_BYTES>().filter(|(head, _)| head.len() >= 8)
        else {
            return wrong(8, "checksum: checkpoint shorter than it");
        };
        if sum(place, signed) != u32::from_le_bytes(*found) {
            return wrong(signed.len(), "checksum: does not fit the bytes and the place");
        }
        bytes.truncate(bytes.len() - SUM_BYTES);
        Ok(Some(bytes.split_off(MAGIC.len())))
    }

    /// Deletes the checkpoints before that place, which is one that counts: whoever reads the stream after
    /// its entry was acknowledged starts there. Returns how many.
    pub(crate) fn delete_checkpoints(&self, before: Place) -> Result<u64> {
        let folder = format!("{}/{FOLDER}", self.prefix());
        let names = self.store().list_below(&folder).map_err(|e| Error::io("list", &folder, e))?;
        let place = |name: &String| Place::parse(&name.strip_prefix(&folder)?.get(1..)?.replace('-', "/"));
        let mut names = names;
        names.retain(|name| place(name).is_some_and(|place| place < before));
        self.store().delete_all(&names).map_err(|e| Error::io("delete in", &folder, e))?;
        Ok(names.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::sim::{SimClock, SimObjects, SimRandom, SimStorage};
    use std::path::Path;
    use std::sync::Arc;

    #[test]
    fn a_checkpoint_reads_back_at_its_place_and_no_flipped_byte_passes() {
        let disk = Arc::new(SimStorage::new(1));
        let store = SimObjects::new(disk, Arc::new(SimClock::default()), Path::new("o"), None);
        let stream = Stream::new(store, "d/one", Arc::new(SimRandom::new(1)));
        let place = Place::new(2, 7);
        assert_eq!(stream.checkpoint(place).unwrap(), None);
        for payload in [&b""[..], b"state"] {
            stream.put_checkpoint(place, payload).unwrap();
            assert_eq!(stream.checkpoint(place).unwrap().unwrap(), payload);
        }
        let name = stream.checkpoint_name(place);
        let good = stream.store().get_whole(&name).unwrap();
        for at in 0..good.len() {
            let mut bytes = good.clone();
            bytes[at] ^= 4;
            stream.store().put(&name, &bytes).unwrap();
            let text = stream.checkpoint(place).unwrap_err().to_string();
            assert!(text.contains(&name), "{text}");
            stream.store().put(&name, &bytes[..at]).unwrap();
            assert!(stream.checkpoint(place).is_err(), "cut at {at}");
        }
        // Another place's bytes are refused too.
        stream.store().put(&stream.checkpoint_name(place.next()), &good).unwrap();
        assert!(stream.checkpoint(place.next()).is_err());
        stream.put_checkpoint(Place::new(3, 1), b"later").unwrap();
        assert_eq!(stream.delete_checkpoints(Place::new(3, 1)).unwrap(), 2);
        assert_eq!(stream.checkpoint(Place::new(3, 1)).unwrap().unwrap(), b"later");
    }
}
