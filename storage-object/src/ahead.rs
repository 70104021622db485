//! The ends of SSTables that are about to be opened, fetched some at a time: many of them are opened in the
//! time of some of their requests and not of all of them.
//!
//! They are fetched in the order in which they will be asked for, as far as memory for them is free. A caller
//! that wants one that is being fetched waits for it; one that has not been begun it fetches by itself.

use crate::Threads;
use crate::calls::Calls;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::task::AbortHandle;

/// The most fetches at a time.
const UNDER_WAY: usize = 64;
/// KiB of ends that were fetched and not yet asked for.
const KIB_MAX: u32 = 64 << 10;

type Tail = io::Result<(u64, Vec<u8>)>;

enum Expected {
    NotBegun,
    Begun(oneshot::Receiver<(Tail, OwnedSemaphorePermit)>),
}

/// See the page above.
#[derive(Default)]
pub(crate) struct Ahead {
    expected: Mutex<HashMap<String, Expected>>,
    fetcher: Mutex<Option<AbortHandle>>,
}

impl Ahead {
    /// The end of that object, if it was expected and begun.
    pub(crate) async fn take(&self, name: &str) -> Option<Tail> {
        let expected = self.expected.lock().remove(name);
        match expected {
            Some(Expected::Begun(receive)) => receive.await.ok().map(|(tail, _)| tail),
            Some(Expected::NotBegun) | None => None,
        }
    }

    /// Ends fetching, and forgets what was expected and not asked for.
    pub(crate) fn end(&self) {
        if let Some(fetcher) = self.fetcher.lock().take() {
            fetcher.abort();
        }
        self.expected.lock().clear();
    }

    /// Fetches these, and no others any more.
    pub(crate) fn fetch(self: &Arc<Self>, threads: &Threads, calls: Calls, tails: Vec<(String, u64)>) {
        self.end();
        *self.expected.lock() = tails.iter().map(|(name, _)| (name.clone(), Expected::NotBegun)).collect();
        *self.fetcher.lock() = threads.spawn(self.clone().fetch_all(calls, tails));
    }

    async fn fetch_all(self: Arc<Self>, calls: Calls, tails: Vec<(String, u64)>) {
        let (free, slots) = (Arc::new(Semaphore::new(KIB_MAX as usize)), Arc::new(Semaphore::new(UNDER_WAY)));
        for (name, bytes) in tails {
            let room = u32::try_from(bytes.div_ceil(1 << 10)).unwrap_or(KIB_MAX).min(KIB_MAX);
            let (Ok(slot), Ok(room)) =
                (slots.clone().acquire_owned().await, free.clone().acquire_many_owned(room).await)
            else {
                return;
            };
            let (send, receive) = oneshot::channel();
            match self.expected.lock().get_mut(&name) {
                Some(expected) => *expected = Expected::Begun(receive),
                None => continue,
            }
            let calls = calls.clone();
            tokio::spawn(async move {
                let tail = calls.tail(&name, bytes).await;
                drop(slot);
                let _ = send.send((tail, room));
            });
        }
    }
}
