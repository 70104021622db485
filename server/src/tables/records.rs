//! The engine family of the records: one for each table, and the number of the next one.

use crate::status::status;
use crate::tables::schema::Schema;
use siltstone::{Batch, Db, Durability, ErrorKind, Family, FamilyOptions};
use std::collections::BTreeMap;
use tonic::Status;

/// The engine family of the records.
const RECORDS: &str = "tables";
/// The record of the next table's id.
const NEXT_ID: &[u8] = b"next-id";
/// The prefix of tables' names among the records.
const TABLE: &[u8] = b"sstable/";

/// The key of a table's record.
pub(super) fn record_key(name: &str) -> Vec<u8> {
    [TABLE, name.as_bytes()].concat()
}

/// The family of the records, which is made where there is none.
pub(super) fn open(db: &Db) -> Result<Family, Status> {
    let records = match db.family(RECORDS) {
        Err(e) if e.kind() == ErrorKind::NotFound => db.create_family(RECORDS, FamilyOptions::default()),
        found => found,
    };
    records.map_err(status)
}

/// The schemas of all tables, by their names.
pub(super) fn schemas(records: &Family) -> Result<BTreeMap<String, Schema>, Status> {
    let mut schemas = BTreeMap::new();
    for record in records.scan_prefix(TABLE) {
        let record = record.map_err(status)?;
        let name = String::from_utf8_lossy(&record.key[TABLE.len()..]).into_owned();
        let schema: Schema = serde_json::from_slice(&record.value)
            .map_err(|e| Status::data_loss(format!("the record of table {name}: {e}")))?;
        schemas.insert(name, schema);
    }
    Ok(schemas)
}

/// Writes the record of a table.
pub(super) fn write(db: &Db, records: &Family, name: &str, schema: &Schema) -> Result<(), Status> {
    let record = serde_json::to_vec(schema).map_err(|e| Status::internal(e.to_string()))?;
    let mut batch = Batch::new();
    batch.put(records, record_key(name), record);
    db.write_with(&batch, Durability::Sync).map_err(status)?;
    Ok(())
}

/// A number for a table, which none had before.
pub(super) fn next_id(db: &Db, records: &Family) -> Result<u64, Status> {
    let last = records.get(NEXT_ID).map_err(status)?;
    let last = last.map_or(Ok(0), |bytes| bytes[..].try_into().map(u64::from_be_bytes));
    let id = last.map_err(|_| Status::data_loss("the record of the next table's id"))? + 1;
    let mut batch = Batch::new();
    batch.put(records, NEXT_ID, id.to_be_bytes());
    db.write_with(&batch, Durability::Sync).map_err(status)?;
    Ok(id)
}
