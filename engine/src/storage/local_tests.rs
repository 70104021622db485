//! Files of the local file system.

use super::*;
use std::fs;

/// A new file, reserved.
fn map(path: &Path, len: u64, written_ahead: bool) -> Box<dyn MappedFile> {
    let storage = LocalStorage::new();
    drop(storage.create(path).unwrap());
    storage.map(path, len, written_ahead).unwrap()
}

#[test]
fn bytes_that_cannot_be_written_back_are_an_error_and_a_missing_call_is_none() {
    let lost = |number| is_lost(&io::Error::from_raw_os_error(number));
    assert!([libc::EIO, libc::ENOSPC, libc::EDQUOT].into_iter().all(lost));
    assert!(![libc::ENOSYS, libc::EINVAL, libc::ESPIPE].into_iter().any(lost));
}

#[test]
fn only_what_is_known_to_write_in_place_is_mapped() {
    assert!(is_in_place_number(0xef53) && is_in_place_number(0x0102_1994), "ext4, tmpfs");
    for other in [0x9123_683e, 0x5846_5342, 0xca45_1a4e, 0x2fc1_2fc1, 0xf2f5_2010, 0x794c_7630, 0x6969] {
        assert!(!is_in_place_number(other), "{other:x}");
    }
}

#[test]
fn a_reserved_file_that_is_not_mapped_keeps_what_is_written_and_nothing_beyond_its_end() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    fs::write(&path, [7; 4096]).unwrap();
    let file = File::options().read(true).write(true).open(&path).unwrap();
    let reserved = LocalReserved { file, len: 4096, is_new: false };
    reserved.write(10, b"abc").unwrap();
    assert!(reserved.write(4094, b"abc").is_err() && reserved.write(u64::MAX, b"a").is_err());
    reserved.zero(100, 50, 16).unwrap();
    reserved.sync().unwrap();
    let bytes = fs::read(&path).unwrap();
    assert_eq!((bytes.len(), &bytes[10..13], bytes[99], bytes[150]), (4096, &b"abc"[..], 7, 7));
    assert!(bytes[100..150].iter().all(|byte| *byte == 0));
}

#[test]
fn mapped_bytes_are_read_back_and_never_pass_the_reserved_end() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m");
    let storage = LocalStorage::new();
    let map = map(&path, 8192, true);
    map.write(8190, b"ab").unwrap();
    assert!(map.write(8191, b"ab").is_err());
    map.sync().unwrap();
    let mut back = [0; 3];
    storage.open(&path).unwrap().read_exact_at(&mut back, 8189).unwrap();
    assert_eq!(&back, b"\0ab");
    let sealed = map.sealed().unwrap();
    assert!(sealed.sync().is_ok() && sealed.write(0, b"a").is_err());
}

#[test]
fn what_was_let_go_of_for_a_sync_is_there_and_can_be_written_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m");
    let map = map(&path, 1 << 20, false);
    map.zero(0, 1 << 20, 4096).unwrap();
    let mut expected = vec![0; 1 << 20];
    // Syncs between writes, every other of which continues in an unmapped page.
    let mut at = 0;
    for n in 1..=40u8 {
        let bytes = vec![n; 10_000 + 7 * n as usize];
        map.write(at as u64, &bytes).unwrap();
        expected[at..at + bytes.len()].copy_from_slice(&bytes);
        at += bytes.len();
        if n % 7 == 0 {
            map.sync().unwrap();
            map.write(3, &[n]).unwrap();
            expected[3] = n;
        }
    }
    assert_eq!(fs::read(&path).unwrap(), expected);
    if cfg!(target_os = "linux") {
        let mapped = |map: &dyn MappedFile| {
            map.write(at as u64, b"end").unwrap();
            let smaps = fs::read_to_string("/proc/self/smaps").unwrap();
            let of_file = smaps.split_once(path.to_str().unwrap()).unwrap().1;
            let rss = of_file.lines().find_map(|line| line.strip_prefix("Rss:")).unwrap();
            rss.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
        };
        assert!(mapped(&*map) > LET_GO_BYTES as usize);
        map.sync().unwrap();
        assert!(mapped(&*map) <= LET_GO_BYTES as usize, "all but the last pages left the mapping");
    }
}

#[test]
fn a_second_lock_would_block_until_the_first_is_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("LOCK");
    let first = LocalStorage::new().lock(&path, true).unwrap();
    let second = LocalStorage::new().lock(&path, true).map(|_| ()).unwrap_err();
    assert_eq!(second.kind(), io::ErrorKind::WouldBlock);
    drop(first);
    LocalStorage::new().lock(&path, true).unwrap();
}

#[test]
fn holes_are_not_punched_into_linked_files() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (dir.path().join("a"), dir.path().join("b"));
    fs::write(&a, [7; 8192]).unwrap();
    LocalStorage::new().link(&a, &b).unwrap();
    assert!(!LocalStorage::new().punch_hole(&a, 0, 4096).unwrap());
    assert_eq!(fs::read(&b).unwrap(), [7; 8192]);
}

#[test]
fn a_bound_directory_is_written_to_whatever_its_name_leads_to_later() {
    let dir = tempfile::tempdir().unwrap();
    let (path, moved) = (dir.path().join("db"), dir.path().join("moved"));
    fs::create_dir(&path).unwrap();
    let storage = LocalStorage::new().bind(&path).unwrap().unwrap();
    storage.create(&path.join("a")).unwrap().write(b"ours").unwrap();
    fs::rename(&path, &moved).unwrap();
    fs::create_dir(&path).unwrap();
    for name in ["a", "b"] {
        fs::write(path.join(name), "theirs").unwrap();
    }
    assert!(!storage.is_bound_still(&path).unwrap());
    storage.create(&path.join("b")).unwrap().write(b"ours").unwrap();
    storage.rename(&path.join("a"), &path.join("c")).unwrap();
    storage.remove(&path.join("c")).unwrap();
    storage.sync_dir(&path).unwrap();
    assert_eq!(storage.list(&path).unwrap(), ["b"]);
    assert!(storage.remove_dir(&path).is_err());
    assert_eq!(fs::read(moved.join("b")).unwrap(), b"ours");
    for name in ["a", "b"] {
        assert_eq!(fs::read(path.join(name)).unwrap(), b"theirs");
    }
}

#[test]
fn links_in_a_bound_directory_and_what_is_no_file_are_refused() {
    use std::os::unix::fs::symlink;
    let dir = tempfile::tempdir().unwrap();
    let (path, victim) = (dir.path().join("db"), dir.path().join("victim"));
    fs::create_dir(&path).unwrap();
    fs::write(&victim, "precious").unwrap();
    symlink("../victim", path.join("link")).unwrap();
    symlink("/nothing/there", path.join("dangling")).unwrap();
    let fifo = path.join("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, FileType::Fifo, rustix::fs::Mode::RWXU, 0).unwrap();
    let storage = LocalStorage::new().bind(&path).unwrap().unwrap();
    for name in ["link", "dangling", "fifo"] {
        let path = path.join(name);
        let refused = [
            storage.open(&path).map(|_| ()),
            storage.append(&path).map(|_| ()),
            storage.create(&path).map(|_| ()),
            storage.map(&path, 4096, false).map(|_| ()),
            storage.link(&path, &dir.path().join("other")),
            storage.lock(&path, false).map(|_| ()),
        ];
        assert!(refused.iter().all(Result::is_err), "{name}: {refused:?}");
    }
    assert_eq!(fs::read(&victim).unwrap(), b"precious");
    let unbound = LocalStorage::new();
    assert!(unbound.open(&fifo).is_err() && unbound.open(Path::new("/dev/zero")).is_err());
    // A link's target is linked, not the link.
    let linked = dir.path().join("linked");
    unbound.link(&path.join("link"), &linked).unwrap();
    assert!(fs::symlink_metadata(&linked).unwrap().is_file());
}

#[test]
fn files_and_directories_are_for_their_user_alone_unless_told_otherwise() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    for (access, file, sub) in [(FileAccess::Owner, 0o600, 0o700), (FileAccess::Group, 0o640, 0o750)] {
        let dir = dir.path().join(format!("{access:?}"));
        fs::create_dir(&dir).unwrap();
        let storage = LocalStorage::new().with_access(access).unwrap().bind(&dir).unwrap().unwrap();
        drop(storage.create(&dir.join("f")).unwrap());
        drop(storage.lock(&dir.join("LOCK"), true).unwrap());
        storage.create_dir(&dir.join("a/b")).unwrap();
        let files = ["f", "LOCK"].map(|name| mode(&dir.join(name)));
        assert_eq!(files, [file; 2], "{access:?}");
        assert_eq!(["a", "a/b"].map(|name| mode(&dir.join(name))), [sub; 2], "{access:?}");
    }
}
