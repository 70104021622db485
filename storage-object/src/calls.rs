//! The calls of a store as futures, answered by one request each, or by the disk if it has the bytes.

use crate::disk::Disk;
use crate::location::Place;
use futures_util::{StreamExt, TryStreamExt, stream};
use object_store::path::Path;
use object_store::{GetOptions, GetRange, ObjectStoreExt, PutMode, PutOptions};
use siltstone::storage::PutOnce;
use std::io;
use std::ops::Range;
use std::time::{Duration, Instant};

/// The first pause and the longest, before an object that is to be put once is put again.
const PAUSE: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(3);
/// The most requests at a time of a call for many objects.
const UNDER_WAY: usize = 64;

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
        let parts = name.split('/').filter(|part| !part.is_empty());
        parts.fold(self.place.prefix.clone(), |path, part| path.join(part))
    }

    /// The bytes of a range, from the store itself. Fewer where the object ends before.
    pub(crate) async fn request(&self, name: &str, range: Range<u64>) -> io::Result<bytes::Bytes> {
        self.answer(name, Some(GetRange::Bounded(range))).await.map(|(_, bytes)| bytes)
    }

    /// The object's length and the bytes of a range or of all, as many as were promised.
    async fn answer(&self, name: &str, range: Option<GetRange>) -> io::Result<(u64, bytes::Bytes)> {
        let options = GetOptions { range, ..GetOptions::default() };
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
        match self.answer(name, Some(GetRange::Suffix(bytes))).await {
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

    /// A whole object, past the disk.
    pub(crate) async fn get_whole(&self, name: &str) -> io::Result<Vec<u8>> {
        Ok(self.answer(name, None).await?.1.into())
    }

    /// Whole objects, past the disk, in the order of their names.
    pub(crate) async fn get_all(self, names: Vec<String>) -> Vec<io::Result<Vec<u8>>> {
        let fetched = stream::iter(names).map(move |name| {
            let calls = self.clone();
            async move { calls.get_whole(&name).await }
        });
        fetched.buffered(UNDER_WAY).collect().await
    }

    /// Deletes an object. One that is absent counts as deleted.
    pub(crate) async fn delete(&self, name: &str) -> io::Result<()> {
        match self.place.store.delete(&self.path(name)).await {
            Err(object_store::Error::NotFound { .. }) => Ok(()),
            deleted => deleted.map_err(io_error),
        }
    }

    /// Deletes objects, by one request for a thousand where the server knows that request.
    pub(crate) async fn delete_all(self, names: Vec<String>) -> io::Result<()> {
        let paths: Vec<_> = names.iter().map(|name| Ok(self.path(name))).collect();
        let mut deleted = self.place.store.delete_stream(stream::iter(paths).boxed());
        while let Some(one) = deleted.next().await {
            match one {
                Ok(_) | Err(object_store::Error::NotFound { .. }) => {}
                Err(e) => return Err(io_error(e)),
            }
        }
        Ok(())
    }

    /// The names of all objects below a folder, however deep; of all objects if it is empty.
    pub(crate) async fn list_below(&self, folder: &str) -> io::Result<Vec<String>> {
        let below = self.path(folder);
        let below = Some(&below).filter(|below| !below.as_ref().is_empty());
        let listed = self.place.store.list(below).map_err(io_error);
        let names = listed.try_filter_map(async |object| {
            let parts = object.location.prefix_match(&self.place.prefix);
            let names: Vec<_> = parts.into_iter().flatten().map(|part| part.as_ref().to_string()).collect();
            Ok(Some(names.join("/")).filter(|name| !name.is_empty()))
        });
        names.try_collect().await
    }

    /// Puts an object unless there is one. Where the answer does not say whose object lies there, it is read
    /// back; while there is none it is put again, for as long as the store has patience.
    pub(crate) async fn put_once(&self, name: &str, bytes: bytes::Bytes) -> io::Result<PutOnce> {
        let (path, until) = (self.path(name), Instant::now() + self.place.patience);
        let mut pause = PAUSE;
        loop {
            let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
            let put = self.place.store.put_opts(&path, bytes.clone().into(), options).await;
            let unknown = match put.map_err(io_error) {
                Ok(_) => return Ok(PutOnce::Mine),
                Err(e) if is_final(&e) => return Err(e),
                Err(e) => e,
            };
            match self.answer(name, None).await {
                Ok((_, found)) => return Ok(PutOnce::told_by(&bytes, &found)),
                Err(e) if is_final(&e) && e.kind() != io::ErrorKind::NotFound => return Err(unknown),
                Err(_) if Instant::now() >= until => return Err(unknown),
                Err(_) => tokio::time::sleep(pause).await,
            }
            pause = PAUSE_MAX.min(pause * 2);
        }
    }
}

/// Whether another try would meet the same.
fn is_final(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied | io::ErrorKind::Unsupported)
}
