//! Random calls against the reference model: writes of all kinds, reads forward and backward, snapshots held
//! across flushes and compactions, transactions, ingest, checkpoints, read-only opens, changes of strategy,
//! moves of the clock and of memory.

use crate::campaign::{CaseResult, Checked, Row, Together, failed};
use crate::model::{At, Model, Op, Rules};
use crate::stream::{Told, Watched};
use crate::subject::{
    FamilySetup, Setup, Subject, TTL_US, bounds, change_options, difference, draw_memory, rows,
};
use crate::ways;
use siltstone::storage::Clock;
use siltstone::storage::sim::{Rng, SimWorld};
use siltstone::{
    Condition, Durability, ErrorKind, Expected, Family, FamilyOptions, Isolation, KeyRange, SeqNo, Snapshot,
    SstableWriter, Timestamp, Transaction,
};
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering};

/// Wrong results against the model.
pub const MODEL: Row = Row {
    together: Some(Together { least: 8 * BESIDE_AMONG, check: together }),
    ..Row::new("model", "cases of 200 calls", 2_000, model_case)
};

/// The family whose cells expire by the moment of writing.
const AGED: usize = 2;

struct Run {
    setup: Setup,
    world: SimWorld,
    rng: Rng,
    model: Model,
    subject: Option<Subject>,
    snapshots: Vec<(Snapshot, u64)>,
    /// Sequence numbers of before, the database's and the model's.
    moments: Vec<(SeqNo, u64)>,
    checkpoints: Vec<(String, u64)>,
    /// Spans of time in which it is not known whether a cell has expired, as its moment of writing is not.
    unclear: Vec<(u64, u64)>,
    ingested: u32,
    watched: Watched,
}

/// The calls made during a compaction of which some steps are installed and others not.
const BESIDE: [&str; 7] =
    ["snapshot", "scan", "ingest", "delete range", "compaction", "checkpoint", "other strategy"];
/// Among so many cases each is done once at least.
const BESIDE_AMONG: u64 = 125;
/// How often each was done in this process.
static DONE: [AtomicU64; BESIDE.len()] = [const { AtomicU64::new(0) }; BESIDE.len()];

fn together(count: u64) -> Result<String, String> {
    let done = BESIDE.iter().zip(&DONE).map(|(what, done)| (done.load(Ordering::Relaxed), *what));
    let (least, what) = done.min().expect("there are some");
    let told = format!("of what goes on beside half-done compactions {what} was rarest, {least} times");
    let times = count / BESIDE_AMONG;
    if least >= times { Ok(told) } else { Err(format!("{told}, fewer than {times}")) }
}

fn model_case(seed: u64) -> CaseResult {
    let mut rng = Rng::new(seed);
    let world = SimWorld::new(rng.next_u64());
    let mut setup = Setup::draw(&mut rng, world.clock.wall_us());
    setup.marker = false;
    let options = FamilyOptions { ttl_us: TTL_US, ..setup.families[0].options.clone() };
    setup.families.push(FamilySetup {
        name: "aged",
        options: FamilyOptions { merge_operator: None, ..options },
        rules: Rules { ttl_us: TTL_US, ..Rules::default() },
        first_stamp: 0,
        stamp_step: 0,
    });
    let model = Model::new(setup.rules());
    let subject = Some(Subject::open(&setup, &world).map_err(failed("open"))?);
    let watched = Watched::begin(&subject.as_ref().expect("it is open").db)?;
    let (snapshots, checkpoints, unclear) = (Vec::new(), Vec::new(), Vec::new());
    let mut run = Run {
        setup,
        world,
        rng,
        model,
        subject,
        snapshots,
        moments: Vec::new(),
        checkpoints,
        unclear,
        ingested: 0,
        watched,
    };
    for call in 0..200 {
        run.call().map_err(|e| format!("call {call}: {e}"))?;
    }
    run.everything().map_err(|e| format!("at the end: {e}"))?;
    run.watched.check(&run.setup, u64::MAX).map_err(|e| format!("at the end: {e}"))?;
    Ok(1)
}

impl Run {
    fn subject(&self) -> &Subject {
        self.subject.as_ref().expect("the database is open between calls")
    }

    /// A moment at which it is clear what has expired.
    fn now_us(&self) -> u64 {
        while let Some(span) = self.unclear.iter().find(|s| {
            // Reads take some time themselves.
            let now = self.world.clock.wall_us();
            s.0 <= now + 1_000_000 && now <= s.1
        }) {
            self.world.clock.advance_us(span.1 + 1 - self.world.clock.wall_us());
        }
        self.world.clock.wall_us()
    }

    fn at(&self, seq: u64) -> At {
        At { seq, now_us: self.now_us() }
    }

    fn call(&mut self) -> Checked {
        match self.rng.range(0..200) {
            0..90 => self.write(),
            90..112 => self.get(),
            112..120 => self.multi_get(),
            120..148 => self.scan(),
            148..150 => {
                let most = self.rng.range(1..40);
                self.watched.check(&self.setup, most)
            }
            150..160 => {
                let turns = self.rng.range(1..20) as u32;
                self.subject().scheduler.run(turns);
                // Between the steps of a flush or compaction, if one is under way.
                self.compare(&self.subject().db, self.model.seq())
            }
            160..163 => self.subject().db.flush().map_err(failed("flush")),
            163..164 => {
                let (write_memory, budget) = draw_memory(&self.setup.options, &mut self.rng);
                self.subject().db.set_memory_limits(write_memory, budget).map_err(failed("move memory"))
            }
            164..167 => {
                self.go_to_the_middle();
                self.note("compaction");
                let (family, range) = (self.rng.index(3), self.setup.range(&mut self.rng));
                self.subject().families[family].compact::<&[u8]>(bounds(&range)).map_err(failed("compact"))
            }
            167..168 => self.subject().db.wait_idle().map_err(failed("settle")),
            168..170 => {
                self.go_to_the_middle();
                self.note("other strategy");
                let family = self.rng.index(3);
                let family = self.subject().families[family].clone();
                change_options(&family, &mut self.rng).map_err(failed("alter"))
            }
            170..175 => {
                self.note("snapshot");
                let snapshot = self.subject().db.snapshot();
                self.snapshots.push((snapshot, self.model.seq()));
                Ok(())
            }
            175..179 => {
                if !self.snapshots.is_empty() {
                    let at = self.rng.index(self.snapshots.len());
                    self.snapshots.swap_remove(at);
                }
                Ok(())
            }
            179..182 => {
                self.world.clock.advance_us(self.rng.range(0..400_000_000));
                Ok(())
            }
            182..187 => self.conditional_write(),
            187..191 => self.transaction(),
            191..194 => self.ingest(),
            194..196 => self.checkpoint(),
            196..198 => self.read_only(),
            _ => self.reopen(),
        }
    }

    fn is_half_done(&self) -> bool {
        let has_clip = |family: &Family| family.shape().tables().any(|(_, _, table)| table.clip.is_some());
        self.subject().families.iter().any(has_clip)
    }

    /// The next call is rare: half the time it is made in the middle of a compaction, if one is due.
    fn go_to_the_middle(&mut self) {
        for _ in 0..if self.rng.chance(50) { 30 } else { 0 } {
            if self.is_half_done() {
                break;
            }
            self.subject().scheduler.run(1);
        }
    }

    /// Records that this call is made now, if a compaction is half-done.
    fn note(&self, what: &str) {
        let half_done = self.is_half_done();
        let which = BESIDE.iter().position(|known| *known == what).expect("it is one of them");
        DONE[which].fetch_add(u64::from(half_done), Ordering::Relaxed);
    }

    fn apply(&mut self, ops: &[Op], before_us: u64) {
        let now_us = self.world.clock.wall_us();
        if ops.iter().any(|op| matches!(op, Op::Put { family: AGED, .. })) {
            self.unclear.push((before_us + TTL_US, now_us + TTL_US));
        }
        self.model.apply(ops, now_us);
        self.watched.expect(Told::Batch(ops.to_vec()));
    }

    fn write(&mut self) -> Checked {
        let mut ops = self.setup.batch(&mut self.rng, 0);
        // The aged family knows no operands.
        ops.retain(|op| !matches!(op, Op::Merge { family: AGED, .. }));
        if ops.iter().any(|op| matches!(op, Op::DeleteRange { .. })) {
            self.note("delete range");
        }
        let durability = if self.rng.one_in(8) { Durability::Sync } else { Durability::Buffered };
        let before_us = self.world.clock.wall_us();
        self.subject().write(&self.setup, &ops, durability).map_err(failed("write"))?;
        self.apply(&ops, before_us);
        Ok(())
    }

    /// The present, or a snapshot.
    fn read_point(&mut self) -> (Option<Snapshot>, u64) {
        if self.snapshots.is_empty() || self.rng.chance(60) {
            return (None, self.model.seq());
        }
        let (snapshot, seq) = self.rng.pick(&self.snapshots).clone();
        (Some(snapshot), seq)
    }

    /// Half the reads of a family with explicit timestamps are of some of them.
    fn times(&mut self, family: usize) -> RangeInclusive<u64> {
        if !self.setup.families[family].rules.explicit || self.rng.chance(50) {
            return 0..=u64::MAX;
        }
        let ends = [0, 1].map(|_| self.setup.stamp(family, &mut self.rng));
        let (first, last) = (ends[0].min(ends[1]), ends[0].max(ends[1]));
        match self.rng.range(0..8) {
            0 => 0..=last,
            1 => first..=u64::MAX,
            // As a rule nothing.
            2 => ends[0]..=ends[1],
            _ => first..=last,
        }
    }

    fn get(&mut self) -> Checked {
        let (family, key) = (self.rng.index(3), self.setup.key(&mut self.rng));
        let (snapshot, seq) = self.read_point();
        let at = self.at(seq);
        let of = &self.subject().families[family];
        let value = match &snapshot {
            None => of.get(&key),
            Some(snapshot) => of.at(snapshot).get(&key),
        };
        let found = value.map_err(failed("get"))?.map(|value| value.to_vec());
        let expected = self.model.get(family, &key, at);
        let name = key.escape_ascii();
        if found != expected {
            let lengths = (expected.map(|v| v.len()), found.map(|v| v.len()));
            return Err(format!(
                "get of {name} in family {family} at {at:?}: expected, found {lengths:?} bytes"
            ));
        }
        let count = self.rng.range(1..6) as usize;
        let times = self.times(family);
        let at = self.at(seq);
        let of = &self.subject().families[family];
        let versions = match &snapshot {
            None => of.get_versions_in(&key, stamps(&times), count),
            Some(snapshot) => of.at(snapshot).get_versions_in(&key, stamps(&times), count),
        };
        let found: Vec<_> =
            versions.map_err(failed("versions"))?.into_iter().map(|(t, v)| (t.0, v.to_vec())).collect();
        let mut expected = self.model.get_versions(family, &key, usize::MAX, at);
        expected.retain(|(t, _)| times.contains(t));
        expected.truncate(count);
        if found != expected {
            let stamps = |of: &[(u64, Vec<u8>)]| of.iter().map(|v| v.0).collect::<Vec<_>>();
            let (expected, found) = (stamps(&expected), stamps(&found));
            let asked = format!("{count} versions of {name} of {times:?} at {at:?}");
            return Err(format!("{asked}: expected {expected:?}, found {found:?}"));
        }
        Ok(())
    }

    /// Several keys at once, some of them twice.
    fn multi_get(&mut self) -> Checked {
        let family = self.rng.index(3);
        let mut keys: Vec<_> = (0..self.rng.range(0..30)).map(|_| self.setup.key(&mut self.rng)).collect();
        if self.rng.one_in(3) {
            keys.extend_from_within(..keys.len().min(2));
        }
        let (snapshot, seq) = self.read_point();
        let at = self.at(seq);
        let of = &self.subject().families[family];
        let found = match &snapshot {
            None => of.multi_get(&keys),
            Some(snapshot) => of.at(snapshot).multi_get(&keys),
        };
        let found = found.map_err(failed("multi_get"))?.into_iter().map(|value| value.map(Vec::from));
        let expected = keys.iter().map(|key| self.model.get(family, key, at));
        match found.eq(expected) {
            true => Ok(()),
            false => Err(format!("multi_get of {} keys of family {family} at {at:?} differs", keys.len())),
        }
    }

    fn scan(&mut self) -> Checked {
        let family = self.rng.index(3);
        let range = if self.rng.one_in(4) { KeyRange::all() } else { self.setup.range(&mut self.rng) };
        let (snapshot, seq) = self.read_point();
        self.note("scan");
        let times = self.times(family);
        let at = self.at(seq);
        let of = &self.subject().families[family];
        let scan = match &snapshot {
            None => of.scan::<&[u8]>(bounds(&range)),
            Some(snapshot) => of.at(snapshot).scan::<&[u8]>(bounds(&range)),
        };
        let scan = scan.times(stamps(&times));
        let mut expected = self.model.scan(family, &range, at);
        expected.retain(|row| times.contains(&row.1));
        ways::check(scan, &expected, &mut self.rng)
            .map_err(|wrong| format!("scan of {range} of {times:?} in family {family} at {at:?}: {wrong}"))
    }

    /// A write that must not go through where its key was written to since a moment of before. Where it was
    /// not, a conflict is an answer too: a compaction may have dropped the evidence.
    fn write_unless_newer(&mut self) -> Checked {
        let (family, key) = (self.rng.index(2), self.setup.key(&mut self.rng));
        let present = (self.subject().db.snapshot().seq(), self.model.seq());
        let (seq, model_seq) = match self.moments.is_empty() || self.rng.one_in(4) {
            true => present,
            false => *self.rng.pick(&self.moments),
        };
        self.moments.push(present);
        let is_newer = self.model.is_written_since(family, &key, model_seq);
        let explicit = self.setup.families[family].rules.explicit;
        let timestamp = if explicit { self.setup.stamp(family, &mut self.rng) } else { 0 };
        let value = self.setup.value(&mut self.rng);
        let ops = [Op::Put { family, key: key.clone(), timestamp, value }];
        let batch = self.subject().batch_of(&self.setup, &ops);
        let condition =
            Condition::new(&self.subject().families[family], key.clone(), Expected::NotNewerThan(seq));
        match self.subject().db.write_if(&[condition], &batch, Durability::Buffered) {
            Err(e) if e.kind() == ErrorKind::Conflict && seq != present.0 => Ok(()),
            Err(e) => Err(format!("a conditional write failed: {e:?}")),
            Ok(_) if is_newer => {
                Err(format!("a write rested on nothing newer than {seq}, but \"{}\" is", key.escape_ascii()))
            }
            Ok(_) => {
                self.apply(&ops, self.world.clock.wall_us());
                Ok(())
            }
        }
    }

    fn conditional_write(&mut self) -> Checked {
        if self.rng.chance(50) {
            return self.write_unless_newer();
        }
        let key = self.setup.key(&mut self.rng);
        let at = self.at(self.model.seq());
        let now = self.model.get(0, &key, at);
        let (expected, holds) = match self.rng.range(0..4) {
            0 => (Expected::Absent, now.is_none()),
            1 => (Expected::Present, now.is_some()),
            2 => (Expected::Value(now.clone().unwrap_or_default()), now.is_some()),
            _ => (Expected::Value(b"another".to_vec()), false),
        };
        let ops =
            [Op::Put { family: 0, key: key.clone(), timestamp: 0, value: self.setup.value(&mut self.rng) }];
        let batch = self.subject().batch_of(&self.setup, &ops);
        let family = self.subject().families[0].clone();
        let condition = match self.rng.chance(50) {
            true => Condition::new(&family, key, expected),
            false => {
                let (of, read) = (family.clone(), key.clone());
                let is_expected = move || {
                    let found = of.get(&read)?;
                    Ok(match &expected {
                        Expected::Absent => found.is_none(),
                        Expected::Value(value) => found.is_some_and(|found| found == *value),
                        _ => found.is_some(),
                    })
                };
                Condition::when(is_expected).rests_on(&family, &key[..]..=&key[..])
            }
        };
        let written = self.subject().db.write_if(&[condition], &batch, Durability::Buffered);
        self.outcome(holds, written.map(|_| ()), &ops)
    }

    fn outcome(&mut self, expected: bool, found: siltstone::Result<()>, ops: &[Op]) -> Checked {
        match found {
            Ok(()) if expected => {
                self.apply(ops, self.world.clock.wall_us());
                Ok(())
            }
            Err(e) if !expected && e.kind() == ErrorKind::Conflict => Ok(()),
            Ok(()) => Err("a write went through that should have met a conflict".into()),
            Err(e) => Err(format!("a conditional write failed: {e:?}")),
        }
    }

    /// A transaction with writes of its own, some of which it takes back, that reads between them, while
    /// another writes.
    fn transaction(&mut self) -> Checked {
        let isolation = if self.rng.chance(50) { Isolation::Serializable } else { Isolation::Snapshot };
        let mut transaction = self.subject().db.begin_with(isolation);
        let f = self.rng.index(2);
        let family = self.subject().families[f].clone();
        // The view of a transaction: the present, with its own writes over it.
        let (mut seen, mut own) = (self.model.clone(), Vec::new());
        let (mut keys, mut ranges) = (Vec::new(), Vec::new());
        for _ in 0..self.rng.range(1..8) {
            match self.rng.range(0..4) {
                0 => {
                    let mark = own.len();
                    transaction.savepoint();
                    self.write_own(f, &mut transaction, &mut own);
                    if self.rng.chance(50) && transaction.rollback_to_savepoint() {
                        own.truncate(mark);
                        seen = self.model.clone();
                        seen.apply(&own, self.world.clock.wall_us());
                    }
                }
                1 => self.write_own(f, &mut transaction, &mut own),
                2 => {
                    let key = self.setup.key(&mut self.rng);
                    let at = self.at(u64::MAX);
                    let for_update = self.rng.one_in(3);
                    let get = if for_update { Transaction::get_for_update } else { Transaction::get };
                    let found = get(&transaction, &family, &key).map_err(failed("get"))?;
                    if found.map(|v| v.to_vec()) != seen.get(f, &key, at) {
                        return Err(format!(
                            "a transaction's get differs after {own:?}: {}",
                            seen.history(f, &key)
                        ));
                    }
                    let decided =
                        own.iter().any(|op| decides(op, &key)) && !self.setup.families[f].rules.explicit;
                    if !decided && (for_update || isolation == Isolation::Serializable) {
                        keys.push(key);
                    }
                }
                _ => {
                    let range = self.setup.range(&mut self.rng);
                    let expected = seen.scan(f, &range, self.at(u64::MAX));
                    let scan = transaction.scan(&family, range.clone());
                    let first = match self.rng.one_in(3) {
                        false => {
                            ways::check_both_ends(scan, &expected, &mut self.rng)
                                .map_err(|wrong| format!("a transaction's scan after {own:?}: {wrong}"))?;
                            range
                        }
                        // Only what it has gone through counts.
                        true => match { scan }.next().transpose().map_err(failed("scan"))? {
                            Some(entry) => {
                                KeyRange { start: range.start, end: Some([&entry.key[..], &[0]].concat()) }
                            }
                            None => range,
                        },
                    };
                    if isolation == Isolation::Serializable {
                        ranges.push(first);
                    }
                }
            }
            let unapplied = &own[(seen.seq() - self.model.seq()) as usize..];
            let unapplied = unapplied.to_vec();
            seen.apply(&unapplied, self.world.clock.wall_us());
        }
        if isolation == Isolation::Snapshot {
            for op in &own {
                match op {
                    Op::DeleteRange { range, .. } => ranges.push(range.clone()),
                    Op::Put { key, .. } | Op::Delete { key, .. } | Op::Merge { key, .. } => {
                        keys.push(key.clone())
                    }
                }
            }
        }
        let other = self.setup.key(&mut self.rng);
        let foreign = self.rng.chance(50);
        if foreign {
            let ops =
                [Op::Delete { family: f, key: other.clone(), timestamp: if f == 0 { 0 } else { u64::MAX } }];
            self.subject().write(&self.setup, &ops, Durability::Buffered).map_err(failed("write"))?;
            self.apply(&ops, self.world.clock.wall_us());
        }
        if self.rng.one_in(3) {
            self.subject().db.flush().map_err(failed("flush"))?;
        }
        let met = keys.contains(&other) || ranges.iter().any(|range| range.contains(&other));
        let committed = transaction.commit(Durability::Buffered);
        self.outcome(!(foreign && met), committed.map(|_| ()), &own)
    }

    fn write_own(&mut self, family: usize, transaction: &mut Transaction, own: &mut Vec<Op>) {
        let mut op = self.setup.op(&mut self.rng);
        while family_of(&op) != family {
            op = self.setup.op(&mut self.rng);
        }
        self.subject().write_in(&self.setup, transaction, &op);
        own.push(op);
    }

    fn ingest(&mut self) -> Checked {
        self.go_to_the_middle();
        self.note("ingest");
        let family = self.rng.index(2);
        self.ingested += 1;
        let path = format!("ingested-{}", self.ingested);
        let env = self.world.env();
        let explicit = self.setup.families[family].rules.explicit;
        let mut table = SstableWriter::create_in(&env, &path, &self.setup.families[family].options)
            .map_err(failed("create a table"))?;
        let mut keys: Vec<_> = (0..self.rng.range(1..20)).map(|_| self.setup.key(&mut self.rng)).collect();
        keys.sort();
        keys.dedup();
        let mut ops = Vec::new();
        for key in keys {
            let value = self.setup.value(&mut self.rng);
            let timestamp = if explicit { self.setup.stamp(family, &mut self.rng) } else { 0 };
            if !explicit && self.rng.one_in(5) {
                table.delete(&key).map_err(failed("add to a table"))?;
                ops.push(Op::Delete { family, key, timestamp });
                continue;
            }
            match explicit {
                true => table.put_at(&key, Timestamp(timestamp), &value),
                false => table.put(&key, &value),
            }
            .map_err(failed("add to a table"))?;
            ops.push(Op::Put { family, key, timestamp, value });
        }
        table.finish().map_err(failed("finish a table"))?;
        self.subject().families[family].ingest(&[path]).map_err(failed("ingest"))?;
        self.model.apply(&ops, self.world.clock.wall_us());
        self.watched.expect(Told::Lost);
        Ok(())
    }

    fn checkpoint(&mut self) -> Checked {
        self.go_to_the_middle();
        self.note("checkpoint");
        let dir = format!("copy-{}", self.checkpoints.len());
        self.subject().db.checkpoint(&dir).map_err(failed("checkpoint"))?;
        self.checkpoints.push((dir, self.model.seq()));
        if self.rng.chance(50) { self.check_checkpoint(self.checkpoints.len() - 1) } else { Ok(()) }
    }

    fn check_checkpoint(&self, which: usize) -> Checked {
        let (dir, seq) = &self.checkpoints[which];
        let copy = self.setup.builder_at(&self.world, dir).open(dir).map_err(failed("open a checkpoint"))?;
        self.compare(&copy, *seq).map_err(|e| format!("checkpoint {dir}: {e}"))
    }

    fn read_only(&self) -> Checked {
        let reader = self.setup.builder(&self.world).open_read_only(crate::subject::DIR);
        self.compare(&reader.map_err(failed("open read-only"))?, self.model.seq())
            .map_err(|e| format!("opened read-only: {e}"))
    }

    fn compare(&self, db: &siltstone::Db, seq: u64) -> Checked {
        for (family, setup) in self.setup.families.iter().enumerate() {
            let at = self.at(seq);
            let of = db.family(setup.name).map_err(failed("family"))?;
            let found = rows(of.scan::<&[u8]>(..)).map_err(failed("scan"))?;
            let expected = self.model.scan(family, &KeyRange::all(), at);
            if expected != found {
                let first = expected.iter().zip(&found).find(|(e, f)| e != f);
                let key = first.map_or(&[][..], |(expected, _)| &expected.0);
                let history = self.model.history(family, key);
                return Err(format!("family {family}: {}; {history}", difference(&expected, &found)));
            }
        }
        Ok(())
    }

    fn everything(&mut self) -> Checked {
        self.compare(&self.subject().db, self.model.seq())?;
        for (snapshot, seq) in self.snapshots.clone() {
            for family in 0..3 {
                let at = self.at(seq);
                let of = self.subject().families[family].at(&snapshot);
                let found = rows(of.scan::<&[u8]>(..)).map_err(failed("scan"))?;
                let expected = self.model.scan(family, &KeyRange::all(), at);
                if expected != found {
                    return Err(format!("snapshot, family {family}: {}", difference(&expected, &found)));
                }
            }
        }
        (0..self.checkpoints.len()).try_for_each(|which| self.check_checkpoint(which))
    }

    fn reopen(&mut self) -> Checked {
        self.everything()?;
        self.snapshots.clear();
        if self.rng.chance(50) {
            self.subject().db.close().map_err(failed("close"))?;
        }
        self.watched.end();
        self.subject = None;
        self.subject = Some(Subject::open(&self.setup, &self.world).map_err(failed("open again"))?);
        let db = self.subject().db.clone();
        self.watched.go_on(&db, self.setup.options.change_log_bytes == 1 << 30)?;
        self.compare(&self.subject().db, self.model.seq())
    }
}

fn stamps(times: &RangeInclusive<u64>) -> RangeInclusive<Timestamp> {
    Timestamp(*times.start())..=Timestamp(*times.end())
}

fn family_of(op: &Op) -> usize {
    match op {
        Op::Put { family, .. } | Op::Delete { family, .. } | Op::Merge { family, .. } => *family,
        Op::DeleteRange { family, .. } => *family,
    }
}

/// Whether after that write it does not matter what the key of a family with implicit timestamps was before.
fn decides(op: &Op, key: &[u8]) -> bool {
    match op {
        Op::Put { key: of, .. } | Op::Delete { key: of, .. } => of == key,
        Op::DeleteRange { range, .. } => range.contains(key),
        Op::Merge { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::campaign::must_hold;

    #[test]
    fn every_read_answers_as_the_model_does() {
        must_hold(&MODEL, 1, 40);
    }
}
