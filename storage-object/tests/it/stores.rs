//! The calls of a store against the server.

use crate::server::{Fate, S3};
use siltstone::storage::PutOnce;
use std::io::ErrorKind;

#[test]
fn objects_are_put_read_by_range_listed_and_deleted() {
    let s3 = S3::start();
    let stores = s3.stores();
    let store = stores.open("s3://bucket/a/b").unwrap();
    assert_eq!(store.location(), "s3://bucket/a/b");
    store.put("one", b"one two three").unwrap();
    assert_eq!(store.get("one", 4..7).unwrap(), b"two");
    assert_eq!(store.len("one").unwrap(), 13);
    assert_eq!(store.tail("one", 5).unwrap(), (13, b"three".to_vec()));
    // An end that is longer than the object is the object.
    assert_eq!(store.tail("one", 5000).unwrap(), (13, b"one two three".to_vec()));
    assert_eq!(store.put_once("two", b"first").unwrap(), PutOnce::Mine);
    assert_eq!(store.put_once("two", b"first").unwrap(), PutOnce::Mine);
    assert_eq!(store.put_once("two", b"second").unwrap(), PutOnce::Theirs);
    assert_eq!(store.get("two", 0..5).unwrap(), b"first");
    // What lies elsewhere in the bucket is not its own.
    stores.open("s3://bucket").unwrap().put("three", b"").unwrap();
    stores.open("s3://bucket/a/b/c").unwrap().put("four", b"4").unwrap();
    let mut names = store.list().unwrap();
    names.sort();
    assert_eq!(names, ["one", "two"]);
    // A name with folders is the object that a store deeper in the bucket has.
    store.put("c/d/five", b"5").unwrap();
    assert_eq!(stores.open("s3://bucket/a/b/c/d").unwrap().get("five", 0..1).unwrap(), b"5");
    let mut names = store.list_below("c").unwrap();
    names.sort();
    assert_eq!(names, ["c/d/five", "c/four"]);
    assert_eq!(store.list().unwrap().len(), 2);
    store.delete("one").unwrap();
    store.delete("one").unwrap();
    for kind in [store.len("one").unwrap_err().kind(), store.get("one", 0..1).unwrap_err().kind()] {
        assert_eq!(kind, ErrorKind::NotFound);
    }
}

#[test]
fn whole_objects_are_read_and_deleted_together_and_past_the_disk() {
    let (s3, dir) = (S3::start(), tempfile::tempdir().unwrap());
    let stores = s3.stores_with_disk(dir.path());
    let store = stores.open("s3://bucket/t").unwrap();
    store.put("one.table", b"one").unwrap();
    s3.requests();
    for _ in 0..2 {
        assert_eq!(store.get_whole("one.table").unwrap(), b"one");
    }
    assert_eq!(s3.requests().len(), 2);
    assert_eq!(store.get_whole("none").unwrap_err().kind(), ErrorKind::NotFound);
    let names: Vec<String> = (0..100).map(|n| format!("k/{n}")).collect();
    let bytes = |n: usize| vec![n as u8; n + 1];
    let is_there = |n: &usize| n % 10 != 3;
    let put_all = || (0..100).filter(is_there).for_each(|n| store.put(&names[n], &bytes(n)).unwrap());
    let list = || store.list_below("k").unwrap();
    put_all();
    s3.requests();
    for (n, found) in store.get_all(&names).into_iter().enumerate() {
        match found {
            Ok(found) => assert!(is_there(&n) && found == bytes(n), "{n}"),
            Err(e) => assert!(!is_there(&n) && e.kind() == ErrorKind::NotFound, "{n}: {e}"),
        }
    }
    assert_eq!(s3.requests().len(), 100);
    store.delete_all(&names).unwrap();
    let requests = s3.requests();
    assert!(requests.len() == 1 && requests[0].starts_with("POST"), "{requests:?}");
    assert_eq!(list(), [""; 0]);
    store.delete_all(&names).unwrap();
    store.delete_all(&[]).unwrap();
    put_all();
    s3.decide(|_| Fate::Refused(403));
    assert_eq!(store.delete_all(&names).unwrap_err().kind(), ErrorKind::PermissionDenied);
    assert_eq!(store.get_all(&names[..1])[0].as_ref().unwrap_err().kind(), ErrorKind::PermissionDenied);
}

#[test]
fn an_upload_is_to_be_seen_whole_or_not_at_all() {
    let s3 = S3::start();
    let store = s3.stores().open("s3://bucket/t").unwrap();
    // Of none, one and several parts, the last one short, full and hardly begun.
    for len in [0, 1000, 8 << 20, (8 << 20) + 1, 20_000_000] {
        let bytes: Vec<u8> = (0..len).map(|n: usize| (n.wrapping_mul(2_654_435_761) >> 16) as u8).collect();
        let mut upload = store.upload("big").unwrap().expect("it takes parts");
        for piece in bytes.chunks(777_777) {
            upload.write(piece).unwrap();
        }
        assert_eq!(store.len("big").unwrap_err().kind(), ErrorKind::NotFound, "{len}");
        upload.finish().unwrap();
        assert_eq!(store.len("big").unwrap(), len as u64);
        assert!(len == 0 || store.get("big", 0..len as u64).unwrap() == bytes, "{len} bytes");
        store.delete("big").unwrap();
    }
    s3.requests();
    let mut given_up = store.upload("gone").unwrap().unwrap();
    given_up.write(&vec![7; 9 << 20]).unwrap();
    drop(given_up);
    // A request behind it, and then the one that ends it.
    for _ in 0..1000 {
        if s3.rules.lock().seen.iter().any(|line| line.starts_with("DELETE")) {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert!(s3.requests().iter().any(|line| line.starts_with("DELETE") && line.contains("uploadId")));
    assert_eq!(store.list().unwrap(), [""; 0]);
}

#[test]
fn without_the_right_key_the_error_says_what_was_refused() {
    let s3 = S3::start();
    let mut settings = s3.settings();
    settings.variables.insert("AWS_SECRET_ACCESS_KEY".into(), "wrong".into());
    let stores = siltstone_storage_object::ObjectStores::new(&settings).unwrap();
    let error = stores.open("s3://bucket").unwrap().put("one", b"1").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
}

#[test]
fn an_upload_of_which_a_part_failed_never_becomes_an_object() {
    let s3 = S3::start();
    let mut settings = s3.settings();
    settings.patience = std::time::Duration::ZERO;
    let stores = siltstone_storage_object::ObjectStores::new(&settings).unwrap();
    let store = stores.open("s3://bucket/t").unwrap();
    s3.decide(|line| if line.contains("partNumber=2&") { Fate::Refused(403) } else { Fate::Served });
    let mut upload = store.upload("big.table").unwrap().unwrap();
    let part = vec![7; 8 << 20];
    let failed = (0..5).find_map(|_| upload.write(&part).err()).expect("a part is refused");
    assert_eq!(failed.kind(), ErrorKind::PermissionDenied, "{failed}");
    s3.serve_all();
    assert!(upload.write(&part).is_err());
    assert!(upload.finish().is_err());
    assert_eq!(store.list().unwrap(), [""; 0]);
}
