//! Whose files a database touches: its own, whatever lies beside them and whatever becomes of its directory's
//! name.
#![allow(clippy::disallowed_methods, reason = "makes, moves and compares real files")]

use siltstone::storage::{Env, FileAccess};
use siltstone::{Backups, Builder, Db, ErrorKind, FamilyOptions, Options, SstableWriter};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// Names, inodes and bytes of all files below a directory.
fn contents(dir: &Path) -> BTreeMap<PathBuf, (u64, Vec<u8>)> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let metadata = fs::symlink_metadata(&path).unwrap();
        match metadata.is_dir() {
            true => found.extend(contents(&path)),
            false => drop(found.insert(path.clone(), (metadata.ino(), fs::read(&path).unwrap_or_default()))),
        }
    }
    found
}

fn small() -> Options {
    let mut options = Options { write_memory: 1 << 20, memory_budget: 8 << 20, ..Options::default() };
    options.tuning.wal_file_bytes = 64 << 10;
    options
}

fn open(dir: &Path) -> siltstone::Result<Db> {
    Builder::new().options(small()).open(dir)
}

/// Writes keys past some flushes.
fn write(db: &Db, range: std::ops::Range<u32>) {
    for n in range {
        db.put(n.to_be_bytes(), vec![n as u8; 500]).unwrap();
    }
    db.flush().unwrap();
}

fn count(dir: &Path) -> usize {
    let db = open(dir).unwrap();
    let found = db.scan::<&[u8]>(..).inspect(|entry| assert!(entry.is_ok())).count();
    db.close().unwrap();
    found
}

#[test]
fn a_directory_with_other_things_is_refused_and_left_as_it_is() {
    let names = [
        "notes.txt",
        "letter.new",
        "CURRENT.new",
        "EVENTS",
        "RESERVE",
        "LOCK",
        "0000000001.log",
        "manifest-00000001",
        "manifest-00000007",
        "000001-000001-000001-0000.table",
        ".hidden",
        "sub/file",
    ];
    for name in names {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "precious").unwrap();
        let before = contents(dir.path());
        let error = open(dir.path()).map(|_| ()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{name}: {error}");
        assert!(error.to_string().contains("other things"), "{name}: {error}");
        assert!(siltstone::repair(&Env::local(), dir.path(), &mut |_| {}).is_err(), "{name}");
        assert!(siltstone::destroy(&Env::local(), dir.path()).is_err(), "{name}");
        let backup_into = {
            let db = tempfile::tempdir().unwrap();
            let db = open(db.path()).unwrap();
            let backup = db.backup(dir.path());
            db.close().unwrap();
            backup
        };
        assert_eq!(backup_into.unwrap_err().kind(), ErrorKind::Invalid, "{name}");
        assert_eq!(contents(dir.path()), before, "{name}");
    }
}

#[test]
fn an_empty_directory_and_what_an_ended_creation_left_are_taken() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("lost+found")).unwrap();
    for name in ["LOCK", "SILTSTONE.begun", "CURRENT.new", "DATABASE.new", "manifest-00000001"] {
        fs::write(dir.path().join(name), "").unwrap();
    }
    open(dir.path()).unwrap().put(b"k", b"v").unwrap();
    assert_eq!(count(dir.path()), 1);
    assert!(!dir.path().join("SILTSTONE.begun").exists(), "it is a database now");

    let backups = tempfile::tempdir().unwrap();
    for name in ["LOCK", "SILTSTONE.begun", "00000001-manifest", "00000001.backup.new"] {
        fs::write(backups.path().join(name), "").unwrap();
    }
    open(dir.path()).unwrap().backup(backups.path()).unwrap();
    let names: Vec<_> = contents(backups.path()).into_keys().collect();
    assert!(names.iter().all(|path| !path.ends_with("SILTSTONE.begun")), "{names:?}");
    Backups::new(&Env::local(), backups.path()).delete(1).unwrap();
    let names: Vec<_> = contents(backups.path()).into_keys().collect();
    assert!(names.iter().all(|path| path.ends_with("LOCK")), "{names:?}");

    // Destroyed before its mark was gone, and restored to a place that has one.
    fs::write(dir.path().join("SILTSTONE.begun"), "").unwrap();
    fs::remove_dir(dir.path().join("lost+found")).unwrap();
    siltstone::destroy(&Env::local(), dir.path()).unwrap();
    assert!(!dir.path().exists(), "{:?}", contents(dir.path()));
}

/// Only beside the mark of a creation is it known that nobody else made them.
#[test]
fn a_blank_file_without_the_mark_of_a_creation_is_somebody_elses() {
    let source = tempfile::tempdir().unwrap();
    let db = open(source.path()).unwrap();
    db.put(b"k", b"v").unwrap();
    let names = [
        "CURRENT.new",
        "DATABASE",
        "DATABASE.new",
        "manifest-00000001",
        "00000001.backup.new",
        "00000001-manifest",
    ];
    for (name, bytes) in names.iter().flat_map(|name| [(name, 0), (name, 4_096)]) {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(name), vec![0; bytes]).unwrap();
        let before = contents(dir.path());
        assert_eq!(open(dir.path()).map(drop).unwrap_err().kind(), ErrorKind::Invalid, "{name}");
        assert_eq!(db.backup(dir.path()).unwrap_err().kind(), ErrorKind::Invalid, "{name}");
        assert_eq!(contents(dir.path()), before, "{name}");
    }
    let dir = tempfile::tempdir().unwrap();
    let tables = dir.path().join("tables");
    fs::create_dir(&tables).unwrap();
    fs::write(tables.join("OWNER.new"), "").unwrap();
    let before = contents(dir.path());
    let options = Options { sstable_store: Some(tables), ..Options::default() };
    let opened = Builder::new().options(options).open(dir.path().join("db"));
    assert_eq!(opened.map(drop).unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(contents(dir.path()), before);
}

#[test]
fn other_files_in_a_databases_directory_survive_all_that_is_done_to_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    write(&open(&path).unwrap(), 0..3_000);
    let names = [
        "notes.txt",
        "letter.new",
        "EVENTS.new",
        "DATABASE.new",
        "0000000900.log",
        "manifest-00000900",
        "manifest-00000000",
        "0000ff-000000-000001-0000.table",
        "00000001.backup.new",
    ];
    for name in names {
        fs::write(path.join(name), format!("precious {name}")).unwrap();
    }
    fs::create_dir(path.join("sub.new")).unwrap();
    let foreign = |all: BTreeMap<PathBuf, (u64, Vec<u8>)>| {
        let ours = |path: &Path| !names.contains(&path.file_name().unwrap().to_str().unwrap());
        all.into_iter().filter(|(path, _)| !ours(path)).collect::<BTreeMap<_, _>>()
    };
    let before = foreign(contents(&path));
    assert_eq!(before.len(), names.len());
    for round in 0..3 {
        let db = open(&path).unwrap();
        write(&db, 0..3_000);
        db.default_family().compact::<&[u8]>(..).unwrap();
        db.close().unwrap();
        assert!(siltstone::check(&Env::local(), &path, &mut |_| {}).unwrap().is_clean());
        assert_eq!(foreign(contents(&path)), before, "round {round}");
    }
    assert_eq!(count(&path), 3_000);
    // Without this name no manifest can be begun.
    fs::write(path.join("CURRENT.new"), "precious").unwrap();
    assert!(open(&path).map(|_| ()).unwrap_err().to_string().contains("CURRENT.new"));
    assert_eq!(fs::read(path.join("CURRENT.new")).unwrap(), b"precious");
    fs::remove_file(path.join("CURRENT.new")).unwrap();
    siltstone::destroy(&Env::local(), &path).unwrap();
    let left = contents(&path);
    assert_eq!(foreign(left.clone()), before);
    assert_eq!(left.len(), names.len(), "{:?}", left.keys());
}

#[test]
fn a_database_whose_directory_is_renamed_goes_on_there_and_leaves_what_takes_its_name_alone() {
    for restored in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let [path, moved, copy] = ["db", "moved", "copy"].map(|name| dir.path().join(name));
        let db = open(&path).unwrap();
        write(&db, 0..3_000);
        if restored {
            db.checkpoint(&copy).unwrap();
        }
        fs::rename(&path, &moved).unwrap();
        if restored {
            fs::rename(&copy, &path).unwrap();
        }
        let other = open(&path).unwrap();
        write(&other, 10_000..12_000);
        write(&db, 3_000..9_000);
        db.default_family().compact::<&[u8]>(..).unwrap();
        write(&other, 12_000..14_000);
        other.default_family().compact::<&[u8]>(..).unwrap();
        db.close().unwrap();
        other.close().unwrap();
        assert_eq!(count(&moved), 9_000, "restored: {restored}");
        assert_eq!(count(&path), if restored { 7_000 } else { 4_000 });
        for dir in [&moved, &path] {
            assert!(siltstone::check(&Env::local(), dir, &mut |_| {}).unwrap().is_clean());
        }
    }
}

#[test]
fn links_are_resolved_before_a_table_is_ingested() {
    for relative in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let [target, link, path, copy] =
            ["real.table", "link.table", "db", "copy"].map(|name| dir.path().join(name));
        let mut table = SstableWriter::create(&target, &FamilyOptions::default()).unwrap();
        table.put(b"k", b"v").unwrap();
        table.finish().unwrap();
        symlink(if relative { Path::new("real.table") } else { &target }, &link).unwrap();
        let db = open(&path).unwrap();
        db.default_family().ingest(&[&link]).unwrap();
        db.checkpoint(&copy).unwrap();
        db.close().unwrap();
        fs::remove_file(&link).unwrap();
        fs::remove_file(&target).unwrap();
        for dir in [&path, &copy] {
            assert!(contents(dir).keys().all(|path| !fs::symlink_metadata(path).unwrap().is_symlink()));
            assert_eq!(open(dir).unwrap().get(b"k").unwrap().unwrap(), b"v");
        }
    }
}

#[test]
fn a_file_that_is_no_table_is_not_replaced_by_one() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notes");
    fs::write(&path, "precious").unwrap();
    let refused = SstableWriter::create(&path, &FamilyOptions::default()).map(|_| ()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    assert_eq!(fs::read(&path).unwrap(), b"precious");
}

#[test]
fn who_else_may_read_is_an_option() {
    for (access, bits) in [(FileAccess::Owner, 0o077), (FileAccess::Group, 0o027)] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("db");
        let options = Options { file_access: access, ..small() };
        let db = Builder::new().options(options).open(&path).unwrap();
        write(&db, 0..3_000);
        db.backup(dir.path().join("backups")).unwrap();
        db.checkpoint(dir.path().join("checkpoint")).unwrap();
        db.close().unwrap();
        let all = [path.clone(), dir.path().join("backups"), dir.path().join("checkpoint")];
        let files = all.iter().flat_map(|dir| contents(dir).into_keys()).chain(all.iter().cloned());
        for file in files {
            let mode = fs::metadata(&file).unwrap().permissions().mode();
            assert_eq!(mode & bits, 0, "{access:?}: {} has {mode:o}", file.display());
        }
    }
}

#[test]
fn a_refused_call_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(Db::open("").map(|_| ()).unwrap_err().kind(), ErrorKind::Invalid);
    assert!(siltstone::repair(&Env::local(), dir.path(), &mut |_| {}).is_err());
    let options = FamilyOptions { merge_operator: Some("missing".into()), ..FamilyOptions::default() };
    let path = dir.path().join("db");
    assert!(Builder::new().family("counts", options).open(&path).is_err());
    let missing = Options { create_if_missing: false, ..Options::default() };
    assert!(Builder::new().options(missing).open(&path).is_err());
    assert!(contents(dir.path()).is_empty() && !path.exists());
}

#[test]
fn what_is_no_regular_file_and_what_is_far_too_long_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let (made, path) = (dir.path().join("made"), dir.path().join("db"));
    let db = open(&made).unwrap();
    write(&db, 0..3_000);
    db.close().unwrap();
    let named = |is: fn(&str) -> bool| {
        let mut all =
            contents(&made).into_keys().map(|path| path.file_name().unwrap().to_str().unwrap().to_string());
        all.rfind(|name| is(name)).unwrap()
    };
    let names = [
        "CURRENT".to_string(),
        "EVENTS".to_string(),
        named(|name| name.starts_with("manifest-")),
        named(|name| name.ends_with(".log")),
        named(|name| name.ends_with(".table")),
    ];
    for name in &names {
        for long in [false, true] {
            let _ = fs::remove_dir_all(&path);
            fs::create_dir(&path).unwrap();
            for file in contents(&made).into_keys() {
                fs::copy(&file, path.join(file.file_name().unwrap())).unwrap();
            }
            let victim = path.join(name);
            match long {
                true => fs::File::options().write(true).open(&victim).unwrap().set_len(1 << 40).unwrap(),
                false => {
                    fs::remove_file(&victim).unwrap();
                    let kind = rustix::fs::FileType::Fifo;
                    rustix::fs::mknodat(rustix::fs::CWD, &victim, kind, rustix::fs::Mode::RWXU, 0).unwrap();
                }
            }
            // Neither waits, nor takes memory or time for what is not there.
            let opened = open(&path).map(|db| db.close().unwrap());
            let checked = siltstone::check(&Env::local(), &path, &mut |_| {}).map(|report| report.is_clean());
            match name.as_str() {
                "EVENTS" => assert!(opened.is_ok() && checked.unwrap(), "{name}"),
                // What is behind a WAL's history is of no matter.
                log if log.ends_with(".log") && long => assert!(opened.is_ok(), "{name}: {opened:?}"),
                _ => assert!(opened.is_err() && !checked.unwrap_or(false), "{name}, long {long}: {opened:?}"),
            }
        }
    }
}
