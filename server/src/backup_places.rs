//! Where backups lie: in a directory, or in an object store that several servers may share.
//!
//! In an object store each server has a place of its own, named by a number that it draws once: only it writes there. Copies of
//! backups that another server's database made lie in one place for each such server, since a place holds backups of one
//! database. Beside the places is `names`, with an object for each backup that says whose it is and where: by these, servers find
//! each other's backups. What a server's own records say holds; `names` follows them.

use crate::backups::Backup;
use crate::status::told;
use serde::{Deserialize, Serialize};
use siltstone::Backups;
use siltstone::storage::{Env, ObjectStore, OpenObjectStore};
use std::fmt::Write as _;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use tonic::Status;

/// Where the names of backups are.
const NAMES: &str = "names";
/// Bytes of what is said of a backup there, at most.
const PUBLISHED_MAX: u64 = 16 << 20;

/// See the page above.
pub(crate) enum BackupPlaces {
    Directory(PathBuf),
    Store(BackupStore),
}

/// An object store of backups.
pub(crate) struct BackupStore {
    location: String,
    open: Box<OpenObjectStore>,
    /// The place of this server.
    own: OnceLock<String>,
}

/// A backup as other servers find it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Published {
    /// Whose it is, by its place.
    pub(crate) server: String,
    pub(crate) backup: Backup,
}

impl Published {
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, Status> {
        serde_json::from_slice(bytes).map_err(|e| Status::data_loss(format!("the object of a backup: {e}")))
    }
}

/// The name of the object of a backup: letters, digits, `-` and `_` as they are, others as a dot and their number.
fn object_of(name: &str) -> String {
    let mut object = String::with_capacity(name.len() + 16);
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => object.push(char::from(byte)),
            // Writing to a text cannot fail.
            other => _ = write!(object, ".{other:02x}"),
        }
    }
    object
}

#[expect(clippy::needless_pass_by_value, reason = "as `map_err` wants it")]
fn failed(error: io::Error) -> Status {
    Status::unavailable(told(&format!("the object store of backups: {error}")))
}

impl BackupPlaces {
    /// An object store.
    pub(crate) fn store(
        location: &str,
        open: impl Fn(&str) -> io::Result<Arc<dyn ObjectStore>> + Send + Sync + 'static,
    ) -> Self {
        let location = location.trim_end_matches('/').to_string();
        Self::Store(BackupStore { location, open: Box::new(open), own: OnceLock::new() })
    }

    /// The object store, if they lie in one.
    pub(crate) fn in_store(&self) -> Option<&BackupStore> {
        match self {
            Self::Directory(_) => None,
            Self::Store(store) => Some(store),
        }
    }

    /// Where new backups of this server's tables go; empty for the directory.
    pub(crate) fn own(&self) -> &str {
        self.in_store().map_or("", BackupStore::own)
    }

    /// Whether that place can be reached with the settings as they are.
    pub(crate) fn reaches(&self, place: &str) -> bool {
        self.in_store().is_some() != place.is_empty()
    }

    /// The engine's backups of a place, of which these are surely there.
    pub(crate) fn at(&self, place: &str, known: &[u64]) -> Result<Backups, Status> {
        match self {
            Self::Directory(dir) if place.is_empty() => Ok(Backups::new(&Env::local(), dir)),
            Self::Store(store) if !place.is_empty() => {
                Ok(Backups::in_object_store(store.open(place)?, known))
            }
            Self::Directory(_) => Err(Status::failed_precondition(
                "the backup lies in an object store, and the setting `backups` names a directory",
            )),
            Self::Store(_) => Err(Status::failed_precondition(
                "the backup lies in a directory, and the setting `backups` names an object store",
            )),
        }
    }
}

impl BackupStore {
    fn open(&self, place: &str) -> Result<Arc<dyn ObjectStore>, Status> {
        (self.open)(&format!("{}/{place}", self.location)).map_err(failed)
    }

    /// Says which place is this server's.
    pub(crate) fn own_is(&self, place: String) {
        self.own.get_or_init(|| place);
    }

    fn own(&self) -> &str {
        self.own.get().map_or("", String::as_str)
    }

    /// Whether it is a location that can be opened. Nothing is asked of the store.
    pub(crate) fn check(&self) -> Result<(), Status> {
        self.open(NAMES).map(drop)
    }

    /// Whether a place is another server's.
    pub(crate) fn is_foreign(&self, place: &str) -> bool {
        place.split('-').next() != Some(self.own())
    }

    /// Where copies of backups of that place go.
    pub(crate) fn for_copies_of(&self, place: &str) -> String {
        match place.rsplit('-').next() {
            // Of tables of ours, which another server has a copy of.
            Some(origin) if origin != self.own() => format!("{}-{origin}", self.own()),
            _ => self.own().to_string(),
        }
    }

    /// What is said of a backup of that name, by whichever server.
    fn published(&self, name: &str) -> Result<Option<Published>, Status> {
        // One request, so that an object that is replaced meanwhile is seen as it was or as it is.
        match self.open(NAMES)?.tail(&object_of(name), PUBLISHED_MAX) {
            Ok((len, bytes)) if len == bytes.len() as u64 => Published::parse(&bytes).map(Some),
            Ok((len, _)) => Err(Status::data_loss(format!("the object of backup {name} has {len} bytes"))),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(failed(e)),
        }
    }

    /// The backup of that name, if it is another server's.
    pub(crate) fn find_foreign(&self, name: &str) -> Result<Option<Backup>, Status> {
        // What is said of one of ours that our records do not have will go.
        let foreign = self.published(name)?.filter(|published| published.server != self.own());
        Ok(foreign.map(|published| published.backup))
    }

    /// Says of a backup of this server what its records say: that it is there, or not. What another server says stays.
    pub(crate) fn publish(&self, name: &str, backup: Option<&Backup>) -> Result<(), Status> {
        let (names, object) = (self.open(NAMES)?, object_of(name));
        let is_foreign = |of: &Published| of.server != self.own();
        match backup {
            Some(backup) => {
                let published = Published { server: self.own().to_string(), backup: backup.clone() };
                let json = serde_json::to_vec(&published).map_err(|e| Status::internal(e.to_string()))?;
                if names.put_if_absent(&object, &json).map_err(failed)? {
                    return Ok(());
                }
                if self.published(name)?.is_some_and(|of| is_foreign(&of)) {
                    tracing::warn!(
                        backup = name,
                        "another server has a backup of that name: it alone is found by others"
                    );
                    return Ok(());
                }
                names.put(&object, &json).map_err(failed)
            }
            None if self.published(name)?.is_none_or(|of| is_foreign(&of)) => Ok(()),
            None => names.delete(&object).map_err(failed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_objects_are_told_apart() {
        let names = ["projects/p/x", "projects/p.x", "projects/p.2fx", "projects/p\u{e9}x", "projects-p-x"];
        let objects: std::collections::BTreeSet<_> = names.iter().map(|name| object_of(name)).collect();
        assert_eq!(objects.len(), names.len());
        assert!(objects.iter().all(|object| !object.contains('/')), "{objects:?}");
        assert_eq!(object_of("a/b-1_c"), "a.2fb-1_c");
    }

    #[test]
    fn each_server_has_places_of_its_own_and_one_for_each_whose_backups_it_copies() {
        let places = BackupPlaces::store("s3://b/p/", |_| Err(io::ErrorKind::Other.into()));
        let store = places.in_store().unwrap();
        store.own_is("aa".into());
        assert!(!store.is_foreign("aa") && !store.is_foreign("aa-bb") && store.is_foreign("bb-aa"));
        for (place, copies) in [("bb", "aa-bb"), ("cc-bb", "aa-bb"), ("bb-aa", "aa")] {
            assert_eq!(store.for_copies_of(place), copies, "{place}");
        }
        assert!(places.reaches("aa") && !places.reaches(""));
        assert_eq!(places.at("", &[]).unwrap_err().code(), tonic::Code::FailedPrecondition);
        assert_eq!(places.at("aa", &[]).unwrap_err().code(), tonic::Code::Unavailable);
    }
}
