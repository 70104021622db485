//! Connections and calls.

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
