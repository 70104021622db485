//! Transactions, and scans through what they see.
//!
//! The engine's scan borrows its transaction, which here may be changed or ended between two steps. So a scan
//! asks for a few keys at a time, more and more, and goes on behind the last one. Each key comes once, with
//! its newest version.

use crate::batch::Write;
use crate::bytes::Bytes;
use crate::error::{OrRaise, invalid, raised};
use crate::forked::OfProcess;
use crate::handle::{Family, durability};
use crate::range::{given, of_slice};
use crate::scan::Then;
use crate::time::Time;
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PySlice, PyTuple};
use siltstone::{Db, Entry, Isolation, KeyRange};
use std::collections::VecDeque;

/// Sees one moment under its own writes, which become true together at the commit, or not at all. Calls
/// concern the default family, unless they name another one.
#[pyclass(module = "siltstone")]
pub(crate) struct Transaction {
    inside: OfProcess<siltstone::Transaction>,
    /// The family of calls that name none.
    family: OfProcess<siltstone::Family>,
}

impl Transaction {
    pub(crate) fn begin(py: Python<'_>, db: &Db, isolation: &str) -> PyResult<Self> {
        let isolation = match isolation {
            "serializable" => Isolation::Serializable,
            "snapshot" => Isolation::Snapshot,
            other => return Err(invalid(py, format!("isolation is serializable or snapshot, not {other}"))),
        };
        let inside = OfProcess::new(db.begin_with(isolation));
        Ok(Self { inside, family: OfProcess::new(db.default_family()) })
    }

    /// The engine's transaction, unless it was committed or rolled back.
    pub(crate) fn take(&mut self, py: Python<'_>) -> PyResult<Option<siltstone::Transaction>> {
        self.inside.take(py)
    }

    fn family(&self, py: Python<'_>, named: Option<PyRef<'_, Family>>) -> PyResult<siltstone::Family> {
        match named {
            Some(family) => Ok(family.inside(py)?.family.clone()),
            None => self.family.get(py).cloned(),
        }
    }

    fn value<'py>(
        &self,
        py: Python<'py>,
        key: &Bytes<'py>,
        named: Option<PyRef<'py, Family>>,
        for_update: bool,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let (family, inside, key) = (self.family(py, named)?, self.inside.get(py)?, key.as_bytes());
        let found = py.detach(|| match for_update {
            true => inside.get_for_update(&family, key),
            false => inside.get(&family, key),
        });
        Ok(found.or_raise(py)?.map(|value| PyBytes::new(py, &value)))
    }

    fn write(&mut self, py: Python<'_>, named: Option<PyRef<'_, Family>>, write: Write<'_>) -> PyResult<()> {
        let family = self.family(py, named)?;
        let inside = self.inside.get_mut(py)?;
        match write {
            Write::Put { key, value, timestamp: None } => inside.put(&family, key, value),
            Write::Put { key, value, timestamp: Some(Time(at)) } => inside.put_at(&family, key, at, value),
            Write::Delete { key, timestamp: None } => inside.delete(&family, key),
            Write::Delete { key, timestamp: Some(Time(at)) } => inside.delete_at(&family, key, at),
            Write::Merge { key, operand, timestamp: None } => inside.merge(&family, key, operand),
            Write::Merge { key, operand, timestamp: Some(Time(at)) } => {
                inside.merge_at(&family, key, at, operand)
            }
            Write::DeleteRange(range) => inside.delete_range(&family, range),
        }
        Ok(())
    }
}

#[pymethods]
impl Transaction {
    /// The key's value, or `default`. With `for_update` others must not have written to it at the commit,
    /// whatever the isolation.
    #[pyo3(signature = (key, default=None, *, family=None, for_update=false))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        key: Bytes<'py>,
        default: Option<Bound<'py, PyAny>>,
        family: Option<PyRef<'py, Family>>,
        for_update: bool,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        Ok(self.value(py, &key, family, for_update)?.map(Bound::into_any).or(default))
    }

    fn __getitem__<'py>(&self, py: Python<'py>, key: Bytes<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let missing = || PyKeyError::new_err(PyBytes::new(py, key.as_bytes()).unbind());
        self.value(py, &key, None, false)?.ok_or_else(missing)
    }

    fn __contains__<'py>(&self, py: Python<'py>, key: Bytes<'py>) -> PyResult<bool> {
        Ok(self.value(py, &key, None, false)?.is_some())
    }

    /// The keys and values of a range, in order. It may or may not show what this transaction writes
    /// meanwhile.
    #[pyo3(signature = (start=None, stop=None, *, prefix=None, reverse=false, family=None))]
    fn scan<'py>(
        this: PyRef<'py, Self>,
        start: Option<Bytes<'py>>,
        stop: Option<Bytes<'py>>,
        prefix: Option<Bytes<'py>>,
        reverse: bool,
        family: Option<PyRef<'py, Family>>,
    ) -> PyResult<TransactionScan> {
        let py = this.py();
        let (rest, family) = (given(py, start, stop, prefix)?, this.family(py, family)?);
        let state = State { family, rest, reverse, found: VecDeque::new(), asked: ASKED.0, then: Then::More };
        Ok(TransactionScan { transaction: this.into(), state: OfProcess::new(state) })
    }

    /// See `Family.put`.
    #[pyo3(signature = (key, value, *, timestamp=None, family=None))]
    fn put<'py>(
        &mut self,
        py: Python<'py>,
        key: Bytes<'py>,
        value: Bytes<'py>,
        timestamp: Option<Time>,
        family: Option<PyRef<'py, Family>>,
    ) -> PyResult<()> {
        self.write(py, family, Write::Put { key: key.as_bytes(), value: value.as_bytes(), timestamp })
    }

    /// See `Family.delete`.
    #[pyo3(signature = (key, *, timestamp=None, family=None))]
    fn delete<'py>(
        &mut self,
        py: Python<'py>,
        key: Bytes<'py>,
        timestamp: Option<Time>,
        family: Option<PyRef<'py, Family>>,
    ) -> PyResult<()> {
        self.write(py, family, Write::Delete { key: key.as_bytes(), timestamp })
    }

    /// See `Family.merge`.
    #[pyo3(signature = (key, operand, *, timestamp=None, family=None))]
    fn merge<'py>(
        &mut self,
        py: Python<'py>,
        key: Bytes<'py>,
        operand: Bytes<'py>,
        timestamp: Option<Time>,
        family: Option<PyRef<'py, Family>>,
    ) -> PyResult<()> {
        self.write(py, family, Write::Merge { key: key.as_bytes(), operand: operand.as_bytes(), timestamp })
    }

    /// See `Family.delete_range`.
    #[pyo3(signature = (start=None, stop=None, *, prefix=None, family=None))]
    fn delete_range<'py>(
        &mut self,
        py: Python<'py>,
        start: Option<Bytes<'py>>,
        stop: Option<Bytes<'py>>,
        prefix: Option<Bytes<'py>>,
        family: Option<PyRef<'py, Family>>,
    ) -> PyResult<()> {
        self.write(py, family, Write::DeleteRange(given(py, start, stop, prefix)?))
    }

    fn __setitem__<'py>(&mut self, py: Python<'py>, key: Bytes<'py>, value: Bytes<'py>) -> PyResult<()> {
        self.put(py, key, value, None, None)
    }

    fn __delitem__<'py>(&mut self, py: Python<'py>, key: Bound<'py, PyAny>) -> PyResult<()> {
        match key.cast::<PySlice>() {
            Ok(slice) => self.write(py, None, Write::DeleteRange(of_slice(slice)?)),
            Err(_) => self.delete(py, key.extract()?, None, None),
        }
    }

    /// Marks this moment, for `rollback_to_savepoint`. They may be nested.
    fn savepoint(&mut self, py: Python<'_>) -> PyResult<()> {
        self.inside.get_mut(py)?.savepoint();
        Ok(())
    }

    /// Forgets what was written since the newest savepoint, and that savepoint. False if there is none.
    fn rollback_to_savepoint(&mut self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.inside.get_mut(py)?.rollback_to_savepoint())
    }

    /// Makes all writes true, or raises `ConflictError`. Answers the last sequence number.
    #[pyo3(signature = (*, sync=false))]
    fn commit(&mut self, py: Python<'_>, sync: bool) -> PyResult<u64> {
        self.inside.get(py)?;
        let Some(inside) = self.inside.take(py)? else { return Ok(0) };
        py.detach(|| inside.commit(durability(sync))).or_raise(py).map(|seq| seq.0)
    }

    /// Forgets it.
    fn rollback(&mut self, py: Python<'_>) -> PyResult<()> {
        self.inside.close(py)
    }

    fn __enter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    /// Commits, unless that was done or something was raised.
    #[pyo3(signature = (*raised))]
    fn __exit__(&mut self, py: Python<'_>, raised: &Bound<'_, PyTuple>) -> PyResult<bool> {
        match self.take(py)? {
            Some(inside) if raised.get_item(0)?.is_none() => {
                py.detach(|| inside.commit(durability(false))).or_raise(py)?;
            }
            inside => py.detach(|| drop(inside)),
        }
        Ok(false)
    }
}

/// Keys of the first asking, and of the last.
const ASKED: (usize, usize) = (4, 256);

/// An iterator over the keys and values of a range, as a transaction sees them.
#[pyclass(module = "siltstone")]
pub(crate) struct TransactionScan {
    transaction: Py<Transaction>,
    state: OfProcess<State>,
}

struct State {
    family: siltstone::Family,
    /// What was not asked for yet.
    rest: KeyRange,
    reverse: bool,
    found: VecDeque<Entry>,
    asked: usize,
    /// What comes behind that which was found.
    then: Then,
}

impl State {
    /// Asks for the next keys. What lies before an error comes before it.
    fn ask(&mut self, transaction: &siltstone::Transaction) {
        let mut scan = transaction.scan(&self.family, self.rest.clone());
        loop {
            let entry = match if self.reverse { scan.next_back() } else { scan.next() } {
                Some(Ok(entry)) => entry,
                Some(Err(why)) => {
                    self.then = Then::Error(why);
                    break;
                }
                None => {
                    self.then = Then::End;
                    break;
                }
            };
            // The newest version comes first, or last where it goes backward.
            let is_same = self.found.back().is_some_and(|last| last.key == entry.key);
            if is_same && self.reverse {
                self.found.pop_back();
            } else if is_same {
                continue;
            }
            if self.found.len() == self.asked {
                break;
            }
            self.found.push_back(entry);
        }
        self.asked = (4 * self.asked).min(ASKED.1);
        if let Some(last) = self.found.back() {
            match self.reverse {
                false => self.rest.start = [&last.key[..], &[0]].concat(),
                true => self.rest.end = Some(last.key.clone()),
            }
        }
    }
}

#[pymethods]
impl TransactionScan {
    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let transaction = self.transaction.bind(py).try_borrow()?;
        let (inside, state) = (transaction.inside.get(py)?, self.state.get_mut(py)?);
        if state.found.is_empty() && matches!(state.then, Then::More) {
            py.detach(|| state.ask(inside));
        }
        if let Some(entry) = state.found.pop_front() {
            return PyTuple::new(py, [PyBytes::new(py, &entry.key), PyBytes::new(py, &entry.value)])
                .map(Some);
        }
        match std::mem::replace(&mut state.then, Then::End) {
            Then::Error(why) => Err(raised(py, &why)),
            Then::More | Then::End => Ok(None),
        }
    }
}
