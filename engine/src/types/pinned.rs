//! A value handed out without copying: a pointer into a block or a memory chunk, and the owner that keeps it
//! alive. This is the one place where a borrowed value outlives its borrow.
#![expect(unsafe_code, reason = "a get must not copy its value; the owner keeps the bytes alive")]

use std::any::Any;
use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

/// An owner that can keep a cell's bytes alive.
///
/// # Safety
/// The bytes of any cell handed out together with this owner must stay where they are, unchanged, as long as
/// a pinned `Arc` lives.
pub(crate) unsafe trait Owner {
    /// A reference that keeps the bytes alive; `None` if they must be copied.
    fn pin(&self) -> Option<Arc<dyn Any + Send + Sync>>;
}

/// A value read from the database; dereferences to its bytes. It holds the block (some 4 KiB) or the memory
/// chunk (up to hundreds of KiB) that it lies in, so those who keep many for long copy them:
/// [`Pinned::into_owned`]. `Statistics::pinned_bytes` counts them.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// let db = siltstone::Db::open(dir.path())?;
/// db.put(b"k", b"v")?;
/// let value = db.get(b"k")?.unwrap();
/// drop(db);
/// assert_eq!(value, b"v"); // it outlives the database
/// # Ok::<(), siltstone::Error>(())
/// ```
#[derive(Clone)]
pub struct Pinned(Inner);

#[derive(Clone)]
enum Inner {
    Held {
        bytes: *const u8,
        len: usize,
        _owner: Arc<dyn Any + Send + Sync>,
    },
    /// `None` for no bytes: all empty `Arc`s share one count.
    Owned(Option<Arc<[u8]>>),
}

// SAFETY: the bytes are immutable for as long as the owner lives (contract of `Owner`), and the owner itself
// is Send and Sync.
unsafe impl Send for Pinned {}
// SAFETY: as above; shared access only reads.
unsafe impl Sync for Pinned {}

impl Pinned {
    /// Pins `bytes`, which must be part of a cell handed out together with `owner`.
    ///
    /// # Safety
    /// `bytes` lies in memory covered by `owner`'s promise (see [`Owner`]).
    #[inline]
    pub(crate) unsafe fn held(bytes: &[u8], owner: &dyn Owner) -> Self {
        match owner.pin() {
            Some(_owner) => Pinned(Inner::Held { bytes: bytes.as_ptr(), len: bytes.len(), _owner }),
            None => Pinned(Inner::Owned(Some(bytes.into()))),
        }
    }

    /// Replaces this value by `bytes`, pinned like [`Pinned::held`] does; a copy reuses the memory of the old
    /// value if that has the same length.
    ///
    /// # Safety
    /// The promise of [`Pinned::held`].
    #[inline]
    pub(crate) unsafe fn hold(&mut self, bytes: &[u8], owner: &dyn Owner) {
        if let Inner::Owned(Some(own)) = &mut self.0
            && let Some(own) = Arc::get_mut(own).filter(|own| own.len() == bytes.len())
            && owner.pin().is_none()
        {
            own.copy_from_slice(bytes);
        } else {
            // SAFETY: as promised to this.
            *self = unsafe { Self::held(bytes, owner) };
        }
    }

    /// A copy of the bytes, which releases the block or chunk. (`to_vec` copies, too, but the value still
    /// holds its block.)
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = siltstone::Db::open(dir.path())?;
    /// db.put(b"k", b"v")?;
    /// let value: Vec<u8> = db.get(b"k")?.unwrap().into_owned();
    /// assert_eq!(value, b"v");
    /// # Ok::<(), siltstone::Error>(())
    /// ```
    pub fn into_owned(self) -> Vec<u8> {
        (*self).to_vec()
    }
}

impl From<Vec<u8>> for Pinned {
    fn from(bytes: Vec<u8>) -> Self {
        Pinned(Inner::Owned(Some(bytes.into())))
    }
}

impl Deref for Pinned {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match &self.0 {
            // SAFETY: `held`'s contract: the bytes live and do not change while the owner lives, which we
            // hold.
            Inner::Held { bytes, len, .. } => unsafe { std::slice::from_raw_parts(*bytes, *len) },
            Inner::Owned(bytes) => bytes.as_deref().unwrap_or_default(),
        }
    }
}

impl AsRef<[u8]> for Pinned {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for Pinned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.escape_ascii())
    }
}

impl Default for Pinned {
    fn default() -> Self {
        Pinned(Inner::Owned(None))
    }
}

impl From<&[u8]> for Pinned {
    fn from(bytes: &[u8]) -> Self {
        Pinned(Inner::Owned(Some(bytes.into())))
    }
}

impl From<Pinned> for Vec<u8> {
    fn from(value: Pinned) -> Self {
        value.into_owned()
    }
}

impl Borrow<[u8]> for Pinned {
    fn borrow(&self) -> &[u8] {
        self
    }
}

impl<T: AsRef<[u8]> + ?Sized> PartialEq<T> for Pinned {
    fn eq(&self, other: &T) -> bool {
        **self == *other.as_ref()
    }
}

macro_rules! equal_to_pinned {
    ($($bytes:ty),*) => {$(
        impl PartialEq<Pinned> for $bytes {
            fn eq(&self, other: &Pinned) -> bool {
                AsRef::<[u8]>::as_ref(self) == &**other
            }
        }
    )*};
}

equal_to_pinned!([u8], &[u8], Vec<u8>, str, &str, String);

impl<const N: usize> PartialEq<Pinned> for [u8; N] {
    fn eq(&self, other: &Pinned) -> bool {
        self[..] == **other
    }
}

impl<const N: usize> PartialEq<Pinned> for &[u8; N] {
    fn eq(&self, other: &Pinned) -> bool {
        self[..] == **other
    }
}

impl Eq for Pinned {}

impl PartialOrd for Pinned {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Pinned {
    fn cmp(&self, other: &Self) -> Ordering {
        (**self).cmp(&**other)
    }
}

impl Hash for Pinned {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeSet, HashSet};

    #[test]
    fn a_pinned_value_is_compared_and_hashed_as_its_bytes() {
        let value = Pinned::from(&b"silt"[..]);
        assert_eq!(value, "silt");
        assert_eq!("silt", value);
        assert_eq!(b"silt", value);
        assert_eq!(*b"silt", value);
        assert_eq!(b"silt".to_vec(), value);
        assert_ne!(value, b"sand");
        let (sorted, hashed) = (BTreeSet::from([value.clone()]), HashSet::from([value.clone()]));
        assert!(
            sorted.contains(&b"silt"[..]) && hashed.contains(&b"silt"[..]) && !hashed.contains(&b"sand"[..])
        );
        assert!(Pinned::default().is_empty() && Pinned::default() < value);
        assert_eq!(Vec::from(value), b"silt");
    }
}
