//! A value handed out without copying: a pointer into a block or a memory chunk, and the owner that keeps it
//! alive. This is the one place where a borrowed value outlives its borrow.
#![expect(unsafe_code, reason = "a get must not copy its value; the owner keeps the bytes alive")]

use std::any::Any;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// What can keep a cell's bytes alive.
///
/// # Safety
/// The bytes of any cell handed out together with this owner must stay where they are, unchanged, as long as
/// a pinned `Arc` lives.
pub(crate) unsafe trait Owner {
    /// A reference that keeps the bytes alive.
    fn pin(&self) -> Arc<dyn Any + Send + Sync>;
}

/// A value read from the database; dereferences to its bytes. It holds the block (some 4 KiB) or the memory chunk (up to
/// hundreds of KiB) that it lies in, so those who keep many for long copy them: [`Pinned::into_owned`].
/// `Statistics::pinned_bytes` has what is held.
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
    Held { bytes: *const u8, len: usize, _owner: Arc<dyn Any + Send + Sync> },
    Owned(Arc<[u8]>),
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
    pub(crate) unsafe fn held(bytes: &[u8], owner: &dyn Owner) -> Self {
        Pinned(Inner::Held { bytes: bytes.as_ptr(), len: bytes.len(), _owner: owner.pin() })
    }

    /// The bytes alone, copied; what they lay in is let go of. (`to_vec` copies, too, but the value goes on holding its
    /// block.)
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
        self.to_vec()
    }
}

impl From<Vec<u8>> for Pinned {
    fn from(bytes: Vec<u8>) -> Self {
        Pinned(Inner::Owned(bytes.into()))
    }
}

impl Deref for Pinned {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match &self.0 {
            // SAFETY: `held`'s contract: the bytes live and do not change while the owner lives, which we hold.
            Inner::Held { bytes, len, .. } => unsafe { std::slice::from_raw_parts(*bytes, *len) },
            Inner::Owned(bytes) => bytes,
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

impl<T: AsRef<[u8]> + ?Sized> PartialEq<T> for Pinned {
    fn eq(&self, other: &T) -> bool {
        **self == *other.as_ref()
    }
}

impl Eq for Pinned {}
