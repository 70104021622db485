//! Refusals: merge operators that cannot take some operands, and a system that has no descriptor left.

use super::{Checked, builder, failed, small, stir};
use crate::model::{At, Model, Op, Row, Rules};
use siltstone::schedule::SimScheduler;
use siltstone::storage::sim::{Mode, OpKind, Rng, SimWorld};
use siltstone::{
    Builder, Db, Durability, Error, ErrorKind, Family, FamilyOptions, KeyRange, MergeOperator, Scan,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The stand-in, in the model and in reads here, for a value that the operator refuses.
const REFUSED: &[u8] = b"(refused)";
/// An operand that begins so is refused.
const BAD: u8 = 1;

fn is_bad(operands: &[&[u8]]) -> bool {
    operands.iter().any(|operand| operand.first() == Some(&BAD))
}

/// Appends operands, but for some.
struct Picky;

impl MergeOperator for Picky {
    fn merge(&self, _: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> siltstone::Result<Vec<u8>> {
        match is_bad(operands) {
            false => Ok([base.unwrap_or_default(), &operands.concat()].concat()),
            true => Err(Error::new(ErrorKind::MergeRefused, "a bad operand")),
        }
    }
}

fn picky(base: Option<&[u8]>, operands: &[&[u8]]) -> Vec<u8> {
    match is_bad(operands) {
        true => REFUSED.to_vec(),
        false => [base.unwrap_or_default(), &operands.concat()].concat(),
    }
}

/// A refusal is told without the key that it concerns.
fn told(row: Row) -> Row {
    if row.2 == REFUSED { (Vec::new(), 0, row.2) } else { row }
}

fn rows(scan: impl Iterator<Item = siltstone::Result<siltstone::Entry>>) -> Result<Vec<Row>, String> {
    scan.map(|entry| match entry {
        Ok(entry) => Ok((entry.key, 0, entry.value.to_vec())),
        Err(e) if e.kind() == ErrorKind::MergeRefused => Ok((Vec::new(), 0, REFUSED.to_vec())),
        Err(e) => Err(format!("scan: {e:?}")),
    })
    .collect()
}

fn same(family: &Family, model: &Model, at: u64, of: impl Fn() -> Scan, key: &[u8]) -> Checked {
    let at = At { seq: at, now_us: 0 };
    let mut expected: Vec<Row> = model.scan(0, &KeyRange::all(), at).into_iter().map(told).collect();
    if rows(of())? != expected {
        return Err("a scan beside refused keys shows other rows than were written".into());
    }
    expected.reverse();
    if rows(of().rev())? != expected {
        return Err("a scan backwards beside refused keys shows other rows than were written".into());
    }
    if at.seq < model.seq() {
        return Ok(());
    }
    let found = match family.get(key) {
        Err(e) if e.kind() == ErrorKind::MergeRefused => Some(REFUSED.to_vec()),
        found => found.map_err(failed("get"))?.map(|value| value.to_vec()),
    };
    match found == model.get(0, key, at) {
        true => Ok(()),
        false => Err(format!("get finds {found:?}: {}", model.history(0, key))),
    }
}

/// Operands that the operator refuses, among others: reads of their keys say so until something newer stands
/// over them, flushes and compactions keep them, and nobody else notices.
pub(super) fn refusing_operator(rng: &mut Rng, seed: u64) -> Checked {
    let options = || FamilyOptions { merge_operator: Some("picky".into()), ..FamilyOptions::default() };
    let open = |world: &SimWorld| {
        let builder = builder(world, small()).merge_operator("picky", Arc::new(Picky));
        builder.family("f", options()).open("/db").map_err(failed("open"))
    };
    let mut world = SimWorld::new(seed);
    let mut db = open(&world)?;
    let mut model = Model::new([Rules { operator: Some(picky), ..Rules::default() }]);
    let mut held = Vec::new();
    for _ in 0..rng.range(40..200) {
        let family = db.family("f").map_err(failed("family"))?;
        let key = vec![b'a' + rng.range(0..6) as u8];
        let op = match rng.range(0..20) {
            0..4 => Op::Put { family: 0, key: key.clone(), timestamp: 0, value: rng.bytes(10) },
            4..6 => Op::Delete { family: 0, key: key.clone(), timestamp: 0 },
            6 => {
                let range = KeyRange { start: key.clone(), end: Some(vec![key[0] + 2]) };
                Op::DeleteRange { family: 0, range, from: 0, to: u64::MAX }
            }
            _ => {
                let mut operand = rng.bytes(3);
                operand[0] = if rng.one_in(6) { BAD } else { b'x' };
                Op::Merge { family: 0, key: key.clone(), timestamp: 0, operand }
            }
        };
        match &op {
            Op::Put { value, .. } => family.put(&key, value),
            Op::Delete { .. } => family.delete(&key),
            Op::Merge { operand, .. } => family.merge(&key, operand),
            Op::DeleteRange { range, .. } => {
                family.delete_range(range.start.as_slice()..range.end.as_deref().unwrap_or_default())
            }
        }
        .map_err(failed("write"))?;
        model.apply(&[op], 0);
        stir_one(&db, &family, rng)?;
        same(&family, &model, model.seq(), || family.scan::<&[u8]>(..), &key)?;
        if rng.one_in(15) {
            held.push((db.snapshot(), model.seq()));
        }
        if let Some((snapshot, seq)) = held.last() {
            same(&family, &model, *seq, || family.at(snapshot).scan::<&[u8]>(..), &key)?;
        }
        if rng.one_in(30) {
            held.clear();
            let kill = rng.chance(50);
            if kill {
                let next = world.kill();
                drop((family, db));
                world = next;
            } else {
                db.close().map_err(failed("close"))?;
                drop((family, db));
            }
            db = open(&world)?;
        }
    }
    Ok(())
}

fn stir_one(db: &Db, family: &Family, rng: &mut Rng) -> Checked {
    match rng.range(0..12) {
        0 => family.flush().map_err(failed("flush")),
        1 => family.compact::<&[u8]>(..).map_err(failed("compact")),
        2 => db.wait_idle().map_err(failed("settle")),
        _ => stir(db, rng),
    }
}

/// The calls of a storage that take a descriptor. (Directories that are synced stay open.)
const TAKE_A_DESCRIPTOR: [OpKind; 7] =
    [OpKind::Create, OpKind::Append, OpKind::Open, OpKind::Map, OpKind::List, OpKind::Lock, OpKind::Punch];

/// No descriptor is left at some call, once or for a while: nothing is poisoned, and as soon as there are
/// some again everything goes on where it was, without a reopening.
pub(super) fn missing_descriptors(rng: &mut Rng, seed: u64) -> Checked {
    let world = SimWorld::new(seed);
    let open = || {
        let options = siltstone::Options { open_files_max: 1, ..small() };
        let scheduler = Arc::new(SimScheduler::for_world(&world));
        Builder::new().options(options).env(world.env()).scheduler(scheduler).open("/db")
    };
    let mode = |rng: &mut Rng| if rng.chance(50) { Mode::Once } else { Mode::Sticky };
    let mut db = open().map_err(failed("open"))?;
    // Of each key what it may have: what was acknowledged last, and what was refused since.
    let mut may_have: BTreeMap<Vec<u8>, Vec<Option<Vec<u8>>>> = BTreeMap::new();
    let typed = |what: &str, e: &Error| match e.kind() {
        ErrorKind::Poisoned | ErrorKind::Corruption => {
            Err(format!("{what} without a descriptor answers {e:?}"))
        }
        _ => Ok(()),
    };
    for _ in 0..rng.range(2..6) {
        let kind = *rng.pick(&TAKE_A_DESCRIPTOR);
        world.storage.fail_at(kind, rng.range(1..8), mode(rng), std::io::ErrorKind::Other);
        for _ in 0..rng.range(10..60) {
            let (key, value) = (rng.range(0..40).to_be_bytes().to_vec(), rng.bytes(3_000));
            let durability = if rng.one_in(8) { Durability::Sync } else { Durability::Buffered };
            let known = may_have.entry(key.clone()).or_insert_with(|| vec![None]);
            match db.default_family().put_with(&key, &value, durability) {
                Ok(_) => *known = vec![Some(value)],
                Err(e) => {
                    typed("a put", &e)?;
                    known.push(Some(value));
                }
            }
            let done = match rng.range(0..10) {
                0 => db.flush(),
                1 => db.default_family().compact::<&[u8]>(..),
                2 => db.get(&key).map(drop),
                3 => db.wait_idle(),
                _ => Ok(()),
            };
            done.or_else(|e| typed("a call", &e))?;
        }
        world.storage.clear_faults();
        // Failed flushes and compactions are taken up after a while.
        world.clock.advance_us(60_000_000);
        db.put(b"again", b"v").map_err(failed("a put with descriptors again"))?;
        may_have.insert(b"again".to_vec(), vec![Some(b"v".to_vec())]);
        db.flush().map_err(failed("a flush with descriptors again"))?;
        db.default_family().compact::<&[u8]>(..).map_err(failed("a compaction with descriptors again"))?;
        db.wait_idle().map_err(failed("settle with descriptors again"))?;
        has_all(&db, &mut may_have)?;
        if rng.chance(50) {
            db.close().map_err(failed("close"))?;
            world.storage.fail_at(
                *rng.pick(&TAKE_A_DESCRIPTOR),
                rng.range(1..5),
                mode(rng),
                std::io::ErrorKind::Other,
            );
            let opened = open();
            world.storage.clear_faults();
            db = match opened {
                Ok(db) => db,
                Err(e) => {
                    typed("open", &e)?;
                    open().map_err(failed("open with descriptors again"))?
                }
            };
            has_all(&db, &mut may_have)?;
        }
    }
    Ok(())
}

/// Each key has something that it may have, and has that from now on.
fn has_all(db: &Db, may_have: &mut BTreeMap<Vec<u8>, Vec<Option<Vec<u8>>>>) -> Checked {
    for (key, known) in may_have {
        let found = db.get(key).map_err(failed("get"))?.map(|value| value.to_vec());
        if !known.contains(&found) {
            return Err(format!("{} has what nobody wrote last", key.escape_ascii()));
        }
        *known = vec![found];
    }
    Ok(())
}
