//! Shared databases: the local directory may go, and whoever opens one last has it.

use super::*;

#[test]
fn what_was_written_is_there_where_the_local_directory_is_gone() {
    let place = Place::new();
    let shared = &place.text("shared");
    let on = |command: &[&str]| siltstone(&[command, &["--shared", shared]].concat());
    let [one, two, three] = &["one", "two", "three"].map(|name| place.text(name));
    on(&["put", one, "river", "silt"]).fine();
    on(&["family", "create", one, "history"]).fine();
    let rows = place.file("rows.tsv", "a\t1\nb\t2\n");
    on(&["load", one, &rows, "--family", "history"]).fine();
    std::fs::remove_dir_all(one).unwrap();

    assert_eq!(on(&["get", two, "river"]).fine(), "silt\n");
    on(&["delete", two, "a", "--family", "history"]).fine();
    on(&["compact", two, "--family", "history"]).fine();
    assert!(on(&["family", "list", two]).fine().contains("history: "));
    assert_eq!(on(&["scan", three, "--family", "history"]).fine(), "b\t2\n");
    // One that is behind what another has written reads on from the stream.
    on(&["put", three, "river", "sand"]).fine();
    assert_eq!(on(&["get", two, "river"]).fine(), "sand\n");

    let (backups, restored) = (&place.text("backups"), &place.text("restored"));
    on(&["backup", two, backups]).fine();
    siltstone(&["restore", backups, restored]).fine();
    assert_eq!(siltstone(&["get", restored, "river"]).fine(), "sand\n");
}

#[test]
fn what_is_no_shared_database_or_no_local_part_of_it_is_refused() {
    let place = Place::new();
    let (shared, other) = (&place.text("shared"), &place.text("other"));
    let (part, own) = (&place.text("part"), &place.db());
    siltstone(&["get", part, "river", "--shared", shared]).refused(1, &[shared, "holds no shared database"]);
    siltstone(&["put", part, "river", "silt", "--shared", shared]).fine();
    siltstone(&["put", part, "river", "sand"]).refused(1, &[part, "local part", shared, "option shared"]);
    siltstone(&["put", part, "river", "sand", "--shared", other])
        .refused(1, &[part, "local part of another shared database", shared]);
    siltstone(&["put", own, "river", "silt"]).fine();
    siltstone(&["put", own, "river", "sand", "--shared", shared]).refused(1, &[own, "a database of its own"]);
    siltstone(&["get", part, "river", "--shared", "s4://bucket/prefix"]).refused(1, &["s4://bucket/prefix"]);
    siltstone(&["get", part, "river", "--shared", ""]).refused(2, &["--shared"]);
    siltstone(&["serve", part, "--shared", shared, "--sstable-store", other])
        .refused(2, &["shared and sstable-store"]);
    assert_eq!(siltstone(&["get", part, "river", "--shared", shared]).fine(), "silt\n");
    assert_eq!(siltstone(&["get", own, "river"]).fine(), "silt\n");
}
