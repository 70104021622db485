//! Tables, and what belongs to them.

pub(crate) mod automated_backups;
pub(crate) mod backup_filter;
pub(crate) mod backup_places;
pub(crate) mod backup_records;
pub(crate) mod backups;
pub(crate) mod bundles;
pub(crate) mod clusters;
pub(crate) mod gc_sweep;
pub(crate) mod hot_tablets;
pub(crate) mod instance_set;
pub(crate) mod profiles;
pub(crate) mod regions;
pub(crate) mod registry;
pub(crate) mod row_key_schema;
pub(crate) mod schema;
pub(crate) mod stored_message;
pub(crate) mod traffic;
pub(crate) mod undelete;
pub(crate) mod views;
