//! Tables that were deleted, and can come back for a while ([`Config::undelete_hours`](crate::Config)).
//!
//! DeleteTable takes a table out of sight at once: its name is free, and nothing reads or writes it any more,
//! but what was under way. Its stores and schema bundles stay, and a record of when it was deleted and of its
//! schema, with its views, which is written as the table's own record goes. When its time is over the record
//! and the bundles go first, then the stores; what a kill leaves of these no record names, so that the next
//! start drops it. The table stays one object all the while: calls that still use it see regions as they are.
//!
//! On a full disk no deleted table stays: there the caller wants room.

use crate::status::status;
use crate::tables::deleted::{Deleted, Record, key, stores_of};
use crate::tables::layout::Table;
use crate::tables::records::record_key;
use crate::tables::registry::Tables;
use crate::tables::schema::Schema;
use siltstone::{Batch, Durability, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tonic::Status;

impl Tables {
    /// Deletes a table, which can come back for a while.
    pub(crate) fn delete(&self, name: &str) -> Result<(), Status> {
        let _changing = self.change();
        let table = self.get(name)?;
        let schema = Schema::clone(&table.now().schema);
        schema.refuse_protected(name)?;
        let (id, deleted_us) = (schema.id, crate::time::now_us());
        let record = Record { name: name.to_string(), deleted_us, schema };
        let record = serde_json::to_vec(&record).map_err(|e| Status::internal(e.to_string()))?;
        let batch = |keeps: bool| {
            let mut batch = Batch::new();
            batch.delete(&self.records, record_key(name));
            if keeps {
                batch.put(&self.records, key(id), &record);
            } else {
                self.forget_bundles(id, &mut batch)?;
            }
            Ok::<_, Status>(batch)
        };
        let is_full = self.db.is_disk_full();
        let mut keeps = self.kept.for_us.load(Ordering::Relaxed) > 0 && !is_full;
        let mut written = self.db.write_with(&batch(keeps)?, Durability::Sync);
        if keeps && written.as_ref().is_err_and(|e| e.kind() == ErrorKind::DiskFull) {
            keeps = false;
            written = self.db.write_with(&batch(keeps)?, Durability::Sync);
        }
        written.map_err(status)?;
        self.hide(name);
        if !keeps {
            self.drop_table(&table)?;
            return if is_full { self.forget_those(|_| true).map(drop) } else { Ok(()) };
        }
        self.kept.tables.lock().insert(id, Deleted { name: name.to_string(), deleted_us, table });
        while let Some(id) = self.kept.one_too_many() {
            if let Err(error) = self.forget_table(id) {
                tracing::warn!(error = error.message(), "a deleted table too many is not dropped");
                break;
            }
        }
        Ok(())
    }

    /// Brings back the table that had that name last.
    pub(crate) fn undelete(&self, name: &str) -> Result<Arc<Table>, Status> {
        let _changing = self.change();
        self.refuse_table(name)?;
        let now_us = crate::time::now_us();
        let found = {
            let tables = self.kept.tables.lock();
            let named = tables.iter().filter(|(_, deleted)| deleted.name == name);
            let last = named.max_by_key(|(id, deleted)| (deleted.deleted_us, **id));
            last.filter(|(_, deleted)| !self.kept.is_over(deleted, now_us))
                .map(|(id, deleted)| (*id, deleted.table.clone()))
        };
        let Some((id, table)) = found else {
            return Err(Status::not_found(format!("no table {name} was deleted that could come back")));
        };
        let mut batch = Batch::new();
        batch.delete(&self.records, key(id));
        let schema = serde_json::to_vec(&*table.now().schema).map_err(|e| Status::internal(e.to_string()))?;
        batch.put(&self.records, record_key(name), schema);
        self.db.write_with(&batch, Durability::Sync).map_err(status)?;
        self.kept.tables.lock().remove(&id);
        // Settings may have changed meanwhile: the next check applies them.
        table.lacks_options();
        self.show(name, &table);
        Ok(table)
    }

    /// Drops the deleted tables whose time is over, and all where the disk is full. Returns how many.
    pub(crate) fn drop_deleted(&self, now_us: u64) -> Result<usize, Status> {
        let is_full = self.db.is_disk_full();
        let is_over = |deleted: &Deleted| is_full || self.kept.is_over(deleted, now_us);
        if !self.kept.tables.lock().values().any(is_over) {
            return Ok(0);
        }
        let _changing = self.change();
        self.forget_those(is_over)
    }

    fn forget_those(&self, are: impl Fn(&Deleted) -> bool) -> Result<usize, Status> {
        let tables = self.kept.tables.lock();
        let those: Vec<u64> = tables.iter().filter(|(_, deleted)| are(deleted)).map(|(id, _)| *id).collect();
        drop(tables);
        those.iter().try_for_each(|id| self.forget_table(*id))?;
        Ok(those.len())
    }

    /// Drops a deleted table for good.
    fn forget_table(&self, id: u64) -> Result<(), Status> {
        let mut batch = Batch::new();
        batch.delete(&self.records, key(id));
        self.forget_bundles(id, &mut batch)?;
        self.db.write_with(&batch, Durability::Sync).map_err(status)?;
        let Some(deleted) = self.kept.tables.lock().remove(&id) else { return Ok(()) };
        tracing::info!(table = deleted.name, "a deleted table is gone for good");
        self.drop_table(&deleted.table)
    }

    fn drop_table(&self, table: &Table) -> Result<(), Status> {
        stores_of(table).iter().try_for_each(|store| self.db.drop_family(store.name())).map_err(status)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cells::row_key;
    use crate::config::{Config, UNDELETE_HOURS};
    use crate::net::budget::Budgets;
    use crate::proto::admin;
    use crate::tables::deleted::{HOUR_US, STORES_MAX, TABLES_MAX};
    use crate::tables::layout::owner_of;
    use prost::Message;
    use siltstone::Timestamp;
    use tonic::Code;

    const NAME: &str = "projects/p/instances/i/tables/t";

    fn opened(dir: &std::path::Path) -> Tables {
        let config = Config { dir: dir.join("data"), ..Config::default() };
        let db = crate::tables::schema::builder(config.options()).open(&config.dir).unwrap();
        Tables::open(db, config.store_settings(), config.directories()).unwrap()
    }

    fn made(tables: &Tables, value: &str) -> Arc<Table> {
        let families = [("f".to_string(), admin::ColumnFamily::default())].into();
        let message = admin::Table { column_families: families, ..Default::default() };
        let table = tables.create(NAME, &message, &["m"]).unwrap();
        for row in ["a", "z"] {
            let (key, mut batch) = (row_key::cell_key(row.as_bytes(), b"q"), Batch::new());
            batch.put_at(table.now().family("f").unwrap().of(&key), &key, Timestamp(1), value);
            tables.db.write_with(&batch, Durability::Sync).unwrap();
        }
        table
    }

    /// How many cells of that value it has.
    fn count(table: &Table, value: &str) -> usize {
        let cells = stores_of(table).into_iter().flat_map(|store| store.scan_prefix(b"").collect::<Vec<_>>());
        cells.filter(|cell| cell.as_ref().unwrap().value == value.as_bytes()).count()
    }

    /// Gives the table a schema bundle.
    fn bundle(tables: &Tables) {
        let file = prost_types::FileDescriptorProto { name: Some("a.proto".into()), ..Default::default() };
        let descriptors = prost_types::FileDescriptorSet { file: vec![file] }.encode_to_vec();
        let schema = admin::ProtoSchema { proto_descriptors: descriptors.into() };
        let r#type = Some(admin::schema_bundle::Type::ProtoSchema(schema));
        let request = admin::CreateSchemaBundleRequest {
            parent: NAME.into(),
            schema_bundle_id: "b".into(),
            schema_bundle: Some(admin::SchemaBundle { r#type, ..Default::default() }),
        };
        let memory = Budgets::new(256 << 20).caller(None, [127, 0, 0, 1].into()).answers.of_connection();
        tables.create_bundle(&request, &memory).unwrap();
    }

    fn bundles(tables: &Tables) -> usize {
        tables.records.scan_prefix(b"bundle/").count()
    }

    fn stores(tables: &Tables) -> usize {
        tables.db.all_families().iter().filter(|store| owner_of(store.name()).is_some()).count()
    }

    fn code<T>(result: Result<T, Status>) -> Option<Code> {
        result.err().map(|e| e.code())
    }

    #[test]
    fn the_table_that_had_a_name_last_comes_back_whole_also_after_a_start() {
        let dir = tempfile::tempdir().unwrap();
        let tables = opened(dir.path());
        made(&tables, "first");
        tables.delete(NAME).unwrap();
        let second = made(&tables, "second");
        assert_eq!(code(tables.undelete(NAME)), Some(Code::AlreadyExists));
        tables.delete(NAME).unwrap();
        assert_eq!(code(tables.get(NAME)), Some(Code::NotFound));
        // The check of regions may still use it.
        tables.split(&second, b"c").unwrap();
        tables.db.close().unwrap();
        drop((second, tables));
        let tables = opened(dir.path());
        let back = tables.undelete(NAME).unwrap();
        assert!(Arc::ptr_eq(&back, &tables.get(NAME).unwrap()));
        assert_eq!((count(&back, "second"), count(&back, "first"), stores_of(&back).len()), (2, 0, 3));
        tables.delete(NAME).unwrap();
        tables.undelete(NAME).unwrap();
        assert_eq!(code(tables.undelete(NAME)), Some(Code::AlreadyExists));
        tables.db.close().unwrap();
        drop((back, tables));
        assert_eq!(count(&opened(dir.path()).get(NAME).unwrap(), "second"), 2);
    }

    #[test]
    fn when_its_time_is_over_nothing_of_a_table_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let tables = opened(dir.path());
        made(&tables, "v");
        bundle(&tables);
        tables.delete(NAME).unwrap();
        assert_eq!(bundles(&tables), 1);
        let now_us = crate::time::now_us();
        assert_eq!((tables.drop_deleted(now_us).unwrap(), stores(&tables), tables.kept.size().0), (0, 2, 1));
        assert_eq!(tables.drop_deleted(now_us + UNDELETE_HOURS * HOUR_US).unwrap(), 1);
        assert_eq!((stores(&tables), bundles(&tables), tables.kept.size()), (0, 0, (0, 0)));
        assert_eq!(code(tables.undelete(NAME)), Some(Code::NotFound));
        // At once, where that is set.
        tables.kept.keep_for(0);
        made(&tables, "v");
        bundle(&tables);
        tables.delete(NAME).unwrap();
        assert_eq!((stores(&tables), bundles(&tables)), (0, 0));
        assert_eq!(code(tables.undelete(NAME)), Some(Code::NotFound));
        tables.db.close().unwrap();
        drop(tables);
        assert_eq!(stores(&opened(dir.path())), 0);
    }

    #[test]
    fn one_that_is_over_and_not_dropped_yet_does_not_come_back() {
        let dir = tempfile::tempdir().unwrap();
        let tables = opened(dir.path());
        made(&tables, "v");
        tables.delete(NAME).unwrap();
        tables.kept.keep_for(0);
        assert_eq!(code(tables.undelete(NAME)), Some(Code::NotFound));
        tables.kept.keep_for(UNDELETE_HOURS);
        assert!(tables.undelete(NAME).is_ok());
    }

    #[test]
    fn of_many_deleted_tables_the_oldest_go() {
        let dir = tempfile::tempdir().unwrap();
        let tables = opened(dir.path());
        // A table without families has no stores.
        let empty = tables.create(&format!("{NAME}-0"), &admin::Table::default(), &[""; 0]).unwrap();
        for deleted_us in 1..=TABLES_MAX as u64 {
            let deleted = Deleted { name: format!("{NAME}-{deleted_us}"), deleted_us, table: empty.clone() };
            tables.kept.tables.lock().insert(1_000_000 + deleted_us, deleted);
        }
        assert_eq!(tables.kept.one_too_many(), None);
        made(&tables, "v");
        tables.delete(NAME).unwrap();
        let kept = tables.kept.tables.lock();
        assert_eq!(
            (kept.len(), kept.contains_key(&1_000_001), kept.contains_key(&1_000_002)),
            (TABLES_MAX, false, true)
        );
        drop(kept);
        assert!(tables.undelete(NAME).is_ok());
    }

    #[test]
    fn who_deletes_much_loses_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let tables = opened(dir.path());
        let empty = tables.create(&format!("{NAME}-0"), &admin::Table::default(), &[""; 0]).unwrap();
        let kept = &tables.kept;
        let put = |id: u64, name: &str, table: &Arc<Table>| {
            let deleted = Deleted { name: name.to_string(), deleted_us: id, table: table.clone() };
            kept.tables.lock().insert(id, deleted);
        };
        // The oldest are of a project that has few, and one of many instances of the other has more than the
        // rest of these.
        let of = |project: &str, id: u64| format!("projects/{project}/instances/i-{id}/tables/t");
        (1..=2).for_each(|id| put(id, &of("q", id), &empty));
        (3..=TABLES_MAX as u64).for_each(|id| put(id, &of("p", id), &empty));
        assert_eq!(kept.one_too_many(), None);
        put(2_000, NAME, &empty);
        assert_eq!(kept.one_too_many(), Some(3));
        put(2_001, "projects/p/instances/i-5/tables/u", &empty);
        assert_eq!(kept.one_too_many(), Some(5));
        // The same of stores, of which the last may have any number.
        kept.tables.lock().clear();
        let families = [("f".to_string(), admin::ColumnFamily::default())].into();
        let message = admin::Table { column_families: families, ..Default::default() };
        let splits: Vec<String> = (1..20).map(|n| format!("{n:02}")).collect();
        let wide = tables.create(NAME, &message, &splits).unwrap();
        let most = (STORES_MAX / stores_of(&wide).len()) as u64;
        put(1, &of("q", 1), &wide);
        (2..=most + 1).for_each(|id| put(id, &of("p", 7), &wide));
        assert_eq!((stores_of(&wide).len(), kept.one_too_many()), (20, None));
        put(most + 2, &of("q", 1), &wide);
        assert_eq!(kept.one_too_many(), Some(2));
    }
}
