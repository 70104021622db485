//! Tables, and what belongs to them: views, schema bundles, backups, and the instances in which they are
//! named. All of it is in one database: cells in engine families by table and column family, the rest as
//! records in the engine family `tables`.
//!
//! What is stored:
//!
//! - `schema`: a table's record, made of `view_schema`, `backup_policy`, `row_key_schema` and messages
//!   (`stored_message`).
//! - `records`: the engine family of the records.
//! - `layout`: a table at a moment, region by region. `traffic`: how busy a region is.
//! - `deleted`: tables that can come back. `backup_records`: backups, and what is known of all of them.
//!   `backup_places`: the directory or object store in which they lie.
//! - `clusters`, `profiles`: settings of instances.
//!
//! What changes it:
//!
//! - `registry`: the set of tables. It holds `moments` and up to where had been written by then, and notes of
//!   stores that were `attached`. `open` opens a database as one.
//! - `regions`: splits and joins of regions. `hot_tablets`: those that were busy. `gc_sweep`: deletes cells
//!   that are hidden by rules which the engine cannot apply.
//! - `views`, `bundles`: authorized views and schema bundles.
//! - `undelete`: tables are deleted, and come back.
//! - `instance_set`: the instances that were made or changed.
//! - `backups`: backups are made, copied, restored and deleted. `automated_backups`: those that the server
//!   makes by itself. `backup_filter`: which of them a list has.

pub(crate) mod attached;
pub(crate) mod automated_backups;
pub(crate) mod backup_filter;
pub(crate) mod backup_places;
pub(crate) mod backup_policy;
pub(crate) mod backup_records;
pub(crate) mod backups;
pub(crate) mod bundles;
pub(crate) mod clusters;
mod deleted;
pub(crate) mod gc_sweep;
pub(crate) mod hot_tablets;
pub(crate) mod instance_set;
pub(crate) mod layout;
pub(crate) mod moments;
mod open;
pub(crate) mod profiles;
mod records;
pub(crate) mod regions;
pub(crate) mod registry;
mod row_key_schema;
pub(crate) mod schema;
mod stored_message;
pub(crate) mod traffic;
mod undelete;
pub(crate) mod view_schema;
pub(crate) mod views;
