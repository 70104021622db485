//! The contents of the objects: JSON, as they are few and small.

use serde::{Deserialize, Serialize};

/// What an object of the lease's chain says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Kind {
    /// Its process opens the database. No lease is kept yet; the one before has ended, or is waited for.
    Taken,
    /// Its process answers reads for the TTL, less a margin, from when it sent this.
    Held,
    /// Its process keeps no lease any more, as no standby waits; it answers reads without one.
    Ended,
    /// Its process has closed the database after its last read.
    Released,
}

/// An object of the lease's chain.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct LeaseObject {
    /// The object's number: no two objects are equal.
    pub(super) counter: u64,
    /// The random id of the process' life.
    pub(super) holder: u64,
    /// A random number.
    pub(super) nonce: u64,
    pub(super) kind: Kind,
    pub(super) ttl_ms: u64,
    /// The highest announcement of a standby that its process had read.
    pub(super) seen: u64,
    /// The process, for a standby on the same machine ([`process`](crate::storage::Storage::process)).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) process: Option<String>,
}

/// An announcement of a standby.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Announcement {
    /// The object's number.
    pub(super) number: u64,
    /// The random id of the standby's life.
    pub(super) standby: u64,
    /// A random number.
    pub(super) nonce: u64,
    /// Whether it waits from now on, or leaves.
    pub(super) waits: bool,
}
