//! Siltstone: a log-structured merge key-value store whose compactions are not felt.

#[macro_use]
pub mod testing;

mod error;
pub mod storage;
mod types;
pub mod version;

pub use error::{Error, ErrorKind, Result};
pub use types::*;
