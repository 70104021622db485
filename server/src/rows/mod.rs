//! Rows, read and written: what the calls of data do once they are let in.
//!
//! - `read_rows`: a scan under way. `chunks`: its rows as messages.
//! - `pieces`: rows through a filter, piece by piece.
//! - `row_cursor`: rows put together from the stores of their families.
//! - `mutate`: mutations as batches of the engine, and reads before writes.
//! - `changes`: streams of changes. `samples`: sampled keys.

pub(crate) mod changes;
pub(crate) mod chunks;
pub(crate) mod mutate;
pub(crate) mod pieces;
pub(crate) mod read_rows;
pub(crate) mod row_cursor;
pub(crate) mod samples;
