//! Faults in corners that the other campaigns do not enter: lives of one write, a thousand families,
//! compactions whose input cannot be read, opening to read while somebody writes, conditions judged beside
//! other writers, range deletes inside each other and versions in every order, operators that refuse and
//! descriptors that are missing, compactions elsewhere that lose cells without saying so. Each case is one of
//! them, with sizes and moments drawn. `refusals` has operators and descriptors.

mod refusals;

use crate::campaign::{CaseResult, Checked, Row, failed};
use crate::model::{At, Model, Op, Rules};
use siltstone::schedule::SimScheduler;
use siltstone::storage::sim::{Mode, OpKind, Rng, SimWorld};
use siltstone::testing::{CompactionFault, Elsewhere};
use siltstone::{
    Batch, Builder, Condition, Db, Durability, ErrorKind, Expected, FamilyOptions, KeyRange, Options,
    Timestamp, Timestamps, Tuning,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Corner after corner.
pub const CORNERS: Row = Row::new("corners", "corners looked into", 300, case);

const CORNERS_ALL: [fn(&mut Rng, u64) -> Checked; 10] = [
    short_lives,
    many_families,
    unreadable_input,
    reading_beside_a_writer,
    judged_beside_a_writer,
    nested_range_deletes,
    versions_in_any_order,
    refusals::refusing_operator,
    refusals::missing_descriptors,
    merges_that_lose_cells,
];

fn case(seed: u64) -> CaseResult {
    let mut rng = Rng::new(seed);
    CORNERS_ALL[(seed % CORNERS_ALL.len() as u64) as usize](&mut rng, seed).map(|()| 1)
}

fn builder(world: &SimWorld, options: Options) -> Builder {
    Builder::new().options(options).env(world.env()).scheduler(Arc::new(SimScheduler::for_world(world)))
}

fn small() -> Options {
    Options {
        write_memory: 256 << 10,
        memory_budget: 1 << 20,
        tuning: Tuning { wal_file_bytes: 64 << 10, ..Tuning::default() },
        ..Options::default()
    }
}

/// Opened again and again, for a write each time, closed or killed: the WAL stays small, and nothing is lost.
fn short_lives(rng: &mut Rng, seed: u64) -> Checked {
    let mut world = SimWorld::new(seed);
    let lives = rng.range(5..40);
    for n in 0..lives {
        let db = builder(&world, small()).open("/db").map_err(failed("open"))?;
        db.put(n.to_be_bytes(), rng.bytes(200)).map_err(failed("put"))?;
        if rng.chance(50) {
            db.close().map_err(failed("close"))?;
        } else {
            let next = world.kill();
            drop(db);
            world = next;
        }
        let names = world.env().storage.list("/db".as_ref()).map_err(|e| e.to_string())?;
        let logs = names.iter().filter(|name| name.ends_with(".log")).count();
        if logs > 6 {
            return Err(format!("{logs} WAL files after {} lives", n + 1));
        }
    }
    let db = builder(&world, small()).open("/db").map_err(failed("open"))?;
    let found = db.scan::<&[u8]>(..).count() as u64;
    if found != lives {
        return Err(format!("{found} of {lives} writes are left"));
    }
    // Of what earlier lives left nothing is reserved behind the history.
    let files = db.wal_files();
    let idle: u64 = files.iter().rev().skip(1).map(|file| file.reserved - file.used).sum();
    match idle < 4096 * files.len() as u64 {
        true => Ok(()),
        false => Err(format!("{idle} bytes are reserved behind the history of {} WAL files", files.len())),
    }
}

/// What is planned for one family does not depend on how many others there are.
fn many_families(rng: &mut Rng, seed: u64) -> Checked {
    let world = SimWorld::new(seed);
    let count = if seed % 20 == 1 { 1_000 } else { rng.range(100..300) };
    let options = Options { tuning: Tuning { events_max: 10, ..Tuning::default() }, ..Options::default() };
    let db = builder(&world, options).open("/db").map_err(failed("open"))?;
    for i in 0..count {
        let family =
            db.create_family(&format!("f{i}"), FamilyOptions::default()).map_err(failed("create"))?;
        family.put(i.to_be_bytes(), b"v").map_err(failed("put"))?;
    }
    db.wait_idle().map_err(failed("settle"))?;
    let family = db.family(&format!("f{}", rng.range(0..count))).map_err(failed("family"))?;
    family.flush().map_err(failed("flush"))?;
    let before = db.statistics().families_planned;
    for i in 0..20u8 {
        family.put([i], b"v").map_err(failed("put"))?;
        family.flush().map_err(failed("flush"))?;
    }
    let planned = db.statistics().families_planned - before;
    if planned > 20 * 20 {
        return Err(format!("20 flushes among {count} families planned for {planned}"));
    }
    let memory = db.statistics().write_memory;
    if memory > count * 2048 {
        return Err(format!("{count} families with a cell each hold {memory} bytes"));
    }
    let next = world.kill();
    drop((family, db));
    let db = builder(&next, Options::default()).open("/db").map_err(failed("open again"))?;
    for i in 0..count {
        let family = db.family(&format!("f{i}")).map_err(failed("family"))?;
        if family.get(i.to_be_bytes()).map_err(failed("get"))?.is_none() {
            return Err(format!("the cell of family {i} is lost"));
        }
    }
    Ok(())
}

/// An SSTable that cannot be read: once, which a later try mends, or for good, which is the error of all who
/// wait for compactions.
fn unreadable_input(rng: &mut Rng, seed: u64) -> Checked {
    let world = SimWorld::new(seed);
    let strategy = "leveled{l0_runs_trigger=2, defer_below=0}".parse().map_err(|e: String| e)?;
    let options = FamilyOptions { strategy, ..FamilyOptions::default() };
    let db = builder(&world, small()).family("default", options).open("/db").map_err(failed("open"))?;
    let for_good = rng.chance(50);
    let mode = if for_good { Mode::Sticky } else { Mode::Once };
    let put_all = |db: &Db, rng: &mut Rng| {
        // Over the same keys, so that compactions are no moves.
        (0..4u8).try_for_each(|i| db.put([i], rng.bytes(100)).map(|_| ())).map_err(failed("put"))
    };
    put_all(&db, rng)?;
    db.flush().map_err(failed("flush"))?;
    db.close().map_err(failed("close"))?;
    // With nothing of it in the cache.
    let db = builder(&world, small()).open("/db").map_err(failed("open"))?;
    let names = world.env().storage.list("/db".as_ref()).map_err(|e| e.to_string())?;
    let table = names.iter().find(|name| name.ends_with(".table")).ok_or("a flush made no table")?;
    // Of this table alone, so that flushes, which open what they wrote, succeed.
    world.storage.fail_at_path(OpKind::Read, table, 1, mode, std::io::ErrorKind::Other);
    for _ in 0..3 {
        put_all(&db, rng)?;
        db.flush().map_err(failed("flush"))?;
    }
    // Meanwhile tries come and go.
    world.clock.advance_us(400_000);
    let settled = db.wait_idle();
    match (for_good, settled.is_err()) {
        (true, false) => {
            return Err("compactions fail for good, and who waits for them is told that all is well".into());
        }
        (false, true) if world.storage.faults_injected() < 2 => {
            db.wait_idle().map_err(failed("settle after one failure"))?;
        }
        _ => {}
    }
    if for_good && db.statistics().background_error.is_none() {
        return Err("the statistics do not tell of compactions that fail".into());
    }
    world.storage.clear_faults();
    world.clock.advance_us(60_000_000);
    db.default_family().compact::<&[u8]>(..).map_err(failed("compact"))?;
    db.wait_idle().map_err(failed("settle once the table can be read"))?;
    match db.scan::<&[u8]>(..).count() {
        4 => Ok(()),
        found => Err(format!("{found} of 4 keys are left")),
    }
}

/// Compactions elsewhere that report some steps as empty, with counts that fit, though only overwritten cells
/// may be dropped.
fn merges_that_lose_cells(rng: &mut Rng, seed: u64) -> Checked {
    let world = SimWorld::new(seed);
    let explicit = rng.chance(50);
    let timestamps = if explicit { Timestamps::Explicit } else { Timestamps::Implicit };
    let strategy = "leveled{sstable_bytes=4KiB, base_bytes=4KiB, l0_runs_trigger=2}";
    let strategy = strategy.parse().map_err(|e: String| e)?;
    let versions = u32::from(!explicit);
    let options =
        FamilyOptions { timestamps, versions, strategy, block_bytes: 300, ..FamilyOptions::default() };
    let tuning = Tuning { compaction_step_bytes: 8 << 10, ..Tuning::default() };
    let builder = builder(&world, Options { tuning, ..small() }).family("f", options);
    let elsewhere = Elsewhere::faulty(&builder, &[CompactionFault::Loss], seed);
    let db = builder.offload(Arc::new(elsewhere.clone())).open("/db").map_err(failed("open"))?;
    let family = db.family("f").map_err(failed("family"))?;
    let (keys, rounds) = (rng.range(200..600), rng.range(3..7));
    for round in 1..=rounds {
        for n in 0..keys {
            let value = rng.bytes(60);
            let put = match explicit {
                true => family.put_at(n.to_be_bytes(), Timestamp(round), value),
                false => family.put(n.to_be_bytes(), value),
            };
            put.map_err(failed("put"))?;
        }
        family.flush().map_err(failed("flush"))?;
        family.compact::<&[u8]>(..).map_err(failed("compact"))?;
    }
    let expected = if explicit { keys * rounds } else { keys };
    match family.scan::<&[u8]>(..).count() as u64 {
        found if found == expected => Ok(()),
        found => {
            Err(format!("{found} of {expected} cells are left, {} steps lost theirs", elsewhere.faults()))
        }
    }
}

/// While the files are read one after the other, somebody writes, flushes and compacts.
fn reading_beside_a_writer(rng: &mut Rng, seed: u64) -> Checked {
    let world = SimWorld::new(seed);
    let db = builder(&world, small()).open("/db").map_err(failed("open"))?;
    for i in 0..50u64 {
        db.put(i.to_be_bytes(), rng.bytes(500)).map_err(failed("put"))?;
    }
    let at = rng.range(1..12);
    let seen = Arc::new(AtomicU64::new(0));
    let value = rng.bytes(500);
    {
        let (db, seen) = (db.clone(), seen.clone());
        world.storage.on_op(move |op, _| {
            if op == OpKind::Read && seen.fetch_add(1, Ordering::SeqCst) == at {
                for i in 0..200u64 {
                    let _ = db.put(i.to_be_bytes(), &value);
                }
                let _ = db.flush();
                let _ = db.default_family().compact::<&[u8]>(..);
                let _ = db.sync();
            }
        });
    }
    let opened = builder(&world, small()).open_read_only("/db");
    world.storage.clear_on_op();
    let reader = opened.map_err(failed("open to read, beside a writer"))?;
    // Some moment between before and after: a prefix of the puts, which came in the order of the keys.
    let mut found = 0u64;
    for entry in reader.scan::<&[u8]>(..) {
        if entry.map_err(failed("scan"))?.key != found.to_be_bytes() {
            return Err(format!("behind {found} keys one is missing"));
        }
        found += 1;
    }
    match (50..=200).contains(&found) {
        true => Ok(()),
        false => Err(format!("{found} keys are found, where there were 50 and are 200")),
    }
}

/// A write that rests on a key's absence, while another write of that key comes between the look and the
/// write.
fn judged_beside_a_writer(rng: &mut Rng, seed: u64) -> Checked {
    let world = SimWorld::new(seed);
    let db = builder(&world, small()).open("/db").map_err(failed("open"))?;
    for i in 0..200u64 {
        db.put((2 * i).to_be_bytes(), rng.bytes(100)).map_err(failed("put"))?;
    }
    db.flush().map_err(failed("flush"))?;
    db.close().map_err(failed("close"))?;
    // With nothing in the cache.
    let db = builder(&world, small()).open("/db").map_err(failed("open"))?;
    let family = db.default_family();
    let key = (2 * rng.range(0..199) + 1).to_be_bytes();
    let once = Arc::new(AtomicU64::new(0));
    {
        let (db, once) = (db.clone(), once.clone());
        world.storage.on_op(move |op, path| {
            let is_table = path.to_string_lossy().ends_with(".table");
            if op == OpKind::Read && is_table && once.fetch_add(1, Ordering::SeqCst) == 0 {
                let _ = db.put(key, b"first");
            }
        });
    }
    let absent = [Condition::new(&family, key, Expected::Absent)];
    let written = db.write_if(&absent, Batch::new().put(&family, key, b"second"), Durability::Buffered);
    world.storage.clear_on_op();
    if once.load(Ordering::SeqCst) == 0 {
        return Ok(());
    }
    match written {
        Err(e) if e.kind() == ErrorKind::Conflict => Ok(()),
        Err(e) => Err(format!("a conditional write: {e:?}")),
        Ok(_) => Err("a write that rested on absence replaced what was written meanwhile".into()),
    }
}

/// Compares what a family holds with the model.
fn compare(db: &Db, model: &Model) -> Checked {
    let family = db.family("f").map_err(failed("family"))?;
    let expected = model.scan(0, &KeyRange::all(), At { seq: model.seq(), now_us: 0 });
    let mut found = Vec::new();
    for entry in family.scan::<&[u8]>(..) {
        let entry = entry.map_err(failed("scan"))?;
        found.push((entry.key.clone(), entry.timestamp.0, entry.value.to_vec()));
    }
    match found == expected {
        true => Ok(()),
        false => Err(format!("{} rows are expected, {} found", expected.len(), found.len())),
    }
}

fn stir(db: &Db, rng: &mut Rng) -> Checked {
    let family = db.family("f").map_err(failed("family"))?;
    match rng.range(0..40) {
        0 => family.flush().map_err(failed("flush")),
        1 => family.compact::<&[u8]>(..).map_err(failed("compact")),
        _ => Ok(()),
    }
}

/// Hundreds of range deletes inside each other, around each other and apart, among puts, with snapshots held.
fn nested_range_deletes(rng: &mut Rng, seed: u64) -> Checked {
    let world = SimWorld::new(seed);
    let explicit = rng.chance(50);
    let versions = if explicit { rng.range(0..3) as u32 } else { 1 };
    let timestamps = if explicit { Timestamps::Explicit } else { Timestamps::Implicit };
    let options = FamilyOptions { timestamps, versions, ..FamilyOptions::default() };
    let db = builder(&world, small()).family("f", options).open("/db").map_err(failed("open"))?;
    let family = db.family("f").map_err(failed("family"))?;
    let mut model = Model::new([Rules { explicit, versions: versions as usize, ..Rules::default() }]);
    let key = |n: u64| format!("{n:04}").into_bytes();
    let mut held = Vec::new();
    for i in 0..rng.range(100..400) {
        let timestamp = if explicit { rng.range(1..6) } else { 0 };
        let op = match rng.range(0..10) {
            0..5 => {
                let value = rng.bytes(20);
                Op::Put { family: 0, key: key(rng.range(0..1000)), timestamp, value }
            }
            _ => {
                let (start, end) = match rng.range(0..3) {
                    0 => (i, 1000 - i),
                    1 => (400 - i.min(400), 500 + i),
                    _ => (10 * (i % 90), 10 * (i % 90) + 7),
                };
                let (from, to) = match explicit && rng.chance(30) {
                    true => (timestamp, timestamp + 1),
                    false => (0, u64::MAX),
                };
                let range = KeyRange { start: key(start.min(end)), end: Some(key(start.max(end))) };
                Op::DeleteRange { family: 0, range, from, to }
            }
        };
        let written = match &op {
            Op::Put { key, value, .. } if explicit => family.put_at(key, Timestamp(timestamp), value),
            Op::Put { key, value, .. } => family.put(key, value),
            Op::DeleteRange { range, from, to, .. } => {
                let bounds = range.start.as_slice()..range.end.as_deref().unwrap_or_default();
                match explicit {
                    true => family.delete_range_at(bounds, Timestamp(*from), Timestamp(*to)),
                    false => family.delete_range(bounds),
                }
            }
            _ => unreachable!("only these are made above"),
        };
        written.map_err(failed("write"))?;
        model.apply(&[op], 0);
        stir(&db, rng)?;
        if rng.one_in(40) {
            held.push((db.snapshot(), model.clone()));
        }
        if rng.one_in(20) {
            compare(&db, &model)?;
        }
    }
    compare(&db, &model)?;
    for (snapshot, model) in held {
        let rows = family.at(&snapshot).scan::<&[u8]>(..).count();
        let expected = model.scan(0, &KeyRange::all(), At { seq: model.seq(), now_us: 0 }).len();
        if rows != expected {
            return Err(format!("a snapshot shows {rows} rows, {expected} are expected"));
        }
    }
    Ok(())
}

/// Many versions of a few keys, in rising, falling and any order, some deleted alone.
fn versions_in_any_order(rng: &mut Rng, seed: u64) -> Checked {
    let world = SimWorld::new(seed);
    let versions = *rng.pick(&[0, 1, 3, 20]);
    let options = FamilyOptions { timestamps: Timestamps::Explicit, versions, ..FamilyOptions::default() };
    let db = builder(&world, small()).family("f", options).open("/db").map_err(failed("open"))?;
    let family = db.family("f").map_err(failed("family"))?;
    let mut model = Model::new([Rules { explicit: true, versions: versions as usize, ..Rules::default() }]);
    let (count, order) = (rng.range(50..400), rng.range(0..3));
    for i in 0..count {
        let timestamp = match order {
            0 => i + 1,
            1 => count - i,
            _ => rng.range(1..count + 1),
        };
        let key = vec![b'a' + rng.range(0..3) as u8];
        let op = match rng.range(0..20) {
            0 => {
                family.delete_at(&key, Timestamp(timestamp)).map_err(failed("delete"))?;
                Op::Delete { family: 0, key: key.clone(), timestamp }
            }
            1 => {
                let range = KeyRange { start: key.clone(), end: Some([&key[..], b"\0"].concat()) };
                let bounds = range.start.as_slice()..range.end.as_deref().unwrap_or_default();
                let (from, to) = (timestamp, timestamp + rng.range(0..3));
                let deleted = family.delete_range_at(bounds, Timestamp(from), Timestamp(to));
                deleted.map_err(failed("delete range"))?;
                Op::DeleteRange { family: 0, range: range.clone(), from, to }
            }
            _ => {
                let value = rng.bytes(8);
                family.put_at(&key, Timestamp(timestamp), &value).map_err(failed("put"))?;
                Op::Put { family: 0, key: key.clone(), timestamp, value }
            }
        };
        model.apply(&[op], 0);
        stir(&db, rng)?;
        let wanted = rng.range(1..5) as usize;
        let found = family.get_versions(&key, wanted).map_err(failed("get"))?;
        let found: Vec<_> = found.into_iter().map(|(t, v)| (t.0, v.to_vec())).collect();
        let expected = model.get_versions(0, &key, wanted, At { seq: model.seq(), now_us: 0 });
        if found != expected {
            let history = model.history(0, &key);
            return Err(format!(
                "{} versions are found, {} expected: {history}",
                found.len(),
                expected.len()
            ));
        }
    }
    compare(&db, &model)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::campaign::must_hold;

    #[test]
    fn every_corner_holds() {
        must_hold(&CORNERS, 1, 18);
    }
}
