//! Splitting a family at a key, and joining two neighbours.

use siltstone::storage::Env;
use siltstone::storage::sim::SimWorld;
use siltstone::{
    Backups, Batch, Db, Durability, Error, ErrorKind, Family, FamilyOptions, Options, Timestamps,
};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

fn db(world: &SimWorld) -> Db {
    Db::builder().env(world.env()).open("db").unwrap()
}

fn keys(family: &Family) -> Vec<String> {
    family.scan::<&[u8]>(..).map(|row| String::from_utf8(row.unwrap().key).unwrap()).collect()
}

fn kind<T>(result: Result<T, Error>) -> Option<ErrorKind> {
    result.err().map(|e| e.kind())
}

fn tables(env: &Env, dir: &str) -> BTreeSet<String> {
    let names = env.storage.list(Path::new(dir)).unwrap();
    names.into_iter().filter(|name| name.ends_with(".table")).collect()
}

/// A database with a letter in each key, the tables of which lie over the key "m".
fn letters(world: &SimWorld) -> Db {
    let db = db(world);
    for letter in b'a'..=b'z' {
        db.put([letter], [letter; 100]).unwrap();
    }
    db.flush().unwrap();
    db
}

#[test]
fn each_part_has_its_keys_and_no_others() {
    let world = SimWorld::new(1);
    let db = letters(&world);
    let (left, right) = db.default_family().split("m", "right").unwrap();
    assert_eq!((left.name(), right.name()), ("default", "right"));
    assert_eq!((left.range().to_string(), right.range().to_string()), ("[, m)".into(), "[m, end)".into()));
    assert_eq!((keys(&left).len(), keys(&right).len()), (12, 14));
    assert_eq!(keys(&right)[0], "m");
    let outside = Some(ErrorKind::OutOfRange);
    assert_eq!(kind(left.get(b"m")), outside);
    assert_eq!(kind(right.get(b"lzz")), outside);
    assert_eq!(kind(left.put(b"m", b"")), outside);
    assert_eq!(kind(right.delete(b"a")), outside);
    assert_eq!(kind(left.multi_get(&["a", "m"])), outside);
    let mut batch = Batch::new();
    batch.put(&right, b"p", b"new").put(&left, b"p", b"");
    assert_eq!(kind(db.write(&batch)), outside, "nothing of a batch is written");
    assert_eq!(right.get(b"p").unwrap().unwrap().len(), 100);
    // Ranges end where the family does.
    left.delete_range("k"..).unwrap();
    assert_eq!(keys(&left).last().unwrap(), "j");
    assert_eq!(keys(&right).len(), 14);
    assert_eq!(left.scan("x"..).count(), 0);
    let backwards: Vec<_> = right.scan::<&[u8]>(..).rev().map(|row| row.unwrap().key).collect();
    assert_eq!((backwards.len(), backwards[13].as_slice()), (14, b"m".as_slice()));
    db.close().unwrap();
}

#[test]
fn a_delete_before_a_split_and_one_after_it_take_only_what_they_should() {
    let world = SimWorld::new(1);
    let db = db(&world);
    let all = db.default_family();
    for key in ["c", "g", "k", "p"] {
        all.put(key.as_bytes(), b"1").unwrap();
    }
    let (left, right) = all.split("m", "right").unwrap();
    left.delete_range("d".."z").unwrap();
    assert_eq!(keys(&left), ["c"]);
    assert_eq!(keys(&right), ["p"]);
    let (_, middle) = left.split("f", "middle").unwrap();
    right.join(&middle).unwrap();
    assert_eq!(right.range().to_string(), "[f, end)");
    assert_eq!(keys(&right), ["p"]);
    right.flush().unwrap();
    assert_eq!(keys(&right), ["p"]);
    db.close().unwrap();
}

#[test]
fn what_cannot_be_split_or_joined_is_refused_and_nothing_changes() {
    let world = SimWorld::new(2);
    let db = letters(&world);
    let (left, right) = db.default_family().split("m", "right").unwrap();
    let (right, far) = right.split("t", "far").unwrap();
    let options = FamilyOptions { timestamps: Timestamps::Explicit, ..FamilyOptions::default() };
    let timed = db.create_family("timed", options).unwrap();
    let refused = Some(ErrorKind::Invalid);
    assert_eq!(kind(left.split("m", "other")), refused, "the end is not its key");
    assert_eq!(kind(right.split("m", "other")), refused, "nothing would be left");
    assert_eq!(kind(left.split("", "other")), refused);
    assert_eq!(kind(left.split("zz", "other")), refused);
    assert!(left.split("c", "right").is_err(), "the name is taken");
    assert_eq!(kind(left.join(&far)), refused, "not neighbours");
    assert_eq!(kind(left.join(&left)), refused);
    assert_eq!(kind(right.join(&left)), refused, "the default family stays");
    assert_eq!(kind(left.join(&timed)), refused);
    left.join(&right).unwrap();
    assert_eq!(kind(right.get(b"n")), Some(ErrorKind::NotFound), "it is no more");
    assert_eq!(kind(right.split("n", "other")), Some(ErrorKind::NotFound));
    assert_eq!(left.range().to_string(), "[, t)");
    assert_eq!(db.families().len(), 3);
    db.close().unwrap();
}

#[test]
fn a_snapshot_from_before_a_split_is_read_through_the_parts_and_one_from_between_through_the_whole() {
    let world = SimWorld::new(3);
    let db = letters(&world);
    let before = db.snapshot();
    let (left, right) = db.default_family().split("m", "right").unwrap();
    let between = db.snapshot();
    left.delete_range::<&[u8]>(..).unwrap();
    right.put(b"n", b"new").unwrap();
    for family in [&left, &right] {
        family.flush().unwrap();
        family.compact::<&[u8]>(..).unwrap();
    }
    let at = |family: &Family, snapshot| family.at(snapshot).scan::<&[u8]>(..).count();
    assert_eq!((at(&left, &before), at(&right, &before)), (12, 14));
    assert_eq!(right.at(&before).get(b"n").unwrap().unwrap().len(), 100);
    left.join(&right).unwrap();
    assert_eq!((at(&left, &before), at(&left, &between)), (26, 26));
    assert_eq!(left.at(&between).get(b"n").unwrap().unwrap().len(), 100);
    assert_eq!(left.get(b"n").unwrap().as_deref(), Some(b"new".as_slice()));
    assert_eq!(keys(&left).len(), 14);
    drop((before, between));
    db.close().unwrap();
}

#[test]
fn a_shared_table_counts_once_and_goes_when_the_last_part_was_compacted_away() {
    let world = SimWorld::new(4);
    let env = world.env();
    let db = letters(&world);
    let (shared, bytes) = (tables(&env, "db"), db.statistics().sstable_bytes);
    assert_eq!(shared.len(), 1);
    let (left, right) = db.default_family().split("m", "right").unwrap();
    assert_eq!(tables(&env, "db"), shared, "no table is written");
    let statistics = db.statistics();
    assert_eq!((statistics.sstables, statistics.sstable_bytes), (1, bytes), "it counts once");
    left.put(b"a", b"new").unwrap();
    left.flush().unwrap();
    left.compact::<&[u8]>(..).unwrap();
    db.wait_idle().unwrap();
    assert!(tables(&env, "db").is_superset(&shared), "the other part needs it");
    assert_eq!(keys(&right).len(), 14);
    db.close().unwrap();
    let db = self::db(&world);
    assert!(tables(&env, "db").is_superset(&shared), "after an open, too");
    let right = db.family("right").unwrap();
    assert_eq!((keys(&right).len(), keys(&db.default_family()).len()), (14, 12));
    right.put(b"z", b"new").unwrap();
    right.flush().unwrap();
    right.compact::<&[u8]>(..).unwrap();
    db.wait_idle().unwrap();
    let named: usize = [db.default_family(), right].iter().map(|f| f.shape().tables().count()).sum();
    db.close().unwrap();
    assert!(tables(&env, "db").is_disjoint(&shared), "nobody has it any more");
    assert_eq!(tables(&env, "db").len(), named);
}

#[test]
fn a_dropped_part_leaves_the_other_its_tables() {
    let world = SimWorld::new(5);
    let db = letters(&world);
    db.default_family().split("m", "right").unwrap();
    db.drop_family("right").unwrap();
    db.wait_idle().unwrap();
    assert_eq!(keys(&db.default_family()).len(), 12);
    db.close().unwrap();
    let db = self::db(&world);
    assert_eq!(keys(&db.default_family()).len(), 12);
    assert_eq!(kind(db.put(b"x", b"")), Some(ErrorKind::OutOfRange), "its keys are nobody's");
    db.close().unwrap();
    assert!(siltstone::check(&world.env(), Path::new("db"), &mut |_| {}).unwrap().is_clean());
}

#[test]
fn copies_of_all_kinds_have_the_parts() {
    let world = SimWorld::new(6);
    let env = world.env();
    let db = letters(&world);
    let (_, right) = db.default_family().split("m", "right").unwrap();
    right.put(b"zz", b"in the WAL").unwrap();
    let parts = |dir: &str| {
        let db = Db::builder().env(world.env()).open(dir).unwrap();
        let found: BTreeMap<String, (String, usize)> = db
            .families()
            .into_iter()
            .map(|name| db.family(&name).unwrap())
            .map(|f| (f.name().into(), (f.range().to_string(), keys(&f).len())))
            .collect();
        let all = db.default_family();
        if let Ok(right) = db.family("right") {
            all.join(&right).unwrap();
            assert_eq!(keys(&all).len(), 27, "{dir}");
        }
        db.close().unwrap();
        assert!(siltstone::check(&env, Path::new(dir), &mut |_| {}).unwrap().is_clean(), "{dir}");
        found
    };
    let expected = BTreeMap::from([
        ("default".to_string(), ("[, m)".to_string(), 12)),
        ("right".to_string(), ("[m, end)".to_string(), 15)),
    ]);
    db.checkpoint("checkpoint").unwrap();
    assert_eq!(parts("checkpoint"), expected);
    let backup = db.backup("backups").unwrap();
    Backups::new(&env, "backups").restore(Some(backup.id), "restored", &mut |_| {}).unwrap();
    assert_eq!(parts("restored"), expected);
    db.detach("right", "detached").unwrap();
    let back = db.attach("back", "detached").unwrap();
    assert_eq!((back.range().to_string(), keys(&back).len()), ("[m, end)".into(), 15));
    db.default_family().join(&back).unwrap();
    assert_eq!(keys(&db.default_family()).len(), 27);
    db.close().unwrap();
    assert_eq!(parts("db")["default"].1, 27);
}

/// Each of very many splits costs the disk as much as the first.
#[test]
fn a_split_beside_two_thousand_regions_costs_what_the_first_did() {
    let world = SimWorld::new(7);
    let db = letters(&world);
    let mut right = db.default_family();
    let mut cost = Vec::new();
    for number in 0..2_000 {
        let before = world.storage.op_counts();
        let at = format!("m{number:04}");
        (_, right) = right.split(&at, &format!("r{number}")).unwrap();
        let after = world.storage.op_counts();
        let of = |op| after.of(op) - before.of(op);
        use siltstone::storage::sim::OpKind;
        cost.push((of(OpKind::Write), of(OpKind::Sync), of(OpKind::Create), of(OpKind::Read)));
    }
    let usual = cost[1];
    let more = cost.iter().filter(|cost| cost.0 > usual.0 + 2 || cost.1 > usual.1 + 2).count();
    assert!(more < 40, "{more} splits cost more than {usual:?}: {:?}", cost.iter().max());
    assert_eq!(keys(&right), ["n", "o", "p", "q", "r", "s", "t", "u", "v", "w", "x", "y", "z"]);
    db.close().unwrap();
}

/// Where the manifest says of each region which others its cells may have been logged for, it forgets that as
/// soon as they are in tables: a region that is split at its end again and again would come to have all the
/// others.
#[test]
fn a_region_that_is_flushed_no_longer_knows_whom_it_was_split_off() {
    let world = SimWorld::new(8);
    let db = db(&world);
    let mut right = db.default_family();
    for number in 0..400 {
        let at = format!("m{number:04}");
        // In memory when it is split, and in no table.
        right.put(format!("{at}x"), "v").unwrap();
        (_, right) = right.split(&at, &format!("r{number}")).unwrap();
        if number % 20 == 0 {
            right.flush().unwrap();
        }
    }
    db.close().unwrap();
    let db = self::db(&world);
    let names = world.env().storage.list(Path::new("db")).unwrap();
    let manifests = names.into_iter().filter(|name| name.starts_with("manifest-"));
    let bytes = |name: String| world.env().storage.open(&Path::new("db").join(name)).unwrap().len().unwrap();
    // 400 regions of some 600 bytes, and for each those since the last flush, which are 20 at most; not 400 *
    // 400 / 2.
    let bytes = manifests.map(bytes).max().unwrap();
    assert!(bytes < 300_000, "{bytes}");
    let count: usize = db.families().iter().map(|name| keys(&db.family(name).unwrap()).len()).sum();
    assert_eq!(count, 400);
}

/// Neighbours need not come of one family. While the WAL has what one of them had in memory when it was split
/// off, recovery could not tell whose that is.
#[test]
fn parts_of_two_families_are_joined_only_when_recovery_can_tell_their_writes_apart() {
    let world = SimWorld::new(10);
    let db = db(&world);
    let family = |name: &str| db.create_family(name, FamilyOptions::default()).unwrap();
    let (x, y) = (family("x"), family("y"));
    x.put("a", "of x").unwrap();
    x.put("z", "of x").unwrap();
    y.put("a", "of y").unwrap();
    y.put_with("p", "of y", Durability::Sync).unwrap();
    let (x, _) = x.split("m", "xr").unwrap();
    let (_, yr) = y.split("m", "yr").unwrap();
    assert_eq!(kind(x.join(&yr)), Some(ErrorKind::Invalid));
    yr.flush().unwrap();
    assert_eq!(kind(x.join(&yr)), Some(ErrorKind::Invalid), "what was split off x would get writes to x");
    db.flush().unwrap();
    x.join(&yr).unwrap();
    x.put("q", "of x").unwrap();
    let seen = |db: &Db, name: &str| {
        let all = db.family(name).unwrap().scan::<&[u8]>(..).map(|row| row.unwrap());
        all.map(|row| format!("{}={}", row.key.escape_ascii(), row.value.escape_ascii())).collect::<Vec<_>>()
    };
    let expected = [("x", vec!["a=of x", "p=of y", "q=of x"]), ("y", vec!["a=of y"]), ("xr", vec!["z=of x"])];
    for (name, rows) in &expected {
        assert_eq!(seen(&db, name), *rows, "{name} before the end");
    }
    let db = self::db(&world.with_storage(world.storage.clone_killed()));
    for (name, rows) in &expected {
        assert_eq!(seen(&db, name), *rows, "{name} after recovery");
    }
}

/// Memory that is cut and put together again and again has not twice as many pieces after each time.
#[test]
fn memtables_that_were_cut_are_one_again_after_a_join() {
    let world = SimWorld::new(9);
    let db = db(&world);
    let left = db.default_family();
    for round in 0..60u32 {
        for letter in b'a'..=b'z' {
            left.put([letter], round.to_be_bytes()).unwrap();
        }
        let (_, right) = left.split([b'b' + (round % 24) as u8], "right").unwrap();
        left.join(&right).unwrap();
        let memtables = left.memtables().len();
        assert!(memtables <= 2 * round as usize + 10, "{memtables} after {round} rounds");
    }
    let all: Vec<_> = left.scan::<&[u8]>(..).map(|row| row.unwrap().value.to_vec()).collect();
    assert_eq!(all, vec![59u32.to_be_bytes().to_vec(); 26]);
}

/// Writers on threads find their region again whenever it was split or joined, and lose nothing.
#[test]
fn writers_beside_splits_and_joins_lose_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { write_memory: 1 << 20, memory_budget: 4 << 20, ..Options::default() };
    let db = Db::builder().options(options).open(dir.path()).unwrap();
    let (over, written) = (AtomicBool::new(false), AtomicU64::new(0));
    let key = |writer: u64, number: u64| format!("{:04}-{writer}-{number}", number * 37 % 1000).into_bytes();
    let counts: Vec<u64> = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..2)
            .map(|writer| {
                let (db, over, written) = (&db, &over, &written);
                scope.spawn(move || {
                    let mut number = 0;
                    while !over.load(Ordering::Relaxed) {
                        let key = key(writer, number);
                        let put =
                            |name: String| db.family(&name)?.put_with(&key, [7; 50], Durability::Buffered);
                        // A region that is gone, or has other keys by now, says so.
                        while !db.families().into_iter().any(|name| match put(name) {
                            Ok(_) => true,
                            Err(e) if matches!(e.kind(), ErrorKind::OutOfRange | ErrorKind::NotFound) => {
                                false
                            }
                            Err(e) => panic!("{e:?}"),
                        }) {}
                        number += 1;
                        written.fetch_add(1, Ordering::Relaxed);
                    }
                    number
                })
            })
            .collect();
        for round in 0..60u64 {
            let at = format!("{:04}", round * 131 % 999 + 1);
            let (left, right) = db.default_family().split(&at, "right").unwrap();
            let until = written.load(Ordering::Relaxed) + 100;
            while written.load(Ordering::Relaxed) < until {
                std::thread::yield_now();
            }
            if round % 10 == 0 {
                right.flush().unwrap();
            }
            left.join(&right).unwrap();
        }
        over.store(true, Ordering::Relaxed);
        writers.into_iter().map(|writer| writer.join().unwrap()).collect()
    });
    let check = |db: &Db| {
        let found: BTreeSet<Vec<u8>> = db.scan::<&[u8]>(..).map(|row| row.unwrap().key).collect();
        let all =
            (0..2).flat_map(|writer| (0..counts[writer as usize]).map(move |number| key(writer, number)));
        assert_eq!(found, all.collect());
    };
    check(&db);
    db.default_family().compact::<&[u8]>(..).unwrap();
    check(&db);
    db.close().unwrap();
    check(&Db::open(dir.path()).unwrap());
}
