//! Siltstone: a log-structured merge key-value store whose compactions are not felt.

mod cache;
#[macro_use]
pub mod testing;

mod error;
pub mod simulate;
mod log;
mod memory;
pub mod storage;
pub mod strategy;
mod table;
mod types;
pub mod version;

pub use error::{Error, ErrorKind, Result};
pub use table::Compression;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub use memory::probe as memory_probe;
pub use types::*;
