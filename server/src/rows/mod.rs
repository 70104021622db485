//! Rows, read and written.

pub(crate) mod changes;
pub(crate) mod chunks;
pub(crate) mod mutate;
pub(crate) mod pieces;
pub(crate) mod read_rows;
pub(crate) mod row_cursor;
