//! The database's decisions and actions, with their numbers: for listeners, for `inspect`, for statistics.

use crate::error::{Error, Result};
use crate::storage::{Env, SMALL_FILE_BYTES, Storage, create_over_own, is_own, remove_own};
use crate::sync::{AtomicBool, Mutex, Ordering};
use crate::types::codec::{sealed, unsealed};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The kind of an event.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// let db = siltstone::Db::open(dir.path())?;
/// assert!(db.events().iter().any(|event| event.kind == siltstone::EventKind::Open));
/// # Ok::<(), siltstone::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum EventKind {
    /// The database was opened, with recovery's numbers.
    Open,
    /// Part of the WAL was replayed, on the way to an open database.
    Replay,
    /// A store's memory was written to SSTables.
    Flush,
    /// A flush left hot keys in memory, or found that this would save little.
    #[serde(alias = "keep")]
    HotKeys,
    /// The cells in memory that need the oldest WAL file were logged again, or found to be too many for that.
    #[serde(alias = "clean")]
    WalClean,
    /// A flush left its values in the WAL, or did not, with the reason.
    #[serde(alias = "log-table")]
    WalValues,
    /// A full memtable was frozen and laid out flat.
    #[serde(alias = "memory-flush")]
    MemtableFreeze,
    /// Immutable memtables became one, with all versions (an index compaction).
    #[serde(alias = "memory-merge")]
    MemtableIndexCompaction,
    /// Immutable memtables became one, without the versions that no reader can see (a data compaction).
    #[serde(alias = "memory-compaction")]
    MemtableDataCompaction,
    /// An in-memory compaction was given up: a flush took its memtables, or there was no memory to begin it.
    #[serde(alias = "memory-abort")]
    MemtableAbort,
    /// A compaction merged SSTables.
    #[serde(alias = "merge")]
    Compaction,
    /// Data blocks that a compaction, or a flush that merged with SSTables, put into the block cache and
    /// removed.
    #[serde(alias = "fill")]
    CacheFill,
    /// A trivial move: an SSTable went to another level without rewriting.
    #[serde(alias = "move")]
    TrivialMove,
    /// A compaction was given to another process, or could not be.
    Offload,
    /// A compaction failed in another process. Its remaining range is offered again, and in the end run here.
    OffloadFailure,
    /// A possible compaction was put off.
    #[serde(alias = "defer")]
    CompactionDeferred,
    /// A writer was stopped for 10 ms or more at one of the bounds of memory, debt or L0.
    #[serde(alias = "stall")]
    WriteStall,
    /// Memory was divided anew between writes and the cache.
    Memory,
    /// Background work failed.
    Failure,
    /// A family was created, changed or dropped.
    Family,
    /// A checkpoint was taken.
    Checkpoint,
    /// A backup was made.
    Backup,
    /// SSTables were ingested.
    Ingest,
    /// The lease on a shared database, by which reads are answered while a standby waits: it was begun or
    /// ended, or could not be kept.
    Lease,
    /// The database was closed.
    Close,
}

/// One decision or action.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// let db = siltstone::Db::open(dir.path())?;
/// db.put(b"k", b"v")?;
/// db.flush()?;
/// for event in db.events() {
///     println!("{event}");
/// }
/// # Ok::<(), siltstone::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Wall-clock microseconds since the epoch.
    pub at_us: u64,
    /// The kind of event.
    pub kind: EventKind,
    /// The family concerned; empty for the database.
    pub family: String,
    /// The reason, in words.
    pub reason: String,
    /// The numbers behind it and its results, by name.
    pub numbers: BTreeMap<String, u64>,
}

impl std::fmt::Display for Event {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = serde_json::to_value(self.kind).ok();
        let kind = kind.as_ref().and_then(|k| k.as_str()).unwrap_or("event");
        if !f.alternate() {
            write!(f, "{}.{:06} ", self.at_us / 1_000_000, self.at_us % 1_000_000)?;
        }
        write!(f, "{kind}")?;
        if !self.family.is_empty() {
            write!(f, " {}", self.family)?;
        }
        write!(f, ": {}", self.reason)?;
        for (name, n) in &self.numbers {
            write!(f, " {name}={n}")?;
        }
        Ok(())
    }
}

/// Called with each event, on the thread where it happened: be quick, and don't call the database.
pub(crate) type Listener = Arc<dyn Fn(&Event) + Send + Sync>;

pub(crate) const EVENTS: &str = "EVENTS";
pub(crate) const EVENTS_NEW: &str = "EVENTS.new";

/// Whether a file of that name was written by a database: each line begins with a checksum.
pub(crate) fn is_own_file(storage: &dyn Storage, path: &Path) -> std::io::Result<bool> {
    is_own(storage, path, begins)
}

/// Removes a file that a crash has left half-written.
pub(crate) fn remove_unfinished(env: &Env, dir: &Path) {
    remove_own(&*env.storage, &dir.join(EVENTS_NEW), begins);
}

fn begins(head: &[u8]) -> bool {
    head.iter().take(8).all(u8::is_ascii_hexdigit) && head.get(8..10).is_none_or(|rest| rest == b" {")
}

pub(crate) struct Events {
    env: Env,
    path: PathBuf,
    keep: usize,
    listener: Option<Listener>,
    /// The newest events, oldest first.
    newest: Mutex<VecDeque<Event>>,
    unsaved: AtomicBool,
}

/// Adds an event, and drops the oldest beyond `keep`. There are some ten memory flushes for each other event,
/// so they get half of the space.
fn push(newest: &mut VecDeque<Event>, event: Event, keep: usize) {
    let is_freeze = |event: &Event| event.kind == EventKind::MemtableFreeze;
    newest.push_back(event);
    if newest.len() <= keep {
        return;
    }
    // Counted once, as a file of another build may have brought any number.
    let mut freezes = newest.iter().filter(|event| is_freeze(event)).count();
    while newest.len() > keep {
        let oldest = if 2 * freezes > keep { newest.iter().position(is_freeze) } else { None };
        let dropped = newest.remove(oldest.unwrap_or(0));
        freezes -= usize::from(dropped.is_some_and(|event| is_freeze(&event)));
    }
}

impl Events {
    pub(crate) fn new(env: &Env, dir: &Path, keep: usize, listener: Option<Listener>) -> Self {
        let newest = Mutex::new(load(env, dir).unwrap_or_default().into());
        let (env, path) = (env.clone(), dir.join(EVENTS));
        // A foreign file of that name, or anything that is not a file, stays as it is.
        let is_free = env.storage.exists(&path).is_ok_and(|exists| !exists);
        let keep = if is_free || is_own_file(&*env.storage, &path).is_ok_and(|own| own) { keep } else { 0 };
        Self { env, path, keep, listener, newest, unsaved: AtomicBool::new(false) }
    }

    pub(crate) fn record(&self, kind: EventKind, family: &str, reason: String, numbers: &[(&str, u64)]) {
        let numbers = numbers.iter().map(|(name, n)| ((*name).to_string(), *n)).collect();
        let at_us = self.env.clock.wall_us();
        let event = Event { at_us, kind, family: family.to_string(), reason, numbers };
        if let Some(listener) = &self.listener {
            listener(&event);
        }
        #[cfg(feature = "tracing")]
        trace(&event);
        if self.keep == 0 {
            return;
        }
        push(&mut self.newest.lock(), event, self.keep);
        self.unsaved.store(true, Ordering::Relaxed);
    }

    pub(crate) fn list(&self) -> Vec<Event> {
        self.newest.lock().iter().cloned().collect()
    }

    /// Writes the file if something happened since the last time.
    pub(crate) fn save(&self) -> Result<()> {
        if !self.unsaved.swap(false, Ordering::Relaxed) {
            return Ok(());
        }
        let mut text = String::new();
        for event in self.newest.lock().iter() {
            let line = serde_json::to_string(event).map_err(|e| Error::invalid(e.to_string()))?;
            text.push_str(&sealed(&line));
            text.push('\n');
        }
        let new = self.path.with_file_name(EVENTS_NEW);
        let failed = |e| Error::io("write", &new, e);
        let mut file = create_over_own(&*self.env.storage, &new, begins).map_err(failed)?;
        file.write(text.as_bytes()).map_err(failed)?;
        drop(file);
        self.env.storage.rename(&new, &self.path).map_err(|e| Error::io("rename to", &self.path, e))
    }
}

/// Passes the event to the crate `tracing`: failures as warnings, write stops as information, all others for
/// debugging.
#[cfg(feature = "tracing")]
fn trace(event: &Event) {
    let Event { kind, family, reason, numbers, .. } = event;
    match kind {
        EventKind::Failure | EventKind::OffloadFailure => {
            tracing::warn!(target: "siltstone", ?kind, family, ?numbers, "{reason}")
        }
        EventKind::WriteStall => tracing::info!(target: "siltstone", ?kind, family, ?numbers, "{reason}"),
        _ => tracing::debug!(target: "siltstone", ?kind, family, ?numbers, "{reason}"),
    }
}

/// The events in a database's directory. Lines whose checksum fails are left out.
pub(crate) fn load(env: &Env, dir: &Path) -> Result<Vec<Event>> {
    let path = dir.join(EVENTS);
    if !env.storage.exists(&path).map_err(|e| Error::io("look for", &path, e))? {
        return Ok(Vec::new());
    }
    Ok(parse(&crate::storage::read_file(env, &path, SMALL_FILE_BYTES)?))
}

/// The events in a file's bytes.
pub(crate) fn parse(bytes: &[u8]) -> Vec<Event> {
    let lines = bytes.split(|byte| *byte == b'\n');
    lines.filter_map(|line| serde_json::from_slice(unsealed(line).ok()?).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_that_had_other_names_are_read() {
        for (before, kind) in [
            ("keep", EventKind::HotKeys),
            ("clean", EventKind::WalClean),
            ("log-table", EventKind::WalValues),
            ("memory-flush", EventKind::MemtableFreeze),
            ("memory-merge", EventKind::MemtableIndexCompaction),
            ("memory-compaction", EventKind::MemtableDataCompaction),
            ("memory-abort", EventKind::MemtableAbort),
            ("merge", EventKind::Compaction),
            ("fill", EventKind::CacheFill),
            ("move", EventKind::TrivialMove),
            ("defer", EventKind::CompactionDeferred),
            ("stall", EventKind::WriteStall),
        ] {
            let json = format!(r#"{{"at_us":1,"kind":"{before}","family":"f","reason":"r","numbers":{{}}}}"#);
            let events = parse(sealed(&json).as_bytes());
            assert!(matches!(&events[..], [event] if event.kind == kind), "{before}: {events:?}");
        }
    }

    #[test]
    fn memtable_freezes_have_at_most_half_of_the_places_and_the_oldest_goes_first() {
        let event = |at_us, kind| Event {
            at_us,
            kind,
            family: String::new(),
            reason: String::new(),
            numbers: BTreeMap::new(),
        };
        let mut newest = VecDeque::from([event(0, EventKind::Open), event(1, EventKind::MemtableFreeze)]);
        for at_us in 2..20 {
            push(&mut newest, event(at_us, EventKind::MemtableFreeze), 6);
        }
        let kept = |newest: &VecDeque<Event>| newest.iter().map(|event| event.at_us).collect::<Vec<_>>();
        assert_eq!(kept(&newest), [0, 15, 16, 17, 18, 19], "as long as there is room");
        for at_us in 20..24 {
            push(&mut newest, event(at_us, EventKind::Flush), 6);
        }
        assert_eq!(kept(&newest), [18, 19, 20, 21, 22, 23]);
        push(&mut newest, event(24, EventKind::MemtableFreeze), 6);
        assert_eq!(kept(&newest), [19, 20, 21, 22, 23, 24]);
    }
}
