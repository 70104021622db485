//! Comparators. Keys are in the order of their bytes here, so a comparator of the caller's is taken if it
//! says the same. It is asked about the caller's own keys alone: each that is written, deleted, got or sought
//! beside the one before, and those beside each other where an iterator steps. Where it says otherwise that
//! call fails. What it says of keys that never meet so nobody learns.

use crate::bytes::Slice;
use crate::error::invalid;
use siltstone::Result;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::Arc;

/// A comparator of the caller's.
pub struct Comparator(pub(super) Arc<Order>);

type Compare = extern "C" fn(*mut c_void, *const c_char, usize, *const c_char, usize) -> c_int;

/// The callbacks of a comparator.
pub(super) struct Order {
    state: *mut c_void,
    destructor: Option<extern "C" fn(*mut c_void)>,
    compare: Compare,
    name: Option<extern "C" fn(*mut c_void) -> *const c_char>,
}

// SAFETY: LevelDB asks for comparators that several threads may use at once.
unsafe impl Send for Order {}
// SAFETY: as above.
unsafe impl Sync for Order {}

impl Drop for Order {
    fn drop(&mut self) {
        if let Some(destructor) = self.destructor {
            destructor(self.state);
        }
    }
}

impl Order {
    fn agrees(&self, left: &[u8], right: &[u8]) -> bool {
        let text = |bytes: &[u8]| Slice::of(bytes).data.cast();
        let said = (self.compare)(self.state, text(left), left.len(), text(right), right.len());
        said.cmp(&0) == left.cmp(right)
    }

    fn refused(&self) -> siltstone::Error {
        let name = self.name.map(|name| name(self.state)).filter(|name| !name.is_null());
        // SAFETY: a text, as LevelDB asks for.
        let name = name.map(|name| unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned());
        let name = name.unwrap_or_default();
        invalid(format!(
            "comparator {name} orders keys otherwise than by their bytes, which Siltstone cannot"
        ))
    }

    /// Asks about two keys of the caller's.
    pub(super) fn check(&self, left: &[u8], right: &[u8]) -> Result<()> {
        if self.agrees(left, right) { Ok(()) } else { Err(self.refused()) }
    }
}

/// A comparator. `destructor` gets `state` when neither this nor options, databases and iterators that have
/// it need it any more.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_comparator_create(
    state: *mut c_void,
    destructor: Option<extern "C" fn(*mut c_void)>,
    compare: Option<extern "C" fn(*mut c_void, *const c_char, usize, *const c_char, usize) -> c_int>,
    name: Option<extern "C" fn(*mut c_void) -> *const c_char>,
) -> Option<Box<Comparator>> {
    Some(Box::new(Comparator(Arc::new(Order { state, destructor, compare: compare?, name }))))
}

/// Frees a comparator.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_comparator_destroy(comparator: Option<Box<Comparator>>) {
    drop(comparator);
}

/// How a database finds that a key is not in an SSTable.
pub struct FilterPolicy {
    pub(super) bits_per_key: u32,
    state: *mut c_void,
    destructor: Option<extern "C" fn(*mut c_void)>,
}

impl Drop for FilterPolicy {
    fn drop(&mut self) {
        if let Some(destructor) = self.destructor {
            destructor(self.state);
        }
    }
}

/// Bits a key where a policy does not say.
const BITS: u32 = 10;

/// Filters of that many bits a key.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_filterpolicy_create_bloom(bits_per_key: c_int) -> Option<Box<FilterPolicy>> {
    let bits_per_key = u32::try_from(bits_per_key).unwrap_or(BITS).min(64);
    Some(Box::new(FilterPolicy { bits_per_key, state: std::ptr::null_mut(), destructor: None }))
}

/// A policy of the caller's: it is freed as such, but SSTables have filters of their own kind in its place.
/// Its functions are not called.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_filterpolicy_create(
    state: *mut c_void,
    destructor: Option<extern "C" fn(*mut c_void)>,
    create_filter: Option<
        extern "C" fn(*mut c_void, *const *const c_char, *const usize, c_int, *mut usize) -> *mut c_char,
    >,
    key_may_match: Option<extern "C" fn(*mut c_void, *const c_char, usize, *const c_char, usize) -> u8>,
    name: Option<extern "C" fn(*mut c_void) -> *const c_char>,
) -> Option<Box<FilterPolicy>> {
    let _ = (create_filter, key_may_match, name);
    Some(Box::new(FilterPolicy { bits_per_key: BITS, state, destructor }))
}

/// Frees a policy.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_filterpolicy_destroy(policy: Option<Box<FilterPolicy>>) {
    drop(policy);
}
