//! The services: requests in, answers out.
//!
//! - `stubs`: the services of gRPC, as `build.rs` makes them.
//! - `bigtable`: data. `turns`: scans and streams of changes, sent turn by turn. `features`: what clients say
//!   they understand.
//! - `admin`, `instances`: administration of tables and of instances, with `iam`, which tells what tokens may
//!   do.
//! - `operations`: long-running operations, all finished.
//! - `operator`: settings and state, for the command line.
//! - `http`: health, metrics, and the page. `browsers`: what keeps pages of others from reading ours.

pub(crate) mod admin;
pub(crate) mod bigtable;
pub(crate) mod browsers;
pub(crate) mod features;
pub(crate) mod http;
pub(crate) mod iam;
pub(crate) mod instances;
pub(crate) mod operations;
pub(crate) mod operator;
pub(crate) mod stubs;
mod turns;
