//! Objects that are put once, by a server whose answers do not say whether they were.

use crate::server::{Fate, S3};
use siltstone::storage::PutOnce;
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Lets the first so many puts meet a fate, and counts all.
fn first_puts(s3: &S3, count: usize, fate: Fate) -> Arc<AtomicUsize> {
    let puts = Arc::new(AtomicUsize::new(0));
    let counted = puts.clone();
    s3.decide(move |line| {
        if line.starts_with("PUT") && counted.fetch_add(1, Ordering::SeqCst) < count {
            fate
        } else {
            Fate::Served
        }
    });
    puts
}

#[test]
fn a_put_whose_answer_is_lost_is_found_to_be_mine() {
    let s3 = S3::start();
    let store = s3.stores().open("s3://bucket/t").unwrap();
    first_puts(&s3, 1, Fate::Unanswered);
    assert_eq!(store.put_once("k/1", b"mine").unwrap(), PutOnce::Mine);
    assert_eq!(store.get("k/1", 0..4).unwrap(), b"mine");
}

#[test]
fn a_put_that_is_lost_or_meets_a_conflict_is_made_again_while_there_is_no_object() {
    let s3 = S3::start();
    let store = s3.stores().open("s3://bucket/t").unwrap();
    for (name, fate) in [("1", Fate::Reset), ("2", Fate::Refused(409)), ("3", Fate::Refused(503))] {
        let puts = first_puts(&s3, 2, fate);
        assert_eq!(store.put_once(name, b"mine").unwrap(), PutOnce::Mine, "{fate:?}");
        assert!(puts.load(Ordering::SeqCst) > 2, "{fate:?}");
    }
}

#[test]
fn the_object_of_another_is_theirs_whatever_the_answer() {
    let s3 = S3::start();
    let store = s3.stores().open("s3://bucket/t").unwrap();
    store.put("1", b"theirs").unwrap();
    for fate in [Fate::Served, Fate::Refused(409), Fate::Refused(412), Fate::Reset] {
        first_puts(&s3, 1, fate);
        assert_eq!(store.put_once("1", b"mine").unwrap(), PutOnce::Theirs, "{fate:?}");
        assert_eq!(store.get("1", 0..6).unwrap(), b"theirs");
    }
}

#[test]
fn a_put_fails_where_its_outcome_stays_unknown_or_is_refused_for_good() {
    let s3 = S3::start();
    let mut settings = s3.settings();
    settings.patience = Duration::from_millis(200);
    let stores = siltstone_storage_object::ObjectStores::new(&settings).unwrap();
    let store = stores.open("s3://bucket/t").unwrap();
    // It lands, and nobody may look.
    s3.decide(|line| if line.starts_with("PUT") { Fate::Unanswered } else { Fate::Refused(500) });
    assert!(store.put_once("1", b"mine").is_err());
    s3.serve_all();
    assert_eq!(store.get("1", 0..4).unwrap(), b"mine");
    s3.decide(|_| Fate::Refused(403));
    assert_eq!(store.put_once("2", b"mine").unwrap_err().kind(), ErrorKind::PermissionDenied);
}
