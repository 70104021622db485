//! A durable Bigtable: the public Bigtable v2 gRPC API on a siltstone database in a local directory.
//!
//! [`Server::start`] opens the database and listens; [`Config`] says where and how. What is served, refused, or different from
//! the public service is listed call by call in docs/bigtable-api.md.
//!
//! ```text
//! data, admin, instances   the services: requests in, answers out
//! iam                      what tokens may do, as IAM's calls tell it
//! instance_set, clusters, profiles   instances that were made, and their settings
//! hot_tablets              regions that were busy
//! read, mutate, changes    a scan under way; mutations as batches, reads before writes; streams of changes
//! answer                   messages that wait for their client
//! pieces, chunks           rows through a filter, piece by piece; messages of a scan
//! filter, gc               row filters; garbage collection rules
//! backup_filter            which backups a list has, and in which order
//! automated_backups        backups that the server makes by itself
//! backups, backup_places   backups of tables; the directory or object store in which they lie
//! backup_records           what is kept of each backup, and known of all of them
//! operations               long-running operations, all finished
//! bundles                  descriptors of messages that belong to a table
//! operator                 settings and state, for the command line
//! regions                  splits and joins of regions
//! traffic                  how busy each of them is
//! collect                  deletes cells that are gone by rules of which the engine is not told
//! reader                   rows put together from the stores of their families
//! undelete                 tables that were deleted, and can come back
//! tables, schema, rows     the set of tables; what is kept of one; how a cell lies in the engine
//! row_keys                 schemas of row keys
//! stored_message           messages that are kept as they came
//! views                    parts of tables with rights of their own
//! settings                 options of stores as text
//! work                     work of a call, counted
//! listen, serve            connections and TLS; HTTP/2 and HTTP/1 on them
//! door, methods, wire      how a call is let in: by whom, what of, how much
//! fields, requests         what becomes of each field; requests that are restated
//! auth, budget             tokens and rights; memory of calls
//! client_certificates       those of clients
//! watched                  files that are read again when they change
//! browsers                 what keeps pages of others from reading ours
//! server, calls, http       starting and stopping; counting; health, metrics, page
//! ```
//!
//! Each line uses what stands below it, but `server`, which makes them all.
#![forbid(unsafe_code)]

mod background;
mod cells;
mod config;
#[cfg(feature = "empty")]
#[doc(hidden)]
pub mod empty;
mod load;
mod names;
mod net;
mod proto;
mod rows;
mod server;
mod services;
mod shared;
mod status;
mod store_options;
mod tables;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod testing;
mod time;

pub use config::{Config, OffloadConfig, Settings, Size, TableConfig, TlsConfig, WriteDurability};
pub use load::Cell;
pub use net::auth::{token_digest, token_expiry_us};
#[doc(hidden)]
pub use proto::METHODS;
#[doc(hidden)]
pub use proto::operator_messages::{AlterSettings, Json, TableName};
pub use server::Server;
#[doc(hidden)]
pub use services::stubs::operator::operator_client::OperatorClient;
pub use tables::schema::with_operators;
