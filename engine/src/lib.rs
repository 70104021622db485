//! Siltstone: a log-structured merge key-value store whose compactions are not felt.

mod error;
mod log;
pub mod storage;
mod types;
pub mod version;

pub use error::{Error, ErrorKind, Result};
pub use types::*;
