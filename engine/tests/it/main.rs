//! Behaviour through the public API, on real files.

mod api;
mod basics;
mod log_tables;
mod memory;
#[cfg(feature = "testing")]
mod space;
