//! The cost of an operation with ten times as many families, versions, snapshots, range deletes or tables:
//! CPU an operation at n and at 10 n, and their ratio. On Siltstone alone, and with no figures but these: a
//! cost that grows with what there is shows as a ratio, on a busy machine too.

use crate::failure::Result;
use crate::measure::Usage;
use serde::Serialize;
use siltstone::{
    Batch, Condition, Db, Durability, Expected, Family, FamilyOptions, Options, Timestamp, Timestamps,
};
use std::path::Path;

/// A measured cost.
#[derive(Debug, Serialize)]
pub(crate) struct Cost {
    workload: &'static str,
    what: String,
    /// How many there are of what the cost may grow with.
    n: u64,
    cpu_us: f64,
    /// To the line before, where there is one to compare with.
    ratio: Option<f64>,
}

/// The workloads, by name, and what each is for people.
pub(crate) const CLIFFS: &[(&str, &str)] = &[
    ("families", "puts over 1, 1,000 and 10,000 families, and what an install costs among them"),
    (
        "trim",
        "range deletes, nested and apart, alternating with gets, and a trimmed queue, at 10,000 and 100,000",
    ),
    ("versions", "versions of one key in any order, and a get of the newest, at 100,000 and 1,000,000"),
    ("snapshots", "a plan with 40,000 and 400,000 snapshots held; transactions of 10,000 and 100,000 keys"),
    ("tables", "gets and installs among 2,000 and 20,000 tables"),
];

pub(crate) fn is_cliff(name: &str) -> bool {
    CLIFFS.iter().any(|(known, _)| *known == name)
}

/// Runs one of them in a directory of its own below `base`. `scale` is for tests: 1 for the sizes above.
pub(crate) fn run(name: &str, base: &Path, scale: f64) -> Result<Vec<Cost>> {
    let sized = |n: u64| ((n as f64 * scale) as u64).max(1);
    let mut costs = match name {
        "families" => families(base, sized)?,
        "trim" => trim(base, sized)?,
        "versions" => versions(base, sized)?,
        "snapshots" => snapshots(base, sized)?,
        "tables" => tables(base, sized)?,
        _ => return Err(format!("there is no workload {name}").into()),
    };
    for at in 1..costs.len() {
        if costs[at].what == costs[at - 1].what {
            costs[at].ratio = Some(costs[at].cpu_us / costs[at - 1].cpu_us.max(1e-9));
        }
    }
    Ok(costs)
}

/// For people.
pub(crate) fn table(costs: &[Cost]) -> String {
    let mut text = format!("{:<10}{:<52}{:>10}{:>12}{:>8}\n", "", "", "n", "CPU us/op", "ratio");
    for Cost { workload, what, n, cpu_us, ratio } in costs {
        let ratio = ratio.map_or(String::new(), |ratio| format!("{ratio:.2}"));
        text.push_str(&format!("{workload:<10}{what:<52}{n:>10}{cpu_us:>12.3}{ratio:>8}\n"));
    }
    text
}

/// A fresh database in a directory that goes when this does.
fn fresh(base: &Path, options: Options) -> Result<(tempfile::TempDir, Db)> {
    let dir = tempfile::Builder::new().prefix("siltstone-cliff-").tempdir_in(base)?;
    let db = Db::builder().options(options).open(dir.path().join("db"))?;
    Ok((dir, db))
}

/// A fresh database with so many families.
fn with_families(base: &Path, count: u64) -> Result<(tempfile::TempDir, Db, Vec<Family>)> {
    let (dir, db) = fresh(base, Options::default())?;
    let families = (0..count)
        .map(|i| db.create_family(&format!("f{i}"), FamilyOptions::default()))
        .collect::<siltstone::Result<Vec<Family>>>()?;
    db.wait_idle()?;
    Ok((dir, db, families))
}

/// CPU of all threads for each of `ops` operations.
fn timed(ops: u64, run: impl FnOnce() -> Result<()>) -> Result<f64> {
    let before = Usage::now();
    run()?;
    Ok(Usage::now().since(&before).cpu.as_secs_f64() * 1e6 / ops.max(1) as f64)
}

fn cost(workload: &'static str, what: impl Into<String>, n: u64, cpu_us: f64) -> Cost {
    Cost { workload, what: what.into(), n, cpu_us, ratio: None }
}

fn families(base: &Path, sized: impl Fn(u64) -> u64) -> Result<Vec<Cost>> {
    let mut costs = Vec::new();
    // Cells in memory, and (with more cells a family) memory that must be flushed.
    for (what, puts, counts) in [("a put", 200_000, [1, 10_000]), ("a put, flushed", 500_000, [1, 1_000])] {
        for count in counts {
            let (count, puts) = (if count == 1 { 1 } else { sized(count) }, sized(puts));
            let (_dir, _db, families) = with_families(base, count)?;
            let cpu = timed(puts, || {
                for i in 0..puts {
                    families[(i % count) as usize].put(i.to_be_bytes(), [7; 100])?;
                }
                Ok(())
            })?;
            costs.push(cost("families", what, count, cpu));
        }
    }
    for count in [1, 10_000] {
        let count = if count == 1 { 1 } else { sized(count) };
        let (_dir, db, families) = with_families(base, count)?;
        // Two tables a family.
        for round in 0..2u64 {
            for family in &families {
                family.put(round.to_be_bytes(), b"v")?;
            }
            for family in &families {
                family.flush()?;
            }
        }
        db.wait_idle()?;
        let flushes = 200;
        let cpu = timed(flushes, || {
            for i in 0..flushes {
                let family = &families[(i % count) as usize];
                family.put(i.to_be_bytes(), b"v")?;
                family.flush()?;
            }
            Ok(())
        })?;
        costs.push(cost("families", "a flush and its install", count, cpu));
    }
    Ok(costs)
}

fn trim(base: &Path, sized: impl Fn(u64) -> u64) -> Result<Vec<Cost>> {
    let mut costs = Vec::new();
    for (how, nested) in [("nested", true), ("apart", false)] {
        for count in [10_000, 100_000] {
            let (_dir, db) = fresh(base, Options::default())?;
            let family = db.default_family();
            let count = sized(count);
            let range = |i: u64| match nested {
                true => (i.to_be_bytes(), (1_000_000_000 - i).to_be_bytes()),
                false => ((10 * i).to_be_bytes(), (10 * i + 5).to_be_bytes()),
            };
            let last = (count / 10).max(1);
            let step = |i: u64| -> Result<()> {
                let (from, to) = range(i);
                family.delete_range(&from[..]..&to[..])?;
                family.get((10 * i).to_be_bytes())?;
                Ok(())
            };
            (0..count - last).try_for_each(step)?;
            // The last tenth: where a cost that grows is largest.
            let cpu = timed(last, || (count - last..count).try_for_each(step))?;
            costs.push(cost("trim", format!("a range delete and a get, {how}"), count, cpu));
            let gets = || {
                (count - last..count).try_for_each(|i| family.get((10 * i).to_be_bytes()).map(drop))?;
                Ok(())
            };
            costs.push(cost("trim", format!("a get among them, {how}"), count, timed(last, gets)?));
        }
    }
    for count in [10_000, 100_000] {
        let (_dir, db) = fresh(base, Options::default())?;
        let family = db.default_family();
        let count = sized(count);
        let (last, ahead) = ((count / 10).max(1), 100);
        (0..ahead).try_for_each(|i: u64| family.put(i.to_be_bytes(), b"message").map(drop))?;
        let step = |i: u64| -> Result<()> {
            family.put((i + ahead).to_be_bytes(), b"message")?;
            let first = family.scan::<&[u8]>(..).next().ok_or("the queue is empty")??.key;
            if first != i.to_be_bytes() {
                return Err("the front of the queue is not where it should be".into());
            }
            Ok(family.delete_range(..=first).map(drop)?)
        };
        (0..count - last).try_for_each(step)?;
        let cpu = timed(last, || (count - last..count).try_for_each(step))?;
        costs.push(cost("trim", "a message of a queue: put, read first, trim", count, cpu));
    }
    // The lines compared under each other.
    costs.sort_by(|a, b| a.what.cmp(&b.what).then(a.n.cmp(&b.n)));
    Ok(costs)
}

fn versions(base: &Path, sized: impl Fn(u64) -> u64) -> Result<Vec<Cost>> {
    let mut costs = Vec::new();
    let options =
        || FamilyOptions { timestamps: Timestamps::Explicit, versions: 0, ..FamilyOptions::default() };
    for order in ["ascending", "descending", "shuffled"] {
        for count in [100_000, 1_000_000] {
            let (_dir, db) = fresh(base, Options { write_memory: 256 << 20, ..big() })?;
            let family = db.create_family("v", options())?;
            let count = sized(count);
            // A stride that is prime to the count goes through all of them.
            let stride = (count / 2..).map(|n| n * 2 + 1).find(|n| gcd(*n, count) == 1).unwrap_or(1);
            let timestamp = |i: u64| match order {
                "ascending" => i,
                "descending" => count - i,
                _ => i * stride % count,
            };
            let cpu = timed(count, || {
                for i in 0..count {
                    family.put_at(b"key", Timestamp(timestamp(i) + 1), b"v")?;
                }
                Ok(())
            })?;
            costs.push(cost("versions", format!("a put: {order}"), count, cpu));
            let gets = 10_000;
            let cpu = timed(gets, || {
                for _ in 0..gets {
                    family.get(b"key")?;
                }
                Ok(())
            })?;
            costs.push(cost("versions", format!("a get of the newest: {order}"), count, cpu));
        }
    }
    // By what is done, so that the lines compared stand under each other.
    costs.sort_by(|a, b| a.what.cmp(&b.what).then(a.n.cmp(&b.n)));
    Ok(costs)
}

fn big() -> Options {
    Options { memory_budget: 1 << 30, ..Options::default() }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

fn snapshots(base: &Path, sized: impl Fn(u64) -> u64) -> Result<Vec<Cost>> {
    let mut costs = Vec::new();
    for count in [40_000, 400_000] {
        let (_dir, db) = fresh(base, Options::default())?;
        let count = sized(count);
        let mut held = Vec::new();
        for i in 0..count {
            db.put(i.to_be_bytes(), b"v")?;
            held.push(db.snapshot());
        }
        db.flush()?;
        db.wait_idle()?;
        let family = db.create_family("other", FamilyOptions::default())?;
        let flushes = 50;
        let cpu = timed(flushes, || {
            for i in 0..flushes {
                family.put(i.to_be_bytes(), b"v")?;
                family.flush()?;
            }
            Ok(())
        })?;
        costs.push(cost("snapshots", "a flush of another family beside snapshots held", count, cpu));
    }
    for count in [10_000, 100_000] {
        let (_dir, db) = fresh(base, Options::default())?;
        let family = db.default_family();
        let count = sized(count);
        let cpu = timed(count, || {
            let mut transaction = db.begin();
            for i in 0..count {
                transaction.get(&family, i.to_be_bytes())?;
                transaction.put(&family, i.to_be_bytes(), b"v");
            }
            transaction.commit(Durability::Buffered)?;
            Ok(())
        })?;
        costs.push(cost("snapshots", "a get and a put in a transaction", count, cpu));
    }
    for count in [10_000, 100_000] {
        let (_dir, db) = fresh(base, Options::default())?;
        let family = db.default_family();
        let count = sized(count);
        let cpu = timed(count, || {
            for i in 0..count {
                let absent = [Condition::new(&family, i.to_be_bytes(), Expected::Absent)];
                let mut batch = Batch::new();
                batch.put(&family, i.to_be_bytes(), b"v");
                db.write_if(&absent, &batch, Durability::Buffered)?;
            }
            Ok(())
        })?;
        costs.push(cost("snapshots", "a conditional put", count, cpu));
    }
    Ok(costs)
}

fn tables(base: &Path, sized: impl Fn(u64) -> u64) -> Result<Vec<Cost>> {
    let mut costs = Vec::new();
    for count in [2_000, 20_000] {
        let (_dir, db) = fresh(base, Options { workers: 1, ..Options::default() })?;
        let count = sized(count);
        let strategy = "nomerge".parse::<siltstone::strategy::StrategyOptions>()?;
        let options = FamilyOptions { strategy, ..FamilyOptions::default() };
        // A hundred families, so that no read looks into all tables.
        let families = (0..100)
            .map(|i| db.create_family(&format!("f{i}"), FamilyOptions::clone(&options)))
            .collect::<siltstone::Result<Vec<Family>>>()?;
        for i in 0..count {
            let family = &families[(i % 100) as usize];
            family.put(i.to_be_bytes(), b"v")?;
            family.flush()?;
        }
        db.wait_idle()?;
        let gets = 10_000;
        let cpu = timed(gets, || {
            for i in 0..gets {
                // Of the newest hundred tables, so that the runs that a read passes are as many for each
                // count.
                let i = count - 1 - i % 100.min(count);
                families[(i % 100) as usize].get(i.to_be_bytes())?;
            }
            Ok(())
        })?;
        costs.push(cost("tables", "a get", count, cpu));
        let flushes = 100;
        let cpu = timed(flushes, || {
            for i in 0..flushes {
                let family = &families[i as usize % 100];
                family.put(i.to_be_bytes(), b"v")?;
                family.flush()?;
            }
            Ok(())
        })?;
        costs.push(cost("tables", "a flush and its install", count, cpu));
    }
    costs.sort_by(|a, b| a.what.cmp(&b.what).then(a.n.cmp(&b.n)));
    Ok(costs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cliff_runs_and_compares_what_stands_under_each_other() {
        let dir = tempfile::tempdir().unwrap();
        for (name, _) in CLIFFS {
            let costs = run(name, dir.path(), 0.002).unwrap();
            assert!(costs.iter().all(|cost| cost.cpu_us >= 0.0 && cost.workload == *name), "{costs:?}");
            assert!(costs.iter().any(|cost| cost.ratio.is_some()), "{costs:?}");
            assert!(table(&costs).lines().count() == costs.len() + 1);
        }
        assert!(run("cliff", dir.path(), 1.0).is_err());
    }
}
