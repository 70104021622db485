//! Databases in a process that was forked.
//!
//! A child has its parent's memory but none of its threads: no worker flushes there, the WAL file is shared
//! with the parent, and a lock that another thread held stays locked. So what was opened before a fork
//! answers `ClosedError` in the child, and its end does nothing there.

use crate::attach::with_python;
use crate::error::raised;
use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyDict};
use siltstone::{Error, ErrorKind};
use std::sync::atomic::{AtomicU64, Ordering};

/// How many forks lie between the first process and this one.
static FORKS: AtomicU64 = AtomicU64::new(0);

/// Begins to count.
pub(crate) fn watch(py: Python<'_>) -> PyResult<()> {
    let os = py.import("os")?;
    if !os.hasattr("register_at_fork")? {
        return Ok(());
    }
    let count = PyCFunction::new_closure(py, None, None, |_args, _named| {
        FORKS.fetch_add(1, Ordering::Relaxed);
    })?;
    let named = PyDict::new(py);
    named.set_item("after_in_child", count)?;
    os.call_method("register_at_fork", (), Some(&named))?;
    Ok(())
}

fn forks() -> u64 {
    FORKS.load(Ordering::Relaxed)
}

fn closed(py: Python<'_>, why: &str) -> PyErr {
    raised(py, &Error::new(ErrorKind::Closed, why))
}

/// Something of the engine that may be closed before Python forgets it. In a child of the process it was made
/// in it is neither used nor dropped.
pub(crate) struct OfProcess<T: Send> {
    /// Absent when it was closed.
    what: Option<T>,
    born: u64,
}

impl<T: Send> OfProcess<T> {
    pub(crate) fn new(what: T) -> Self {
        Self { what: Some(what), born: forks() }
    }

    fn check(&self, py: Python<'_>) -> PyResult<()> {
        match self.born == forks() {
            true => Ok(()),
            false => Err(closed(py, "it was opened in the process that this one was forked from")),
        }
    }

    /// It, if this is its process and it was not closed.
    #[inline]
    pub(crate) fn get(&self, py: Python<'_>) -> PyResult<&T> {
        self.check(py)?;
        self.what.as_ref().ok_or_else(|| closed(py, "it was closed"))
    }

    /// It, to be changed, if this is its process and it was not closed.
    pub(crate) fn get_mut(&mut self, py: Python<'_>) -> PyResult<&mut T> {
        self.check(py)?;
        self.what.as_mut().ok_or_else(|| closed(py, "it was closed"))
    }

    /// It, to be changed where Python is not at hand.
    pub(crate) fn get_here(&mut self) -> Option<&mut T> {
        self.what.as_mut().filter(|_| self.born == forks())
    }

    /// Closes it, if that was not done.
    pub(crate) fn close(&mut self, py: Python<'_>) -> PyResult<()> {
        let what = self.take(py)?;
        py.detach(|| drop(what));
        Ok(())
    }

    /// Closes it: answers what it was, once.
    pub(crate) fn take(&mut self, py: Python<'_>) -> PyResult<Option<T>> {
        self.check(py)?;
        Ok(self.what.take())
    }
}

/// The last one that goes closes the database, which waits for the engine's workers: Python runs on
/// meanwhile, as one of them may be in an operator.
impl<T: Send> Drop for OfProcess<T> {
    fn drop(&mut self) {
        let Some(what) = self.what.take() else { return };
        match self.born == forks() {
            true => _ = with_python(|py| py.detach(|| drop(what))),
            false => std::mem::forget(what),
        }
    }
}
