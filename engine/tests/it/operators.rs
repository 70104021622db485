//! Merge operators and filters that refuse, answer too much, are missing, or call the database that they
//! belong to.

use siltstone::{
    Batch, Builder, CompactionFilter, Condition, Db, Durability, Error, ErrorKind, Family, FamilyOptions,
    MergeOperator, Result, Timestamp, VALUE_BYTES_MAX,
};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Appends operands, but for those that it cannot.
struct Picky;

impl MergeOperator for Picky {
    fn merge(&self, _: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Result<Vec<u8>> {
        let mut all = base.unwrap_or_default().to_vec();
        for operand in operands {
            match *operand {
                b"panic" => panic!("an operator's own bug"),
                b"refuse" => return Err(Error::new(ErrorKind::MergeRefused, "cannot take that")),
                operand => all.extend_from_slice(operand),
            }
        }
        Ok(all)
    }
}

#[test]
fn an_operator_that_refuses_one_key_costs_no_other_and_loses_nothing() {
    for why in ["panic", "refuse"] {
        let dir = tempfile::tempdir().unwrap();
        let options = FamilyOptions { merge_operator: Some("picky".into()), ..FamilyOptions::default() };
        let open = || {
            let builder = Builder::new().merge_operator("picky", Arc::new(Picky));
            builder.family("f", options.clone()).open(dir.path()).unwrap()
        };
        let mut db = open();
        for round in 0..3 {
            let f = db.family("f").unwrap();
            if round == 0 {
                f.put(b"a", b"x").unwrap();
                f.put(b"b", b"x").unwrap();
                f.merge(b"b", why.as_bytes()).unwrap();
            }
            f.merge(b"a", b"y").unwrap();
            f.merge(b"c", b"z").unwrap();
            f.flush().unwrap();
            f.compact::<&[u8]>(..).unwrap();
            db.put(b"k", b"v").unwrap();
            let refused = |e: Error| e.kind() == ErrorKind::MergeRefused;
            assert!(f.get(b"b").is_err_and(refused), "{why}");
            assert_eq!(f.get(b"a").unwrap().unwrap(), [&b"x"[..], &b"y".repeat(round + 1)].concat());
            let scanned: Vec<_> = f.scan::<&str>(..).collect();
            let keys: Vec<_> =
                scanned.iter().map(|e| e.as_ref().map_or(b"!".to_vec(), |e| e.key.clone())).collect();
            assert_eq!(keys, [b"a", b"!", b"c"], "{why}: a scan goes on behind the key");
            drop((scanned, f));
            db.close().unwrap();
            db = open();
        }
        let f = db.family("f").unwrap();
        f.put(b"b", b"anew").unwrap();
        f.merge(b"b", b"!").unwrap();
        assert_eq!(f.get(b"b").unwrap().unwrap(), b"anew!");
    }
}

/// Appends operands, or answers so many zeros.
struct Growing(AtomicUsize);

impl MergeOperator for Growing {
    fn merge(&self, _: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Result<Vec<u8>> {
        match self.0.load(Ordering::SeqCst) {
            0 => Ok([base.unwrap_or_default().to_vec(), operands.concat()].concat()),
            bytes => Ok(vec![0; bytes]),
        }
    }
}

#[test]
fn a_merged_value_over_the_limit_costs_no_other_key_and_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let growing = Arc::new(Growing(AtomicUsize::new(0)));
    let options = FamilyOptions { merge_operator: Some("growing".into()), ..FamilyOptions::default() };
    let builder = Builder::new().merge_operator("growing", growing.clone()).family("f", options);
    let db = builder.open(dir.path()).unwrap();
    let f = db.family("f").unwrap();
    f.put("big", "base").unwrap();
    f.merge("big", "1").unwrap();
    f.put("small", "x").unwrap();
    growing.0.store(VALUE_BYTES_MAX + 1, Ordering::SeqCst);
    for how in 0..3 {
        match how {
            0 => {}
            1 => f.flush().unwrap(),
            _ => f.compact::<&str>(..).unwrap(),
        }
        assert_eq!(f.get("big").unwrap_err().kind(), ErrorKind::MergeRefused);
        assert_eq!(f.get("small").unwrap().unwrap(), b"x");
        assert_eq!(db.statistics().background_error, None);
    }
    growing.0.store(0, Ordering::SeqCst);
    f.compact::<&str>(..).unwrap();
    assert_eq!(f.get("big").unwrap().unwrap(), b"base1");
}

type Call = fn(&Db, &Family) -> Result<()>;

/// Calls the database that it belongs to, and notes the answers.
#[derive(Default)]
struct Calling {
    what: Mutex<Option<(Db, Family, Call)>>,
    answers: Mutex<Vec<Result<()>>>,
}

impl Calling {
    fn call(&self) {
        let what = self.what.lock().unwrap().clone();
        if let Some((db, f, call)) = what {
            let answer = call(&db, &f);
            self.answers.lock().unwrap().push(answer);
        }
    }
}

impl MergeOperator for Calling {
    fn merge(&self, _: &[u8], _: Option<&[u8]>, _: &[&[u8]]) -> Result<Vec<u8>> {
        self.call();
        Ok(b"merged".to_vec())
    }
}

impl CompactionFilter for Calling {
    fn remove(&self, _: &[u8], _: Timestamp, _: &[u8], _: u64) -> bool {
        self.call();
        false
    }
}

/// What would wait there for a worker, or for writers, could wait for the very one that runs the function.
#[test]
fn operators_and_filters_may_read_and_are_refused_what_would_wait_for_themselves() {
    let refused: [(&str, Call); 13] = [
        ("flush", |_, f| f.flush()),
        ("compact", |_, f| f.compact::<&str>(..)),
        ("wait_idle", |db, _| db.wait_idle()),
        ("sync", |db, _| db.sync()),
        ("put", |_, f| f.put("y", "1").map(drop)),
        ("delete_range", |_, f| f.delete_range("y".."z").map(drop)),
        ("commit", |db, _| db.begin().commit(Durability::Buffered).map(drop)),
        ("create_family", |db, _| db.create_family("new", FamilyOptions::default()).map(drop)),
        ("drop_family", |db, f| db.drop_family(f.name())),
        ("alter", |_, f| f.alter(f.options())),
        ("checkpoint", |db, _| db.checkpoint(db.path().join("copy")).map(drop)),
        ("set_memory_limits", |db, _| {
            db.set_memory_limits(db.options().write_memory, db.options().memory_budget)
        }),
        ("close", |db, _| db.close()),
    ];
    let answered: [(&str, Call); 2] = [
        ("get", |db, _| db.get("x").map(drop)),
        ("scan", |db, _| db.scan::<&str>(..).try_for_each(|entry| entry.map(drop))),
    ];
    let triggers: [Call; 4] = [
        |db, _| db.family("m")?.get("k").map(drop),
        |db, _| db.family("f")?.get("k").map(drop),
        |db, _| db.family("m")?.flush(),
        |db, _| db.family("f")?.compact::<&str>(..),
    ];
    for (at, (name, call)) in refused.into_iter().chain(answered).enumerate() {
        for (by, trigger) in triggers.into_iter().enumerate() {
            let dir = tempfile::tempdir().unwrap();
            let calling = Arc::new(Calling::default());
            let builder = Builder::new().merge_operator("calls", calling.clone());
            let builder = builder.filter("calls", calling.clone());
            let merged = FamilyOptions { merge_operator: Some("calls".into()), ..Default::default() };
            let filtered = FamilyOptions { compaction_filter: Some("calls".into()), ..Default::default() };
            let db = builder.family("m", merged).family("f", filtered).open(dir.path()).unwrap();
            let (m, f) = (db.family("m").unwrap(), db.family("f").unwrap());
            db.put("x", "1").unwrap();
            m.put("k", "1").unwrap();
            m.merge("k", "1").unwrap();
            f.put("k", "1").unwrap();
            *calling.what.lock().unwrap() = Some((db.clone(), m.clone(), call));
            trigger(&db, &m).unwrap_or_else(|e| panic!("{name} by {by}: {e}"));
            *calling.what.lock().unwrap() = None;
            let answers = std::mem::take(&mut *calling.answers.lock().unwrap());
            assert!(!answers.is_empty(), "{name} by {by}");
            for answer in answers {
                let kind = answer.map_err(|e| e.kind());
                let expected = if at < 13 { Err(ErrorKind::Invalid) } else { Ok(()) };
                assert_eq!(kind, expected, "{name} by {by}");
            }
            assert_eq!(m.get("k").unwrap().unwrap(), b"merged");
            db.put("x", "2").unwrap();
            db.close().unwrap();
        }
    }
}

#[test]
fn the_closure_of_a_condition_may_only_read() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path()).unwrap();
    let f = db.default_family();
    let writer = f.clone();
    let condition = Condition::when(move || writer.put("y", "1").map(|_| true));
    let mut batch = Batch::new();
    batch.put(&f, "k", "v");
    let refused = db.write_if(&[condition], &batch, Durability::Buffered).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    db.write(&batch).unwrap();
}

#[test]
fn a_family_whose_operator_is_missing_refuses_only_what_needs_it() {
    let dir = tempfile::tempdir().unwrap();
    let options = FamilyOptions { merge_operator: Some("picky".into()), ..FamilyOptions::default() };
    let db = Builder::new().merge_operator("picky", Arc::new(Picky)).family("f", options);
    let db = db.open(dir.path()).unwrap();
    let f = db.family("f").unwrap();
    f.put(b"plain", b"v").unwrap();
    f.merge(b"merged", b"v").unwrap();
    drop(f);
    db.close().unwrap();
    let unsupported = |e: Error| e.kind() == ErrorKind::Unsupported;
    for read_only in [true, false] {
        let db = match read_only {
            true => Builder::new().open_read_only(dir.path()).unwrap(),
            false => Db::open(dir.path()).unwrap(),
        };
        let f = db.family("f").unwrap();
        assert_eq!(f.get(b"plain").unwrap().unwrap(), b"v");
        assert!(f.get(b"merged").is_err_and(unsupported));
        if !read_only {
            f.put(b"more", b"v").unwrap();
            assert!(f.merge(b"plain", b"w").is_err_and(unsupported));
            f.compact::<&[u8]>(..).unwrap();
        }
        db.close().unwrap();
    }
    // Said to the builder it counts from the beginning, and stays.
    let without = Builder::new().family("f", FamilyOptions::default()).open(dir.path()).unwrap();
    assert_eq!(without.family("f").unwrap().get(b"merged").unwrap().unwrap(), b"v");
    without.close().unwrap();
    assert_eq!(Db::open(dir.path()).unwrap().family("f").unwrap().options().merge_operator, None);
}
