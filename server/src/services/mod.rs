//! The services of the API.

pub(crate) mod stubs;
