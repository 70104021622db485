//! Ranges of keys.

use crate::bytes::Slice;
use crate::error::invalid;
use siltstone::{KeyRange, Result};

/// A range of keys, in the order of their bytes: from `start` up to, but not including, `end`; or those that
/// begin with `prefix`, if that is given instead. What is left out (`data` NULL) does not bound it: `{0}` is
/// all keys.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Range {
    /// The first key.
    pub start: Slice,
    /// The key behind the last one.
    pub end: Slice,
    /// The prefix of all keys.
    pub prefix: Slice,
}

impl Range {
    /// The engine's range; all keys for NULL.
    pub(crate) fn of(range: Option<&Self>) -> Result<KeyRange> {
        let Some(range) = range else { return Ok(KeyRange::all()) };
        let (start, end) = (range.start.given("range.start")?, range.end.given("range.end")?);
        match range.prefix.given("range.prefix")? {
            Some(_) if start.is_some() || end.is_some() => {
                Err(invalid("a range has either a prefix or ends, not both"))
            }
            Some(prefix) => Ok(KeyRange::prefix(prefix)),
            None => Ok(KeyRange { start: start.unwrap_or_default().to_vec(), end: end.map(<[u8]>::to_vec) }),
        }
    }
}
