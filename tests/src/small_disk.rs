//! Real file systems that fill up: the simulated disk's campaign (`full` in `faults`) once more, where the
//! operating system decides what still fits.
//!
//! A case mounts a small file system of its own (of each kind by turns, see `disks`), loads a database until
//! writes are refused for want of space, and reads on. Then a ballast file is deleted: writes must go on
//! without a reopening, and a reopening must find every acknowledged write and none that was refused. At last
//! the file system is filled by another ballast but for a twentieth of it, and all is compacted by a strategy
//! that is drawn, while a little is written: nothing may be refused. Where nothing can be mounted (that takes
//! root), the campaign says so and counts nothing.
//!
//! Btrfs finds room for what was written when it is synced, so a full disk can fail a sync there. The WAL
//! takes nothing more then: it is opened again, and of what was written since the last sync a beginning is
//! there.

use crate::campaign::{CaseResult, Checked, Row, failed};
use crate::disks::{Disk, KINDS, Kind};
use crate::strategies;
use siltstone::storage::sim::Rng;
use siltstone::{
    Batch, Builder, Compression, Db, Durability, Error, ErrorKind, EventKind, FamilyOptions, Options, Tuning,
};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::time::{Duration, Instant};

/// Real disks that fill up.
pub const SMALL_DISK: Row = Row {
    needs: Some(|| Disk::mount(Kind::Tmpfs, BYTES).map(drop)),
    ..Row::new("small-disk", "full file systems", 4, small_disk_case)
};

/// After this a write that is still refused is refused for good.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often a write is refused before space is given back.
const REFUSALS: u32 = 8;
/// With values of 6 KB, some times what fits.
const KEYS: u64 = 20_000;
/// Batches that are written while all is compacted.
const LOAD: usize = 60;

/// Bytes of a disk; Btrfs gets twice as many.
const BYTES: u64 = 64 << 20;

type Contents = BTreeMap<Vec<u8>, Vec<u8>>;
/// The values of a batch's keys before it.
type Before = Vec<(Vec<u8>, Option<Vec<u8>>)>;

/// The kind of file system that a seed draws; tmpfs where that cannot be mounted.
fn disk_of(seed: u64) -> Checked<Disk> {
    let kind = KINDS[seed as usize % KINDS.len()];
    Disk::mount(kind, bytes_of(kind)).or_else(|why| {
        println!("small-disk: tmpfs for {} ({why})", kind.name());
        Disk::mount(Kind::Tmpfs, BYTES)
    })
}

/// Btrfs takes much for itself.
fn bytes_of(kind: Kind) -> u64 {
    if kind == Kind::Btrfs { 2 * BYTES } else { BYTES }
}

/// Whether the WAL failed by a sync for which there was no space.
fn is_failed_sync(e: &Error) -> bool {
    let text = e.to_string();
    e.kind() == ErrorKind::Poisoned && text.contains("sync the WAL") && text.contains("No space left")
}

/// Makes a file that leaves no more than a twentieth of the disk free.
fn fill_up(disk: &Disk, rng: &mut Rng) -> Checked {
    let (free, all) = disk.space()?;
    let ballast = rng.bytes(free.saturating_sub(all / 20) as usize);
    std::fs::write(disk.path("ballast"), ballast).map_err(|e| format!("the second ballast: {e}"))
}

/// A database on that disk and what it acknowledged.
struct Session {
    db: Db,
    rng: Rng,
    acknowledged: Contents,
    /// The batches since the last sync: one that fails may lose the last of them.
    unsynced: Vec<Before>,
    /// Whether a full disk may fail a sync, and whether it did.
    syncs_fail: bool,
    sync_failed: bool,
}

impl Session {
    fn new(db: Db, rng: Rng, kind: Kind) -> Self {
        let syncs_fail = kind == Kind::Btrfs;
        let (acknowledged, unsynced) = (BTreeMap::new(), Vec::new());
        Self { db, rng, acknowledged, unsynced, syncs_fail, sync_failed: false }
    }

    /// Closes the database and opens it again. After a failed sync it has a prefix of the batches since the
    /// last sync.
    fn open_again(mut self, dir: &Path) -> Checked<Self> {
        drop(self.db);
        self.db = open(dir).map_err(failed("open again"))?;
        if self.sync_failed {
            let mut found = BTreeMap::new();
            for (key, _) in self.unsynced.iter().flatten() {
                found.insert(
                    key.clone(),
                    self.db.get(key).map_err(failed("get"))?.map(|value| value.to_vec()),
                );
            }
            take_back(&mut self.acknowledged, std::mem::take(&mut self.unsynced), &found)?;
        }
        self.unsynced.clear();
        self.sync_failed = false;
        Ok(self)
    }
}

/// Takes the last batches back until the contents are what was found; some number of them must do.
fn take_back(
    contents: &mut Contents,
    mut batches: Vec<Before>,
    found: &BTreeMap<Vec<u8>, Option<Vec<u8>>>,
) -> Checked {
    let all = batches.len();
    while found.iter().any(|(key, value)| contents.get(key) != value.as_ref()) {
        let last =
            batches.pop().ok_or_else(|| format!("what is there is no beginning of the {all} batches"))?;
        for (key, before) in last.into_iter().rev() {
            match before {
                Some(value) => contents.insert(key, value),
                None => contents.remove(&key),
            };
        }
    }
    Ok(())
}

fn small_disk_case(seed: u64) -> CaseResult {
    let disk = disk_of(seed)?;
    fill_and_go_on(&disk, seed).map_err(|e| {
        let (free, all) = disk.space().unwrap_or_default();
        format!("{}, {free} of {all} bytes free: {e}", disk.kind().name())
    })
}

fn fill_and_go_on(disk: &Disk, seed: u64) -> CaseResult {
    let (dir, ballast) = (disk.path("db"), disk.path("ballast"));
    let mut rng = Rng::new(seed);
    // On ext4 a twentieth is reserved for root, who runs this. Others need more room for the same work.
    let spare = if [Kind::Xfs, Kind::Btrfs].contains(&disk.kind()) { 2 } else { 1 };
    let megabytes = (spare * rng.range(6..12)) as usize;
    std::fs::write(&ballast, rng.bytes(megabytes << 20)).map_err(|e| format!("the ballast: {e}"))?;
    let db = open(&dir).map_err(failed("open"))?;
    let mut session = Session::new(db, rng, disk.kind());
    session.fill().map_err(|e| format!("while it fills: {e}"))?;
    std::fs::remove_file(&ballast).map_err(|e| format!("delete the ballast: {e}"))?;
    if session.sync_failed {
        session = session.open_again(&dir)?;
        session.read_everything().map_err(|e| format!("after a failed sync: {e}"))?;
    }
    session.resume().map_err(|e| format!("with space again: {e}"))?;
    if session.rng.chance(50) {
        session.db.close().map_err(failed("close"))?;
    }
    let mut session = session.open_again(&dir)?;
    session.read_everything().map_err(|e| format!("after reopening: {e}"))?;
    let written = session.write(Durability::Sync)?;
    written.map_err(failed("write after reopening"))?;
    session.merge_all(disk)?;
    session.db.close().map_err(failed("close"))?;
    Ok(1)
}

fn open(dir: &Path) -> siltstone::Result<Db> {
    let options = Options {
        write_memory: 1 << 20,
        memory_budget: 3 << 20,
        tuning: Tuning { wal_file_bytes: 512 << 10, compaction_step_bytes: 256 << 10, ..Tuning::default() },
        ..Options::default()
    };
    let family = FamilyOptions {
        compression: Compression::None,
        strategy: "leveled{sstable_bytes=256KiB, base_bytes=1MiB, multiplier=4}".parse().expect("a strategy"),
        ..FamilyOptions::default()
    };
    Builder::new().options(options).family("default", family).open(dir)
}

impl Session {
    /// Writes a batch of two keys; the error if it was refused, which must be for want of space.
    fn write(&mut self, durability: Durability) -> Checked<siltstone::Result<()>> {
        self.write_of(durability, 100..12_000)
    }

    /// Writes a batch of two puts, each with a value of so many bytes.
    fn write_of(&mut self, durability: Durability, bytes: Range<u64>) -> Checked<siltstone::Result<()>> {
        let family = self.db.default_family();
        let mut batch = Batch::new();
        let mut puts = Vec::new();
        for _ in 0..2 {
            let (key, bytes) = (self.rng.range(0..KEYS), self.rng.range(bytes.clone()));
            let (key, value) = (format!("key{key:05}").into_bytes(), self.rng.bytes(bytes as usize));
            batch.put(&family, &key, &value);
            puts.push((key, value));
        }
        match self.db.write_with(&batch, durability) {
            Ok(_) => {
                self.apply(puts);
                if durability == Durability::Sync || !self.syncs_fail {
                    self.unsynced.clear();
                }
                Ok(Ok(()))
            }
            Err(e) if e.kind() == ErrorKind::DiskFull => Ok(Err(e)),
            Err(e) if self.syncs_fail && is_failed_sync(&e) => {
                // Refused, and yet it may be there.
                self.sync_failed = true;
                self.apply(puts);
                Ok(Err(e))
            }
            Err(e) => Err(format!("a write answered {e:?}")),
        }
    }

    fn apply(&mut self, puts: Vec<(Vec<u8>, Vec<u8>)>) {
        let held = |(key, value): (Vec<u8>, _)| (key.clone(), self.acknowledged.insert(key, value));
        self.unsynced.push(puts.into_iter().map(held).collect());
    }

    fn fill(&mut self) -> Checked {
        let mut refused = 0;
        while refused < REFUSALS {
            let durability = if self.rng.one_in(20) { Durability::Sync } else { Durability::Buffered };
            if self.write(durability)?.is_ok() {
                continue;
            }
            if self.sync_failed {
                // What was refused counts as written, and is not there before it is opened again.
                return Ok(());
            }
            refused += 1;
            self.read_some()?;
            std::thread::sleep(Duration::from_millis(20));
        }
        self.read_everything()
    }

    /// Writes go on: one at once after a while, then many. A flush that failed is tried again after a moment;
    /// until then a writer may meet its error.
    fn resume(&mut self) -> Checked {
        let since = Instant::now();
        let mut taken = 0;
        while taken < 200 {
            let durability = if taken % 10 == 0 { Durability::Sync } else { Durability::Buffered };
            match self.write(durability)? {
                Ok(()) => taken += 1,
                Err(e) if since.elapsed() > PATIENCE => return Err(format!("a write still answers {e:?}")),
                Err(_) => std::thread::sleep(Duration::from_millis(20)),
            }
        }
        self.flush()?;
        self.read_everything()
    }

    /// Btrfs gives deleted files' space back by and by.
    fn flush(&self) -> Checked {
        let since = Instant::now();
        loop {
            match self.db.flush() {
                Err(e)
                    if self.syncs_fail && e.kind() == ErrorKind::DiskFull && since.elapsed() < PATIENCE =>
                {
                    std::thread::sleep(Duration::from_millis(20));
                }
                flushed => return flushed.map_err(failed("flush")),
            }
        }
    }

    /// Compacts everything by another strategy, on a disk that has a twentieth left, while a little is
    /// written.
    fn merge_all(&mut self, disk: &Disk) -> Checked {
        let family = self.db.default_family();
        // Steps have an SSTable at least, and two of each of two compactions fit into a twentieth.
        let strategy = strategies::draw_other(&mut self.rng, 256 << 10);
        let told = |what: &str, e: Error| {
            format!("{what} under {strategy} with a twentieth of the disk free: {e:?}")
        };
        self.flush()?;
        self.db.wait_idle().map_err(failed("settle"))?;
        family
            .alter(FamilyOptions { strategy: strategy.clone(), ..family.options() })
            .map_err(failed("alter"))?;
        fill_up(disk, &mut self.rng)?;
        let compactions = self.db.statistics().compactions;
        let db = self.db.clone();
        let failures = || db.events().iter().filter(|event| event.kind == EventKind::Failure).count();
        let failed_before = failures();
        std::thread::scope(|scope| {
            let merged = scope.spawn(|| family.compact::<&[u8]>(..));
            for n in 0..LOAD {
                self.write_of(Durability::Buffered, 100..3_000)?.map_err(|e| told("a write", e))?;
                if n == LOAD / 2 {
                    self.db.flush().map_err(|e| told("a flush", e))?;
                }
            }
            merged.join().map_err(|_| "a compaction panicked")?.map_err(|e| told("a compaction of all", e))
        })?;
        // On btrfs one may be for want of space that a deleted file gives back late.
        if !self.syncs_fail && failures() > failed_before {
            return Err(format!("under {strategy} something failed with a twentieth of the disk free"));
        }
        if self.db.statistics().compactions == compactions {
            return Err(format!("nothing was merged under {strategy}"));
        }
        self.read_everything()
    }

    fn read_some(&mut self) -> Checked {
        for _ in 0..20 {
            let key = format!("key{:05}", self.rng.range(0..KEYS)).into_bytes();
            let found = self.db.get(&key).map_err(failed("get"))?;
            if found.as_deref() != self.acknowledged.get(&key).map(Vec::as_slice) {
                return Err(format!("{} is not what was acknowledged", key.escape_ascii()));
            }
        }
        Ok(())
    }

    fn read_everything(&self) -> Checked {
        let mut expected = self.acknowledged.iter();
        for entry in self.db.scan::<&[u8]>(..) {
            let entry = entry.map_err(failed("scan"))?;
            if expected.next() != Some((&entry.key, &entry.value.to_vec())) {
                return Err(format!("a scan shows {}, not what was acknowledged", entry.key.escape_ascii()));
            }
        }
        expected.next().map_or(Ok(()), |(key, _)| Err(format!("{} is lost", key.escape_ascii())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::campaign::run_case;

    #[test]
    fn of_batches_since_the_last_sync_a_beginning_may_be_there_and_nothing_else() {
        let text = |text: &str| text.as_bytes().to_vec();
        // Key a was 0 and became 1, then 2 together with b.
        let contents: Contents = [(text("a"), text("2")), (text("b"), text("2"))].into();
        let batches = || {
            vec![vec![(text("a"), Some(text("0")))], vec![(text("a"), Some(text("1"))), (text("b"), None)]]
        };
        for (a, b, is_right) in [
            ("2", Some("2"), true),
            ("1", None, true),
            ("0", None, true),
            ("2", None, false),
            ("1", Some("2"), false),
        ] {
            let found = [(text("a"), Some(text(a))), (text("b"), b.map(text))].into();
            let mut contents = contents.clone();
            assert_eq!(take_back(&mut contents, batches(), &found).is_ok(), is_right, "{a}, {b:?}");
            assert!(!is_right || contents.contains_key(&text("b")) == b.is_some());
        }
    }

    #[test]
    fn a_real_disk_that_fills_up_refuses_writes_and_goes_on_when_there_is_space() {
        if let Err(why) = SMALL_DISK.needs.map_or(Ok(()), |needs| needs()) {
            return println!("not shown here: {why}");
        }
        assert_eq!(run_case(&SMALL_DISK, 1), Ok(1));
    }
}
