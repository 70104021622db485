//! Storage that fails: at the Nth call of each kind, in a sync and never again, and by running full.
//!
//! Whatever fails, every call answers with success or a typed error, reads stay right, and a reopening
//! without faults finds every promised batch. After a failed write the batch's fate is open; as soon as a
//! later one goes through, it is known that it was refused.

use crate::campaign::{CaseResult, Row, Together};
use crate::history::{BatchId, End, History};
use crate::model::{self, Op};
use crate::power::recovered_batches;
use crate::subject::{Setup, Subject, difference, world_of};
use siltstone::storage::Clock;
use siltstone::storage::sim::{Mode, OpKind, Rng, SimStorage, SimWorld, Survive};
use siltstone::{Durability, Error, ErrorKind, KeyRange};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

/// The Nth call of each kind fails, once or from then on.
pub const FAULTS: Row = Row::new("faults", "failed calls", 8_000, faults_case);
/// A sync of the WAL fails, and later ones succeed.
pub const SYNC: Row = Row::new("sync", "failed syncs", 1_000, sync_case);
/// The disk fills up, and is given space again.
pub const FULL: Row = Row {
    together: Some(Together { least: 10 * EMPTIED_AMONG, check: together }),
    ..Row::new("full", "full disks", 500, full_case)
};

/// How many full disks were emptied by deletes in this process.
static EMPTIED: AtomicU64 = AtomicU64::new(0);
/// One in this many full disks, at least, is emptied by deletes.
const EMPTIED_AMONG: u64 = 25;

fn together(count: u64) -> Result<String, String> {
    let (emptied, fewest) = (EMPTIED.load(Ordering::Relaxed), count / EMPTIED_AMONG);
    let told = format!("{emptied} full disks were emptied by deletes and written to again");
    if emptied >= fewest { Ok(told) } else { Err(format!("{told}, fewer than {fewest}")) }
}

/// A seed that runs twice does the same both times.
pub const REPLAY: Row = Row::new("replay", "seeds run twice", 50, replay_case);

/// The most failed writes of which every combination is tried.
const FAILED_MAX: usize = 10;

/// A batch whose write failed, and when it was written.
type Failed = (BatchId, Vec<Op>, u64);

/// A failed write may have been refused before it was logged (nothing could be flushed, so there was no room)
/// and the next one have failed after that. So each of them, the newest of the history, may be there without
/// those before it. How many batches the history has if that explains the contents.
fn with_some_failed(
    history: &mut History,
    failed: &[Failed],
    contents: &[Vec<model::Row>],
    now_us: u64,
) -> Option<usize> {
    failed.iter().rev().for_each(|(id, ..)| history.refused(*id));
    for chosen in 1..1u32 << failed.len().min(FAILED_MAX) {
        let some = failed.iter().enumerate().filter(|(n, _)| chosen >> n & 1 == 1);
        let started: Vec<BatchId> = some.map(|(_, (_, ops, at))| history.start(ops.clone(), *at)).collect();
        let batches = history.len();
        if history.model(batches).contents(now_us) == contents {
            return Some(batches);
        }
        started.into_iter().rev().for_each(|id| history.refused(id));
    }
    None
}

/// A database over failing storage, and what it promised.
struct Session {
    setup: Setup,
    world: SimWorld,
    rng: Rng,
    history: History,
    /// The newest batches of the history, whose writes failed.
    failed: Vec<Failed>,
    poisoned: bool,
    subject: Option<Subject>,
}

impl Session {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let world = SimWorld::new(rng.next_u64());
        let mut setup = Setup::draw(&mut rng, world.clock.wall_us());
        // So that it is known which batches are there.
        setup.marker = true;
        let history = History::new(setup.rules());
        Self { setup, world, rng, history, failed: Vec::new(), poisoned: false, subject: None }
    }

    fn disk(&self) -> &SimStorage {
        &self.world.storage
    }

    /// Opens it if it is not open. What failed writes left is known then.
    fn open(&mut self) -> Result<bool, String> {
        if self.subject.is_some() {
            return Ok(true);
        }
        let subject = match Subject::open(&self.setup, &self.world) {
            Ok(subject) => subject,
            Err(e) => return typed(&e).map(|()| false),
        };
        self.poisoned = false;
        // Reads may fail too.
        let contents = match subject.contents() {
            Ok(contents) => contents,
            Err(e) => return typed(&e).map(|()| false),
        };
        let now_us = subject.now_us();
        let promised = self.history.promised(End::Kill);
        let mut there = (promised..=self.history.len()).rev();
        let prefix = there.find(|n| self.history.model(*n).contents(now_us) == contents);
        let batches = match prefix {
            Some(batches) => batches,
            None => {
                let wrong = self.history.check(End::Kill, &contents, now_us);
                let wrong = wrong.err().unwrap_or_else(|| "no prefix fits".to_owned());
                with_some_failed(&mut self.history, &self.failed, &contents, now_us).ok_or(wrong)?
            }
        };
        self.history.recovered(batches, true);
        self.failed.clear();
        self.subject = Some(subject);
        Ok(true)
    }

    fn close(&mut self) -> Result<(), String> {
        let Some(subject) = self.subject.take() else { return Ok(()) };
        match subject.db.close() {
            Ok(()) if self.poisoned => return Err("closed well after the WAL was poisoned".into()),
            Ok(()) => self.acknowledge_all(),
            Err(e) => typed(&e)?,
        }
        Ok(())
    }

    /// Everything acknowledged is durable.
    fn acknowledge_all(&mut self) {
        self.history.all_synced();
    }

    /// Writes a batch; the error if it failed.
    fn write(&mut self, durability: Durability) -> Result<Option<Error>, String> {
        let ops = self.setup.batch(&mut self.rng, self.history.len() + 1 - self.failed.len());
        self.write_ops(ops, durability)
    }

    /// Writes these operations as a batch; the error if it failed.
    fn write_ops(&mut self, ops: Vec<Op>, durability: Durability) -> Result<Option<Error>, String> {
        let Some(subject) = &self.subject else { return Ok(None) };
        let now_us = subject.now_us();
        // If this one goes through, the failed ones never were.
        for (id, ..) in self.failed.iter().rev() {
            self.history.refused(*id);
        }
        let id = self.history.start(ops.clone(), now_us);
        match subject.write(&self.setup, &ops, durability) {
            Ok(_) if self.poisoned => Err("a write was acknowledged after the WAL was poisoned".into()),
            Ok(_) => {
                self.failed.clear();
                match durability {
                    Durability::Sync => self.history.synced(id),
                    Durability::Buffered => self.history.buffered(id),
                }
                Ok(None)
            }
            Err(e) => {
                typed(&e)?;
                self.history.refused(id);
                self.failed.push((id, ops, now_us));
                for (id, ops, now_us) in &mut self.failed {
                    *id = self.history.start(ops.clone(), *now_us);
                }
                self.poisoned |= e.kind() == ErrorKind::Poisoned;
                Ok(Some(e))
            }
        }
    }

    /// Readers see just the acknowledged writes.
    fn check_reads(&self, reads_may_fail: bool) -> Result<(), String> {
        let Some(subject) = &self.subject else { return Ok(()) };
        let now_us = subject.now_us();
        let found = match subject.contents() {
            Ok(found) => found,
            Err(e) if reads_may_fail => return typed(&e),
            Err(e) => return Err(format!("a read failed: {e:?}")),
        };
        let expected = self.history.model(self.history.len() - self.failed.len()).contents(now_us);
        for (family, (expected, found)) in expected.iter().zip(&found).enumerate() {
            if expected != found {
                return Err(format!("family {family}: {}", difference(expected, found)));
            }
        }
        Ok(())
    }

    /// A call whose outcome decides nothing.
    fn tolerate(&mut self, result: Result<(), Error>, synced: bool) -> Result<(), String> {
        match result {
            Ok(()) if synced => self.acknowledge_all(),
            Ok(()) => {}
            Err(e) => {
                typed(&e)?;
                self.poisoned |= e.kind() == ErrorKind::Poisoned;
            }
        }
        Ok(())
    }

    /// A few dozen random calls.
    fn workload(&mut self, kind: u64, calls: u64) -> Result<(), String> {
        for call in 0..calls {
            let at = |e: String| format!("call {call}: {e}");
            if !self.open().map_err(at)? {
                continue;
            }
            self.one_call(kind).map_err(at)?;
        }
        Ok(())
    }

    fn one_call(&mut self, kind: u64) -> Result<(), String> {
        let subject = self.subject.as_ref().expect("it was opened");
        let weights: [u64; 8] = match kind % 4 {
            0 => [50, 20, 10, 5, 2, 5, 3, 0],
            1 => [10, 50, 30, 5, 0, 5, 3, 0],
            2 => [20, 20, 5, 5, 2, 2, 20, 0],
            _ => [20, 20, 10, 5, 5, 5, 2, 5],
        };
        let mut draw = self.rng.range(0..weights.iter().sum());
        let which = weights.iter().position(|weight| {
            let hit = draw < *weight;
            draw = draw.saturating_sub(*weight);
            hit
        });
        match which.expect("the draw is below the sum") {
            0 => self.write(Durability::Sync).map(|_| ()),
            1 => self.write(Durability::Buffered).map(|_| ()),
            2 => {
                subject.scheduler.run(self.rng.range(1..15) as u32);
                Ok(())
            }
            3 => {
                let flushed = subject.db.flush();
                self.tolerate(flushed, true)
            }
            4 => {
                let compacted = subject.families[0].compact::<&[u8]>(..);
                self.tolerate(compacted, false)
            }
            5 => {
                let synced = subject.db.sync();
                self.tolerate(synced, true)
            }
            6 => self.close(),
            _ => {
                let dir = format!("copy-{}", self.rng.next_u64());
                let copied = subject.db.checkpoint(dir);
                self.tolerate(copied.map(|_| ()), false)
            }
        }
    }

    /// Deletes and compacts everything on a disk of so many bytes that has refused writes. Then writes go on,
    /// if the disk has room for two files of the WAL beside what is set aside.
    fn make_room(&mut self, quota: u64) -> Result<(), String> {
        // An edit may have used it up, and writes the room it left.
        if !self.disk().list_all().iter().any(|(path, _)| path.ends_with("RESERVE")) {
            return Ok(());
        }
        let delete = |family| Op::DeleteRange { family, range: KeyRange::all(), from: 0, to: u64::MAX };
        let all = (0..self.setup.families.len()).map(delete).collect();
        if let Some(e) = self.write_ops(all, Durability::Buffered)? {
            return Err(format!("on a full disk a delete answered {e:?}"));
        }
        self.check_reads(false)?;
        let subject = self.subject.as_ref().expect("it is open");
        for family in &subject.families {
            let compacted = family.compact::<&[u8]>(..);
            compacted.map_err(|e| format!("on a full disk, all deleted, a compaction answered {e:?}"))?;
        }
        let fits = self.disk().used_bytes() + 2 * self.setup.options.tuning.wal_file_bytes <= quota;
        if let Some(e) = self.write(Durability::Sync)?.filter(|_| fits) {
            return Err(format!("all is deleted and compacted, but a write answers {e:?}"));
        }
        EMPTIED.fetch_add(u64::from(fits), Ordering::Relaxed);
        self.check_reads(false)
    }

    /// Without faults, after each kind of end, everything promised is there and it can be written on.
    fn check_reopening(&mut self) -> Result<u64, String> {
        self.disk().clear_faults();
        self.disk().set_quota(None);
        self.check_reads(false)?;
        let now_us = self.world.clock.wall_us();
        let mut images = vec![(End::Kill, self.disk().clone_killed())];
        for survive in [Survive::None, Survive::Half, Survive::All] {
            let seed = self.rng.next_u64();
            images.push((End::PowerLoss, self.disk().clone_crashed(survive, seed)));
        }
        self.subject = None;
        images.push((End::Kill, self.disk().clone_killed()));
        for (i, (end, storage)) in images.into_iter().enumerate() {
            let world = world_of(storage, now_us, self.rng.next_u64());
            let named = |e: String| format!("image {i} after {end:?}: {e}");
            let subject = Subject::open(&self.setup, &world).map_err(|e| named(format!("open: {e:?}")))?;
            if let Err(wrong) = recovered_batches(&subject, &self.setup, &self.history, end) {
                let contents = subject.contents().map_err(|e| named(format!("scan: {e:?}")))?;
                let (mut history, now_us) = (self.history.clone(), subject.now_us());
                let explained = with_some_failed(&mut history, &self.failed, &contents, now_us);
                explained.ok_or_else(|| named(wrong))?;
            }
            let ops = self.setup.batch(&mut self.rng, self.history.len() + 1);
            let written = subject.write(&self.setup, &ops, Durability::Sync);
            written.map_err(|e| named(format!("write: {e:?}")))?;
            subject.db.wait_idle().map_err(|e| named(format!("settle: {e:?}")))?;
        }
        Ok(5)
    }
}

/// Errors a failing storage may cause.
fn typed(error: &Error) -> Result<(), String> {
    match error.kind() {
        ErrorKind::Io | ErrorKind::DiskFull | ErrorKind::Poisoned => Ok(()),
        kind => Err(format!("an error of kind {kind:?}: {error:?}")),
    }
}

fn faults_case(seed: u64) -> CaseResult {
    let mut failures = 0;
    for op in OpKind::ALL {
        for mode in [Mode::Once, Mode::Sticky] {
            for nth in 1.. {
                let mut session = Session::new(seed);
                session.disk().fail_at(op, nth, mode, io::ErrorKind::Other);
                let at = |e: String| format!("{op:?} {nth} fails, {mode:?}: {e}");
                session.workload(seed, 18).map_err(at)?;
                session.check_reads(true).map_err(at)?;
                let injected = session.disk().faults_injected() > 0;
                session.check_reopening().map_err(at)?;
                if !injected {
                    break;
                }
                failures += 1;
            }
        }
    }
    Ok(failures)
}

fn replay_case(seed: u64) -> CaseResult {
    let run = || {
        let mut session = Session::new(seed);
        session.disk().fail_at(OpKind::Write, 200 + seed % 100, Mode::Once, io::ErrorKind::Other);
        session.workload(seed, 120)?;
        Ok::<_, String>((session.disk().trace_hash(), session.disk().op_counts()))
    };
    let (first, second) = (run()?, run()?);
    if first != second {
        return Err(format!("the first run gave {first:?}, the second {second:?}"));
    }
    Ok(1)
}

fn sync_case(seed: u64) -> CaseResult {
    let mut session = Session::new(seed);
    let nth = session.rng.range(1..12);
    session.workload(seed, 5)?;
    session.disk().fail_at_path(OpKind::Sync, ".log", nth, Mode::Once, io::ErrorKind::Other);
    while session.disk().faults_injected() == 0 {
        if !session.open()? {
            continue;
        }
        let durability = if session.rng.chance(40) { Durability::Sync } else { Durability::Buffered };
        session.write(durability)?;
        session.subject.as_ref().map(|subject| subject.scheduler.run(2));
    }
    if session.subject.is_none() {
        // It hit an open, which may be tried again.
        session.open()?;
        session.check_reopening()?;
        return Ok(1);
    }
    session.poisoned = true;
    for durability in [Durability::Buffered, Durability::Sync, Durability::Buffered] {
        let error = session.write(durability)?;
        if error.as_ref().map(Error::kind) != Some(ErrorKind::Poisoned) {
            return Err(format!("after a failed sync a write answered {error:?}"));
        }
        session.check_reads(false)?;
        let subject = session.subject.as_ref().expect("it is open");
        subject.scheduler.run(5);
        if subject.db.sync().is_ok() {
            return Err("after a failed sync another one was acknowledged".into());
        }
    }
    session.check_reopening()?;
    Ok(1)
}

fn full_case(seed: u64) -> CaseResult {
    let mut session = Session::new(seed);
    session.workload(1, 20)?;
    while !session.open()? {}
    let space = session.rng.range(0..60_000);
    let quota = session.disk().used_bytes() + space;
    session.disk().set_quota(Some(quota));
    let mut refused = 0;
    for _ in 0..400 {
        let durability = if session.rng.chance(20) { Durability::Sync } else { Durability::Buffered };
        if let Some(e) = session.write(durability)? {
            if e.kind() != ErrorKind::DiskFull {
                return Err(format!("on a full disk a write answered {e:?}"));
            }
            refused += 1;
            session.check_reads(false)?;
        }
        session.subject.as_ref().expect("it is open").scheduler.run(3);
        if refused > 5 {
            break;
        }
    }
    session.check_reads(false)?;
    if refused == 0 {
        return Ok(0);
    }
    if session.rng.chance(50) {
        session.make_room(quota)?;
    }
    session.disk().set_quota(None);
    let mut tries = 0;
    while let Some(e) = session.write(Durability::Sync)? {
        tries += 1;
        if tries > 20 {
            return Err(format!("there is space again, but a write still answers {e:?}"));
        }
        session.world.clock.advance_us(100_000);
        session.subject.as_ref().expect("it is open").scheduler.run(10);
    }
    // A flush that failed before is tried again after a while; until then a writer may meet its error.
    let (mut taken, mut tries) = (0, 0);
    while taken < 20 {
        match session.write(Durability::Buffered)? {
            None => taken += 1,
            Some(e) if tries > 20 => {
                return Err(format!("there is space again, but a write still answers {e:?}"));
            }
            Some(_) => {
                tries += 1;
                session.world.clock.advance_us(100_000);
                session.subject.as_ref().expect("it is open").scheduler.run(10);
            }
        }
    }
    let flushed = session.subject.as_ref().expect("it is open").db.flush();
    flushed.map_err(|e| format!("flush when there is space again: {e:?}"))?;
    session.acknowledge_all();
    session.check_reads(false)?;
    session.check_reopening()?;
    Ok(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::campaign::must_hold;

    #[test]
    fn whatever_call_fails_the_error_is_typed_and_nothing_is_lost() {
        must_hold(&FAULTS, 1, 1);
    }

    #[test]
    fn the_same_seed_does_the_same_twice() {
        must_hold(&REPLAY, 1, 10);
    }

    #[test]
    fn a_failed_sync_poisons_at_once() {
        must_hold(&SYNC, 1, 40);
    }

    #[test]
    fn a_full_disk_refuses_writes_and_goes_on_when_there_is_space() {
        must_hold(&FULL, 1, 20);
    }
}
