//! Every compaction in another process, over a pipe: the same answers as here, also when that process is
//! killed.

use siltstone::storage::sim::Rng;
use siltstone::testing::Elsewhere;
use siltstone::{Builder, Db, EventKind, FamilyOptions, Options, Tuning};
use siltstone_tests::subject::Concat;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

const FAMILIES: [&str; 2] = ["default", "second"];

fn builder() -> Builder {
    let options = Options {
        write_memory: 64 << 10,
        memory_budget: 1 << 20,
        tuning: Tuning { compaction_step_bytes: 64 << 10, ..Tuning::default() },
        ..Options::default()
    };
    let plain = FamilyOptions { merge_operator: Some("concat".into()), ..FamilyOptions::default() };
    let leveled = FamilyOptions { strategy: "leveled{sstable_bytes=64KiB}".parse().unwrap(), ..plain };
    let sma = FamilyOptions { strategy: "size_tiered{runs=3}".parse().unwrap(), ..leveled.clone() };
    Builder::new()
        .options(options)
        .merge_operator("concat", Arc::new(Concat))
        .family(FAMILIES[0], leveled)
        .family(FAMILIES[1], sma)
}

fn elsewhere(dir: &Path) -> Elsewhere {
    let mut command = Command::new(env!("CARGO_BIN_EXE_siltstone-torture"));
    Elsewhere::process(command.arg("merges").current_dir(dir)).unwrap()
}

/// Writes what the seed draws, so each database gets the same.
fn write(db: &Db, seed: u64, count: u64) {
    let mut rng = Rng::new(seed);
    for _ in 0..count {
        let family = db.family(FAMILIES[rng.index(2)]).unwrap();
        let key = format!("key{:05}", rng.range(0..3_000));
        match rng.range(0..10) {
            0 => family.delete(key.as_bytes()).unwrap(),
            1 => family.merge(key.as_bytes(), rng.bytes(5)).unwrap(),
            2 if rng.one_in(20) => family.delete_range(key.clone()..format!("{key}~~")).unwrap(),
            _ => {
                let len = rng.range(0..200) as usize;
                family.put(key.as_bytes(), rng.bytes(len)).unwrap()
            }
        };
    }
}

fn all(db: &Db) -> Vec<Vec<(Vec<u8>, Vec<u8>)>> {
    let rows = |name: &&str| {
        let entries = db.family(name).unwrap().scan::<&str>(..).map(|entry| entry.unwrap());
        entries.map(|entry| (entry.key, entry.value.to_vec())).collect()
    };
    FAMILIES.iter().map(rows).collect()
}

#[test]
fn compactions_run_in_another_process_give_the_same_answers_also_when_it_is_killed() {
    let dir = tempfile::tempdir().unwrap();
    let (here, there) = (dir.path().join("here"), dir.path().join("there"));
    std::fs::create_dir(&there).unwrap();
    let plain = builder().open(&here).unwrap();
    let other = elsewhere(&there);
    let db = builder().offload(Arc::new(other.clone())).open(&there).unwrap();
    for seed in 0..3 {
        if seed == 2 {
            // In the middle of some compaction.
            other.kill();
        }
        for db in [&plain, &db] {
            write(db, seed, 10_000);
            for name in FAMILIES {
                db.family(name).unwrap().compact::<&str>(..).unwrap();
            }
            db.wait_idle().unwrap();
        }
        assert_eq!(all(&plain), all(&db), "after round {seed}");
    }
    assert!(other.steps() > 20, "{} steps came from there", other.steps());
    let fell_back = |db: &Db| {
        db.events().iter().any(|event| matches!(event.kind, EventKind::Offload | EventKind::OffloadFailure))
    };
    assert!(fell_back(&db) && !fell_back(&plain));
    db.close().unwrap();
    let db = Db::builder().merge_operator("concat", Arc::new(Concat)).open(&there).unwrap();
    assert_eq!(all(&plain), all(&db), "opened again");
}
