//! Cells: their keys, and what is made of them.

pub(crate) mod aggregate;
pub(crate) mod filter;
pub(crate) mod gc;
pub(crate) mod row_key;
