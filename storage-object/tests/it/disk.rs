//! The disk cache.

use crate::server::S3;
use std::io::ErrorKind;

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

#[test]
fn what_was_read_once_costs_no_request_again_also_after_a_restart() {
    let (s3, dir) = (S3::start(), tempfile::tempdir().unwrap());
    let all = bytes(300_001);
    {
        let stores = s3.stores_with_disk(dir.path());
        let store = stores.open("s3://bucket/t").unwrap();
        store.put("one.table", &all).unwrap();
        s3.requests();
        assert_eq!(store.get("one.table", 40_000..50_000).unwrap(), all[40_000..50_000]);
        assert_eq!(s3.requests().len(), 1);
        // Within the same chunk, and then one that has to be fetched with what is there already.
        assert_eq!(store.get("one.table", 33_000..65_000).unwrap(), all[33_000..65_000]);
        assert_eq!(s3.requests().len(), 0);
        assert_eq!(store.get("one.table", 60_000..150_000).unwrap(), all[60_000..150_000]);
        assert_eq!(s3.requests().len(), 1);
        assert_eq!(store.tail("one.table", 70_625).unwrap(), (300_001, all[229_376..].to_vec()));
        assert_eq!(store.tail("one.table", 30_000).unwrap(), (300_001, all[270_001..].to_vec()));
        assert_eq!(s3.requests().len(), 1, "the second end lies within the first");
        // Long reads pass by.
        assert_eq!(store.get("one.table", 0..290_000).unwrap(), all[..290_000]);
        assert_eq!(store.get("one.table", 0..10).unwrap(), all[..10]);
        assert_eq!(s3.requests().len(), 2);
        // Where the object ends before, it says so, from the store and from the disk.
        for _ in 0..2 {
            assert_eq!(
                store.get("one.table", 290_000..300_100).unwrap_err().kind(),
                ErrorKind::UnexpectedEof
            );
        }
        let used = stores.disk_use().unwrap();
        assert!(used.found_bytes >= 32_000 && used.fetched_bytes >= 140_000, "{used:?}");
        let twice = siltstone_storage_object::ObjectStores::new(&siltstone_storage_object::Settings {
            disk: Some(siltstone_storage_object::DiskCache { dir: dir.path().into(), bytes: 64 << 20 }),
            ..s3.settings()
        });
        assert_eq!(twice.unwrap_err().kind(), ErrorKind::AlreadyExists);
        stores.close().unwrap();
    }
    s3.requests();
    let stores = s3.stores_with_disk(dir.path());
    let store = stores.open("s3://bucket/t").unwrap();
    assert_eq!(store.get("one.table", 40_000..50_000).unwrap(), all[40_000..50_000]);
    assert_eq!(s3.requests(), [""; 0]);
    assert_eq!(store.tail("one.table", 70_000).unwrap().1, all[230_001..]);
    assert_eq!(s3.requests(), [""; 0]);
    // Of another object of that name elsewhere nothing is known.
    assert_eq!(
        stores.open("s3://bucket").unwrap().get("one.table", 0..1).unwrap_err().kind(),
        ErrorKind::NotFound
    );
}

#[test]
fn it_stays_within_its_budget_and_goes_on_with_what_it_has() {
    let (s3, dir) = (S3::start(), tempfile::tempdir().unwrap());
    let stores = s3.stores_with_disk(dir.path());
    let store = stores.open("s3://bucket/t").unwrap();
    let all = bytes(4 << 20);
    for n in 0..32 {
        let name = format!("{n}.table");
        store.put(&name, &all).unwrap();
        for from in (0..4 << 20).step_by(256 << 10) {
            let range = from..from + (256 << 10);
            assert!(
                store.get(&name, range.clone()).unwrap() == all[range.start as usize..range.end as usize]
            );
        }
    }
    // 128 MiB went through 64.
    let blocks =
        |path: &std::path::Path| std::os::unix::fs::MetadataExt::blocks(&path.metadata().unwrap()) * 512;
    let taken = blocks(&dir.path().join("chunks"));
    assert!(taken <= 65 << 20, "{taken} bytes");
}

#[test]
fn what_is_wrong_on_the_disk_is_asked_for_again() {
    let (s3, dir) = (S3::start(), tempfile::tempdir().unwrap());
    let all = bytes(100_000);
    {
        let stores = s3.stores_with_disk(dir.path());
        let store = stores.open("s3://bucket/t").unwrap();
        store.put("one.table", &all).unwrap();
        store.get("one.table", 0..100_000).unwrap();
        stores.close().unwrap();
    }
    let path = dir.path().join("chunks");
    let mut held = std::fs::read(&path).unwrap();
    held.iter_mut().step_by(97).for_each(|byte| *byte ^= 0x20);
    std::fs::write(&path, held).unwrap();
    let stores = s3.stores_with_disk(dir.path());
    let store = stores.open("s3://bucket/t").unwrap();
    assert!(store.get("one.table", 0..100_000).unwrap() == all);
    // What the caller finds wrong is fetched past the disk.
    s3.requests();
    assert!(store.get_again("one.table", 0..100_000).unwrap() == all);
    assert_eq!(s3.requests().len(), 1);
}

#[test]
fn what_was_kept_of_another_object_of_that_name_is_forgotten_when_it_is_told_to_be_wrong() {
    let (s3, dir) = (S3::start(), tempfile::tempdir().unwrap());
    let stores = s3.stores_with_disk(dir.path());
    let store = stores.open("s3://bucket/t").unwrap();
    store.put("one.table", b"the first").unwrap();
    assert_eq!(store.tail("one.table", 5).unwrap(), (9, b"first".to_vec()));
    store.put("one.table", b"the second one").unwrap();
    assert!(store.forget("one.table"));
    assert_eq!(store.tail("one.table", 3).unwrap(), (14, b"one".to_vec()));
    assert_eq!(store.get("one.table", 4..10).unwrap(), b"second");
    // Only SSTables are cached.
    store.put("OWNER", b"first").unwrap();
    assert_eq!(store.get("OWNER", 0..5).unwrap(), b"first");
    store.put("OWNER", b"other").unwrap();
    assert_eq!(store.get("OWNER", 0..5).unwrap(), b"other");
}
