//! The basic types of all other modules: keys, cells, ids, range tombstones, byte codecs, the distinct-count
//! sketch, counts of updates. Pure data: this folder imports nothing from the crate except the error type,
//! does no I/O and takes no lock.
//!
//! - `cell` and the order of cells, `key` (and ranges of keys), `ids`, `time` (ranges of timestamps),
//!   `tombstone` (range tombstones).
//! - `cursor`: the interface of all sorted sources of cells, for reads and compactions. `pinned`: values
//!   handed out without copying.
//! - `sketch` estimates distinct keys, `multiset` counts equal values, `update_count` how often keys were
//!   written lately, `version_limit` finds the versions that newer ones have pushed out.
//! - `codec` for bytes, `size` for sizes as text, `random` for random numbers. `assert_send` declares which
//!   types may be sent to other threads.

mod assert_send;
mod cell;
pub(crate) mod codec;
mod cursor;
mod ids;
mod key;
mod multiset;
mod pinned;
pub(crate) mod random;
mod size;
mod sketch;
mod time;
mod tombstone;
mod update_count;
mod version_limit;

pub(crate) use assert_send::sent;
pub(crate) use cell::born_us;
pub use cell::{Cell, CellRef, Kind, VALUE_BYTES_MAX};
pub(crate) use cursor::{Cursor, Visit, Within};
pub use ids::{Generation, LogFileId, LogPosition, SeqNo, StoreId, TableId, Timestamp};
pub use key::{KEY_BYTES_MAX, KeyRange};
pub(crate) use key::{common_prefix, hash, prefix64, successor};
pub(crate) use multiset::Counts;
pub(crate) use pinned::Owner;
pub use pinned::Pinned;
pub use random::Rng;
pub use size::{parse_size, size_text};
pub use sketch::Sketch;
pub(crate) use time::TimeRange;
pub use tombstone::RangeTombstone;
#[cfg(all(test, not(models)))]
pub(crate) use tombstone::looks;
pub(crate) use tombstone::{Cover, Fragment, Fragments, Window};
pub(crate) use update_count::{Heat, Heats, HotCell};
pub(crate) use version_limit::Pushed;
