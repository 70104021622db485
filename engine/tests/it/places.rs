//! Where tables lie, apart from log and manifest: each place belongs to one database.

use siltstone::storage::Storage;
use siltstone::storage::sim::SimWorld;
use siltstone::{Builder, Db, ErrorKind, Options};
use std::path::Path;

fn builder(world: &SimWorld, tables: Option<&str>) -> Builder {
    let options = Options { sstable_store: tables.map(Into::into), ..Options::default() };
    Db::builder().options(options).env(world.env())
}

fn kind<T>(result: siltstone::Result<T>) -> Option<ErrorKind> {
    result.err().map(|e| e.kind())
}

/// Makes a database with one table; its value.
fn make(world: &SimWorld, dir: &str, tables: Option<&str>) -> Db {
    let db = builder(world, tables).open(dir).unwrap();
    db.put(b"key", dir.as_bytes()).unwrap();
    db.flush().unwrap();
    db
}

fn value(db: &Db) -> Vec<u8> {
    db.get(b"key").unwrap().unwrap().to_vec()
}

#[test]
fn a_place_that_holds_anything_of_another_database_is_refused_and_left_alone() {
    let world = SimWorld::new(1);
    let refused = Some(ErrorKind::Invalid);
    make(&world, "/a", None).close().unwrap();
    assert_eq!(kind(builder(&world, Some("/a")).open("/b")), refused, "a database's own directory");
    let second = make(&world, "/c", Some("/tables"));
    assert_eq!(kind(builder(&world, Some("/tables")).open("/b")), Some(ErrorKind::Busy), "in use");
    second.close().unwrap();
    assert_eq!(kind(builder(&world, Some("/tables")).open("/b")), refused);
    let damaged = Some(ErrorKind::Corruption);
    assert_eq!(kind(builder(&world, None).open("/tables")), damaged, "tables and no CURRENT");
    builder(&world, Some("/unused")).open("/d").unwrap().close().unwrap();
    assert_eq!(kind(builder(&world, None).open("/unused")), refused, "claimed, with no table yet");
    for (dir, tables) in [("/a", None), ("/c", Some("/tables"))] {
        for tables in [tables, None] {
            let db = builder(&world, tables).open(dir).unwrap();
            assert_eq!(value(&db), dir.as_bytes());
            db.close().unwrap();
        }
    }
    assert_eq!(kind(builder(&world, Some("/elsewhere")).open("/c")), refused, "they lie in /tables");
    assert!(!world.storage.exists(Path::new("/elsewhere")).unwrap());
}

#[test]
fn a_place_is_an_absolute_path_and_not_the_database_s_own() {
    let world = SimWorld::new(2);
    for tables in ["", "tables", "objects:x", "/a"] {
        assert_eq!(kind(builder(&world, Some(tables)).open("/a")), Some(ErrorKind::Invalid), "{tables:?}");
    }
    assert!(!world.storage.exists(Path::new("/a/CURRENT")).unwrap());
}

#[test]
fn a_place_whose_owner_is_not_said_is_damage_and_a_repair_leaves_tables_elsewhere_alone() {
    let world = SimWorld::new(3);
    make(&world, "/a", Some("/tables")).close().unwrap();
    world.storage.remove(Path::new("/tables/OWNER")).unwrap();
    assert_eq!(kind(builder(&world, None).open("/a")), Some(ErrorKind::Corruption));
    let repair = || siltstone::repair(&world.env(), Path::new("/a"), &mut |_| {});
    assert_eq!(kind(repair()), Some(ErrorKind::Unsupported));
    // Also where no manifest says it any more.
    for name in world.storage.list(Path::new("/a")).unwrap() {
        if name.starts_with("manifest-") {
            world.storage.remove(&Path::new("/a").join(name)).unwrap();
        }
    }
    assert_eq!(kind(repair()), Some(ErrorKind::Unsupported));
}
