//! Deleted tables that can come back, with their records: how long they stay, and which are removed when they
//! are too many.

use crate::config::UNDELETE_HOURS;
use crate::names;
use crate::status::status;
use crate::tables::layout::Table;
use crate::tables::schema::Schema;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use siltstone::Family;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tonic::Status;

/// The prefix of the records; the number of the table follows.
const DELETED: &[u8] = b"deleted-sstable/";
/// Microseconds of an hour.
pub(super) const HOUR_US: u64 = 3_600_000_000;
/// The most deleted tables, and the most stores of all but the last of them. Beyond that, the oldest are
/// removed, of the project, and in it of the instance, that has the most: so a caller that deletes much loses
/// its own.
pub(super) const TABLES_MAX: usize = 1_000;
pub(super) const STORES_MAX: usize = 10_000;

/// A deleted table as it is stored.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Record {
    pub(super) name: String,
    pub(super) deleted_us: u64,
    pub(super) schema: Schema,
}

/// A deleted table.
pub(super) struct Deleted {
    pub(super) name: String,
    pub(super) deleted_us: u64,
    pub(super) table: Arc<Table>,
}

impl Deleted {
    fn stores(&self) -> usize {
        self.table.now().families.iter().map(|family| family.regions.len()).sum()
    }
}

/// All tables that can come back, by their numbers.
pub(crate) struct DeletedTables {
    pub(super) for_us: AtomicU64,
    pub(super) tables: Mutex<BTreeMap<u64, Deleted>>,
}

impl Default for DeletedTables {
    fn default() -> Self {
        Self { for_us: AtomicU64::new(UNDELETE_HOURS * HOUR_US), tables: Mutex::default() }
    }
}

impl DeletedTables {
    pub(crate) fn keep_for(&self, hours: u64) {
        self.for_us.store(hours.saturating_mul(HOUR_US), Ordering::Relaxed);
    }

    pub(super) fn is_over(&self, deleted: &Deleted, now_us: u64) -> bool {
        deleted.deleted_us.saturating_add(self.for_us.load(Ordering::Relaxed)) <= now_us
    }

    /// Adds one, at a start, that is as its record says.
    pub(super) fn add(&self, record: Record, table: Table) {
        let Record { name, deleted_us, schema } = record;
        self.tables.lock().insert(schema.id, Deleted { name, deleted_us, table: Arc::new(table) });
    }

    /// How many there are, and their bytes in tables and memory.
    pub(crate) fn size(&self) -> (usize, u64) {
        let tables = self.tables.lock();
        let bytes = tables.values().flat_map(|deleted| stores_of(&deleted.table)).map(|store| {
            let statistics = store.statistics();
            statistics.sstable_bytes + statistics.memory_bytes
        });
        (tables.len(), bytes.sum())
    }

    /// One of those that have the most, where there are too many. The last that was deleted stays.
    pub(super) fn one_too_many(&self) -> Option<u64> {
        let tables = self.tables.lock();
        let age = |(id, deleted): &(&u64, &Deleted)| (deleted.deleted_us, **id);
        let (last_id, last) = tables.iter().max_by_key(age)?;
        let mut those: Vec<(&u64, &Deleted)> = tables.iter().filter(|(id, _)| **id != *last_id).collect();
        let stores: usize = those.iter().map(|(_, deleted)| deleted.stores()).sum();
        let are_many = tables.len() > TABLES_MAX;
        if !are_many && stores <= STORES_MAX {
            return None;
        }
        let weight = |deleted: &Deleted| if are_many { 1 } else { deleted.stores() };
        let owners: [fn(&str) -> &str; 2] = [names::project_of, names::instance_of];
        for owner in owners {
            let mut held: BTreeMap<&str, usize> = BTreeMap::new();
            for (_, deleted) in &those {
                *held.entry(owner(&deleted.name)).or_default() += weight(deleted);
            }
            if let Some(held) = held.get_mut(owner(&last.name)) {
                *held += weight(last);
            }
            let most = held.values().max().copied();
            those.retain(|(_, deleted)| held.get(owner(&deleted.name)).copied() == most);
        }
        those.into_iter().min_by_key(age).map(|(id, _)| *id)
    }
}

/// All stores of a table.
pub(super) fn stores_of(table: &Table) -> Vec<Family> {
    let layout = table.now();
    layout.families.iter().flat_map(|family| &family.regions).map(|region| region.store.clone()).collect()
}

/// The key of the record of a deleted table.
pub(super) fn key(id: u64) -> Vec<u8> {
    [DELETED, &id.to_be_bytes()].concat()
}

/// The records of deleted tables.
pub(super) fn records(of: &Family) -> Result<Vec<Record>, Status> {
    let read = |value: &[u8]| {
        serde_json::from_slice(value)
            .map_err(|e| Status::data_loss(format!("the record of a deleted table: {e}")))
    };
    of.scan_prefix(DELETED).map(|record| read(&record.map_err(status)?.value)).collect()
}
