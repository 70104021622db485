//! Stores whose compactions fail again and again, and the errors that callers get for it.

use super::Commit;
use super::store::Store;
use crate::error::Error;
use crate::sync::Mutex;
use crate::types::StoreId;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The failing stores, and why each fails.
#[derive(Default)]
pub(crate) struct FailingStores(Mutex<BTreeMap<StoreId, (Arc<Store>, Error)>>);

impl FailingStores {
    pub(crate) fn insert(&self, store: &Arc<Store>, error: &Error) {
        let mut failing = self.0.lock();
        if !store.is_dropped() {
            failing.insert(store.id, (store.clone(), error.clone()));
        }
    }

    pub(super) fn remove(&self, store: StoreId) {
        self.0.lock().remove(&store);
    }

    /// The error of the first failing store.
    fn first(&self) -> Option<Error> {
        self.0.lock().first_key_value().map(|(_, (_, error))| error.clone())
    }

    /// The error of the store's compactions, unless one is running that might succeed, or `such` is false for
    /// its debt.
    pub(super) fn of(&self, store: &Store, such: impl Fn(u64) -> bool) -> Option<Error> {
        let failing = self.0.lock().get(&store.id).map(|(_, error)| error.clone())?;
        let work = store.work.try_lock().filter(|work| !work.compactions.is_running())?;
        such(work.compactions.debt_of_writers).then_some(failing)
    }

    /// The first error that [`Self::of`] finds.
    pub(super) fn of_any(&self, such: impl Fn(u64) -> bool) -> Option<Error> {
        let stores: Vec<_> = self.0.lock().values().map(|(store, _)| store.clone()).collect();
        stores.iter().find_map(|store| self.of(store, &such))
    }
}

impl Commit {
    /// The error that background work fails with, if it does.
    pub(crate) fn background_failure(&self) -> Option<Error> {
        let of_flush = self.cx.health.flush_error.lock().clone();
        of_flush.or_else(|| self.failing.first())
    }

    /// Forgets the store's failures: a compaction succeeded, or is to be tried again.
    pub(crate) fn gets_on(&self, store: &Store) {
        if std::mem::take(&mut store.work.lock().compactions.failures) > 0 {
            self.failing.remove(store.id);
        }
    }
}
