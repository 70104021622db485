//! LevelDB's C interface, over the same engine: for programs that were written for LevelDB's `leveldb/c.h`,
//! which run with this library in its place.
//!
//! A database is a directory of Siltstone's own; LevelDB's are neither read nor written. What of the
//! interface has no meaning here is taken and does nothing: restart intervals, loggers, environments, checks
//! (which are always made). A filter policy means filters of ten bits a key, or as many as it says. Keys are
//! in the order of their bytes: see `order` for comparators.
//!
//! As in LevelDB, pointers must not be NULL, texts and values that are handed out come from `malloc`, and
//! `errptr` is set to a text on failure and left alone otherwise.
//!
//! `db` opens, reads and writes, `options` says how, `batch` and `iterator` are what their names say, `order`
//! has comparators and filter policies, and `memory` is for bytes of the caller's and for what is handed out.

mod batch;
mod db;
mod iterator;
mod memory;
mod options;
mod order;

pub use batch::*;
pub use db::*;
pub use iterator::*;
pub use memory::*;
pub use options::*;
pub use order::*;
