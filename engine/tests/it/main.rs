//! Behaviour through the public API, on real files.

mod basics;
#[cfg(feature = "testing")]
mod space;
