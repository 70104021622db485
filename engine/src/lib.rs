//! Siltstone: a log-structured merge key-value store whose compactions are not felt.

mod cache;
#[macro_use]
pub mod testing;

mod error;
pub mod simulate;
mod log;
pub mod storage;
pub mod strategy;
mod table;
mod types;
pub mod version;

pub use error::{Error, ErrorKind, Result};
pub use table::Compression;
pub use types::*;
