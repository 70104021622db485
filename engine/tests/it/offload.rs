//! Compactions offered to another process: what it may not do, and what the database does then.

use siltstone::offload::{
    CompactionAnswer, CompactionRunner, CompactionSpec, Decision, Offer, Offload, OffloadedCompaction,
    RetainOutputs, RunningCompaction,
};
use siltstone::{Db, EventKind, FamilyOptions, Options, Result, Tuning};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::Mutex;

fn options() -> Options {
    Options { write_memory: 64 << 10, memory_budget: 1 << 20, ..Options::default() }
}

fn fill(db: &Db) -> usize {
    for n in 0..4_000u32 {
        db.put(format!("key{:05}", n * 7 % 3_000).as_bytes(), [b'v'; 60]).unwrap();
    }
    db.family("default").unwrap().compact::<&str>(..).unwrap();
    db.wait_idle().unwrap();
    db.scan::<&str>(..).collect::<Result<Vec<_>>>().unwrap().len()
}

/// Runs each compaction at once, and once more, and takes none.
#[derive(Debug)]
struct Twice {
    runner: CompactionRunner,
    refused: Mutex<Vec<String>>,
}

fn run(runner: &CompactionRunner, spec: &CompactionSpec) -> Result<()> {
    let carried = CompactionSpec::from_bytes(&spec.to_bytes()?)?;
    let mut compaction = runner.begin(&carried, RetainOutputs::No)?;
    while !CompactionAnswer::from_bytes(&compaction.advance()?.to_bytes())?.is_last() {}
    Ok(())
}

impl Offload for Twice {
    fn decide(&self, offer: &Offer<'_>) -> Decision {
        run(&self.runner, offer.spec).unwrap();
        let again = run(&self.runner, offer.spec).unwrap_err().to_string();
        self.refused.lock().unwrap().push(again);
        Decision::here()
    }
}

#[test]
fn a_compaction_that_is_run_again_writes_over_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let offload =
        Arc::new(Twice { runner: Db::builder().compaction_runner(1 << 20, 0), refused: Mutex::default() });
    let db = Db::builder().options(options()).offload(offload.clone()).open(dir.path()).unwrap();
    assert_eq!(fill(&db), 3_000);
    let refused = offload.refused.lock().unwrap();
    assert!(!refused.is_empty());
    assert!(refused.iter().all(|why| why.contains("is there already")), "{refused:?}");
}

/// Takes each compaction and fails it, at once or after a while.
#[derive(Debug, Default)]
struct Failing(Mutex<Vec<(PathBuf, u64)>>);

struct Fails(u32);

impl OffloadedCompaction for Fails {
    fn advance(&mut self) -> Result<Option<CompactionAnswer>> {
        self.0 += 1;
        if self.0.is_multiple_of(3) {
            Err(siltstone::Error::new(siltstone::ErrorKind::Io, "it fails"))
        } else {
            Ok(None)
        }
    }
}

impl Offload for Failing {
    fn decide(&self, offer: &Offer<'_>) -> Decision {
        let table = offer.spec.first_output();
        self.0.lock().unwrap().push((offer.spec.log_dir().to_path_buf(), table.job.into()));
        Decision {
            run: Some(Box::new(Fails(0))),
            reason: "a compaction goes to one that fails".into(),
            numbers: vec![],
        }
    }
}

#[test]
fn a_compaction_that_fails_elsewhere_is_offered_three_times_under_other_names_and_then_run_here() {
    let dir = tempfile::tempdir().unwrap();
    let offload = Arc::new(Failing::default());
    let db = Db::builder().options(options()).offload(offload.clone()).open(dir.path()).unwrap();
    assert_eq!(fill(&db), 3_000);
    let offered = offload.0.lock().unwrap().clone();
    let failures = db.events().iter().filter(|event| event.kind == EventKind::OffloadFailure).count();
    assert!(failures > 0 && failures == offered.len() && failures.is_multiple_of(3), "{failures}");
    let names: std::collections::BTreeSet<_> = offered.iter().map(|(_, job)| job).collect();
    assert_eq!(names.len(), offered.len(), "no name is used twice");
    assert!(offered.iter().all(|(log_dir, _)| log_dir == dir.path()));
    db.close().unwrap();
    assert_eq!(Db::open(dir.path()).unwrap().scan::<&str>(..).count(), 3_000);
}

/// Runs compactions in this process. When a compaction begins, the answer that ended the one before comes
/// once more.
#[derive(Debug)]
struct Stale {
    runner: CompactionRunner,
    last: Arc<Mutex<Option<CompactionAnswer>>>,
}

struct ComesAgain {
    compaction: RunningCompaction,
    last: Arc<Mutex<Option<CompactionAnswer>>>,
    began: bool,
}

impl OffloadedCompaction for ComesAgain {
    fn advance(&mut self) -> Result<Option<CompactionAnswer>> {
        if !std::mem::replace(&mut self.began, true)
            && let Some(before) = self.last.lock().unwrap().take()
        {
            return Ok(Some(before));
        }
        let answer = self.compaction.advance()?;
        if answer.is_last() {
            *self.last.lock().unwrap() = Some(answer.clone());
        }
        Ok(Some(answer))
    }
}

impl Offload for Stale {
    fn decide(&self, offer: &Offer<'_>) -> Decision {
        let compaction = self.runner.begin(offer.spec, RetainOutputs::No).unwrap();
        let run = ComesAgain { compaction, last: self.last.clone(), began: false };
        Decision { run: Some(Box::new(run)), ..Decision::here() }
    }
}

#[test]
fn the_answer_of_another_compaction_is_refused_though_its_counts_fit() {
    let dir = tempfile::tempdir().unwrap();
    let offload =
        Arc::new(Stale { runner: Db::builder().compaction_runner(1 << 20, 0), last: Arc::default() });
    let family = || FamilyOptions { strategy: "leveled".parse().unwrap(), ..FamilyOptions::default() };
    let builder = Db::builder().options(options()).family("gone", family()).family("kept", family());
    let db = builder.offload(offload).open(dir.path()).unwrap();
    // Of both families a compaction takes in twice 500 cells; of one it leaves nothing.
    let (gone, kept) = (db.family("gone").unwrap(), db.family("kept").unwrap());
    let write = |family: &siltstone::Family, deletes: bool| {
        for n in 0..500_u32 {
            match deletes {
                true => family.delete(n.to_be_bytes()).unwrap(),
                false => family.put(n.to_be_bytes(), b"v").unwrap(),
            };
        }
        db.flush().unwrap();
    };
    for (family, deletes) in [(&gone, true), (&kept, false)] {
        write(family, false);
        write(family, deletes);
        family.compact::<&[u8]>(..).unwrap();
        db.wait_idle().unwrap();
    }
    assert_eq!((gone.scan::<&[u8]>(..).count(), kept.scan::<&[u8]>(..).count()), (0, 500));
    let events = db.events();
    let told: Vec<_> = events.iter().filter(|event| event.kind == EventKind::OffloadFailure).collect();
    assert!(!told.is_empty(), "the answer that came once more was taken");
    assert!(told.iter().all(|event| event.reason.contains("an answer of step")), "{told:?}");
    db.close().unwrap();
    let db = Db::builder().open(dir.path()).unwrap();
    assert_eq!(db.family("kept").unwrap().scan::<&[u8]>(..).count(), 500);
}

/// Runs the first large merge in this process until it has written so many bytes; then whoever runs it is
/// dead.
#[derive(Debug)]
struct Dies {
    runner: CompactionRunner,
    at: u64,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Debug, Default)]
struct Seen {
    /// Input bytes of the compaction, and of what was left of it when it was offered again.
    offered: Vec<u64>,
    /// Bytes that the dead one had written, and those of them in steps that it had handed out.
    written: u64,
    handed_out: u64,
}

struct Dying {
    compaction: RunningCompaction,
    at: u64,
    seen: Arc<Mutex<Seen>>,
}

impl OffloadedCompaction for Dying {
    fn advance(&mut self) -> Result<Option<CompactionAnswer>> {
        let mut seen = self.seen.lock().unwrap();
        if seen.written >= self.at {
            return Err(siltstone::Error::new(siltstone::ErrorKind::Io, "it is dead"));
        }
        let answer = self.compaction.advance()?;
        seen.written = answer.bytes_written();
        seen.handed_out += answer.outputs().iter().map(|table| table.bytes).sum::<u64>();
        Ok(Some(answer))
    }
}

impl Offload for Dies {
    fn decide(&self, offer: &Offer<'_>) -> Decision {
        let bytes = offer.spec.input_bytes();
        let mut seen = self.seen.lock().unwrap();
        let is_first = seen.offered.is_empty() && bytes > 1 << 20;
        if is_first || !seen.offered.is_empty() {
            seen.offered.push(bytes);
        }
        let compaction = is_first.then(|| self.runner.begin(offer.spec, RetainOutputs::No).unwrap());
        let run = compaction.map(|compaction| -> Box<dyn OffloadedCompaction> {
            Box::new(Dying { compaction, at: self.at, seen: self.seen.clone() })
        });
        Decision { run, ..Decision::here() }
    }
}

#[test]
fn of_a_compaction_that_is_killed_at_nine_tenths_at_most_one_step_is_done_again() {
    const STEP_BYTES: u64 = 256 << 10;
    const TABLE_BYTES: u64 = 64 << 10;
    let merged = |at: u64| {
        let dir = tempfile::tempdir().unwrap();
        let seen = Arc::new(Mutex::new(Seen::default()));
        let offload = Dies { runner: Db::builder().compaction_runner(1 << 20, 0), at, seen: seen.clone() };
        let options = Options {
            memory_budget: 32 << 20,
            write_memory: 16 << 20,
            tuning: Tuning { compaction_step_bytes: STEP_BYTES, ..Tuning::default() },
            ..Options::default()
        };
        let family = FamilyOptions {
            strategy: "leveled{sstable_bytes=64KiB}".parse().unwrap(),
            compression: siltstone::Compression::None,
            ..FamilyOptions::default()
        };
        let builder = Db::builder().options(options).family("default", family);
        let db = builder.offload(Arc::new(offload)).open(dir.path()).unwrap();
        for (step, value) in [(1, b'a'), (5, b'b')] {
            for n in (0..40_000_u32).step_by(step) {
                db.put(n.to_be_bytes(), [value; 100]).unwrap();
            }
            db.flush().unwrap();
        }
        db.default_family().compact::<&[u8]>(..).unwrap();
        db.wait_idle().unwrap();
        for (n, row) in (0_u32..).zip(db.scan::<&[u8]>(..)) {
            let row = row.unwrap();
            assert_eq!(
                (&row.key[..], row.value[0]),
                (&n.to_be_bytes()[..], if n % 5 == 0 { b'b' } else { b'a' })
            );
        }
        assert_eq!(db.scan::<&[u8]>(..).count(), 40_000);
        db.close().unwrap();
        std::mem::take(&mut *seen.lock().unwrap())
    };
    let whole = merged(u64::MAX);
    assert!(whole.handed_out > 12 * STEP_BYTES && whole.handed_out >= whole.written / 10 * 9, "{whole:?}");
    let killed = merged(whole.written / 10 * 9);
    assert!(killed.written >= whole.written / 10 * 9 && killed.written < whole.written, "{killed:?}");
    let again = killed.written - killed.handed_out;
    assert!(again <= STEP_BYTES + TABLE_BYTES, "{again} bytes were written again: {killed:?}");
    let rest = killed.offered[1] as f64 / killed.offered[0] as f64;
    let step = (STEP_BYTES + TABLE_BYTES) as f64 / whole.written as f64;
    assert!(rest <= 0.1 + 2.0 * step, "{rest} of it was done again, a step is {step}: {killed:?}");
}
