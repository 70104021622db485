//! Cells: how they lie in the engine, and which of them a reader gets. Nothing here knows a table.
//!
//! - `row_key`: the keys of rows and columns in the engine.
//! - `subset`: which rows and columns an authorized view has.
//! - `filter`: row filters.
//! - `gc`: garbage collection rules.
//! - `aggregate`: what the cells of an aggregate family add up to.

pub(crate) mod aggregate;
pub(crate) mod filter;
pub(crate) mod gc;
pub(crate) mod row_key;
pub(crate) mod subset;
