//! A folder of an object store as a store of its own.

use super::objects::{ObjectStore, PutOnce, Upload};
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// The objects of a store whose names begin with the folder's, named without it.
#[derive(Debug)]
pub(crate) struct Folder {
    store: Arc<dyn ObjectStore>,
    /// Ends with a slash.
    prefix: String,
}

impl Folder {
    /// The folder of that name, which has no slash at its ends.
    pub(crate) fn of(store: &Arc<dyn ObjectStore>, name: &str) -> Arc<dyn ObjectStore> {
        Arc::new(Self { store: store.clone(), prefix: format!("{name}/") })
    }

    fn whole(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    fn all_whole(&self, names: &[String]) -> Vec<String> {
        names.iter().map(|name| self.whole(name)).collect()
    }

    fn below(&self, folder: &str) -> io::Result<impl Iterator<Item = String>> {
        let names = self.store.list_below(folder)?;
        Ok(names.into_iter().filter_map(|name| Some(name.strip_prefix(&self.prefix)?.to_string())))
    }
}

impl ObjectStore for Folder {
    fn location(&self) -> String {
        format!("{}/{}", self.store.location().trim_end_matches('/'), self.prefix.trim_end_matches('/'))
    }

    fn put(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.store.put(&self.whole(name), bytes)
    }

    fn upload(&self, name: &str) -> io::Result<Option<Box<dyn Upload>>> {
        self.store.upload(&self.whole(name))
    }

    fn put_once(&self, name: &str, bytes: &[u8]) -> io::Result<PutOnce> {
        self.store.put_once(&self.whole(name), bytes)
    }

    fn get(&self, name: &str, range: Range<u64>) -> io::Result<Vec<u8>> {
        self.store.get(&self.whole(name), range)
    }

    fn get_again(&self, name: &str, range: Range<u64>) -> io::Result<Vec<u8>> {
        self.store.get_again(&self.whole(name), range)
    }

    fn len(&self, name: &str) -> io::Result<u64> {
        self.store.len(&self.whole(name))
    }

    fn get_whole(&self, name: &str) -> io::Result<Vec<u8>> {
        self.store.get_whole(&self.whole(name))
    }

    fn get_all(&self, names: &[String]) -> Vec<io::Result<Vec<u8>>> {
        self.store.get_all(&self.all_whole(names))
    }

    fn delete_all(&self, names: &[String]) -> io::Result<()> {
        self.store.delete_all(&self.all_whole(names))
    }

    fn tail(&self, name: &str, bytes: u64) -> io::Result<(u64, Vec<u8>)> {
        self.store.tail(&self.whole(name), bytes)
    }

    fn expect(&self, tails: &[(String, u64)]) {
        let whole: Vec<_> = tails.iter().map(|(name, bytes)| (self.whole(name), *bytes)).collect();
        self.store.expect(&whole);
    }

    fn forget(&self, name: &str) -> bool {
        self.store.forget(&self.whole(name))
    }

    fn request_bytes(&self) -> usize {
        self.store.request_bytes()
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let names = self.below(self.prefix.trim_end_matches('/'))?;
        Ok(names.filter(|name| !name.contains('/')).collect())
    }

    fn list_below(&self, folder: &str) -> io::Result<Vec<String>> {
        Ok(self.below(&self.whole(folder))?.collect())
    }

    fn delete(&self, name: &str) -> io::Result<()> {
        self.store.delete(&self.whole(name))
    }
}
