//! What scans and cursors yield.

use crate::types::{Pinned, Timestamp};

/// A key and its value, as a scan yields them.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// let db = siltstone::Db::open(dir.path())?;
/// db.put("k", "v")?;
/// let entry = db.scan("a".."z").next().unwrap()?;
/// assert_eq!((&entry.key[..], &*entry.value), (&b"k"[..], &b"v"[..]));
/// # Ok::<(), siltstone::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: Vec<u8>,
    /// Zero in families with implicit timestamps.
    pub timestamp: Timestamp,
    /// The value.
    pub value: Pinned,
}
