//! Torn ends: what a power cut leaves of the last thing written to each kind of file, at every offset.
//!
//! A random workload gives three ends that nothing has synced: the last frames of the WAL, the record just
//! appended to the manifest, and an SSTable still being written. Between its last synced byte and its end,
//! each is torn at every offset in three ways: cut there, zero from there on, zero up to there (later sectors
//! may reach the disk before earlier ones). Opening must never fail, everything before the torn end must be
//! there, and the rest must be a prefix. Of a torn manifest or SSTable nothing may be lost at all, as the WAL
//! still has it. Some databases are written on and opened once more.

use crate::campaign::{CaseResult, Row};
use crate::history::{BatchId, End, History};
use crate::power::recovered_batches;
use crate::subject::{Setup, Subject, world_of};
use siltstone::Durability;
use siltstone::storage::Clock;
use siltstone::storage::sim::{Rng, SimStorage, SimWorld, Survive};
use siltstone::testing::with_kill_hook;
use std::cell::RefCell;
use std::ops::Range;
use std::path::PathBuf;
use std::rc::Rc;

/// Torn last records of WALs, manifests and SSTables.
pub const TORN: Row = Row::new("torn", "torn ends", 20_000, torn_case);

/// Bytes at the end of an SSTable that are torn at every offset.
const TABLE_TAIL: u64 = 300;
/// Where a manifest's last record, or an SSTable, is written and not synced.
const MANIFEST_POINTS: &[&str] = &["manifest-appended-not-synced"];
const TABLE_POINTS: &[&str] = &["sstable-cells-written", "sstable-written-not-synced"];
/// One in so many databases is written on.
const WRITTEN_ON: u64 = 16;

/// A disk with an end that may be torn.
struct Loose {
    disk: SimStorage,
    file: PathBuf,
    /// The part of the file that is not synced.
    range: Range<u64>,
    history: History,
    /// The part of the history that must be there.
    end: End,
}

#[derive(Clone, Copy, Debug)]
enum Tear {
    Cut,
    ZeroFrom,
    ZeroUpTo,
}

impl Tear {
    const ALL: [Tear; 3] = [Tear::Cut, Tear::ZeroFrom, Tear::ZeroUpTo];

    fn make(self, loose: &Loose, at: u64) -> SimStorage {
        let disk = loose.disk.clone_killed();
        let mut bytes = disk.file_bytes(&loose.file).expect("the file that is torn");
        let (from, at) = (loose.range.start as usize, at as usize);
        match self {
            Tear::Cut => bytes.truncate(at),
            Tear::ZeroFrom => bytes[at..].fill(0),
            Tear::ZeroUpTo => bytes[from..at].fill(0),
        }
        disk.replace(&loose.file, &bytes).expect("damage is no operation");
        disk
    }
}

fn torn_case(seed: u64) -> CaseResult {
    let mut rng = Rng::new(seed);
    let world = SimWorld::new(rng.next_u64());
    let mut setup = Setup::draw(&mut rng, world.clock.wall_us());
    setup.marker = true;
    // Longer frames have more offsets of the same kind.
    setup.value_bytes = setup.value_bytes.min(100);
    let history = History::new(setup.rules());
    let subject = Subject::open(&setup, &world).map_err(|e| format!("open: {e:?}"))?;
    let mut fixture = Fixture { setup, world, rng, history, subject, manifest: None, table: None };
    fixture.workload()?;
    let log = fixture.loose_log()?;
    let Fixture { setup, world, mut rng, manifest, table, .. } = fixture;
    let mut torn = 0;
    for loose in log.iter().chain(&manifest).chain(&table) {
        for tear in Tear::ALL {
            for at in loose.range.start..=loose.range.end {
                let checked = check(loose, tear, at, &setup, world.clock.wall_us(), &mut rng);
                checked.map_err(|e| format!("{} torn at {at}, {tear:?}: {e}", loose.file.display()))?;
                torn += 1;
            }
        }
    }
    Ok(torn)
}

struct Fixture {
    setup: Setup,
    world: SimWorld,
    rng: Rng,
    history: History,
    subject: Subject,
    manifest: Option<Loose>,
    table: Option<Loose>,
}

impl Fixture {
    /// Writes, flushes and compacts; keeps some moment of each kind.
    fn workload(&mut self) -> Result<(), String> {
        for _ in 0..self.rng.range(30..60) {
            let kept = Rc::new(RefCell::new(Vec::new()));
            let (into, disk, mut rng) = (kept.clone(), self.world.storage.clone(), self.rng.fork());
            let hook = move |point: &'static str| {
                let kinds = [(MANIFEST_POINTS, "manifest-"), (TABLE_POINTS, ".table")];
                for (points, name) in kinds {
                    if points.contains(&point) && rng.one_in(3) {
                        into.borrow_mut().push((name, disk.clone_killed()));
                    }
                }
            };
            let written = with_kill_hook(hook, || self.step())?;
            for (name, disk) in kept.take() {
                let Some((file, mut range)) = unsynced(&disk, name).pop() else { continue };
                if name == ".table" {
                    range.start = range.start.max(range.end.saturating_sub(TABLE_TAIL));
                }
                // A write under way at that moment may be there or not.
                let loose = Loose { disk, file, range, history: self.history.clone(), end: End::Kill };
                match name {
                    ".table" => self.table = Some(loose),
                    _ => self.manifest = Some(loose),
                }
            }
            if let Some(id) = written {
                self.history.buffered(id);
            }
        }
        Ok(())
    }

    fn step(&mut self) -> Result<Option<BatchId>, String> {
        match self.rng.range(0..10) {
            0..7 => return self.write().map(Some),
            7 => drop(self.subject.scheduler.run(self.rng.range(1..8) as u32)),
            8 => self.subject.db.flush().map_err(|e| format!("flush: {e:?}"))?,
            _ => self.subject.families[0].compact::<&[u8]>(..).map_err(|e| format!("compact: {e:?}"))?,
        }
        Ok(None)
    }

    fn write(&mut self) -> Result<BatchId, String> {
        let ops = self.setup.batch(&mut self.rng, self.history.len() + 1);
        let id = self.history.start(ops.clone(), self.subject.now_us());
        let written = self.subject.write(&self.setup, &ops, Durability::Buffered);
        written.map(|_| id).map_err(|e| format!("write: {e:?}"))
    }

    /// A few batches at the end of one WAL file, and nothing else, that nothing has synced.
    fn loose_log(&mut self) -> Result<Option<Loose>, String> {
        for _ in 0..10 {
            self.subject.db.sync().map_err(|e| format!("sync: {e:?}"))?;
            self.history.all_synced();
            for _ in 0..self.rng.range(1..4) {
                let id = self.write()?;
                self.history.buffered(id);
            }
            let disk = self.world.storage.clone_killed();
            if let [(file, range)] = &unsynced(&disk, "")[..]
                && file.extension().is_some_and(|end| end == "log")
            {
                // Frames are padded to eight bytes, and the last bytes of a checksum may be zero like what
                // pads it.
                let length = disk.file_bytes(file).map_or(0, |bytes| bytes.len() as u64);
                let range = range.start..(range.end.next_multiple_of(8) + 8).min(length);
                let (file, history) = (file.clone(), self.history.clone());
                return Ok(Some(Loose { disk, file, range, history, end: End::PowerLoss }));
            }
        }
        Ok(None)
    }
}

/// The files of such a name of which something is not on the medium: from the first such byte to the last.
fn unsynced(disk: &SimStorage, name: &str) -> Vec<(PathBuf, Range<u64>)> {
    let medium = disk.clone_crashed(Survive::None, 0);
    let files = disk.list_all().into_iter().map(|(path, _)| path);
    let files = files.filter(|path| path.to_string_lossy().contains(name) && !path.ends_with("EVENTS"));
    let loose = files.filter_map(|path| {
        let now = disk.file_bytes(&path).ok()?;
        let synced = medium.file_bytes(&path).unwrap_or_default();
        let end = match synced.len() == now.len() {
            true => now.iter().zip(&synced).rposition(|(a, b)| a != b)? + 1,
            // Space reserved for later is no end that could be torn.
            false => now.iter().rposition(|byte| *byte != 0)? + 1,
        };
        let start = now.iter().zip(&synced).take_while(|(a, b)| a == b).count();
        Some((path, start as u64..end as u64))
    });
    loose.collect()
}

fn check(
    loose: &Loose,
    tear: Tear,
    at: u64,
    setup: &Setup,
    now_us: u64,
    rng: &mut Rng,
) -> Result<(), String> {
    let whole = match tear {
        Tear::Cut | Tear::ZeroFrom => at == loose.range.end,
        Tear::ZeroUpTo => at == loose.range.start,
    };
    let end = if whole { End::Kill } else { loose.end };
    let world = world_of(tear.make(loose, at), now_us, rng.next_u64());
    let subject = Subject::open(setup, &world).map_err(|e| format!("open: {e:?}"))?;
    let batches = recovered_batches(&subject, setup, &loose.history, end)?;
    if !rng.one_in(WRITTEN_ON) {
        return Ok(());
    }
    let mut history = loose.history.clone();
    history.recovered(batches, true);
    for _ in 0..3 {
        let ops = setup.batch(rng, history.len() + 1);
        let id = history.start(ops.clone(), subject.now_us());
        subject.write(setup, &ops, Durability::Sync).map_err(|e| format!("write on: {e:?}"))?;
        history.synced(id);
    }
    subject.db.flush().map_err(|e| format!("flush: {e:?}"))?;
    let left = world.storage.crash(Survive::None, rng.next_u64());
    drop(subject);
    let world = world_of(left, world.clock.wall_us(), rng.next_u64());
    let subject = Subject::open(setup, &world).map_err(|e| format!("open once more: {e:?}"))?;
    recovered_batches(&subject, setup, &history, End::PowerLoss).map_err(|e| format!("written on: {e}"))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::campaign::must_hold;

    #[test]
    fn a_torn_end_of_a_wal_a_manifest_or_a_table_costs_nothing_before_it() {
        must_hold(&TORN, 1, 2_000);
    }
}
