//! The calls of a store as futures, answered by one request each, or by the disk if it has the bytes.

use crate::disk::Disk;
use crate::location::Place;
use futures_util::TryStreamExt;
use object_store::path::Path;
use object_store::{GetOptions, GetRange, ObjectStoreExt};
use std::io;
use std::ops::Range;

/// The state that requests need.
#[derive(Clone)]
pub(crate) struct Calls {
    pub(crate) place: Place,
    pub(crate) disk: Option<Disk>,
}

/// The error as the engine tells errors apart.
pub(crate) fn io_error(e: object_store::Error) -> io::Error {
    use object_store::Error::*;
    let kind = match &e {
        NotFound { .. } => io::ErrorKind::NotFound,
        AlreadyExists { .. } | Precondition { .. } => io::ErrorKind::AlreadyExists,
        PermissionDenied { .. } | Unauthenticated { .. } => io::ErrorKind::PermissionDenied,
        NotSupported { .. } | NotImplemented { .. } => io::ErrorKind::Unsupported,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, e)
}

impl Calls {
    pub(crate) fn path(&self, name: &str) -> Path {
        self.place.prefix.clone().join(name)
    }

    /// The bytes of a range, from the store itself. Fewer where the object ends before.
    pub(crate) async fn request(&self, name: &str, range: Range<u64>) -> io::Result<bytes::Bytes> {
        self.answer(name, GetRange::Bounded(range)).await.map(|(_, bytes)| bytes)
    }

    /// The object's length and the bytes of a range, all that were promised.
    async fn answer(&self, name: &str, range: GetRange) -> io::Result<(u64, bytes::Bytes)> {
        let options = GetOptions { range: Some(range), ..GetOptions::default() };
        let answer = self.place.store.get_opts(&self.path(name), options).await.map_err(io_error)?;
        let (len, range) = (answer.meta.size, answer.range.clone());
        let bytes = answer.bytes().await.map_err(io_error)?;
        match bytes.len() as u64 == range.end - range.start {
            true => Ok((len, bytes)),
            false => Err(io::Error::other(format!("{name}: {} bytes came of {range:?}", bytes.len()))),
        }
    }

    /// The disk, for what may be kept there: SSTables, which never change and have checksums.
    fn disk_of(&self, name: &str) -> Option<(&Disk, u128)> {
        let disk = self.disk.as_ref().filter(|_| name.ends_with(".table"))?;
        Some((disk, disk.object(&self.place.identity, name)))
    }

    /// Length and last bytes, by one request.
    async fn request_tail(&self, name: &str, bytes: u64) -> io::Result<(u64, bytes::Bytes)> {
        match self.answer(name, GetRange::Suffix(bytes)).await {
            Err(e) if e.kind() == io::ErrorKind::Other => {
                // Not all servers answer where the object is shorter than that.
                let len = self.len(name).await?;
                if len >= bytes {
                    return Err(e);
                }
                let whole = if len == 0 { bytes::Bytes::new() } else { self.request(name, 0..len).await? };
                Ok((len, whole))
            }
            found => found,
        }
    }

    /// Length and last bytes, from the disk where it has them.
    pub(crate) async fn tail(&self, name: &str, bytes: u64) -> io::Result<(u64, Vec<u8>)> {
        let Some((disk, object)) = self.disk_of(name) else {
            let (len, tail) = self.request_tail(name, bytes).await?;
            return Ok((len, tail.into()));
        };
        if let Some(len) = disk.len(object).await
            && let Some(tail) = disk.get(object, len.saturating_sub(bytes)..len).await
        {
            return Ok((len, tail));
        }
        let (len, tail) = self.request_tail(name, bytes).await?;
        disk.keep_len(object, len);
        disk.keep(object, len - tail.len() as u64, &tail);
        Ok((len, tail.into()))
    }

    pub(crate) async fn len(&self, name: &str) -> io::Result<u64> {
        Ok(self.place.store.head(&self.path(name)).await.map_err(io_error)?.size)
    }

    pub(crate) async fn get(&self, name: &str, range: Range<u64>) -> io::Result<Vec<u8>> {
        match self.disk_of(name) {
            Some((disk, object)) if Disk::keeps_reads_of(&range) => {
                disk.read(object, range, |missing| self.request(name, missing)).await
            }
            _ => Ok(self.request(name, range).await?.into()),
        }
    }

    pub(crate) async fn get_again(&self, name: &str, range: Range<u64>) -> io::Result<Vec<u8>> {
        let bytes = self.request(name, range.clone()).await?;
        if let Some((disk, object)) = self.disk_of(name) {
            disk.forget(object, range);
        }
        Ok(bytes.into())
    }

    pub(crate) async fn list(&self) -> io::Result<Vec<String>> {
        let prefix = Some(&self.place.prefix).filter(|prefix| !prefix.as_ref().is_empty());
        let listed = self.place.store.list(prefix).map_err(io_error);
        // Objects in deeper folders belong to somebody else.
        let names = listed.try_filter_map(async |object| {
            let mut rest = object.location.prefix_match(&self.place.prefix).into_iter().flatten();
            let name = rest.next().map(|part| part.as_ref().to_string());
            Ok(name.filter(|_| rest.next().is_none()))
        });
        names.try_collect().await
    }
}
