//! Behaviour through the public API, on real files.

mod basics;
