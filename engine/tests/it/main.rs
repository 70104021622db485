//! Behaviour through the public API, on real files.

mod api;
mod basics;
#[cfg(feature = "testing")]
mod clean;
#[cfg(feature = "testing")]
mod hot;
mod memory;
#[cfg(feature = "testing")]
mod space;
