//! Families listed, made, altered, dropped, moved and filled by SSTables; versions with timestamps.

use super::*;

#[test]
fn a_family_is_made_with_options_altered_and_dropped() {
    let place = Place::new();
    let db = &place.db();
    let set = ["--set", "timestamps=explicit", "--set", "versions=3", "--set", "write_memory=1MiB"];
    siltstone(&[&["family", "create", db, "history"][..], &set].concat()).fine();
    let shown = siltstone(&["family", "show", db, "history"]).fine();
    for line in ["timestamps=explicit", "versions=3", "write_memory=1048576", "compression=lz4"] {
        assert!(shown.lines().any(|shown| shown == line), "{line}: {shown}");
    }
    let strategy = "--set=strategy=geometric{ratio=2}";
    siltstone(&["family", "alter", db, "history", "--set", "ttl_us=1day", strategy]).fine();
    let shown = json(&siltstone(&["family", "show", db, "history", "--json"]).fine());
    assert_eq!((&shown["ttl_us"], &shown["versions"]), (&86_400_000_000u64.into(), &3.into()));
    assert!(shown["strategy"].to_string().contains("geometric"), "{shown}");

    siltstone(&["put", db, "k", "v", "--family", "history"]).fine();
    let listed = siltstone(&["family", "list", db]).fine();
    assert_eq!(listed, "default: 0 cells, 0 SSTables of 0 B\nhistory: 1 cell, 0 SSTables of 0 B\n");
    let listed = json(&siltstone(&["family", "list", db, "--json"]).fine());
    assert_eq!((&listed[1]["name"], &listed[1]["memory_cells"]), (&"history".into(), &1.into()));

    siltstone(&["family", "drop", db, "history"]).fine();
    siltstone(&["get", db, "k", "--family", "history"]).refused(1, &["no family history"]);
    assert_eq!(siltstone(&["family", "list", db]).fine().lines().count(), 1);
}

#[test]
fn wrong_options_are_named_and_change_nothing() {
    let place = Place::new();
    let db = &place.db();
    let create = |set: &str| siltstone(&["family", "create", db, "f", "--set", set]);
    create("versions").refused(2, &["`versions` sets nothing"]);
    create("version=3").refused(2, &["no family option `version`", "versions"]);
    create("versions=many").refused(2, &["option versions cannot be `many`"]);
    create("versions=3").refused(2, &["versions needs timestamps = explicit"]);
    create("block_bytes=1").refused(2, &["block_bytes"]);
    assert!(!place.path("db").exists(), "nothing is made");
    siltstone(&["put", db, "k", "v"]).fine();
    siltstone(&["family", "create", db, "default"]).refused(1, &["default"]);
    siltstone(&["family", "alter", db, "default"]).refused(2, &["nothing to alter"]);
    siltstone(&["family", "alter", db, "default", "--set", "timestamps=explicit"])
        .refused(1, &["timestamps"]);
    siltstone(&["family", "alter", db, "none", "--set", "bloom_bits=8"]).refused(1, &["no family none"]);
    siltstone(&["family", "alter", db, "default", "--set", "versions=3"]).refused(2, &["versions needs"]);
    siltstone(&["family", "create", &place.text("new"), ""]).refused(2, &["name"]);
    assert!(!place.path("new").exists());
    siltstone(&["family", "drop", db, "none"]).refused(1, &["no family none"]);
    siltstone(&["family", "drop", db, "default"]).refused(1, &["default"]);
}

#[test]
fn a_family_moves_to_another_database() {
    let place = Place::new();
    let (from, to, moving) = (place.text("from"), place.text("to"), place.text("moving"));
    siltstone(&["put", &from, "elbe", "1094 km", "--family", "rivers", "--create-family"]).fine();
    siltstone(&["put", &to, "k", "v"]).fine();
    siltstone(&["family", "detach", &from, "rivers", &moving]).fine();
    assert_eq!(siltstone(&["family", "list", &from]).fine().lines().count(), 1);
    siltstone(&["family", "attach", &to, "rivers", &moving]).fine();
    assert_eq!(siltstone(&["get", &to, "elbe", "--family", "rivers"]).fine(), "1094 km\n");
    siltstone(&["family", "attach", &to, "other", &from]).refused(1, &[]);
    siltstone(&["family", "detach", &from, "rivers", &place.text("new")]).refused(1, &["no family rivers"]);
}

#[test]
fn families_are_split_and_joined() {
    let place = Place::new();
    let db = &place.db();
    siltstone(&["load", db, &place.file("rows.tsv", "ant\t1\nbee\t2\ncat\t3\n")]).fine();
    siltstone(&["family", "split", db, "default", "b", "from b"]).fine();
    assert_eq!(siltstone(&["scan", db]).fine(), "ant\t1\n");
    assert_eq!(siltstone(&["scan", db, "--family", "from b"]).fine(), "bee\t2\ncat\t3\n");
    siltstone(&["family", "split", db, "from b", "c\\x00", "the rest"]).fine();
    let listed = siltstone(&["family", "list", db]).fine();
    assert!(
        listed.contains("keys below b\n") && listed.contains("keys from b to below c\\x00\n"),
        "{listed}"
    );
    siltstone(&["put", db, "dog", "4"]).refused(1, &["dog"]);
    siltstone(&["family", "split", db, "default", "z", "out of range"]).refused(1, &["z"]);
    siltstone(&["family", "join", db, "default", "the rest"]).refused(1, &[]);
    siltstone(&["family", "join", db, "from b", "the rest"]).fine();
    siltstone(&["family", "join", db, "default", "from b"]).fine();
    assert_eq!(siltstone(&["scan", db]).fine(), "ant\t1\nbee\t2\ncat\t3\n");
    assert!(!siltstone(&["family", "list", db]).fine().contains("keys"));
}

#[test]
fn tables_are_dumped_and_ingested() {
    let place = Place::new();
    let rows: String = (0..2_000).map(|n| format!("key{n:04}\tvalue {n}\n")).collect();
    siltstone(&["load", &place.text("old"), &place.file("rows.tsv", &rows)]).fine();
    let table = place.text("rows.table");
    assert!(siltstone(&["dump", &place.text("old"), &table]).fine().starts_with("dumped 2,000 rows to "));
    let db = &place.db();
    siltstone(&["put", db, "key0000", "before"]).fine();
    assert!(siltstone(&["ingest", db, &table]).fine().starts_with("ingested 1 table, "));
    assert_eq!(siltstone(&["scan", db]).fine(), rows);
    siltstone(&["put", db, "key0000", "after"]).fine();
    assert_eq!(siltstone(&["get", db, "key0000"]).fine(), "after\n");
    siltstone(&["ingest", db, &place.text("rows.tsv")]).refused(1, &["rows.tsv"]);
    siltstone(&["ingest", db]).refused(2, &["<TABLES>"]);
    siltstone(&["dump", db, "-", "--format", "table"]).refused(2, &["standard output"]);
    siltstone(&["dump", db, "rows.txt", "--format", "xml"]).refused(2, &["tsv, csv, jsonl, table"]);
    siltstone(&["delete", db, "--all"]).fine();
    siltstone(&["dump", db, &place.text("none.table")]).refused(1, &["without cells"]);
    assert!(!place.path("none.table").exists() && !place.path("none.table.part").exists());
}

#[test]
fn versions_are_put_read_and_deleted_by_their_timestamps() {
    let place = Place::new();
    let db = &place.db();
    let set = ["--set", "timestamps=explicit", "--set", "versions=5"];
    siltstone(&[&["family", "create", db, "h"][..], &set].concat()).fine();
    let run = |arguments: &[&str]| siltstone(&[arguments, &["--family", "h"]].concat());
    for time in ["10", "20", "30", "40"] {
        run(&["put", db, "k", &format!("v{time}"), "--timestamp", time]).fine();
    }
    assert_eq!(run(&["get", db, "k"]).fine(), "v40\n");
    assert_eq!(run(&["get", db, "k", "--timestamp", "25"]).fine(), "v20\n");
    assert_eq!(run(&["get", db, "k", "--versions", "2"]).fine(), "k\tv40\t40\nk\tv30\t30\n");
    let json = run(&["get", db, "k", "--versions", "1", "--timestamp", "39", "--json"]).fine();
    assert_eq!(json, "{\"key\":\"k\",\"value\":\"v30\",\"timestamp\":30}\n");
    run(&["delete", db, "k", "--timestamp", "10"]).fine();
    run(&["delete", db, "--start", "a", "--end", "l", "--from-time", "30", "--to-time", "40"]).fine();
    assert_eq!(run(&["get", db, "k", "--versions", "9"]).fine(), "k\tv40\t40\nk\tv20\t20\n");
    run(&["delete", db, "--all", "--to-time", "0"]).refused(2, &["no time between"]);
    run(&["delete", db, "--all", "--from-time", "40", "--to-time", "30"]).refused(2, &["no time between"]);
    run(&["delete", db, "--start", "m", "--end", "a"]).refused(2, &["no key between"]);
    assert_eq!(run(&["scan", db]).fine().lines().count(), 2);
    run(&["delete", db, "--all", "--to-time", "40"]).fine();
    assert_eq!(run(&["scan", db]).fine(), "k\tv40\t40\n");
    siltstone(&["put", db, "k", "v", "--timestamp", "1"]).refused(1, &["timestamps"]);
    siltstone(&["delete", db, "k", "--timestamp", "1"]).refused(1, &["timestamps"]);
    siltstone(&["delete", db, "k", "--from-time", "1"]).refused(2, &["--from-time"]);
    siltstone(&["delete", db, "--all", "--from-time", "1"]).refused(1, &["timestamps"]);
    siltstone(&["delete", db, "--all", "--from-time", "0"]).refused(1, &["timestamps"]);
    siltstone(&["delete", db, "k", "--timestamp", "0"]).refused(1, &["timestamps"]);
    siltstone(&["get", db, "k", "--timestamp", "1"]).refused(1, &["timestamps"]);
    let absent = run(&["get", db, "none", "--versions", "3"]);
    assert_eq!((absent.code, absent.out.len()), (1, 0));
}
