//! Objects of one folder of the store under the numbers 1, 2, 3 and so on, each put once.
//!
//! The highest is found by reading upwards from one that is there, as a listing may lack recent ones. Such a
//! reader must not take a number that was deleted for one that is free. So only those are deleted that are
//! far below the newest ([`KEPT`]): of the lease about half an hour.

use crate::error::{Error, ErrorKind, Result};
use crate::storage::{ObjectStore, PutOnce};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io;
use std::marker::PhantomData;
use std::sync::Arc;

/// How many objects stay.
const KEPT: u64 = 1_000;
/// How many are deleted together: it must not take long.
const DELETED_MAX: usize = 100;
/// How often the newest is looked for, where listed objects are gone.
const TRIES: usize = 3;

/// A folder of such objects.
#[derive(Clone, Debug)]
pub(super) struct Numbered<T> {
    store: Arc<dyn ObjectStore>,
    folder: &'static str,
    of: PhantomData<T>,
}

/// An object with its number.
pub(super) type At<T> = (u64, T);

impl<T: Serialize + DeserializeOwned> Numbered<T> {
    pub(super) fn new(store: &Arc<dyn ObjectStore>, folder: &'static str) -> Self {
        Self { store: store.clone(), folder, of: PhantomData }
    }

    pub(super) fn name(&self, number: u64) -> String {
        format!("{}/{number:016x}", self.folder)
    }

    /// The object of that number, if there is one.
    pub(super) fn read(&self, number: u64) -> Result<Option<T>> {
        let name = self.name(number);
        let bytes = match self.store.get_whole(&name) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(Error::io("read", name, e)),
        };
        let object = serde_json::from_slice(&bytes);
        object.map(Some).map_err(|e| Error::corruption(name, 0, format!("object of the lease: {e}")))
    }

    /// Puts an object, unless its number is taken.
    pub(super) fn put(&self, number: u64, object: &T) -> Result<PutOnce> {
        let name = self.name(number);
        let bytes = serde_json::to_vec(object).map_err(|e| Error::invalid(format!("{name}: {e}")))?;
        self.store.put_once(&name, &bytes).map_err(|e| Error::io("put", name, e))
    }

    /// All above that number, which was there or is 0, up to the first that is missing. Ascending.
    pub(super) fn onwards(&self, from: u64) -> Result<Vec<At<T>>> {
        let mut found = Vec::new();
        for number in from + 1.. {
            let Some(object) = self.read(number)? else { break };
            found.push((number, object));
        }
        Ok(found)
    }

    /// The newest of all: so many of those that a listing has, and all above. Ascending.
    pub(super) fn newest(&self, count: usize) -> Result<Vec<At<T>>> {
        for _ in 0..TRIES {
            let listed = self.listed()?;
            let highest = listed.last().copied().unwrap_or(0);
            let mut found = Vec::new();
            for number in &listed[listed.len().saturating_sub(count)..] {
                found.extend(self.read(*number)?.map(|object| (*number, object)));
            }
            // Else it was deleted since it was listed: there are much higher ones.
            if found.last().map_or(0, |(number, _)| *number) == highest {
                found.extend(self.onwards(highest)?);
                return Ok(found);
            }
        }
        let message =
            format!("the objects {}/ in the store change faster than they can be read", self.folder);
        Err(Error::new(ErrorKind::Busy, message))
    }

    /// The numbers that the store lists, ascending.
    fn listed(&self) -> Result<Vec<u64>> {
        let names = self.store.list_below(self.folder);
        let names = names.map_err(|e| Error::io("list", self.folder, e))?;
        let number = |name: &String| {
            let number = name.strip_prefix(self.folder)?.strip_prefix('/')?;
            u64::from_str_radix(number, 16).ok()
        };
        let mut numbers: Vec<u64> = names.iter().filter_map(number).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Deletes some of what is far below that number, which is there.
    pub(super) fn clean(&self, newest: u64) -> Result<()> {
        let old = self.listed()?.into_iter().filter(|number| number + KEPT < newest);
        let old: Vec<String> = old.take(DELETED_MAX).map(|number| self.name(number)).collect();
        if old.is_empty() {
            return Ok(());
        }
        self.store.delete_all(&old).map_err(|e| Error::io("delete objects of", self.folder, e))
    }
}

#[cfg(all(test, not(models)))]
mod tests {
    use super::*;
    use crate::storage::sim::{SimClock, SimObjects, SimStorage};
    use std::path::Path;

    #[test]
    fn the_newest_is_found_from_a_listing_and_old_ones_are_deleted_bit_by_bit() {
        let (disk, clock) = (Arc::new(SimStorage::new(1)), Arc::new(SimClock::default()));
        let store: Arc<dyn ObjectStore> = SimObjects::new(disk, clock, Path::new("objects"), None);
        let numbered = Numbered::<u64>::new(&store, "lease");
        assert_eq!(numbered.newest(2).unwrap(), []);
        for number in 1..=KEPT + 150 {
            assert_eq!(numbered.put(number, &(number + 7)).unwrap(), PutOnce::Mine);
        }
        assert_eq!(numbered.put(3, &0).unwrap(), PutOnce::Theirs);
        let newest = KEPT + 150;
        assert_eq!(numbered.newest(2).unwrap(), [(newest - 1, newest + 6), (newest, newest + 7)]);
        assert_eq!(numbered.onwards(newest - 1).unwrap(), [(newest, newest + 7)]);
        assert_eq!(numbered.onwards(newest).unwrap(), []);
        for first in [101, 150, 150] {
            numbered.clean(newest).unwrap();
            assert_eq!(numbered.listed().unwrap()[0], first);
        }
        assert_eq!(numbered.read(149).unwrap(), None);
        store.put("lease/0000000000000200", b"no number").unwrap();
        let damaged = numbered.read(0x200).unwrap_err();
        assert_eq!(damaged.kind(), ErrorKind::Corruption, "{damaged}");
        assert!(damaged.to_string().contains("lease/0000000000000200"), "{damaged}");
    }
}
