//! Databases: their default family, and what concerns all families.

use crate::error::OrRaise;
use crate::forked::OfProcess;
use crate::handle::{Family, durability};
use crate::operator::{Filter, Operator};
use crate::options::{self, plain};
use crate::path::Place;
use crate::snapshot::Snapshot;
use crate::transaction::Transaction;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use siltstone::storage::Env;
use siltstone::{Backups, ErrorKind, FamilyOptions};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

/// A database. As a mapping it is its default family. Closed by `close`, or at the end of its `with` block.
#[pyclass(frozen, extends = Family, weakref, module = "siltstone")]
pub(crate) struct Db(OfProcess<siltstone::Db>);

/// By name.
type Functions = HashMap<String, Py<PyAny>>;

/// Refuses what cannot be called where a function is asked for.
fn callable(py: Python<'_>, what: &str, name: &str, function: &Py<PyAny>) -> PyResult<()> {
    match function.bind(py).is_callable() {
        true => Ok(()),
        false => Err(PyTypeError::new_err(format!("the {what} \"{name}\" cannot be called"))),
    }
}

/// Opens a database.
#[pyfunction]
#[pyo3(signature = (path, *, read_only=false, families=None, merge_operators=None, filters=None, **options))]
pub(crate) fn open<'py>(
    py: Python<'py>,
    path: Place,
    read_only: bool,
    families: Option<HashMap<String, Bound<'py, PyDict>>>,
    merge_operators: Option<Functions>,
    filters: Option<Functions>,
    options: Option<Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, Db>> {
    let mut builder = siltstone::Db::builder();
    if let Some(options) = options {
        builder = builder.options(options::of_db(&options)?);
    }
    for (name, said) in families.unwrap_or_default() {
        builder = builder.family(&name, options::of_family(&FamilyOptions::default(), Some(&said))?);
    }
    for (name, function) in merge_operators.unwrap_or_default() {
        callable(py, "merge operator", &name, &function)?;
        builder = builder.merge_operator(&name, Arc::new(Operator(function)));
    }
    for (name, function) in filters.unwrap_or_default() {
        callable(py, "filter", &name, &function)?;
        builder = builder.filter(&name, Arc::new(Filter(function)));
    }
    let opened = py.detach(|| if read_only { builder.open_read_only(path.0) } else { builder.open(path.0) });
    let db = opened.or_raise(py)?;
    let family = Family::new(db.clone(), db.default_family());
    Bound::new(py, family.add_subclass(Db(OfProcess::new(db))))
}

impl Db {
    fn made(&self, py: Python<'_>, family: siltstone::Family) -> PyResult<Py<Family>> {
        Py::new(py, Family::new(self.0.get(py)?.clone(), family))
    }

    /// Something that may take its time.
    fn run<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&siltstone::Db) -> siltstone::Result<T> + Send,
    ) -> PyResult<T> {
        let db = self.0.get(py)?;
        py.detach(|| call(db)).or_raise(py)
    }
}

#[pymethods]
impl Db {
    /// Its directory.
    #[getter]
    fn path(&self, py: Python<'_>) -> PyResult<PathBuf> {
        Ok(self.0.get(py)?.path().to_path_buf())
    }

    /// The names of its families.
    #[getter]
    fn families(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        Ok(self.0.get(py)?.families())
    }

    /// The family of that name.
    fn family(&self, py: Python<'_>, name: &str) -> PyResult<Py<Family>> {
        let family = self.0.get(py)?.family(name).or_raise(py)?;
        self.made(py, family)
    }

    /// Makes a family, with options by name as in `open`.
    #[pyo3(signature = (name, **options))]
    fn create_family(
        &self,
        py: Python<'_>,
        name: &str,
        options: Option<Bound<'_, PyDict>>,
    ) -> PyResult<Py<Family>> {
        let options = options::of_family(&FamilyOptions::default(), options.as_ref())?;
        let family = self.run(py, |db| db.create_family(name, options))?;
        self.made(py, family)
    }

    /// Drops a family with all that it holds.
    fn drop_family(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        self.run(py, |db| db.drop_family(name))
    }

    /// A reader of this moment, which also works as a `with` block.
    fn snapshot<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, Snapshot>> {
        Bound::new(py, Snapshot::take(self.0.get(py)?))
    }

    /// An optimistic transaction, which commits at the end of its `with` block. `ConflictError` says that
    /// others wrote meanwhile to what it read (`serializable`), or to what it wrote or read for update
    /// (`snapshot`).
    #[pyo3(signature = (*, isolation="serializable"))]
    fn transaction(&self, py: Python<'_>, isolation: &str) -> PyResult<Transaction> {
        Transaction::begin(py, self.0.get(py)?, isolation)
    }

    /// Calls `work` with a transaction and commits it, again and again while others write to what it read.
    #[pyo3(signature = (work, *, retries=100, isolation="serializable", sync=false))]
    fn transact<'py>(
        &self,
        py: Python<'py>,
        work: Bound<'py, PyAny>,
        retries: usize,
        isolation: &str,
        sync: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let mut left = retries;
        loop {
            let transaction = Bound::new(py, self.transaction(py, isolation)?)?;
            let answer = work.call1((&transaction,))?;
            let Some(ready) = transaction.try_borrow_mut()?.take(py)? else { return Ok(answer) };
            match py.detach(|| ready.commit(durability(sync))) {
                Ok(_) => return Ok(answer),
                Err(why) if why.kind() == ErrorKind::Conflict && left > 0 => left -= 1,
                Err(why) => return Err(why).or_raise(py),
            }
            py.check_signals()?;
        }
    }

    /// Makes all that was written durable.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        self.run(py, siltstone::Db::sync)
    }

    /// Flushes the memory of all families to SSTables.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        self.run(py, siltstone::Db::flush)
    }

    /// Waits until no flush and no compaction is running or due.
    fn wait_idle(&self, py: Python<'_>) -> PyResult<()> {
        self.run(py, siltstone::Db::wait_idle)
    }

    /// Makes a database of its own in a new directory, by hard links where it can. Answers the sequence
    /// number.
    fn checkpoint(&self, py: Python<'_>, directory: Place) -> PyResult<u64> {
        self.run(py, |db| db.checkpoint(directory.0)).map(|seq| seq.0)
    }

    /// Adds a backup to a directory of backups. What earlier ones have is not copied again.
    fn backup<'py>(&self, py: Python<'py>, directory: Place) -> PyResult<Bound<'py, PyAny>> {
        plain(py, &self.run(py, |db| db.backup(directory.0))?)
    }

    /// Statistics of the database since it was opened, by name.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        plain(py, &self.run(py, |db| Ok(db.statistics()))?)
    }

    /// Recent flushes, compactions and the like, oldest first, a line each.
    fn events(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        self.run(py, |db| Ok(db.events().iter().map(ToString::to_string).collect()))
    }

    /// Divides memory anew: bytes for unflushed writes, and bytes for all.
    fn set_memory_limits(&self, py: Python<'_>, write_memory: u64, memory_budget: u64) -> PyResult<()> {
        self.run(py, |db| db.set_memory_limits(write_memory, memory_budget))
    }

    /// Bytes a second that flushes and compactions may write together; 0 for no limit.
    fn set_rate_limit(&self, py: Python<'_>, bytes_per_second: u64) -> PyResult<()> {
        self.run(py, |db| {
            db.set_rate_limit(bytes_per_second);
            Ok(())
        })
    }

    /// Closes it: calls that come later raise `ClosedError`. May be called again.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.run(py, siltstone::Db::close)
    }

    fn __enter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    #[pyo3(signature = (*_raised))]
    fn __exit__(&self, py: Python<'_>, _raised: &Bound<'_, PyTuple>) -> PyResult<bool> {
        self.close(py).map(|()| false)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!("<siltstone.Db {:?}>", self.0.get(py)?.path()))
    }
}

/// Reads a closed database whole, and tells what is wrong with it.
#[pyfunction]
pub(crate) fn check(py: Python<'_>, path: Place) -> PyResult<Bound<'_, PyAny>> {
    plain(py, &py.detach(|| siltstone::check(&Env::local(), &path.0, &mut |_| {})).or_raise(py)?)
}

/// Deletes a database that is closed, with all that it holds.
#[pyfunction]
pub(crate) fn destroy(py: Python<'_>, path: Place) -> PyResult<()> {
    py.detach(|| siltstone::destroy(&Env::local(), &path.0)).or_raise(py)
}

/// Saves what can be saved of a damaged database.
#[pyfunction]
pub(crate) fn repair(py: Python<'_>, path: Place) -> PyResult<Bound<'_, PyAny>> {
    plain(py, &py.detach(|| siltstone::repair(&Env::local(), &path.0, &mut |_| {})).or_raise(py)?)
}

/// The backups in a directory, oldest first.
#[pyfunction]
pub(crate) fn list_backups(py: Python<'_>, directory: Place) -> PyResult<Bound<'_, PyAny>> {
    plain(py, &py.detach(|| Backups::new(&Env::local(), directory.0).list()).or_raise(py)?)
}

/// Writes a backup, the newest one where none is named, to a new directory.
#[pyfunction]
#[pyo3(signature = (directory, to, *, id=None))]
pub(crate) fn restore(
    py: Python<'_>,
    directory: Place,
    to: Place,
    id: Option<u64>,
) -> PyResult<Bound<'_, PyAny>> {
    let restored = py.detach(|| Backups::new(&Env::local(), directory.0).restore(id, to.0, &mut |_| {}));
    plain(py, &restored.or_raise(py)?)
}
