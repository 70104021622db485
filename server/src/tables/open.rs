//! A database opened as tables: what was left of changes that did not come to their end is put right.

use crate::config::{Directories, StoreSettings};
use crate::status::status;
use crate::tables::layout::{Layout, StoresByFamily, Table, owner_of};
use crate::tables::registry::Tables;
use crate::tables::{attached, deleted, records};
use siltstone::Db;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tonic::Status;

impl Tables {
    /// The tables of a database, after what was left of changes that did not come to their end has been put
    /// right.
    pub(crate) fn open(db: Db, base: StoreSettings, directories: Directories) -> Result<Self, Status> {
        let records = records::open(&db)?;
        let schemas = records::schemas(&records)?;
        let deleted = deleted::records(&records)?;
        let all = schemas.values().chain(deleted.iter().map(|record| &record.schema));
        let named: BTreeSet<(u64, u32)> =
            all.flat_map(|s| s.families.values().map(|f| (s.id, f.id))).collect();
        let tables = Self::new(db, records, base, directories);
        tables.moments.note(&tables.db);
        for store in tables.db.all_families() {
            if owner_of(store.name()).is_some_and(|owner| !named.contains(&owner)) {
                attached::note(&tables.db, &tables.records, &store)?;
                tables.db.drop_family(store.name()).map_err(status)?;
            }
        }
        tables.open_backups()?;
        let mut stores = all_stores(&tables.db);
        let mut by_name = BTreeMap::new();
        let mut altered = Vec::new();
        for (name, schema) in schemas {
            let layout = Layout::new(schema, &mut stores, None)?;
            // One that cannot be had keeps no other table from being served; AlterSettings mends it.
            match tables.options_to_give(&name, &layout) {
                Ok(given) => altered.extend(given),
                Err(e) => {
                    tracing::error!(table = %name, "its settings are left as they were: {}", e.message());
                }
            }
            // How calm they were nobody knows: what traffic has split stays so for a while.
            let regions = layout.families.iter().flat_map(|family| &family.regions);
            regions.for_each(|region| region.traffic.call_busy());
            by_name.insert(name, Arc::new(Table::new(layout)));
        }
        for record in deleted {
            let layout = Layout::new(record.schema.clone(), &mut stores, None)?;
            tables.kept.add(record, Table::new(layout));
        }
        tables.db.alter_families(altered).map_err(status)?;
        tables.show_all(by_name);
        Ok(tables)
    }
}

/// All stores by what they belong to.
fn all_stores(db: &Db) -> StoresByFamily {
    let mut stores: StoresByFamily = BTreeMap::new();
    for store in db.all_families() {
        if let Some(owner) = owner_of(store.name()) {
            stores.entry(owner).or_default().push(store);
        }
    }
    stores
}
