//! Scans: iterators over a range.
//!
//! The engine is asked for many entries at a time, more and more, as each asking lets other Python threads
//! run and has to wait for its turn again. Of a family with versions each key comes once, with its newest,
//! unless versions are asked for. What it found lies in one buffer until Python has taken it. A second thread
//! that takes a step meanwhile gets a `RuntimeError`, as with a generator.

use crate::error::raised;
use crate::forked::OfProcess;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use siltstone::{Cursor, Error, Timestamp};

/// Entries of the first asking, and of the last.
const ENTRIES: (usize, usize) = (4, 1024);
/// Bytes after which an asking ends.
const BYTES: usize = 256 << 10;

/// The form of an entry in Python.
#[derive(Clone, Copy)]
pub(crate) enum Yields {
    /// A key.
    Keys,
    /// A value.
    Values,
    /// A key and a value.
    Items,
    /// A key, a timestamp and a value.
    Versions,
}

/// An iterator over a range.
#[pyclass(module = "siltstone")]
pub(crate) struct Scan {
    state: OfProcess<State>,
    yields: Yields,
}

struct State {
    cursor: Cursor,
    reverse: bool,
    begun: bool,
    /// The cursor stands at an entry that was not taken into `found`.
    stands: bool,
    all_versions: bool,
    found: Found,
    /// Entries of the next asking.
    asked: usize,
    /// What comes after that which was found.
    then: Then,
}

/// What comes after the entries that were found.
pub(crate) enum Then {
    /// More may come, and is asked for.
    More,
    /// Nothing.
    End,
    /// Nothing but this.
    Error(Error),
}

/// Entries that lie one behind the other.
#[derive(Default)]
struct Found {
    bytes: Vec<u8>,
    /// Where key and value of each end.
    ends: Vec<(usize, usize, Timestamp)>,
    /// How many were taken, and where the next begins.
    taken: (usize, usize),
}

impl Found {
    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        self.taken = (0, 0);
    }

    fn is_full(&self, entries: usize) -> bool {
        self.ends.len() >= entries || self.bytes.len() >= BYTES
    }

    fn push(&mut self, key: &[u8], value: &[u8], timestamp: Timestamp) {
        self.bytes.extend_from_slice(key);
        let middle = self.bytes.len();
        self.bytes.extend_from_slice(value);
        self.ends.push((middle, self.bytes.len(), timestamp));
    }

    fn last_key(&self) -> Option<&[u8]> {
        let (middle, _, _) = *self.ends.last()?;
        self.bytes.get(self.last_start()..middle)
    }

    /// Where the last entry begins.
    fn last_start(&self) -> usize {
        self.ends.iter().rev().nth(1).map_or(0, |(_, end, _)| *end)
    }

    /// Forgets the last entry.
    fn pop(&mut self) {
        self.bytes.truncate(self.last_start());
        self.ends.pop();
    }

    fn all_taken(&self) -> bool {
        self.taken.0 == self.ends.len()
    }

    /// The next key, value and timestamp.
    fn take(&mut self) -> Option<(&[u8], &[u8], Timestamp)> {
        let (index, from) = self.taken;
        let (middle, end, timestamp) = *self.ends.get(index)?;
        self.taken = (index + 1, end);
        Some((self.bytes.get(from..middle)?, self.bytes.get(middle..end)?, timestamp))
    }
}

impl State {
    fn step(&mut self) -> siltstone::Result<bool> {
        match (std::mem::replace(&mut self.begun, true), self.reverse) {
            (false, false) => self.cursor.first(),
            (false, true) => self.cursor.last(),
            (true, false) => self.cursor.next(),
            (true, true) => self.cursor.prev(),
        }
    }

    /// Asks the engine. An error comes to Python behind the entries that lie before it.
    fn ask(&mut self, with_values: bool) {
        // Of the last entry before, of which more versions may follow.
        let last = self.found.last_key().map(<[u8]>::to_vec);
        self.found.clear();
        loop {
            let stepped = if std::mem::take(&mut self.stands) { Ok(true) } else { self.step() };
            match stepped {
                Ok(true) => {}
                Ok(false) => {
                    self.then = Then::End;
                    break;
                }
                Err(why) => {
                    self.then = Then::Error(why);
                    break;
                }
            }
            let Some(entry) = self.cursor.entry() else { break };
            if !self.all_versions {
                let before = self.found.last_key().or(last.as_deref());
                // The newest comes first, or last where it goes backward.
                if before == Some(&entry.key[..]) {
                    if self.reverse {
                        self.found.pop();
                    } else {
                        continue;
                    }
                }
            }
            if self.found.is_full(self.asked) {
                self.stands = true;
                break;
            }
            let value = if with_values { &entry.value[..] } else { &[] };
            self.found.push(&entry.key, value, entry.timestamp);
        }
        self.asked = (4 * self.asked).min(ENTRIES.1);
    }
}

impl Scan {
    pub(crate) fn new(scan: siltstone::Scan, yields: Yields, reverse: bool) -> Self {
        let state = State {
            cursor: scan.cursor(),
            reverse,
            begun: false,
            stands: false,
            all_versions: matches!(yields, Yields::Versions),
            found: Found::default(),
            asked: ENTRIES.0,
            then: Then::More,
        };
        Self { state: OfProcess::new(state), yields }
    }
}

impl Yields {
    fn made<'py>(self, py: Python<'py>, entry: (&[u8], &[u8], Timestamp)) -> PyResult<Bound<'py, PyAny>> {
        let (key, value, timestamp) = entry;
        let bytes = |bytes| PyBytes::new(py, bytes);
        match self {
            Yields::Keys => Ok(bytes(key).into_any()),
            Yields::Values => Ok(bytes(value).into_any()),
            Yields::Items => Ok((bytes(key), bytes(value)).into_pyobject(py)?.into_any()),
            Yields::Versions => Ok((bytes(key), timestamp.0, bytes(value)).into_pyobject(py)?.into_any()),
        }
    }
}

#[pymethods]
impl Scan {
    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let (state, yields) = (self.state.get_mut(py)?, self.yields);
        if state.found.all_taken() && matches!(state.then, Then::More) {
            py.detach(|| state.ask(!matches!(yields, Yields::Keys)));
        }
        if let Some(entry) = state.found.take() {
            return yields.made(py, entry).map(Some);
        }
        match std::mem::replace(&mut state.then, Then::End) {
            Then::Error(why) => Err(raised(py, &why)),
            Then::More | Then::End => Ok(None),
        }
    }

    /// Lets go of what it holds.
    fn close(&mut self, py: Python<'_>) -> PyResult<()> {
        self.state.close(py)
    }
}
