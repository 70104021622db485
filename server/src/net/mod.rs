//! Connections, and how calls on them are let in, counted and answered. Nothing here knows what a call does.
//!
//! - `serve`: HTTP/2 and HTTP/1 on the connections that `listen` accepts, with TLS; `client_certificates` is
//!   what is asked of clients there.
//! - `door`: a call on its way in and out. It asks `access` who calls, `methods` what a caller may do, and
//!   `wire` what a request becomes in memory and whether a field of it is not served, by the table in
//!   `fields`.
//! - `auth`: tokens and rights. `files`: what is read of files, again when they change.
//! - `budget`: memory of calls, by caller. `counts`: streams under way, by kind.
//! - `calls`: calls under way, their times and ends. `work`: what a call does, counted. `blocking`: work that
//!   may wait for the disk. `answer`: messages that wait for their client.

pub(crate) mod access;
pub(crate) mod answer;
pub(crate) mod auth;
pub(crate) mod blocking;
pub(crate) mod budget;
pub(crate) mod calls;
pub(crate) mod client_certificates;
pub(crate) mod counts;
pub(crate) mod door;
pub(crate) mod fields;
pub(crate) mod files;
pub(crate) mod listen;
pub(crate) mod methods;
pub(crate) mod serve;
pub(crate) mod wire;
pub(crate) mod work;
