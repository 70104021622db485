//! Siltstone from C. `include/siltstone.h` is made of this by cbindgen (`cargo xtask c --header`), comments
//! and all.
//!
//! Each function takes and gives pointers as Rust sees them: `Option<&T>` is one that may be NULL,
//! `Option<Box<T>>` one that owns. So little is unsafe: `bytes` reads what callers point to, `operator` calls
//! their functions.
//!
//! ```text
//! error        what a call answers           handle       NULL checks, places for what is made, freeing
//! bytes        slices, values, texts in      text         texts out
//! range        ranges of keys                testing      decoders, for fuzzing
//! options      TOML text, operators          operator     functions of the caller's
//! db           opening, families, closing    family       reading and writing
//! write        one write, wherever it goes   batch        writes together
//! iterator     both ways through a range     transaction  optimistic transactions
//! snapshot     read points                   upkeep       statistics, copies, checks
//! leveldb      LevelDB's interface over the same engine
//! ```
//!
//! A panic ends the process: it is a fault of the library's, and nothing that could go on from there is known
//! to be right.

#![allow(unsafe_code, reason = "this is what C calls")]
#![allow(
    clippy::not_unsafe_ptr_arg_deref,
    reason = "C has no unsafe functions: the header says what pointers must be"
)]
#![allow(unreachable_pub, reason = "what C calls is public")]

mod batch;
mod bytes;
mod db;
mod error;
mod family;
mod handle;
mod iterator;
pub mod leveldb;
mod operator;
mod options;
mod range;
mod snapshot;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod testing;
mod text;
mod transaction;
mod upkeep;
mod write;

pub use batch::*;
pub use bytes::*;
pub use db::*;
pub use error::*;
pub use family::*;
pub use iterator::*;
pub use operator::*;
pub use options::*;
pub use range::*;
pub use snapshot::*;
pub use text::*;
pub use transaction::*;
pub use upkeep::*;
