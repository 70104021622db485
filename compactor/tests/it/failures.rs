//! Servers that fail (OFF-6): nothing is lost, nothing applied twice, and no file is left over.

use crate::support::{self, World, contents, eventually, merged, server, write};
use siltstone::EventKind;
use siltstone_compactor::{CompactorConfig, CompactorServer};

/// Files of SSTables that lie in a database's directory.
fn tables_there(dir: &std::path::Path) -> usize {
    let names = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name());
    names.filter(|name| name.to_string_lossy().ends_with(".table")).count()
}

#[test]
fn a_server_that_ends_in_the_middle_is_done_without() {
    let world = World::new();
    let (here, there) = (world.open("here", None), {
        let ends = server(&world, 4);
        let there = world.open("there", Some(&[&ends]));
        std::thread::scope(|scope| {
            let writes = scope.spawn(|| {
                for round in 0..6 {
                    write(&there, round, 3_000);
                    merged(&there);
                }
            });
            let state = || there.compactors.as_ref().unwrap().servers()[0].state.clone();
            eventually("it has merged something", || state().is_some_and(|state| state.done > 0));
            drop(ends);
            writes.join().unwrap();
        });
        for round in 6..8 {
            write(&there, round, 3_000);
            merged(&there);
        }
        there
    });
    for round in 0..8 {
        write(&here, round, 3_000);
        merged(&here);
    }
    assert_eq!(contents(&here), contents(&there));
    eventually("nothing is left over of what it wrote", || {
        // Small work is done beside other work.
        there.put(b"key00000", b"last").unwrap();
        there.flush().unwrap();
        tables_there(&there.dir) == there.family("default").unwrap().shape().tables().count()
    });
    here.put(b"key00000", b"last").unwrap();
    let is_told = |event: &siltstone::Event| {
        ["run here: none of 1 compaction servers answers", "failed elsewhere"]
            .iter()
            .any(|why| event.reason.contains(why))
    };
    assert!(there.events().iter().any(is_told), "{:?}", there.events());
    there.reopened_has(&contents(&here));
}

#[test]
fn a_server_that_may_not_work_there_or_lacks_an_operator_fails_and_the_database_does_it() {
    let world = World::new();
    let other = tempfile::tempdir().unwrap();
    let of = |tables: &std::path::Path, builder| {
        let config = CompactorConfig { tables: vec![tables.into()], ..CompactorConfig::default() };
        CompactorServer::start(config, builder).unwrap()
    };
    let outside = of(other.path(), support::builder());
    let lacking = of(world.dir.path(), siltstone::Db::builder());
    for (name, server, why) in [
        ("outside", &outside, "is not below a directory that this server was given"),
        ("lacking", &lacking, "no merge operator \"concat\" is registered here"),
    ] {
        let (here, there) = (world.open(&format!("{name}-here"), None), world.open(name, Some(&[server])));
        for db in [&here, &there] {
            write(db, 7, 5_000);
            merged(db);
        }
        assert_eq!(contents(&here), contents(&there), "{name}");
        let told = there.events();
        assert!(
            told.iter().any(|event| event.kind == EventKind::OffloadFailure && event.reason.contains(why)),
            "{name}: {told:?}"
        );
        there.reopened_has(&contents(&here));
    }
}
