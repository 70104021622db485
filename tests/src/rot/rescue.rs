//! Damages, a repair, and the demand that everything not reported lost is there and right.
//!
//! A key is *excused* when a reported loss covers it: by its range of keys, or because one of its writes lies
//! in a reported range of writes. An excused key may be absent or show an older value of its own, never a
//! value it never had. Where the list of SSTables had to be rebuilt, deleted keys may show an older value
//! (the report says so), but a key that has a value must have its newest; unless an SSTable was taken away of
//! which only the unreadable part of the manifest knew, or the WAL's newest frames were damaged, of which
//! only it knew that they were synced: what nothing can tell.

use super::fixture::{DIR, FAMILIES, Fixture, History, Size, Written, builder, env, fixture};
use super::{Damage, Damages, VIOLATIONS_KEPT};
use siltstone::storage::sim::Rng;
use siltstone::{KeyRange, Loss, RepairReport};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

/// The results of the rescues.
#[derive(Clone, Debug, Default)]
pub struct RescueReport {
    /// Damaged stores repaired.
    pub rescues: u64,
    /// Repairs that lost nothing.
    pub complete: u64,
    /// How many had to do without the list of SSTables.
    pub rebuilt: u64,
    /// Keys looked up after repairs.
    pub keys: u64,
    /// Keys looked up that a reported loss excuses.
    pub excused: u64,
    /// Violations, each with a command that replays it.
    pub violations: Vec<String>,
}

/// Repairs `rescues` copies of a fixture, each with one to three damages.
pub fn rescue(seed: u64, rescues: u64) -> RescueReport {
    let fixture = fixture(seed, Size::Large);
    let damages = Damages::new(&fixture, seed, 1);
    let tables = tables(&fixture, seed);
    let mut report = RescueReport::default();
    for i in 0..rescues {
        let mut rng = Rng::new(seed.wrapping_add(i.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        let disk = fixture.disk.clone_killed();
        let list: Vec<_> = (0..rng.range(1..4)).map(|_| damages.any(&mut rng)).collect();
        for damage in &list {
            damage.make(&disk, &fixture.earlier);
        }
        let done = catch_unwind(AssertUnwindSafe(|| one(&fixture, &tables, &disk, i, &list, &mut report)));
        let what = match done {
            Ok(Ok(())) => continue,
            Ok(Err(what)) => what,
            Err(_) => "panic".to_string(),
        };
        if report.violations.len() < VIOLATIONS_KEPT {
            report.violations.push(format!("{what} (rescue {i} of seed {seed}: {list:?})"));
        }
    }
    report
}

fn one(
    fixture: &Fixture,
    tables: &Tables,
    disk: &siltstone::storage::sim::SimStorage,
    i: u64,
    damages: &[Damage],
    report: &mut RescueReport,
) -> Result<(), String> {
    let env = env(disk, i);
    let repair =
        siltstone::repair(&env, Path::new(DIR), &mut |_| {}).map_err(|e| format!("repair fails: {e:?}"))?;
    report.rescues += 1;
    report.complete += u64::from(repair.is_complete());
    report.rebuilt += u64::from(repair.rebuilt);
    let check =
        siltstone::check(&env, Path::new(DIR), &mut |_| {}).map_err(|e| format!("check fails: {e:?}"))?;
    if !check.is_clean() {
        return Err(format!("after the repair a check finds {:?}", check.damages));
    }
    let unmissed: Vec<&(usize, KeyRange)> = match repair.rebuilt {
        true => damages.iter().filter_map(|damage| unmissed(tables, damage, &repair)).collect(),
        false => Vec::new(),
    };
    let db = builder(disk, i).open(DIR).map_err(|e| format!("after the repair opening fails: {e:?}"))?;
    // Only the manifest knew how far the WAL was synced.
    let is_log = |damage: &Damage| damage.file().extension().is_some_and(|extension| extension == "log");
    let end = match repair.rebuilt && damages.iter().any(is_log) {
        true => db.snapshot().seq().0,
        false => u64::MAX,
    };
    for (family, history) in fixture.families.iter().enumerate() {
        let name = FAMILIES[family];
        let Ok(handle) = db.family(name) else {
            // Only where nothing that names the family was left, which losses of all its keys tell.
            if repair.rebuilt && repair.lost.iter().any(|loss| loss.keys.is_some()) {
                continue;
            }
            return Err(format!("family {name} is gone"));
        };
        for (key, writes) in history {
            let found = handle.get(key).map_err(|e| format!("get after the repair: {e:?}"))?;
            report.keys += 1;
            let excused = is_excused(&repair, name, key, writes)
                || unmissed.iter().any(|(of, keys)| *of == family && keys.contains(key))
                || writes.last().is_some_and(|write| write.seq > end);
            report.excused += u64::from(excused);
            judge(writes, found.as_deref(), excused, repair.rebuilt).map_err(|what| {
                let lost: Vec<&String> = repair.lost.iter().map(|loss| &loss.message).collect();
                format!("{name} {}: {what}; lost {lost:?}", key.escape_ascii())
            })?;
        }
        scans_agree(&handle, history)?;
    }
    let family = db.default_family();
    family.put(b"after", b"repair").map_err(|e| format!("a write after the repair: {e:?}"))?;
    db.close().map_err(|e| format!("closing after the repair: {e:?}"))
}

/// Family and keys of each SSTable.
type Tables = BTreeMap<PathBuf, (usize, KeyRange)>;

fn tables(fixture: &Fixture, seed: u64) -> Tables {
    let disk = fixture.disk.clone_killed();
    let db = builder(&disk, seed).open_read_only(DIR).expect("the fixture opens");
    let mut tables = Tables::new();
    for (family, name) in FAMILIES.iter().enumerate() {
        for (_, _, info) in db.family(name).expect("a family").shape().tables() {
            tables.insert(Path::new(DIR).join(info.id.file_name()), (family, info.live_range()));
        }
    }
    tables
}

/// The contents of an SSTable that is gone and that nothing names.
fn unmissed<'t>(tables: &'t Tables, damage: &Damage, repair: &RepairReport) -> Option<&'t (usize, KeyRange)> {
    let Damage::Missing { file } = damage else { return None };
    let name = file.file_name()?.to_string_lossy();
    tables.get(file).filter(|_| !repair.lost.iter().any(|loss| loss.file == name))
}

fn is_excused(repair: &RepairReport, family: &str, key: &[u8], writes: &[Written]) -> bool {
    let covers = |loss: &Loss| {
        let this = loss.family.as_deref().is_none_or(|name| name == family);
        let keys = loss.keys.as_ref().is_some_and(|keys| keys.contains(key));
        let seqs =
            loss.seqs.is_some_and(|(first, last)| writes.iter().any(|w| first.0 <= w.seq && w.seq <= last.0));
        this && (keys || seqs)
    };
    repair.lost.iter().any(covers)
}

fn judge(writes: &[Written], found: Option<&[u8]>, excused: bool, rebuilt: bool) -> Result<(), String> {
    let newest = writes.last().and_then(|write| write.value.as_deref());
    if found == newest {
        return Ok(());
    }
    let own = found.is_none_or(|found| writes.iter().any(|write| write.value.as_deref() == Some(found)));
    let allowed = excused || (rebuilt && newest.is_none());
    match (own, allowed) {
        (true, true) => Ok(()),
        (false, _) => Err("shows a value it never had".to_string()),
        (true, false) => Err(format!(
            "shows {:?} instead of its newest write",
            found.map(|f| f.escape_ascii().to_string())
        )),
    }
}

/// Scans must say what gets say.
fn scans_agree(family: &siltstone::Family, history: &History) -> Result<(), String> {
    let mut rows = Vec::new();
    for entry in family.scan::<&[u8]>(..) {
        let entry = entry.map_err(|e| format!("scan after the repair: {e:?}"))?;
        let got = family.get(&entry.key).map_err(|e| format!("get after the repair: {e:?}"))?;
        if got.as_deref() != Some(&entry.value[..]) || !history.contains_key(&entry.key) {
            return Err(format!("a scan shows {}, a get does not", entry.key.escape_ascii()));
        }
        rows.push(entry.key);
    }
    for entry in family.scan::<&[u8]>(..).rev() {
        let entry = entry.map_err(|e| format!("scan backwards after the repair: {e:?}"))?;
        if rows.pop().as_ref() != Some(&entry.key) {
            return Err(format!("a scan backwards shows {} out of turn", entry.key.escape_ascii()));
        }
    }
    match rows.pop() {
        None => Ok(()),
        Some(key) => Err(format!("a scan backwards ends before {}", key.escape_ascii())),
    }
}
