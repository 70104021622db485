//! Behaviour through the public API, on real files.

mod api;
mod backup;
mod basics;
mod memory;
mod moving;
#[cfg(feature = "testing")]
mod space;
