//! The server as clients see it: a real one on loopback, reached through the public messages and clients.

mod api;
mod backups;
mod bundles;
mod changes;
mod filters;
mod instances;
mod model;
mod page;
mod regions;
mod schema;
mod security;
mod stale_files;
mod support;
mod views;
mod wide;
