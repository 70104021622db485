//! A simulated world: disk, clock and randomness from one seed, so that a whole database runs, fails, loses
//! power and is reopened in one thread, reproducibly.
//!
//! The disk separates the machine's view from the medium's contents. `inode` has the effect of a power loss
//! on a file's bytes, `disk` that on names; both are as harsh as the storage traits allow and harsher than
//! any one file system. [`SimStorage::kill`] and [`SimStorage::crash`] end a disk's life and return the one
//! that the next process finds; [`SimStorage::clone_killed`] and [`SimStorage::clone_crashed`] do so and let
//! the first one live on, at the cost of copying pointers.
//!
//! `faults` counts operations, fails the ones that a test selects, cuts the power at one, and keeps a hash of
//! all operations; `damage` changes bytes behind the database's back. Not owned here: the contents of files,
//! and when a crash happens, which the test decides.
//!
//! `handles` are the storage traits over the disk, `content` the bytes of a file as blocks that copies share,
//! `objects` an object store on the disk, and `random` randomness and time.

mod content;
mod damage;
mod disk;
mod faults;
mod handles;
mod inode;
mod objects;
mod random;
#[cfg(test)]
mod tests;

pub use crate::types::Rng;
pub use faults::{Event, Mode, OpCounts, OpKind};
pub use objects::SimObjects;
pub use random::{SimClock, SimRandom};

use super::Env;
use disk::Disk;
use faults::{Action, Faults};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The unit that a disk writes whole or not at all.
pub const SECTOR: usize = 512;

/// How many unsynced changes survive a power loss.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Survive {
    /// None.
    None,
    /// Each sector, length and name with even odds.
    Half,
    /// Everything but the sectors of failed syncs.
    All,
    /// Each with a chance of that many percent.
    Odds(u8),
}

impl Survive {
    fn percent(self) -> u8 {
        match self {
            Survive::None => 0,
            Survive::Half => 50,
            Survive::All => 100,
            Survive::Odds(percent) => percent.min(100),
        }
    }
}

/// Called before each operation, with no lock held.
type Hook = Arc<dyn Fn(OpKind, &Path) + Send + Sync>;

/// A simulated disk. Clones are handles of the same disk; see [`SimStorage::clone_crashed`] for copies.
///
/// ```
/// use siltstone::storage::Storage;
/// use siltstone::storage::sim::{SimStorage, Survive};
/// use std::path::Path;
///
/// let disk = SimStorage::new(7);
/// let mut file = disk.create(Path::new("a")).unwrap();
/// file.write(b"synced").unwrap();
/// file.sync().unwrap();
/// disk.sync_dir(Path::new("")).unwrap();
/// file.write(b", not synced").unwrap();
/// let after = disk.crash(Survive::None, 1);
/// assert_eq!(after.file_bytes("a").unwrap(), b"synced");
/// ```
#[derive(Clone)]
pub struct SimStorage {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
}

struct State {
    disk: Disk,
    faults: Faults,
    locks: BTreeSet<PathBuf>,
    /// Decides how much of a failing write takes effect.
    rng: Rng,
    clock: Option<Arc<SimClock>>,
    hook: Option<Hook>,
    bytes_written: u64,
    /// Whether the power is lost or the process dead: no operation takes effect.
    frozen: bool,
}

fn crashed() -> io::Error {
    io::Error::other("simulated crash")
}

impl SimStorage {
    /// An empty disk. The seed decides only how much of a failing write takes effect.
    pub fn new(seed: u64) -> Self {
        Self::with(Disk::default(), Rng::new(seed), None)
    }

    fn with(disk: Disk, rng: Rng, clock: Option<Arc<SimClock>>) -> Self {
        let state = State {
            disk,
            faults: Faults::default(),
            locks: BTreeSet::new(),
            rng,
            clock,
            hook: None,
            bytes_written: 0,
            frozen: false,
        };
        Self { shared: Arc::new(Shared { state: Mutex::new(state) }) }
    }

    /// Lets each operation advance this clock a little.
    pub fn set_clock(&self, clock: Arc<SimClock>) {
        self.shared.state.lock().clock = Some(clock);
    }

    // Ends and copies

    /// Cuts the power: this disk answers nothing any more, and the returned one is what a restart finds. That
    /// has no planned failures and counts from zero.
    pub fn crash(&self, survive: Survive, seed: u64) -> SimStorage {
        self.shared.state.lock().frozen = true;
        self.clone_crashed(survive, seed)
    }

    /// The disk after a power loss at this moment, while this one lives on.
    pub fn clone_crashed(&self, survive: Survive, seed: u64) -> SimStorage {
        let state = self.shared.state.lock();
        let mut rng = Rng::new(seed);
        let disk = state.disk.after_power_loss(survive.percent(), &mut rng);
        Self::with(disk, rng, state.clock.clone())
    }

    /// Kills the process: all writes stay, synced or not, and locks are released. This disk answers nothing
    /// any more; the returned one still loses unsynced writes if its power is cut.
    pub fn kill(&self) -> SimStorage {
        self.shared.state.lock().frozen = true;
        self.clone_killed()
    }

    /// The disk after a kill at this moment, while this one lives on.
    pub fn clone_killed(&self) -> SimStorage {
        let state = self.shared.state.lock();
        Self::with(state.disk.after_kill(), state.rng.clone(), state.clock.clone())
    }

    // Planned failures

    /// Fails the `nth` (from one) operation of that kind from now on; with [`Mode::Sticky`] also all after
    /// it. A failing write may take effect in part; the sectors of a failing sync are lost at the next power
    /// loss whatever is synced later.
    pub fn fail_at(&self, op: OpKind, nth: u64, mode: Mode, error: io::ErrorKind) {
        self.shared.state.lock().faults.plan(Some(op), None, nth, Action::Fail(mode, error));
    }

    /// Fails the `nth` operation of that kind on files and directories whose path contains that text, as
    /// [`SimStorage::fail_at`] does.
    pub fn fail_at_path(&self, op: OpKind, path_contains: &str, nth: u64, mode: Mode, error: io::ErrorKind) {
        self.shared.state.lock().faults.plan(Some(op), Some(path_contains), nth, Action::Fail(mode, error));
    }

    /// Fails the `nth` operation of any kind.
    pub fn fail_at_any(&self, nth: u64, mode: Mode, error: io::ErrorKind) {
        self.shared.state.lock().faults.plan(None, None, nth, Action::Fail(mode, error));
    }

    /// Cuts the power at the `nth` operation from now on: a write may take effect in part, and later
    /// operations do not. The database sees errors; [`SimStorage::crash`] returns the remaining disk.
    pub fn crash_at(&self, nth: u64) {
        self.shared.state.lock().faults.plan(None, None, nth, Action::Crash);
    }

    /// Removes all planned failures.
    pub fn clear_faults(&self) {
        self.shared.state.lock().faults.clear();
    }

    /// The number of operations that failed as planned, without crashes.
    pub fn faults_injected(&self) -> u64 {
        self.shared.state.lock().faults.injected
    }

    /// Whether the power is lost or the process killed.
    pub fn is_crashed(&self) -> bool {
        self.shared.state.lock().frozen
    }

    // Records

    /// Operations so far, without those refused after a crash.
    pub fn op_counts(&self) -> OpCounts {
        self.shared.state.lock().faults.counts
    }

    /// A hash of all operations, their order, paths, offsets, written bytes and failures.
    pub fn trace_hash(&self) -> u64 {
        self.shared.state.lock().faults.hash
    }

    /// Records each operation from now on for [`SimStorage::take_trace`].
    pub fn record_trace(&self) {
        self.shared.state.lock().faults.record();
    }

    /// The operations recorded since the last call.
    pub fn take_trace(&self) -> Vec<Event> {
        self.shared.state.lock().faults.take_trace()
    }

    /// Calls this before each operation; it may copy the disk.
    pub fn on_op(&self, hook: impl Fn(OpKind, &Path) + Send + Sync + 'static) {
        self.shared.state.lock().hook = Some(Arc::new(hook));
    }

    /// Removes the hook.
    pub fn clear_on_op(&self) {
        self.shared.state.lock().hook = None;
    }

    // Space

    /// Limits the bytes of all files, reserved ones included; `None` for no limit. May be changed at any
    /// time.
    pub fn set_quota(&self, bytes: Option<u64>) {
        self.shared.state.lock().disk.quota = bytes;
    }

    /// Bytes of all files that have a name or are open, without holes; a file with several names counts once.
    pub fn used_bytes(&self) -> u64 {
        self.shared.state.lock().disk.used
    }

    /// The largest [`SimStorage::used_bytes`] since the start or [`SimStorage::reset_peak`].
    pub fn peak_bytes(&self) -> u64 {
        self.shared.state.lock().disk.peak
    }

    /// Starts a new peak from here.
    pub fn reset_peak(&self) {
        let disk = &mut self.shared.state.lock().disk;
        disk.peak = disk.used;
    }

    /// Bytes written so far, with zeros written ahead.
    pub fn bytes_written(&self) -> u64 {
        self.shared.state.lock().bytes_written
    }
}

impl fmt::Debug for SimStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.shared.state.lock();
        f.debug_struct("SimStorage")
            .field("files", &state.disk.names().count())
            .field("used", &state.disk.used)
            .field("operations", &state.faults.counts.total())
            .field("crashed", &state.frozen)
            .finish()
    }
}

/// Disk, clock and randomness from one seed.
#[derive(Clone, Debug)]
pub struct SimWorld {
    /// Files.
    pub storage: SimStorage,
    /// Time.
    pub clock: Arc<SimClock>,
    /// Randomness.
    pub random: Arc<SimRandom>,
}

impl SimWorld {
    /// A new world.
    pub fn new(seed: u64) -> Self {
        let storage = SimStorage::new(seed);
        let clock = Arc::new(SimClock::default());
        storage.set_clock(clock.clone());
        Self { storage, clock, random: Arc::new(SimRandom::new(seed)) }
    }

    /// The environment for a database.
    pub fn env(&self) -> Env {
        Env {
            storage: Arc::new(self.storage.clone()),
            clock: self.clock.clone(),
            random: self.random.clone(),
        }
    }

    /// The world after a power loss: see [`SimStorage::crash`]. Time and randomness go on.
    pub fn crash(&self, survive: Survive, seed: u64) -> SimWorld {
        SimWorld { storage: self.storage.crash(survive, seed), ..self.clone() }
    }

    /// The world after the process was killed: see [`SimStorage::kill`].
    pub fn kill(&self) -> SimWorld {
        SimWorld { storage: self.storage.kill(), ..self.clone() }
    }

    /// The world with another disk, for a copy taken earlier.
    pub fn with_storage(&self, storage: SimStorage) -> SimWorld {
        SimWorld { storage, ..self.clone() }
    }
}
