//! Rows, read and written: what the calls of data do once they are let in.
//!
//! - `read_rows`: a scan under way. `chunks`: its rows as messages.
//! - `pieces`: rows through a filter, piece by piece.
//! - `row_cursor`: rows put together from the stores of their families. `moment`: as of when.
//! - `mutate`: mutations as batches of the engine.
//! - `row_call`: a call that reads a row before it writes it. `row_queues`: those that wait for a row.
//!   `combine`: those that have waited, judged one after another and written together.
//! - `changes`: streams of changes. `samples`: sampled keys.

pub(crate) mod changes;
pub(crate) mod chunks;
pub(crate) mod combine;
pub(crate) mod moment;
pub(crate) mod mutate;
pub(crate) mod pieces;
pub(crate) mod read_rows;
pub(crate) mod row_call;
pub(crate) mod row_cursor;
pub(crate) mod row_queues;
pub(crate) mod samples;
