//! The calls of one store, each a request (or none, where the disk has the bytes) that the caller waits for.
//! Failed requests are made again below, by [`object_store`]'s rules: a put whose answer was lost may so have
//! been done twice, which makes no difference to objects that are written whole under names that are never
//! used again.

use crate::Threads;
use crate::ahead::Ahead;
use crate::calls::{Calls, io_error};
use crate::disk::Disk;
use crate::location::Place;
use crate::upload::Parts;
use object_store::ObjectStoreExt;
use siltstone::storage::{ObjectStore, PutOnce, Upload};
use std::fmt::{Debug, Formatter};
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// See the page above.
pub(crate) struct Objects {
    calls: Calls,
    ahead: Arc<Ahead>,
    threads: Arc<Threads>,
}

impl Debug for Objects {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Objects").field(&self.calls.place.location).finish()
    }
}

impl Objects {
    pub(crate) fn new(place: Place, disk: Option<Disk>, threads: Arc<Threads>) -> Self {
        Self { calls: Calls { place, disk }, ahead: Arc::default(), threads }
    }

    fn wait<T: Send + 'static, F: Future<Output = io::Result<T>> + Send + 'static>(
        &self,
        work: impl FnOnce(Calls) -> F,
    ) -> io::Result<T> {
        self.threads.wait(work(self.calls.clone()))?
    }
}

impl Drop for Objects {
    fn drop(&mut self) {
        self.ahead.end();
    }
}

impl ObjectStore for Objects {
    fn location(&self) -> String {
        self.calls.place.location.clone()
    }

    fn put(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let (name, bytes) = (name.to_string(), bytes::Bytes::copy_from_slice(bytes));
        self.wait(async move |calls: Calls| {
            calls.place.store.put(&calls.path(&name), bytes.into()).await.map_err(io_error)?;
            Ok(())
        })
    }

    fn upload(&self, name: &str) -> io::Result<Option<Box<dyn Upload>>> {
        Ok(Some(Box::new(Parts::new(self.calls.clone(), name, self.threads.clone()))))
    }

    fn put_once(&self, name: &str, bytes: &[u8]) -> io::Result<PutOnce> {
        let (name, bytes) = (name.to_string(), bytes::Bytes::copy_from_slice(bytes));
        self.wait(async move |calls: Calls| calls.put_once(&name, bytes).await)
    }

    fn get(&self, name: &str, range: Range<u64>) -> io::Result<Vec<u8>> {
        let name = name.to_string();
        self.wait(async move |calls: Calls| calls.get(&name, range).await)
    }

    fn get_again(&self, name: &str, range: Range<u64>) -> io::Result<Vec<u8>> {
        let name = name.to_string();
        self.wait(async move |calls: Calls| calls.get_again(&name, range).await)
    }

    fn len(&self, name: &str) -> io::Result<u64> {
        let name = name.to_string();
        self.wait(async move |calls: Calls| calls.len(&name).await)
    }

    fn tail(&self, name: &str, bytes: u64) -> io::Result<(u64, Vec<u8>)> {
        let (name, ahead) = (name.to_string(), self.ahead.clone());
        self.wait(async move |calls: Calls| match ahead.take(&name).await {
            Some(fetched) => fetched,
            None => calls.tail(&name, bytes).await,
        })
    }

    fn get_whole(&self, name: &str) -> io::Result<Vec<u8>> {
        let name = name.to_string();
        self.wait(async move |calls: Calls| calls.get_whole(&name).await)
    }

    fn get_all(&self, names: &[String]) -> Vec<io::Result<Vec<u8>>> {
        let all = names.to_vec();
        match self.wait(async move |calls: Calls| Ok(calls.get_all(all).await)) {
            Ok(found) => found,
            // The error of the call is that of each.
            Err(e) => names.iter().map(|_| Err(io::Error::new(e.kind(), e.to_string()))).collect(),
        }
    }

    fn expect(&self, tails: &[(String, u64)]) {
        self.ahead.fetch(&self.threads, self.calls.clone(), tails.to_vec());
    }

    fn forget(&self, name: &str) -> bool {
        let Calls { place, disk } = &self.calls;
        disk.as_ref().is_some_and(|disk| disk.forget_all(&place.identity, name))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.wait(async move |calls: Calls| {
            let mut names = calls.list_below("").await?;
            // Objects in deeper folders belong to somebody else.
            names.retain(|name| !name.contains('/'));
            Ok(names)
        })
    }

    fn list_below(&self, folder: &str) -> io::Result<Vec<String>> {
        let folder = folder.to_string();
        self.wait(async move |calls: Calls| calls.list_below(&folder).await)
    }

    fn delete(&self, name: &str) -> io::Result<()> {
        let name = name.to_string();
        self.wait(async move |calls: Calls| calls.delete(&name).await)
    }

    fn delete_all(&self, names: &[String]) -> io::Result<()> {
        let names = names.to_vec();
        self.wait(async move |calls: Calls| calls.delete_all(names).await)
    }
}
