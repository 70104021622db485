//! Behaviour through the public API, on real files.

mod api;
mod basics;
mod memory;
#[cfg(feature = "testing")]
mod space;
