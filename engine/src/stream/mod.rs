//! The stream of a shared database: numbered objects in shared storage that stand in for WAL and manifest,
//! one order for all that is written, and one fence. Recovery is an open: whoever opens the database seals
//! what the last owner wrote, reads it and goes on. `tests/models` has the protocol as models.
//!
//! - An object lies at a `place`: number n of incarnation k, named `<k>/<n>`. An incarnation is written by
//!   one process. Object 0 claims it, the others are entries, and a seal ends it for ever. Each is put once
//!   ([`ObjectStore::put_once`](crate::storage::ObjectStore::put_once)) and holds a nonce.
//! - `writer`: the owner's side. Any number of puts are in flight, by the threads of their callers, with no
//!   lock held. An entry is acknowledged when all places up to its own are there. An owner that finds
//!   another's object at its place, or does not learn what became of a put, writes no more.
//! - `recover`: a recoverer finds the newest incarnation by reading object 0 upwards, reads it place by
//!   place and puts a seal into the first empty one. So a put that is late finds its place taken. It claims
//!   the next incarnation, naming the seal that it follows: of several recoverers one succeeds, and the
//!   others begin again there.
//! - `ahead`: up to 64 objects are read together, as each takes a request. They are judged in the order of
//!   their places: what lies beyond an empty one does not count, nor does an error met there.
//! - `follow`: reading beside the owner, up to the first empty place and on from there. It puts nothing.
//! - `collect`: only incarnations below the owner's lose objects. Object 0 and the seal of each stay for
//!   ever, so in the newest one a place that is free was never used. An older incarnation ends at the seal
//!   which the next claim names: a slow recoverer may put another into a lower place that was collected.
//!
//! Claims and entries say from where a reader starts (the newest checkpoint that counts, and the oldest
//! place that memory needs), and up to which sequence number their writer may give any out: the next
//! incarnation begins above. `object` has their bytes, `access` the calls to the store, `shared_log` the
//! interface that other kinds of storage may have too. `checkpoint` has the manifest's checkpoints beside the
//! stream. `outbox` brings what a database logs into it: the `item`s of an entry's payload; `outbox_model.rs`
//! has the schedules of its callers. Not owned here: what the bytes of WAL and manifest mean.

mod access;
mod ahead;
mod checkpoint;
mod collect;
mod follow;
mod item;
mod object;
mod outbox;
mod place;
mod recover;
mod shared_log;
#[cfg(test)]
mod tests;
mod writer;

#[cfg(any(test, feature = "testing"))]
pub(crate) use object::forge;

pub use access::Stream;
pub use object::{Body, Claim, Entry, Object, PAYLOAD_BYTES_MAX, Sealed, Start};
pub use place::Place;
pub use recover::{Recovered, Terms};
pub use shared_log::SharedLog;
pub use writer::Writer;

pub(crate) use item::{Item, items};
pub(crate) use outbox::{Begun, FRAME_BYTES_MAX, Outbox};
