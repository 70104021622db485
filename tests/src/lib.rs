//! Tests that cross crates: what they compare the database with, and what they demand of it after a crash.

pub mod history;
pub mod model;
pub mod rot;
