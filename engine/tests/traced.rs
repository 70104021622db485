//! Events through the crate `tracing`. A program of its own, as what `tracing` has installed is one for a
//! process.
#![cfg(feature = "tracing")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tracing::span::{Attributes, Id, Record};

struct Count(Arc<AtomicUsize>);

impl tracing::Subscriber for Count {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target() == "siltstone"
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, _: &tracing::Event<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[test]
fn events_reach_the_subscriber_that_is_installed() {
    let (dir, count) = (tempfile::tempdir().unwrap(), Arc::new(AtomicUsize::new(0)));
    tracing::subscriber::set_global_default(Count(count.clone())).unwrap();
    siltstone::Db::open(dir.path()).unwrap().close().unwrap();
    assert!(count.load(Ordering::Relaxed) > 0);
}
