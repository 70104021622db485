//! Siltstone from Python: the module `siltstone._siltstone`, which the package in `python/siltstone` gives
//! its names.
//!
//! One class builds on another: a `Reader` reads (`reader.rs`), a `Family` also writes (`handle.rs` has the
//! class, `family.rs` what it does), a `Db` is its default family with what concerns all of them (`db.rs`),
//! and a `Snapshot` (`snapshot.rs`) is a reader of one moment. Beside them are batches (`batch.rs`) and
//! transactions (`transaction.rs`), and two ways through a range: `Scan`, an iterator (`scan.rs`), and
//! `Cursor` (`cursor.rs`).
//!
//! What goes in and out: `bytes`, `path`, `range`, `time` and `options` read what Python gives, `columns`
//! many rows at once, `capsule` what other libraries hand over as Arrow, and `arrow` makes record batches.
//! `error` has the exceptions, and `operator` calls operators that are written in Python.
//!
//! Four rules hold everywhere:
//! - Python runs on (`py.detach`) while the engine works, as any call may wait for the disk. So no thread
//!   that waits for the engine keeps another one from calling a merge operator that is written in Python.
//! - Threads of the engine (operators, the last handle that is dropped) enter Python by `attach.rs`.
//! - What goes in is borrowed from `bytes`, which never change, or copied; what comes out is copied.
//! - A process that was forked from another must not use what that one has opened (`forked.rs`).

mod arrow;
mod attach;
mod batch;
mod bytes;
mod capsule;
mod columns;
mod cursor;
mod db;
mod error;
mod family;
mod forked;
mod handle;
mod operator;
mod options;
mod path;
mod range;
mod reader;
mod scan;
mod snapshot;
mod time;
mod transaction;

use pyo3::prelude::*;

/// The classes and functions of the package `siltstone`, which documents them.
#[pymodule]
fn _siltstone(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<reader::Reader>()?;
    module.add_class::<handle::Family>()?;
    module.add_class::<db::Db>()?;
    module.add_class::<snapshot::Snapshot>()?;
    module.add_class::<batch::Batch>()?;
    module.add_class::<transaction::Transaction>()?;
    module.add_class::<transaction::TransactionScan>()?;
    module.add_class::<scan::Scan>()?;
    module.add_class::<cursor::Cursor>()?;
    module.add_class::<arrow::ArrowScan>()?;
    module.add_function(wrap_pyfunction!(attach::_ends, module)?)?;
    module.add_function(wrap_pyfunction!(db::open, module)?)?;
    module.add_function(wrap_pyfunction!(db::check, module)?)?;
    module.add_function(wrap_pyfunction!(db::destroy, module)?)?;
    module.add_function(wrap_pyfunction!(db::repair, module)?)?;
    module.add_function(wrap_pyfunction!(db::list_backups, module)?)?;
    module.add_function(wrap_pyfunction!(db::restore, module)?)?;
    forked::watch(module.py())
}
