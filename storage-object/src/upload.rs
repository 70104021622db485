//! An object that comes by parts (S3: a multipart upload; small ones by one put).
//!
//! The writer gathers a part and hands it on; a few parts are under way at a time, so that a compaction
//! neither holds its SSTable in memory nor waits for each part's answer. The object appears with the last
//! request, whole. An upload that is dropped is given up; parts of one whose process was killed are
//! invisible, and a rule of the bucket ends them (`AbortIncompleteMultipartUpload`).

use crate::Threads;
use crate::calls::{Calls, io_error};
use object_store::{MultipartUpload, ObjectStoreExt};
use siltstone::storage::Upload;
use std::io;
use std::sync::Arc;
use tokio::task::JoinSet;

/// Bytes of a part; S3 wants at least 5 MiB, and at most 10,000 of them: 80 GiB.
const PART_BYTES: usize = 8 << 20;
/// Parts under way, each held in memory until it is answered.
const UNDER_WAY: usize = 3;

/// See the page above.
pub(crate) struct Parts {
    calls: Calls,
    name: String,
    threads: Arc<Threads>,
    part: Vec<u8>,
    begun: Option<Begun>,
    /// A part could not be sent: the object can never be whole.
    failed: bool,
}

struct Begun {
    upload: Box<dyn MultipartUpload>,
    under_way: JoinSet<object_store::Result<()>>,
}

impl Begun {
    /// Sends a part, if there is one, and waits until no more than so many are under way. After an error the
    /// upload is given up.
    async fn put(&mut self, part: Vec<u8>, under_way: usize) -> object_store::Result<()> {
        if !part.is_empty() {
            self.under_way.spawn(self.upload.put_part(part.into()));
        }
        let settled = self.settle(under_way).await;
        if settled.is_err() {
            self.give_up().await;
        }
        settled
    }

    async fn settle(&mut self, under_way: usize) -> object_store::Result<()> {
        while self.under_way.len() > under_way {
            match self.under_way.join_next().await {
                Some(Ok(put)) => put?,
                Some(Err(e)) => return Err(object_store::Error::JoinError { source: e }),
                None => break,
            }
        }
        Ok(())
    }

    /// Ends it; no part comes afterwards.
    async fn give_up(&mut self) {
        self.under_way.shutdown().await;
        let _ = self.upload.abort().await;
    }
}

impl Parts {
    pub(crate) fn new(calls: Calls, name: &str, threads: Arc<Threads>) -> Self {
        Self { calls, name: name.into(), threads, part: Vec::new(), begun: None, failed: false }
    }

    /// Sends the gathered bytes, with no more than so many parts under way after it.
    fn send(&mut self, under_way: usize) -> io::Result<()> {
        self.check()?;
        self.failed = true;
        let (part, begun) = (std::mem::take(&mut self.part), self.begun.take());
        let (calls, path) = (self.calls.clone(), self.calls.path(&self.name));
        let sent = self.threads.wait(async move {
            let mut begun = match begun {
                Some(begun) => begun,
                None => {
                    let upload = calls.place.store.put_multipart(&path).await?;
                    Begun { upload, under_way: JoinSet::new() }
                }
            };
            begun.put(part, under_way).await?;
            Ok(begun)
        })?;
        self.begun = Some(sent.map_err(io_error)?);
        self.failed = false;
        Ok(())
    }

    fn check(&self) -> io::Result<()> {
        match self.failed {
            true => Err(io::Error::other(format!("a part of {} could not be sent", self.name))),
            false => Ok(()),
        }
    }
}

impl Upload for Parts {
    fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(PART_BYTES - self.part.len()));
            self.part.extend_from_slice(now);
            bytes = later;
            if self.part.len() == PART_BYTES {
                self.send(UNDER_WAY - 1)?;
            }
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> io::Result<()> {
        self.check()?;
        let Some(mut begun) = self.begun.take() else {
            let (calls, path) = (self.calls.clone(), self.calls.path(&self.name));
            let bytes = std::mem::take(&mut self.part);
            let put = async move { calls.place.store.put(&path, bytes.into()).await };
            return self.threads.wait(put)?.map(|_| ()).map_err(io_error);
        };
        let last = std::mem::take(&mut self.part);
        let finished = self.threads.wait(async move {
            begun.put(last, 0).await?;
            begun.upload.complete().await.map(|_| ())
        })?;
        finished.map_err(io_error)
    }
}

impl Drop for Parts {
    fn drop(&mut self) {
        if let Some(mut begun) = self.begun.take() {
            self.threads.spawn(async move { begun.give_up().await });
        }
    }
}
