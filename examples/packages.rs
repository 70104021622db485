//! Siltstone in half a minute, on real data: `cargo run --release --example packages` at the repository root.
//!
//! Loads the machine's Debian package index, reads it back in two ways, kills a second process in the middle
//! of its load and shows that nothing that was promised is lost, and ends with the shape of what is on disk.
//!
//! ```text
//! packages [DIR]            use this directory (empty or missing) and not a fresh temporary one
//! packages --export FILE    only write the rows to FILE, for `siltstone load`
//! ```
#![allow(clippy::disallowed_methods, reason = "an application, not the engine: it may look at the clock")]

#[path = "packages/rows.rs"]
mod rows;

use rows::Index;
use siltstone::{Batch, Builder, Db, Durability, Family, FamilyOptions, size_text};
use std::error::Error;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

type Done = Result<(), Box<dyn Error>>;

/// How often the second process waits until its rows are safe from a power loss.
const SYNC_EVERY: usize = 100;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("packages: {e}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Done {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--load-until-killed", dir] => load_until_killed(Path::new(dir)),
        ["--export", file] => {
            let mut out = BufWriter::new(std::fs::File::create(file)?);
            rows::export(&rows::index().rows, &mut out)?;
            Ok(out.flush()?)
        }
        [] => tour(&tempfile::Builder::new().prefix("siltstone-packages-").tempdir()?.keep()),
        [dir] if !dir.starts_with('-') => {
            if std::fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_some()) {
                return Err(format!("{dir} is not empty").into());
            }
            tour(Path::new(dir))
        }
        _ => Err("usage: packages [DIR] | packages --export FILE".into()),
    }
}

fn tour(dir: &Path) -> Done {
    let index = rows::index();
    let bytes: usize = index.rows.iter().map(|(key, value)| key.len() + value.len()).sum();
    let (packages, rows) = (grouped(index.packages), grouped(index.rows.len()));
    println!("{}: {packages} packages, {rows} rows, {}", index.source, size_text(bytes as u64));

    let path = dir.join("db");
    let db = open(&path)?;
    let family = db.family("packages")?;
    load(&db, &family, &index, bytes)?;
    read(&family, &index)?;
    crash(&dir.join("crashed"), &index)?;
    shape(&db, &family)?;
    db.close()?;

    heading("look around");
    println!("cargo run --release --bin siltstone -- inspect {} --events", path.display());
    println!(
        "cargo run --release --bin siltstone -- scan {} --family packages --prefix bash",
        path.display()
    );
    println!("rm -r {}", dir.display());
    Ok(())
}

fn open(path: &Path) -> siltstone::Result<Db> {
    Builder::new().family("packages", FamilyOptions::default()).open(path)
}

/// One atomic batch a package.
fn load(db: &Db, family: &Family, index: &Index, bytes: usize) -> Done {
    heading(&format!("load into {}", db.path().display()));
    let begun = Instant::now();
    let mut batch = Batch::new();
    for package in index.rows.chunk_by(|(a, _), (b, _)| package_of(a) == package_of(b)) {
        batch.clear();
        for (key, value) in package {
            batch.put(family, key.as_bytes(), value.as_bytes());
        }
        db.write(&batch)?;
    }
    let buffered = begun.elapsed();
    db.sync()?;
    let (rate, speed) = (per_second(index.rows.len(), buffered), per_second(bytes, buffered) as u64);
    println!(
        "{} rows in {}: {} rows/s, {}/s; then synced in {}",
        grouped(index.rows.len()),
        time(buffered),
        grouped(rate),
        size_text(speed),
        time(begun.elapsed() - buffered)
    );
    Ok(())
}

fn read(family: &Family, index: &Index) -> Done {
    let package = well_known(index);
    let key = format!("{package}/Version");
    heading(&format!("get {key}"));
    let begun = Instant::now();
    let value = family.get(key.as_bytes())?.ok_or("the row is missing")?;
    let elapsed = begun.elapsed();
    println!("{}   ({})", value.escape_ascii(), time(elapsed));

    heading(&format!("scan the prefix {package}/"));
    let begun = Instant::now();
    let entries =
        family.scan_prefix(format!("{package}/").as_bytes()).collect::<siltstone::Result<Vec<_>>>()?;
    let elapsed = begun.elapsed();
    for entry in &entries {
        println!("{:<28} {}", String::from_utf8_lossy(&entry.key), shortened(&entry.value));
    }
    println!("{} rows in {}", entries.len(), time(elapsed));

    let begun = Instant::now();
    let all = family.scan::<&str>(..).try_fold(0usize, |n, entry| entry.map(|_| n + 1))?;
    println!("and a scan of everything: {} rows in {}", grouped(all), time(begun.elapsed()));
    if all != index.rows.len() {
        return Err(format!("expected {} rows", index.rows.len()).into());
    }
    Ok(())
}

/// Another process loads the same rows one by one and is killed without warning. What it reported as safe
/// must be there, nothing may be torn, and what is there is the beginning of the load without a gap.
fn crash(path: &Path, index: &Index) -> Done {
    heading("a crash in mid-load");
    println!("a second process loads the same rows with a sync every {SYNC_EVERY}, and reports each sync");
    let begun = Instant::now();
    let mut child = Command::new(std::env::current_exe()?)
        .args([Path::new("--load-until-killed"), path])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let reports = BufReader::new(child.stdout.take().ok_or("the child has no stdout")?);
    let enough = index.rows.len() / 4;
    let mut acknowledged = 0;
    let mut first_report = None;
    let mut killed = false;
    // Reads on after the kill: reports that were already in the pipe were promises, too.
    for line in reports.lines() {
        acknowledged = line?.parse::<usize>()?;
        let first_report = first_report.get_or_insert_with(Instant::now);
        if !killed && (acknowledged >= enough || first_report.elapsed() > Duration::from_secs(4)) {
            child.kill()?;
            killed = true;
        }
    }
    let status = child.wait()?;
    if !killed {
        return Err(format!("the second process ended by itself: {status}").into());
    }
    println!(
        "killed after {}: {status}; {} rows were acknowledged",
        time(begun.elapsed()),
        grouped(acknowledged)
    );

    let begun = Instant::now();
    let db = open(path)?;
    let family = db.family("packages")?;
    println!("reopened in {}", time(begun.elapsed()));
    let mut found = 0;
    let mut gap = None;
    for (i, (key, value)) in index.rows.iter().enumerate() {
        match family.get(key.as_bytes())? {
            Some(stored) if stored != value.as_bytes() => return Err(format!("{key} is torn").into()),
            Some(_) if gap.is_some() => {
                return Err(format!("{key} is there, but an earlier row is not").into());
            }
            Some(_) => found += 1,
            None => gap = gap.or(Some(i)),
        }
    }
    let scanned = family.scan::<&str>(..).try_fold(0usize, |n, entry| entry.map(|_| n + 1))?;
    if found < acknowledged || scanned != found {
        return Err(
            format!("{found} rows found by get, {scanned} by scan, {acknowledged} acknowledged").into()
        );
    }
    println!(
        "found the first {} rows of the load, whole and without a gap: all {} acknowledged, and {} more",
        grouped(found),
        grouped(acknowledged),
        grouped(found - acknowledged)
    );
    Ok(db.close()?)
}

/// The second process: says after each sync how many rows are safe.
fn load_until_killed(path: &Path) -> Done {
    let index = rows::index();
    let db = open(path)?;
    let family = db.family("packages")?;
    let mut out = std::io::stdout().lock();
    for (i, (key, value)) in index.rows.iter().enumerate() {
        let sync = (i + 1) % SYNC_EVERY == 0;
        let durability = if sync { Durability::Sync } else { Durability::Buffered };
        family.put_with(key.as_bytes(), value.as_bytes(), durability)?;
        if sync {
            writeln!(out, "{}", i + 1)?;
            out.flush()?;
        }
    }
    // All loaded before the parent could strike: hold still until it does, or is gone itself.
    let mut held_open_by_parent = String::new();
    std::io::stdin().read_line(&mut held_open_by_parent)?;
    Ok(())
}

fn shape(db: &Db, family: &Family) -> Done {
    heading("flush, and merge until the strategy is satisfied");
    let begun = Instant::now();
    db.flush()?;
    let flushed = begun.elapsed();
    db.wait_idle()?;
    println!("flushed in {}, settled in {}", time(flushed), time(begun.elapsed() - flushed));
    let shape = family.shape();
    for (level, l) in shape.levels.iter().enumerate().filter(|(_, l)| !l.runs.is_empty()) {
        println!("L{level}: {}", size_text(l.live_bytes()));
        for run in &l.runs {
            for t in run.tables() {
                let (cells, first) = (grouped(t.cells as usize), String::from_utf8_lossy(&t.range.start));
                println!("  {}  {:>9}  {cells:>9} cells from {first}", t.id, size_text(t.bytes));
            }
        }
    }
    let s = db.statistics();
    let (flushed, compacted) = (size_text(s.flushed_bytes), size_text(s.compaction_written_bytes));
    println!(
        "flushes: {}, {flushed} written; compactions: {}, {compacted} written; trivial moves: {}",
        s.flushes, s.compactions, s.trivial_moves
    );
    println!(
        "write amplification {:.2}; {} of user data lie in {} of SSTables",
        s.write_amplification(),
        size_text(s.user_bytes),
        size_text(s.sstable_bytes)
    );
    println!(
        "writers were delayed {} times ({}), stopped {} times",
        s.write_delays,
        time(Duration::from_nanos(s.write_delay_ns)),
        s.write_stops
    );
    Ok(())
}

/// A package that every reader knows, if there is one.
fn well_known(index: &Index) -> &str {
    let mut packages = index.rows.iter().map(|(key, _)| package_of(key));
    packages.find(|package| *package == "bash").unwrap_or_else(|| package_of(&index.rows[0].0))
}

fn package_of(key: &str) -> &str {
    key.split('/').next().unwrap_or(key)
}

fn heading(text: &str) {
    println!("\n== {text}");
}

fn shortened(value: &[u8]) -> String {
    let text = String::from_utf8_lossy(value).replace('\n', " ");
    match text.char_indices().nth(72) {
        Some((at, _)) => format!("{}...", &text[..at]),
        None => text,
    }
}

fn per_second(n: usize, time: Duration) -> usize {
    (n as f64 / time.as_secs_f64().max(1e-9)) as usize
}

fn time(time: Duration) -> String {
    format!("{time:.1?}")
}

fn grouped(n: usize) -> String {
    let digits = n.to_string();
    let groups = digits.as_bytes().rchunks(3).rev().map(|group| String::from_utf8_lossy(group).into_owned());
    groups.collect::<Vec<_>>().join(",")
}
