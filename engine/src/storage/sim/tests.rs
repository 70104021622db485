//! Tests of the models: lost bytes are lost, synced ones are kept, and both occur at random in between.

use super::{Rng, *};
use crate::storage::{MappedFile, Storage};
use proptest::prelude::*;
use std::collections::BTreeMap;

fn path(name: &str) -> &Path {
    Path::new(name)
}

/// A new file, reserved.
fn new_map(disk: &SimStorage, name: &str, len: u64, written_ahead: bool) -> Box<dyn MappedFile> {
    drop(disk.create(path(name)).unwrap());
    disk.map(path(name), len, written_ahead).unwrap()
}

/// A file whose bytes and name are durable.
fn durable(disk: &SimStorage, name: &str, bytes: &[u8]) {
    let mut file = disk.create(path(name)).unwrap();
    file.write(bytes).unwrap();
    file.sync().unwrap();
    disk.sync_dir(path("")).unwrap();
}

fn names(disk: &SimStorage) -> Vec<String> {
    disk.list(path("")).unwrap()
}

#[test]
fn appended_bytes_are_lost_at_none_kept_at_all_and_cut_anywhere_in_between() {
    let disk = SimStorage::new(1);
    durable(&disk, "a", &[1; 700]);
    let mut file = disk.append(path("a")).unwrap();
    for _ in 0..4 {
        file.write(&[2; 700]).unwrap();
    }
    let after = |survive, seed| disk.clone_crashed(survive, seed).file_bytes("a").unwrap();
    let (mut lengths, mut with_holes, mut torn) = (BTreeMap::new(), 0, 0);
    for seed in 0..500 {
        assert_eq!(after(Survive::None, seed), [1; 700]);
        assert_eq!(after(Survive::All, seed), [&[1; 700][..], &[2; 2800]].concat());
        let half = after(Survive::Half, seed);
        assert_eq!(half[..700], [1; 700], "synced bytes stay whatever happens around them");
        assert!(half[700..].iter().all(|&b| b == 0 || b == 2));
        let newest = half.iter().rposition(|&b| b == 2).unwrap_or(0);
        with_holes += u32::from(half[700..newest.max(700)].contains(&0));
        torn += u32::from(half.len() % SECTOR != 0 && half.len() != 700 && half.len() != 3500);
        *lengths.entry(half.len()).or_insert(0) += 1;
    }
    assert!(lengths[&700] > 50 && lengths[&3500] > 50 && lengths.len() > 8, "{lengths:?}");
    assert!(with_holes > 20 && torn > 10, "{with_holes} with holes, {torn} torn");
}

#[test]
fn unsynced_sectors_of_a_recycled_mapping_fall_back_to_its_old_bytes_in_any_combination() {
    let disk = SimStorage::new(1);
    durable(&disk, "old.log", &[7; 4096]);
    disk.rename(path("old.log"), path("new.log")).unwrap();
    disk.sync_dir(path("")).unwrap();
    let map = disk.map(path("new.log"), 4096, true).unwrap();
    map.write(0, &[1; 1024]).unwrap();
    map.sync().unwrap();
    map.write(1024, &[2; 1536]).unwrap();
    let mut seen = BTreeSet::new();
    for seed in 0..300 {
        let half = disk.clone_crashed(Survive::Half, seed).file_bytes("new.log").unwrap();
        assert_eq!(half[..1024], [1; 1024]);
        assert_eq!(half[2560..], [7; 1536]);
        let sectors: Vec<u8> = half[1024..2560].chunks(SECTOR).map(|s| s[0]).collect();
        assert!(half[1024..2560].chunks(SECTOR).zip(&sectors).all(|(s, &b)| s.iter().all(|&x| x == b)));
        seen.insert(sectors);
    }
    assert_eq!(seen.len(), 8, "each of three sectors is old or new: {seen:?}");
}

#[test]
fn a_sector_appended_to_twice_may_hold_only_the_earlier_append() {
    let disk = SimStorage::new(1);
    let map = new_map(&disk, "m", 4096, true);
    disk.sync_dir(path("")).unwrap();
    map.write(0, &[1; 100]).unwrap();
    map.write(100, &[2; 100]).unwrap();
    let states: BTreeSet<(u8, u8)> = (0..200)
        .map(|seed| disk.clone_crashed(Survive::Half, seed).file_bytes("m").unwrap())
        .map(|bytes| (bytes[50], bytes[150]))
        .collect();
    assert_eq!(states.into_iter().collect::<Vec<_>>(), [(0, 0), (1, 0), (1, 2)]);
}

#[test]
fn a_file_whose_directory_was_not_synced_vanishes_at_none_and_survives_by_toss() {
    let disk = SimStorage::new(1);
    disk.create_dir(path("")).unwrap();
    let mut file = disk.create(path("a")).unwrap();
    file.write(b"bytes").unwrap();
    file.sync().unwrap();
    assert!(names(&disk.clone_crashed(Survive::None, 1)).is_empty());
    assert_eq!(names(&disk.clone_crashed(Survive::All, 1)), ["a"]);
    let survived = (0..200).filter(|&seed| names(&disk.clone_crashed(Survive::Half, seed)) == ["a"]).count();
    assert!((50..150).contains(&survived), "{survived}");
    disk.sync_dir(path("")).unwrap();
    assert_eq!(disk.clone_crashed(Survive::None, 1).file_bytes("a").unwrap(), b"bytes");
}

#[test]
fn everything_in_a_directory_whose_own_name_is_lost_is_lost() {
    let disk = SimStorage::new(1);
    disk.create_dir(path("/data/db")).unwrap();
    disk.create(path("/data/db/a")).unwrap().sync().unwrap();
    disk.sync_dir(path("/data/db")).unwrap();
    assert!(disk.clone_crashed(Survive::None, 1).list_all().is_empty());
    disk.sync_dir(path("/data")).unwrap();
    disk.sync_dir(path("/")).unwrap();
    assert_eq!(disk.clone_crashed(Survive::None, 1).list_all().len(), 1);
    for seed in 0..100 {
        disk.clone_crashed(Survive::Half, seed).list(path("/data/db")).unwrap();
    }
}

#[test]
fn a_rename_leaves_the_old_file_or_the_new_one_never_neither() {
    let disk = SimStorage::new(1);
    durable(&disk, "current", b"old");
    let mut file = disk.create(path("temp")).unwrap();
    file.write(b"new").unwrap();
    file.sync().unwrap();
    disk.rename(path("temp"), path("current")).unwrap();
    let mut states = BTreeMap::new();
    for seed in 0..300 {
        let after = disk.clone_crashed(Survive::Half, seed);
        let current = after.file_bytes("current").unwrap();
        assert!(current == b"old" || names(&after) == ["current"], "the file has one name");
        *states.entry((names(&after).len(), current)).or_insert(0) += 1;
    }
    let states: Vec<_> = states.into_keys().collect();
    assert_eq!(states, [(1, b"new".to_vec()), (1, b"old".to_vec()), (2, b"old".to_vec())]);
}

#[test]
fn a_name_taken_again_never_costs_the_file_that_moved_away() {
    let disk = SimStorage::new(1);
    durable(&disk, "a", b"1");
    disk.rename(path("a"), path("b")).unwrap();
    disk.create(path("a")).unwrap().sync().unwrap();
    disk.rename(path("a"), path("c")).unwrap();
    for seed in 0..300 {
        let after = disk.clone_crashed(Survive::Half, seed);
        let mut files = after.list_all().into_iter();
        assert!(files.any(|(p, _)| after.file_bytes(p).unwrap() == b"1"), "{:?}", after.list_all());
    }
}

#[test]
fn syncing_the_directory_moved_into_makes_the_move_and_what_it_builds_on_durable() {
    let disk = SimStorage::new(1);
    disk.create_dir(path("one")).unwrap();
    disk.create_dir(path("two")).unwrap();
    disk.sync_dir(path("")).unwrap();
    disk.create(path("one/a")).unwrap().sync().unwrap();
    disk.create(path("one/other")).unwrap().sync().unwrap();
    disk.rename(path("one/a"), path("two/b")).unwrap();
    disk.sync_dir(path("two")).unwrap();
    let after = disk.clone_crashed(Survive::None, 1).list_all();
    assert_eq!(after, [(PathBuf::from("two/b"), 0)]);
}

#[test]
fn names_survive_independently_and_in_an_order_of_their_own() {
    let disk = SimStorage::new(1);
    durable(&disk, "input", b"x");
    disk.create(path("output")).unwrap().sync().unwrap();
    disk.remove(path("input")).unwrap();
    let states: BTreeSet<Vec<String>> =
        (0..300).map(|seed| names(&disk.clone_crashed(Survive::Half, seed))).collect();
    assert_eq!(states.len(), 4, "{states:?}");
    let lost_both = disk.clone_crashed(Survive::None, 1);
    assert_eq!(lost_both.file_bytes("input").unwrap(), b"x", "a removal that is lost brings the bytes back");
}

#[test]
fn a_failed_sync_loses_its_sectors_even_after_a_later_successful_one() {
    let disk = SimStorage::new(1);
    let map = new_map(&disk, "log", 4096, true);
    disk.sync_dir(path("")).unwrap();
    map.write(0, &[1; 512]).unwrap();
    disk.fail_at(OpKind::Sync, 1, Mode::Once, io::ErrorKind::Other);
    assert!(map.sync().is_err());
    map.write(512, &[2; 512]).unwrap();
    map.sync().unwrap();
    let seen = disk.file_bytes("log").unwrap();
    assert_eq!((seen[0], seen[512]), (1, 2), "the machine still reads them");
    assert_eq!(disk.clone_killed().file_bytes("log").unwrap(), seen);
    for survive in [Survive::None, Survive::Half, Survive::All] {
        let after = disk.clone_crashed(survive, 5).file_bytes("log").unwrap();
        assert_eq!((after[0], after[512]), (0, 2));
    }
    map.write(0, &[3; 512]).unwrap();
    map.sync().unwrap();
    assert_eq!(
        disk.clone_crashed(Survive::None, 1).file_bytes("log").unwrap()[0],
        3,
        "written again, synced"
    );
}

#[test]
fn a_file_is_not_created_over_another() {
    let disk = SimStorage::new(1);
    durable(&disk, "a", &[1; 600]);
    assert_eq!(disk.create(path("a")).map(|_| ()).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    assert_eq!(disk.file_bytes("a").unwrap(), [1; 600]);
}

#[test]
fn a_kill_keeps_every_byte_and_frees_the_lock_but_makes_nothing_durable() {
    let disk = SimStorage::new(1);
    let lock = disk.lock(path("LOCK"), true).unwrap();
    assert_eq!(disk.lock(path("LOCK"), true).map(|_| ()).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    let mut file = disk.create(path("a")).unwrap();
    file.write(b"abc").unwrap();
    let after = disk.kill();
    assert!(file.write(b"d").is_err(), "the dead write nothing");
    assert!(disk.is_crashed() && disk.list(path("")).is_err());
    assert_eq!(after.file_bytes("a").unwrap(), b"abc");
    let again = after.lock(path("LOCK"), true).unwrap();
    drop(lock);
    assert!(after.lock(path("LOCK"), true).is_err(), "the dead process's lock is not this one's");
    drop(again);
    assert!(after.crash(Survive::None, 1).list_all().is_empty());
}

#[test]
fn the_power_cut_at_an_operation_stops_it_and_all_later_ones() {
    let disk = SimStorage::new(1);
    durable(&disk, "a", b"abc");
    let before = disk.op_counts().total();
    disk.crash_at(2);
    let mut file = disk.append(path("a")).unwrap();
    assert!(file.write(&[1; 5000]).is_err());
    assert!(file.sync().is_err() && disk.remove(path("a")).is_err());
    assert_eq!(disk.op_counts().total() - before, 2, "what a dead machine is asked is not counted");
    let after = disk.crash(Survive::All, 3);
    assert!(after.file_bytes("a").unwrap().starts_with(b"abc"));
    after.append(path("a")).unwrap().write(b"goes on").unwrap();
}

#[test]
fn planned_failures_enumerate_a_workload_until_it_passes() {
    let workload = |disk: &SimStorage| -> io::Result<()> {
        let mut file = disk.create(path("a.temp"))?;
        file.write(b"abc")?;
        file.write(b"def")?;
        file.sync()?;
        disk.rename(path("a.temp"), path("a"))?;
        disk.sync_dir(path(""))
    };
    let failures = |plan: &dyn Fn(&SimStorage, u64)| {
        (1..)
            .take_while(|&nth| {
                let disk = SimStorage::new(nth);
                plan(&disk, nth);
                let failed = workload(&disk).is_err();
                assert_eq!(failed, disk.faults_injected() > 0);
                failed
            })
            .count()
    };
    let error = io::ErrorKind::PermissionDenied;
    assert_eq!(failures(&|disk, nth| disk.fail_at(OpKind::Write, nth, Mode::Once, error)), 2);
    assert_eq!(failures(&|disk, nth| disk.fail_at(OpKind::Rename, nth, Mode::Sticky, error)), 1);
    assert_eq!(failures(&|disk, nth| disk.fail_at(OpKind::Punch, nth, Mode::Sticky, error)), 0);
    assert_eq!(failures(&|disk, nth| disk.fail_at_any(nth, Mode::Once, error)), 6);
    assert_eq!(failures(&|disk, nth| disk.fail_at_path(OpKind::Write, "b.temp", nth, Mode::Once, error)), 0);
}

#[test]
fn a_sticky_failure_lasts_until_cleared_and_a_failed_write_is_a_prefix() {
    let disk = SimStorage::new(9);
    let mut file = disk.create(path("a")).unwrap();
    disk.fail_at(OpKind::Write, 1, Mode::Sticky, io::ErrorKind::Other);
    let parts: BTreeSet<usize> = (0..20)
        .map(|_| {
            let before = disk.file_bytes("a").unwrap().len();
            assert!(file.write(&[1; 10]).is_err());
            disk.file_bytes("a").unwrap().len() - before
        })
        .collect();
    assert!(parts.len() > 3 && parts.iter().all(|&n| n <= 10), "{parts:?}");
    disk.clear_faults();
    file.write(&[1; 10]).unwrap();
}

#[test]
fn a_full_disk_takes_what_fits_and_goes_on_when_there_is_space() {
    let disk = SimStorage::new(1);
    disk.set_quota(Some(1000));
    let mut file = disk.create(path("a")).unwrap();
    file.write(&[1; 600]).unwrap();
    assert_eq!(file.write(&[1; 600]).unwrap_err().kind(), io::ErrorKind::StorageFull);
    assert_eq!(disk.used_bytes(), 1000);
    drop(disk.create(path("m")).unwrap());
    assert_eq!(disk.map(path("m"), 4096, false).map(|_| ()).unwrap_err().kind(), io::ErrorKind::StorageFull);
    disk.set_quota(Some(6000));
    let map = disk.map(path("m"), 4096, false).unwrap();
    map.write(0, &[1; 4096]).unwrap();
    assert_eq!(disk.used_bytes(), 5096, "a reserved mapping is charged when it is made");
    drop(file);
    disk.remove(path("a")).unwrap();
    assert_eq!((disk.used_bytes(), disk.peak_bytes()), (4096, 5096));
}

#[test]
fn space_counts_links_once_holes_not_and_open_files_until_closed() {
    let disk = SimStorage::new(1);
    durable(&disk, "a", &[1; 10_000]);
    disk.link(path("a"), path("b")).unwrap();
    assert_eq!(disk.used_bytes(), 10_000);
    assert!(!disk.punch_hole(path("a"), 0, 8192).unwrap(), "a linked file is left alone");
    disk.remove(path("b")).unwrap();
    assert!(disk.punch_hole(path("a"), 0, 5000).unwrap());
    assert_eq!(disk.used_bytes(), 10_000 - 4096);
    let bytes = disk.file_bytes("a").unwrap();
    assert!(bytes[..5000].iter().all(|&b| b == 0) && bytes[5000..].iter().all(|&b| b == 1));
    assert!(disk.punch_hole(path("a"), 8192, 4096).unwrap());
    assert_eq!((disk.used_bytes(), disk.file_bytes("a").unwrap().len()), (4096, 10_000));
    let map = disk.map(path("a"), 10_000, false).unwrap();
    map.write(100, b"x").unwrap();
    assert_eq!(disk.used_bytes(), 8192, "a hole written to takes space again");
    assert!(disk.punch_hole(path("a"), 0, 4096).unwrap());
    drop(map);
    let reader = disk.open(path("a")).unwrap();
    disk.remove(path("a")).unwrap();
    assert_eq!(disk.used_bytes(), 4096);
    reader.read_exact_at(&mut [0; 10], 6000).unwrap();
    drop(reader);
    assert_eq!(disk.used_bytes(), 0);
}

#[test]
fn the_same_seed_gives_the_same_history_and_the_same_disk() {
    let run = |seed| {
        let world = SimWorld::new(seed);
        let env = world.env();
        let mut rng = Rng::new(seed);
        world.storage.fail_at(OpKind::Write, 20, Mode::Once, io::ErrorKind::Other);
        for i in 0..50 {
            let name = format!("f{}", rng.range(0..5));
            let _ = env.storage.remove(path(&name));
            let mut file = env.storage.create(path(&name)).unwrap();
            let size = env.random.next_u64() as usize % 3000;
            file.write(&rng.bytes(size)).ok();
            if i % 3 == 0 {
                file.sync().unwrap();
                env.storage.sync_dir(path("")).unwrap();
            }
        }
        let after = world.storage.clone_crashed(Survive::Half, seed);
        let files: Vec<_> =
            after.list_all().into_iter().map(|(p, _)| (after.file_bytes(&p).unwrap(), p)).collect();
        (world.storage.trace_hash(), files, env.clock.monotonic_ns())
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1).0, run(2).0);
    let written = |bytes: &[u8]| {
        let disk = SimStorage::new(1);
        disk.create(path("a")).unwrap().write(bytes).unwrap();
        disk.trace_hash()
    };
    assert_ne!(written(b"abc"), written(b"abd"), "the hash covers what was written");
}

#[test]
fn a_hook_may_copy_the_disk_at_each_operation_and_the_record_names_them() {
    let disk = SimStorage::new(1);
    let copies = Arc::new(Mutex::new(Vec::new()));
    let (of, into) = (disk.clone(), copies.clone());
    disk.on_op(move |_, _| into.lock().push(of.clone_crashed(Survive::All, 0)));
    disk.record_trace();
    let mut file = disk.create(path("a")).unwrap();
    file.write(b"abc").unwrap();
    disk.clear_on_op();
    let lengths: Vec<usize> = copies.lock().iter().map(|d| d.list_all().len()).collect();
    assert_eq!(lengths, [0, 1]);
    let trace: Vec<_> = disk.take_trace().into_iter().map(|e| (e.op, e.path, e.len, e.failed)).collect();
    assert_eq!(trace, [(OpKind::Create, "a".into(), 0, false), (OpKind::Write, "a".into(), 3, false)]);
}

#[test]
fn damage_changes_exactly_what_it_names_and_is_durable() {
    let disk = SimStorage::new(1);
    disk.replace("db/a", b"0123456789").unwrap();
    disk.corrupt("db/a", 3, 1).unwrap();
    disk.swap_ranges("db/a", 0, 8, 2).unwrap();
    assert!(disk.corrupt("db/a", 10, 1).is_err());
    disk.truncate("db/a", 9).unwrap();
    let after = disk.crash(Survive::None, 1);
    assert_eq!(after.file_bytes("db/a").unwrap(), b"892245670");
    after.delete("db/a").unwrap();
    assert!(after.crash(Survive::None, 1).list_all().is_empty());
}

#[test]
fn a_disk_goes_to_a_real_directory_and_back() {
    let disk = SimStorage::new(1);
    disk.replace("db/a", b"abc").unwrap();
    disk.replace("db/sub/b", b"").unwrap();
    let real = tempfile::tempdir().unwrap();
    disk.copy_all_to("db", real.path()).unwrap();
    let back = SimStorage::new(2);
    back.copy_all_from(real.path(), "db").unwrap();
    assert_eq!(back.list_all(), disk.list_all());
    assert_eq!(back.file_bytes("db/a").unwrap(), b"abc");
}

#[test]
fn a_crashed_copy_of_a_small_store_costs_far_less_than_a_millisecond() {
    use crate::storage::{Clock, SystemClock};
    let disk = SimStorage::new(1);
    for i in 0..20 {
        durable(&disk, &format!("{i}.table"), &[i; 5000]);
    }
    let map = new_map(&disk, "log", 64 << 10, true);
    for i in 0..40 {
        map.write(i * 300, &[1; 300]).unwrap();
    }
    let clock = SystemClock::new();
    let rounds = 1000;
    for seed in 0..rounds {
        let after = disk.clone_crashed(Survive::Half, seed);
        after.create(path("new")).unwrap().write(&[1; 1000]).unwrap();
    }
    let each_us = clock.monotonic_ns() / 1000 / rounds;
    assert!(each_us < 500, "{each_us} us a copy");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Against a plain model: after any writes, syncs and renames, fully synced files survive exactly, and a
    /// copy at `All` equals the machine's view.
    #[test]
    fn synced_files_survive_exactly_and_all_keeps_what_was_seen(
        steps in prop::collection::vec((0u8..7, 0u8..4, 0usize..1500), 1..60),
        seed: u64,
    ) {
        let disk = SimStorage::new(seed);
        let mut durable: BTreeMap<String, Vec<u8>> = BTreeMap::new();
        for (step, file, size) in steps {
            let name = format!("f{file}");
            match step {
                0 | 1 => {
                    let Ok(mut f) = disk.append(path(&name)) else { continue };
                    f.write(&vec![file + 1; size]).unwrap();
                }
                2 => drop(disk.create(path(&name))),
                3 => {
                    let Ok(map) = disk.map(path(&name), 2000, false) else { continue };
                    map.write(size as u64, &[9; 300]).unwrap();
                }
                4 => drop(disk.rename(path(&name), path("f0"))),
                5 => drop(disk.remove(path(&name))),
                _ => {
                    for (p, _) in disk.list_all() {
                        disk.append(&p).unwrap().sync().unwrap();
                    }
                    disk.sync_dir(path("")).unwrap();
                    durable = disk
                        .list_all()
                        .into_iter()
                        .map(|(p, _)| (p.to_str().unwrap().to_owned(), disk.file_bytes(&p).unwrap()))
                        .collect();
                    for survive in [Survive::None, Survive::Half] {
                        let after = disk.clone_crashed(survive, seed);
                        prop_assert_eq!(after.list_all().len(), durable.len());
                        for (name, bytes) in &durable {
                            prop_assert_eq!(&after.file_bytes(name).unwrap(), bytes);
                        }
                    }
                }
            }
        }
        let nothing = disk.clone_crashed(Survive::None, seed);
        for (name, bytes) in &durable {
            prop_assert_eq!(&nothing.file_bytes(name).unwrap(), bytes);
        }
        let all = disk.clone_crashed(Survive::All, seed);
        prop_assert_eq!(all.list_all(), disk.list_all());
        for (p, _) in all.list_all() {
            prop_assert_eq!(all.file_bytes(&p).unwrap(), disk.file_bytes(&p).unwrap());
        }
        let used: u64 = all.list_all().iter().map(|f| f.1).sum();
        prop_assert_eq!(all.used_bytes(), used);
        prop_assert_eq!(disk.used_bytes(), used);
    }
}
