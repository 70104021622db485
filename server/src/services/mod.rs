//! The services of the API.

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
