//! Merges offered to another process: what it may not do, and what the database does then.

use siltstone::offload::{
    Decision, KeepOutputs, MergeAnswer, MergeRunner, MergeSpec, Offer, Offload, OffloadedMerge,
};
use siltstone::{Db, EventKind, Options, Result};
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
    db.settle().unwrap();
    db.scan::<&str>(..).collect::<Result<Vec<_>>>().unwrap().len()
}

/// Runs each merge at once, and once more, and takes none.
#[derive(Debug)]
struct Twice {
    runner: MergeRunner,
    refused: Mutex<Vec<String>>,
}

fn run(runner: &MergeRunner, spec: &MergeSpec) -> Result<()> {
    let carried = MergeSpec::from_bytes(&spec.to_bytes()?)?;
    let mut merge = runner.begin(&carried, KeepOutputs::No)?;
    while !MergeAnswer::from_bytes(&merge.advance()?.to_bytes())?.is_last() {}
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
fn a_merge_that_is_run_again_writes_over_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let offload =
        Arc::new(Twice { runner: Db::builder().merge_runner(1 << 20, 0), refused: Mutex::default() });
    let db = Db::builder().options(options()).offload(offload.clone()).open(dir.path()).unwrap();
    assert_eq!(fill(&db), 3_000);
    let refused = offload.refused.lock().unwrap();
    assert!(!refused.is_empty());
    assert!(refused.iter().all(|why| why.contains("is there already")), "{refused:?}");
}

/// Takes each merge and fails it, at once or after a while.
#[derive(Debug, Default)]
struct Failing(Mutex<Vec<(PathBuf, u64)>>);

struct Fails(u32);

impl OffloadedMerge for Fails {
    fn advance(&mut self) -> Result<Option<MergeAnswer>> {
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
            reason: "a merge goes to one that fails".into(),
            numbers: vec![],
        }
    }
}

#[test]
fn a_merge_that_fails_elsewhere_is_offered_three_times_under_other_names_and_then_run_here() {
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
