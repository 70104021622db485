//! Other people's files, on the real file system: directories full of them, with names like ours, links,
//! FIFOs and sparse giants. Whatever is done there, or to a database that lies among them, succeeds without
//! touching one of them or is refused with an error that names the place; a refusal leaves nothing behind.
//! Each database has what it acknowledged.
//!
//! `files` makes and compares such files; `replaced` puts another directory in the place of one that is open.

mod files;
mod replaced;

use crate::campaign::{CaseResult, Checked, Row, Together, failed};
use files::{Inventory, added, inventory, litter, untouched};
use siltstone::storage::Env;
use siltstone::storage::sim::Rng;
use siltstone::{
    Backups, Builder, Db, Family, FamilyOptions, Options, SstableWriter, check, destroy, repair,
};
use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// The operations among other people's files.
pub const STRANGERS: Row = Row {
    together: Some(Together { least: 200, check: together }),
    ..Row::new("strangers", "operations among other people's files", 2_000, case)
};

/// The database that is copied from has so many rows, and each step writes some more.
const ROWS: u32 = 200;
/// An operation that takes longer hangs.
const HANGS: Duration = Duration::from_secs(30);
/// The name of the directory with other people's files, which a refusal has to name.
const THEIRS: &str = "theirs";
const MOVING: &str = "moving";

/// An operation with the directory of other people's files for its place.
type Operation = fn(&Work, &Path) -> siltstone::Result<()>;

/// The operations on a database among them, and on places beside it.
type Step = fn(&Path, &Path) -> siltstone::Result<()>;

/// The operations, by name.
const OPERATIONS: &[(&str, Operation)] = &[
    ("open", |_, dir| write_to(builder().open(dir)?)),
    ("open-read-only", |_, dir| builder().open_read_only(dir).map(drop)),
    ("open-with-tables", |work, dir| {
        let options = Options { sstable_store: Some(dir.to_path_buf()), ..options() };
        write_to(Builder::new().options(options).open(work.fresh("with-tables"))?)
    }),
    ("check", |_, dir| check(&Env::local(), dir, &mut |_| {}).map(drop)),
    ("repair", |_, dir| repair(&Env::local(), dir, &mut |_| {}).map(drop)),
    ("destroy", |_, dir| destroy(&Env::local(), dir)),
    ("backup", |work, dir| work.home.backup(dir).map(drop)),
    ("backups", |_, dir| {
        let backups = Backups::new(&Env::local(), dir);
        backups.list()?;
        backups.keep_last(1)?;
        backups.delete(1)
    }),
    ("restore", |work, dir| {
        Backups::new(&Env::local(), &work.backups).restore(None, dir, &mut |_| {}).map(drop)
    }),
    ("checkpoint", |work, dir| work.home.checkpoint(dir).map(drop)),
    ("detach", |work, dir| work.detach(dir)),
    ("attach", |work, dir| work.attach(dir)),
    ("ingest", |work, dir| work.ingest_all(dir)),
    ("table", |work, dir| work.ingest_new(&dir.join("of-ours"))),
];

/// How often each operation was done in this process: directories that are replaced stand behind them.
static DONE: [AtomicU64; OPERATIONS.len() + 1] = [const { AtomicU64::new(0) }; OPERATIONS.len() + 1];

/// Each operation is done a third as often as it would be by turns.
fn together(count: u64) -> Result<String, String> {
    let names = OPERATIONS.iter().map(|(name, _)| *name).chain(["replace"]);
    let done = names.zip(&DONE).map(|(name, done)| (done.load(Ordering::Relaxed), name));
    let (least, name) = done.min().expect("there are some");
    let fewest = count / DONE.len() as u64 / 3;
    let told = format!("of the operations {name} was rarest, {least} times");
    if least >= fewest { Ok(told) } else { Err(format!("{told}, fewer than {fewest}")) }
}

fn options() -> Options {
    Options { write_memory: 64 << 10, memory_budget: 1 << 20, ..Options::default() }
}

fn builder() -> Builder {
    Builder::new().options(options())
}

/// Writes to a database that was made, until it has SSTables, and closes it.
fn write_to(db: Db) -> siltstone::Result<()> {
    for key in 0..ROWS {
        db.put(key.to_be_bytes(), [7; 500])?;
    }
    db.flush()?;
    db.close()
}

/// The state that operations work with.
struct Work {
    /// A sound database in a directory of its own, and its backups.
    home: Db,
    backups: PathBuf,
    /// For what is only needed once.
    place: PathBuf,
    /// How many rows were acknowledged.
    rows: u32,
}

impl Work {
    fn new(place: &Path) -> siltstone::Result<Self> {
        let home = builder().open(place.join("home"))?;
        let mut work = Self { home, backups: place.join("backups"), place: place.to_path_buf(), rows: 0 };
        work.write(ROWS)?;
        work.home.backup(&work.backups)?;
        Ok(work)
    }

    fn write(&mut self, rows: u32) -> siltstone::Result<()> {
        for key in self.rows..self.rows + rows {
            self.home.put(key.to_be_bytes(), [7; 500])?;
        }
        self.rows += rows;
        Ok(())
    }

    /// A directory that is not there yet.
    fn fresh(&self, name: &str) -> PathBuf {
        let free = |n: &u32| !self.place.join(format!("{name}-{n}")).exists();
        self.place.join(format!("{name}-{}", (0..).find(free).unwrap_or(0)))
    }

    /// The family that is detached.
    fn moving(&self) -> siltstone::Result<Family> {
        match self.home.family(MOVING) {
            Ok(family) => Ok(family),
            Err(_) => self.home.create_family(MOVING, FamilyOptions::default()),
        }
    }

    fn detach(&self, dir: &Path) -> siltstone::Result<()> {
        self.moving()?.put(b"river", b"silt")?;
        self.home.detach(MOVING, dir)?;
        let family = self.home.attach(MOVING, dir)?;
        assert!(family.get(b"river")?.is_some(), "a family that moved is empty");
        Ok(())
    }

    /// Under a name that is free.
    fn attach(&self, dir: &Path) -> siltstone::Result<()> {
        let name = format!("attached-{}", self.home.families().len());
        self.home.attach(&name, dir).map(drop)
    }

    /// Each file there, one after the other; the first refusal.
    fn ingest_all(&self, dir: &Path) -> siltstone::Result<()> {
        let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
        let family = self.home.default_family();
        let results: Vec<_> = entries.map(|entry| family.ingest(&[entry.path()])).collect();
        results.into_iter().try_for_each(|result| result.map(drop))
    }

    /// An SSTable that is written there, and ingested.
    fn ingest_new(&self, path: &Path) -> siltstone::Result<()> {
        let mut table = SstableWriter::create(path, &FamilyOptions::default())?;
        table.put(b"z", b"ingested")?;
        table.finish()?;
        self.home.default_family().ingest(&[path]).map(drop)
    }
}

/// Runs something that may hang on a thread of its own. A panic there is an error, too.
fn within<T: Send>(what: &str, work: impl FnOnce() -> T + Send) -> Checked<T> {
    std::thread::scope(|scope| {
        let (tell, told) = channel();
        let thread = scope.spawn(move || drop(tell.send(work())));
        match told.recv_timeout(HANGS) {
            Ok(answer) => Ok(answer),
            Err(RecvTimeoutError::Timeout) => {
                // Its thread cannot be ended.
                eprintln!(
                    "{what} hangs; replay: siltstone-torture strangers --seed {} --count 1",
                    CASE.get()
                );
                std::process::exit(1);
            }
            Err(RecvTimeoutError::Disconnected) => {
                let panic = thread.join().err().and_then(|panic| panic.downcast::<String>().ok());
                Err(format!("{what} panics: {}", panic.unwrap_or_default()))
            }
        }
    })
}

thread_local! {
    /// The seed of this thread's case.
    static CASE: Cell<u64> = const { Cell::new(0) };
}

fn case(seed: u64) -> CaseResult {
    CASE.set(seed);
    let mut rng = Rng::new(seed);
    match rng.range(0..DONE.len() as u64) {
        0 => {
            replaced::case(&mut rng)?;
            DONE[OPERATIONS.len()].fetch_add(1, Ordering::Relaxed);
            Ok(1)
        }
        1..4 => among(&mut rng).map_err(|e| format!("a database among other people's files: {e}")),
        _ => inside(&mut rng),
    }
}

/// Directories for a case: all of it, the one with other people's files, and what links lead to.
fn places() -> Checked<(tempfile::TempDir, PathBuf, PathBuf)> {
    let place =
        tempfile::Builder::new().prefix("siltstone-strangers-").tempdir().map_err(|e| e.to_string())?;
    let (theirs, victims) = (place.path().join(THEIRS), place.path().join("victims"));
    for dir in [&theirs, &victims] {
        std::fs::create_dir(dir).map_err(|e| e.to_string())?;
    }
    Ok((place, theirs, victims))
}

/// Some operations with a directory full of other people's files for their place.
fn inside(rng: &mut Rng) -> CaseResult {
    let (place, theirs, victims) = places()?;
    litter(&theirs, &victims, true, rng)?;
    let mut work = Work::new(place.path()).map_err(failed("a database of our own"))?;
    let mut before = inventory(&theirs)?;
    before.append(&mut inventory(&victims)?);
    let count = rng.range(1..5);
    for _ in 0..count {
        let which = rng.index(OPERATIONS.len());
        let (name, operation) = OPERATIONS[which];
        let here = inventory(&theirs)?;
        let done = within(name, || operation(&work, &theirs))?;
        untouched(&before, &[&theirs, &victims]).map_err(|e| format!("{name}, which ended {done:?}: {e}"))?;
        if done.is_ok() {
            // An empty file of that name is a lock whoever made it, and goes with the database that came to
            // lie beside it.
            let lock = theirs.join("LOCK");
            let is_empty =
                std::fs::symlink_metadata(&lock).is_ok_and(|meta| meta.is_file() && meta.len() == 0);
            before.retain(|path, _| *path != lock || !is_empty);
        }
        if let Err(e) = done {
            is_clear(&e).map_err(|why| format!("{name} {why}"))?;
            left_nothing(&here, &theirs).map_err(|why| format!("{name}, refused by `{e}`, {why}"))?;
        }
        work.write(20).map_err(failed("a write beside"))?;
        DONE[which].fetch_add(1, Ordering::Relaxed);
    }
    let (home, rows) = (place.path().join("home"), work.rows);
    work.home.close().map_err(failed("close"))?;
    has_rows(&home, rows)?;
    Ok(count)
}

/// A refusal says where.
fn is_clear(e: &siltstone::Error) -> Checked {
    match e.to_string().contains(THEIRS) {
        true => Ok(()),
        false => Err(format!("is refused without a word of the place: {e}")),
    }
}

fn left_nothing(before: &Inventory, dir: &Path) -> Checked {
    match added(before, dir)?.as_slice() {
        [] => Ok(()),
        some => Err(format!("leaves {some:?} behind")),
    }
}

/// The database there has so many rows, and is sound.
fn has_rows(dir: &Path, rows: u32) -> Checked {
    let db = builder().open(dir).map_err(failed("open what was acknowledged"))?;
    for key in 0..rows {
        let found = db.get(key.to_be_bytes()).map_err(failed("read what was acknowledged"))?;
        if found.as_deref() != Some(&[7; 500][..]) {
            return Err(format!("{}: row {key} of {rows} is gone", dir.display()));
        }
    }
    db.close().map_err(failed("close"))?;
    let report = check(&Env::local(), dir, &mut |_| {}).map_err(failed("check"))?;
    if report.is_clean() { Ok(()) } else { Err(format!("{}: {:?}", dir.display(), report.damages)) }
}

/// A database of ours in whose directory other people put files: it goes on, is checked, repaired, copied and
/// destroyed.
fn among(rng: &mut Rng) -> CaseResult {
    let (place, theirs, victims) = places()?;
    let made = builder().open(&theirs).and_then(write_to);
    made.map_err(failed("a database of our own"))?;
    litter(&theirs, &victims, false, rng)?;
    let mut before: Inventory = inventory(&theirs)?;
    // What is the database's changes as it works.
    before.retain(|path, _| is_foreign(path, &theirs));
    before.append(&mut inventory(&victims)?);
    let steps: [(&str, Step); 6] = [
        ("open", |dir, _| write_to(builder().open(dir)?)),
        ("check", |dir, _| check(&Env::local(), dir, &mut |_| {}).map(drop)),
        ("repair", |dir, _| repair(&Env::local(), dir, &mut |_| {}).map(drop)),
        ("compact", |dir, _| {
            let db = builder().open(dir)?;
            db.default_family().compact::<&[u8]>(..)?;
            db.close()
        }),
        ("backup", |dir, place| {
            let db = builder().open(dir)?;
            db.backup(place.join("backups"))?;
            db.checkpoint(place.join(format!("checkpoint-{:?}", std::time::Instant::now())))?;
            db.close()
        }),
        ("open-read-only", |dir, _| builder().open_read_only(dir).map(drop)),
    ];
    let count = rng.range(1..5);
    for _ in 0..count {
        let (name, step) = steps[rng.index(steps.len())];
        let done = within(name, || step(&theirs, place.path()))?;
        untouched(&before, &[&theirs, &victims]).map_err(|e| format!("{name}, which ended {done:?}: {e}"))?;
        done.map_err(failed(name))?;
        if let Some(which) = OPERATIONS.iter().position(|(operation, _)| *operation == name) {
            DONE[which].fetch_add(1, Ordering::Relaxed);
        }
    }
    has_rows(&theirs, ROWS)?;
    if rng.one_in(2) {
        destroy(&Env::local(), &theirs).map_err(failed("destroy"))?;
        untouched(&before, &[&theirs, &victims]).map_err(|e| format!("destroy: {e}"))?;
    }
    Ok(count + 1)
}

/// Whether it is one of the files that `litter` puts beside a database.
fn is_foreign(path: &Path, dir: &Path) -> bool {
    let inside = path.strip_prefix(dir).ok();
    let first = inside.and_then(|inside| inside.components().next());
    first.is_some_and(|first| files::is_foreign_name(&first.as_os_str().to_string_lossy()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::campaign::must_hold;

    #[test]
    fn nothing_that_is_done_among_other_peoples_files_touches_one() {
        must_hold(&STRANGERS, 1, 60);
    }

    #[test]
    fn a_file_that_was_written_replaced_or_removed_is_noticed() {
        let (_place, theirs, victims) = places().unwrap();
        let path = theirs.join("x.new");
        let write = |text: &str| std::fs::write(&path, text).unwrap();
        write("a");
        let before = inventory(&theirs).unwrap();
        untouched(&before, &[&theirs, &victims]).unwrap();
        write("b");
        assert!(untouched(&before, &[&theirs]).unwrap_err().contains("written"));
        let other = victims.join("other");
        std::fs::write(&other, "a").unwrap();
        std::fs::rename(&other, &path).unwrap();
        assert!(untouched(&before, &[&theirs]).unwrap_err().contains("replaced"));
        std::fs::remove_file(&path).unwrap();
        assert!(untouched(&before, &[&theirs]).unwrap_err().contains("removed"));
    }
}
