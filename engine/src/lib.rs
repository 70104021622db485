//! Siltstone: a log-structured merge key-value store whose compactions are not felt.

mod error;
mod memory;
pub mod storage;
mod types;
pub mod version;

pub use error::{Error, ErrorKind, Result};
#[cfg(feature = "testing")]
#[doc(hidden)]
pub use memory::probe as memory_probe;
pub use types::*;
