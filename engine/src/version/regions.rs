//! Stores that were one, or become one: regions share tables until compactions have told them apart.

use super::edit::{State, StoreState};
use crate::types::{StoreId, TableId};
use std::collections::BTreeMap;
use std::sync::Arc;

impl State {
    /// How many stores have the table.
    pub(crate) fn owners_of(&self, table: TableId) -> u32 {
        self.owners.get(&table).copied().unwrap_or(1)
    }

    /// A store has the table no more.
    pub(super) fn disown(&mut self, table: TableId) {
        if !self.owners.contains_key(&table) {
            return;
        }
        let owners = Arc::make_mut(&mut self.owners);
        if let Some(count) = owners.get_mut(&table) {
            *count -= 1;
            if *count < 2 {
                owners.remove(&table);
            }
        }
    }

    pub(super) fn split(
        &mut self,
        store: StoreId,
        at: &[u8],
        right: StoreId,
        name: &str,
        bytes: &[(TableId, u64)],
    ) -> Result<(), String> {
        if self.stores.contains_key(&right) {
            return Err(format!("store {right} is created twice"));
        }
        let left = self.stores.get_mut(&store).ok_or_else(|| format!("store {store} is not there"))?;
        if at <= left.range.start.as_slice() || !left.range.ends_after(at) {
            return Err(format!("store {store} is split at a key outside of its own"));
        }
        let mut other = StoreState { name: name.to_string(), ..left.clone() };
        let below = bytes.iter().copied().collect();
        let shared: Vec<TableId> = left.shape.over(at).map(|table| table.id).collect();
        (left.shape, other.shape) = left.shape.split(at, &below);
        left.range.end = Some(at.to_vec());
        other.range.start = at.to_vec();
        other.origins.insert(store);
        let owners = Arc::make_mut(&mut self.owners);
        for table in shared {
            *owners.entry(table).or_insert(1) += 1;
        }
        self.stores.insert(right, other);
        Ok(())
    }

    pub(super) fn join(
        &mut self,
        store: StoreId,
        with: StoreId,
        renamed: &[(TableId, TableId)],
    ) -> Result<(), String> {
        let missing = |id: StoreId| format!("store {id} is not there");
        let other = self.stores.get(&with).ok_or_else(|| missing(with))?.clone();
        let own = self.stores.get_mut(&store).filter(|_| store != with).ok_or_else(|| missing(store))?;
        if !own.range.adjoins(&other.range) {
            return Err(format!("stores {store} and {with} are no neighbours"));
        }
        let renamed: BTreeMap<TableId, TableId> = renamed.iter().copied().collect();
        let (shape, whole) = own.shape.join(&other.shape, &renamed)?;
        own.shape = shape;
        for (range, generation) in other.flushed.intervals() {
            own.flushed.set(&range.intersect(&other.range), generation);
        }
        own.range = own.range.cover(&other.range);
        own.last_generation = own.last_generation.max(other.last_generation);
        own.forgotten = own.forgotten.max(other.forgotten);
        if other.attached > own.attached {
            (own.attached_from, own.attached) = (other.attached_from, other.attached);
        }
        own.origins.extend(other.origins);
        own.origins.insert(with);
        own.origins.remove(&store);
        self.stores.remove(&with);
        whole.into_iter().chain(renamed.into_keys()).for_each(|table| self.disown(table));
        Ok(())
    }
}
