//! A durable Bigtable: the public Bigtable v2 gRPC API on a siltstone database in a local directory.
//!
//! [`Server::start`] opens the database and listens; [`Config`] says where and how. What is served, refused,
//! or different from the public service is listed call by call in docs/bigtable-api.md.
//!
//! The modules, highest first. Each imports only what stands below it, and no folder has a circle of files;
//! the page of a folder (`mod.rs`) says what each of its files is for.
//!
//! ```text
//! testing, empty  every decoder, for fuzzing; a service that does nothing, for the bench
//! load            rows from within the process
//! server          starting and stopping
//! background      what the server does by itself: looks at regions, files, backups, changes
//! services/       requests in, answers out: data, administration, the operator, health and the page
//! shared          what all calls share
//! rows/           rows, read and written; streams of changes
//! tables/         tables with their regions, views, schema bundles and backups; instances
//! cells/          keys of cells, row filters, garbage collection rules, aggregates
//! net/            connections, and how calls on them are let in, counted and answered
//! config          settings of a server
//! store_options   options of a table's stores as text
//! status          errors as statuses of calls
//! names           names of resources, and etags
//! proto/          messages
//! time            points in time and lengths of time
//! ```
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
