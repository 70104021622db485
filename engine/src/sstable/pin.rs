//! Values that outlive their cursor or get, by pinning their block.
#![expect(unsafe_code, reason = "a value is handed out without copying; its block keeps the bytes alive")]

use super::reference::Fetched;
use crate::cache::block::Block;
use crate::types::{Owner, Pinned};
use std::any::Any;
use std::ops::Range;
use std::sync::Arc;

// SAFETY: a block's bytes are never changed after it is made and are freed only with the block, which the pin
// (a clone of the `Arc`) keeps. Of a cell handed out with this owner the value always lies in the block.
unsafe impl Owner for Arc<Block> {
    fn pin(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        // Mapped bytes may prove invalid after they are read, so they are copied first.
        (!self.is_mapped()).then(|| Arc::clone(self) as Arc<dyn Any + Send + Sync>)
    }
}

/// The owner of a value in a mapped block: it pins nothing, so the value is copied.
pub(super) struct Copied;

// SAFETY: nothing is pinned.
unsafe impl Owner for Copied {
    fn pin(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        None
    }
}

// SAFETY: what was fetched is changed only while nobody shares it (`Arc::get_mut`), and the pin shares it. Of
// a cell handed out with this owner the value always lies in it.
unsafe impl Owner for Arc<Fetched> {
    fn pin(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        Some(Arc::clone(self) as Arc<dyn Any + Send + Sync>)
    }
}

/// Pins a value that was fetched from the WAL.
pub(super) fn pin_fetched(fetched: &Arc<Fetched>, into: &mut Pinned) {
    // SAFETY: the value is a part of what is the owner.
    unsafe { into.hold(fetched.value(), fetched) }
}

/// Pins the bytes of that range of the block.
#[inline]
pub(super) fn pin(block: &Arc<Block>, range: Range<usize>, into: &mut Pinned) {
    let bytes = &block.bytes()[range];
    // SAFETY: `bytes` is a part of the block that is the owner.
    unsafe { into.hold(bytes, block) }
}
