//! Families: what a reader does, and writing.

use crate::batch::{Batch, Write};
use crate::bytes::Bytes;
use crate::columns::{Source, pair};
use crate::error::{OrRaise, invalid};
use crate::handle::{Family, Inside, durability};
use crate::options;
use crate::path::Place;
use crate::range::{given, of_slice};
use crate::time::Time;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PySlice};
use siltstone::{CompactionControl, Timestamp};

/// Bytes of a batch of `put_many`, where the write memory allows that.
const BATCH_BYTES: usize = 256 << 10;
/// The bytes that the engine counts for each write of a batch, beside key and value.
const WRITE_BYTES: usize = 32;

impl Family {
    /// One write that is not a plain put.
    fn write(&self, py: Python<'_>, write: Write<'_>, sync: bool) -> PyResult<()> {
        let Inside { db, family } = self.inside(py)?;
        py.detach(|| {
            let mut batch = siltstone::Batch::new();
            write.add_to(&mut batch, family);
            db.write_with(&batch, durability(sync)).map(drop)
        })
        .or_raise(py)
    }
}

#[pymethods]
impl Family {
    /// Its name.
    #[getter]
    fn name<'py>(&'py self, py: Python<'py>) -> PyResult<&'py str> {
        Ok(self.inside(py)?.family.name())
    }

    /// Its options, by name.
    #[getter]
    fn options<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        options::plain(py, &self.inside(py)?.family.options())
    }

    /// Changes options by name, without rewriting data. `timestamps` cannot change.
    #[pyo3(signature = (**changes))]
    fn alter(&self, py: Python<'_>, changes: Option<Bound<'_, PyDict>>) -> PyResult<()> {
        let family = &self.inside(py)?.family;
        let options = options::of_family(&family.options(), changes.as_ref())?;
        py.detach(|| family.alter(options)).or_raise(py)
    }

    /// Sets a value; with explicit timestamps, of the version `timestamp` (now, if there is none). Without
    /// `sync` a power loss may lose it, a kill of the process cannot.
    #[pyo3(signature = (key, value, *, timestamp=None, sync=false))]
    fn put<'py>(
        &self,
        py: Python<'py>,
        key: Bytes<'py>,
        value: Bytes<'py>,
        timestamp: Option<Time>,
        sync: bool,
    ) -> PyResult<()> {
        let (key, value) = (key.as_bytes(), value.as_bytes());
        if timestamp.is_some() {
            return self.write(py, Write::Put { key, value, timestamp }, sync);
        }
        let family = &self.inside(py)?.family;
        py.detach(|| family.put_with(key, value, durability(sync)).map(drop)).or_raise(py)
    }

    /// Deletes a key; with `timestamp`, its versions up to that one. A key that is not there may be deleted.
    #[pyo3(signature = (key, *, timestamp=None, sync=false))]
    fn delete<'py>(
        &self,
        py: Python<'py>,
        key: Bytes<'py>,
        timestamp: Option<Time>,
        sync: bool,
    ) -> PyResult<()> {
        self.write(py, Write::Delete { key: key.as_bytes(), timestamp }, sync)
    }

    /// Adds an operand for the family's merge operator.
    #[pyo3(signature = (key, operand, *, timestamp=None, sync=false))]
    fn merge<'py>(
        &self,
        py: Python<'py>,
        key: Bytes<'py>,
        operand: Bytes<'py>,
        timestamp: Option<Time>,
        sync: bool,
    ) -> PyResult<()> {
        let (key, operand) = (key.as_bytes(), operand.as_bytes());
        self.write(py, Write::Merge { key, operand, timestamp }, sync)
    }

    /// Deletes all keys of a range: from `start` up to, but not including, `stop`, or those that begin with
    /// `prefix`; without either, all.
    #[pyo3(signature = (start=None, stop=None, *, prefix=None, sync=false))]
    fn delete_range<'py>(
        &self,
        py: Python<'py>,
        start: Option<Bytes<'py>>,
        stop: Option<Bytes<'py>>,
        prefix: Option<Bytes<'py>>,
        sync: bool,
    ) -> PyResult<()> {
        self.write(py, Write::DeleteRange(given(py, start, stop, prefix)?), sync)
    }

    fn __setitem__<'py>(&self, py: Python<'py>, key: Bytes<'py>, value: Bytes<'py>) -> PyResult<()> {
        self.put(py, key, value, None, false)
    }

    fn __delitem__<'py>(&self, py: Python<'py>, key: Bound<'py, PyAny>) -> PyResult<()> {
        match key.cast::<PySlice>() {
            Ok(slice) => self.write(py, Write::DeleteRange(of_slice(slice)?), false),
            Err(_) => self.delete(py, key.extract()?, None, false),
        }
    }

    /// Puts a mapping, or an iterable of pairs, in one batch: all or nothing.
    #[pyo3(signature = (items, /, *, sync=false))]
    fn update<'py>(&self, py: Python<'py>, items: Bound<'py, PyAny>, sync: bool) -> PyResult<()> {
        let items = if items.hasattr("items")? { items.call_method0("items")? } else { items };
        let mut rows = Vec::new();
        for item in items.try_iter()? {
            rows.push(pair(&item?)?);
        }
        let borrowed: Vec<_> = rows.iter().map(|(key, value)| (key.as_bytes(), value.as_bytes())).collect();
        let Inside { db, family } = self.inside(py)?;
        py.detach(|| {
            let mut batch = siltstone::Batch::new();
            borrowed.iter().for_each(|(key, value)| _ = batch.put(family, key, value));
            db.write_with(&batch, durability(sync)).map(drop)
        })
        .or_raise(py)
    }

    /// Puts many rows, in batches of 256 KiB or as much as the database takes at once, and answers how many:
    /// a column of keys and one of values, each a list of bytes, an array of numpy whose rows are bytes of
    /// one width, or an array of Arrow; or a table of Arrow with columns `key` and `value`, and `timestamp`
    /// (uint64, microseconds) where the family has explicit ones, which is read batch by batch; or an
    /// iterable of pairs. If it fails half-way, rows before may have been written. With `sync` all are
    /// durable in the end.
    #[pyo3(signature = (keys, values=None, /, *, sync=false))]
    fn put_many<'py>(
        &self,
        py: Python<'py>,
        keys: Bound<'py, PyAny>,
        values: Option<Bound<'py, PyAny>>,
        sync: bool,
    ) -> PyResult<usize> {
        let Inside { db, family } = self.inside(py)?;
        let mut source = Source::of(&keys, values.as_ref())?;
        let (mut batch, mut count) = (siltstone::Batch::new(), 0);
        while let Some(rows) = source.next(py)? {
            let (keys, values) = (rows.keys.column(), rows.values.column());
            if keys.rows() != values.rows() {
                return Err(invalid(py, format!("{} keys and {} values", keys.rows(), values.rows())));
            }
            let timestamps = rows.timestamps.as_deref();
            // One more write beside what is below this, however large, is within the engine's limit.
            let limit = usize::try_from(db.options().write_memory).unwrap_or(usize::MAX);
            let most = BATCH_BYTES.min(limit.saturating_sub(WRITE_BYTES));
            py.detach(|| {
                for (n, (key, value)) in keys.iter().zip(values.iter()).enumerate() {
                    if !batch.is_empty() && batch.user_bytes() + WRITE_BYTES * batch.len() >= most {
                        db.write(&batch)?;
                        batch.clear();
                    }
                    match timestamps.and_then(|timestamps| timestamps.get(n)) {
                        Some(at) => batch.put_at(family, key, Timestamp(*at), value),
                        None => batch.put(family, key, value),
                    };
                }
                Ok(())
            })
            .or_raise(py)?;
            count += keys.rows();
        }
        py.detach(|| db.write_with(&batch, durability(sync))).or_raise(py)?;
        Ok(count)
    }

    /// A batch, which is written when its `with` block ends.
    #[pyo3(signature = (*, sync=false))]
    fn batch(this: PyRef<'_, Self>, sync: bool) -> PyResult<Batch> {
        let Inside { db, family } = this.inside(this.py())?;
        Ok(Batch::new(db.clone(), family.clone(), sync))
    }

    /// Flushes its memory to SSTables.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        let family = &self.inside(py)?.family;
        py.detach(|| family.flush()).or_raise(py)
    }

    /// Compacts a range into the last level; with `rewrite` also SSTables that lie there already and have
    /// nothing to drop, so that changed options (compression, block size, filter bits) apply to them.
    #[pyo3(signature = (start=None, stop=None, *, prefix=None, rewrite=false))]
    fn compact<'py>(
        &self,
        py: Python<'py>,
        start: Option<Bytes<'py>>,
        stop: Option<Bytes<'py>>,
        prefix: Option<Bytes<'py>>,
        rewrite: bool,
    ) -> PyResult<()> {
        let (family, range) = (&self.inside(py)?.family, given(py, start, stop, prefix)?);
        let control = if rewrite { CompactionControl::rewriting() } else { CompactionControl::default() };
        py.detach(|| family.compact_with(range, &control)).or_raise(py)
    }

    /// About how many bytes and cells of SSTables a range has.
    #[pyo3(signature = (start=None, stop=None, *, prefix=None))]
    fn estimate<'py>(
        &self,
        py: Python<'py>,
        start: Option<Bytes<'py>>,
        stop: Option<Bytes<'py>>,
        prefix: Option<Bytes<'py>>,
    ) -> PyResult<(u64, u64)> {
        let (family, range) = (&self.inside(py)?.family, given(py, start, stop, prefix)?);
        let estimate = py.detach(|| family.estimate(range)).or_raise(py)?;
        Ok((estimate.bytes, estimate.cells))
    }

    /// Ingests SSTable files, made by the engine's `SstableWriter`, all or none.
    fn ingest(&self, py: Python<'_>, paths: Vec<Place>) -> PyResult<()> {
        let family = &self.inside(py)?.family;
        let paths: Vec<_> = paths.into_iter().map(|path| path.0).collect();
        py.detach(|| family.ingest(&paths).map(drop)).or_raise(py)
    }

    /// Statistics of this family, by name.
    fn family_stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let family = &self.inside(py)?.family;
        options::plain(py, &py.detach(|| family.statistics()))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!("<siltstone.Family {:?}>", self.inside(py)?.family.name()))
    }
}
