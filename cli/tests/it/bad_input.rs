//! Wrong input gets one clear line and a non-zero exit, and harms nothing that is stored.

use super::*;

#[test]
fn wrong_usage_exits_with_two() {
    let place = Place::new();
    let db = &place.db();
    siltstone(&[]).refused(2, &["subcommand", "get, put"]);
    siltstone(&["git"]).refused(2, &["unrecognized subcommand 'git'"]);
    siltstone(&["get", db, "k", "--famly", "x"]).refused(2, &["'--famly'"]);
    siltstone(&["get", db]).refused(2, &["<KEY>"]);
    siltstone(&["get", db, "a\\q"]).refused(2, &["unknown escape `\\q`"]);
    siltstone(&["delete", db]).refused(2, &["KEY"]);
    siltstone(&["load", db, "rows.txt"]).refused(2, &["rows.txt", "--format"]);
    siltstone(&["load", db, "-"]).refused(2, &["--format"]);
    siltstone(&["load", db, "x.tsv", "--format", "xml"]).refused(2, &["'xml'", "jsonl"]);
    siltstone(&["simulate", "--strategy", "flat"]).refused(2, &["unknown strategy `flat`"]);
    siltstone(&["plan-compactors", "--regions", "5"]).refused(2, &["--memory", "--merge-bytes"]);
    siltstone(&["simulate", "--data", "1MB", "--memory", "1GiB"])
        .refused(2, &["data bytes must be at least"]);
    siltstone(&["simulate", "--workload", "zipf:x"]).refused(2, &["unknown workload `zipf:x`"]);
    siltstone(&["compact", db, "--until-settled", "--start", "a"])
        .refused(2, &["--start", "--until-settled"]);
    assert!(!place.path("db").exists(), "wrong usage makes no database");
}

#[test]
fn a_compaction_server_that_is_not_there_is_named() {
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    siltstone(&["plan-compactors", "--regions", "5", "--measured", &nobody])
        .refused(1, &[&nobody, "it does not answer"]);
}

#[test]
fn a_missing_database_is_named_and_not_made() {
    let place = Place::new();
    let db = &place.db();
    let commands: [&[&str]; 6] = [
        &["get", db, "k"],
        &["delete", db, "k"],
        &["scan", db],
        &["dump", db, "-", "--format", "tsv"],
        &["inspect", db],
        &["compact", db],
    ];
    for command in commands {
        siltstone(command).refused(1, &[db, "holds no database"]);
        assert!(!place.path("db").exists(), "{command:?}");
    }
    for command in ["check", "repair"] {
        siltstone(&[command, db]).refused(1, &["holds no database"]);
        assert!(!place.path("db").exists(), "{command}");
    }
    siltstone(&["load", db, &place.text("none.tsv")]).refused(1, &["none.tsv", "No such file"]);
    assert!(!place.path("db").exists(), "a missing file makes no database");
}

#[test]
fn a_directory_of_other_things_is_left_alone() {
    let place = Place::new();
    std::fs::create_dir(place.path("home")).unwrap();
    place.file("home/letter.txt", "dear");
    siltstone(&["put", &place.text("home"), "k", "v"]).refused(1, &["holds no database", "letter.txt"]);
    assert_eq!(snapshot(&place.path("home")).len(), 1);
    let letter = place.text("home/letter.txt");
    siltstone(&["put", &letter, "k", "v"]).refused(1, &["letter.txt"]);
    siltstone(&["get", &letter, "k"]).refused(1, &["letter.txt"]);
    siltstone(&["put", &place.db(), "k", "v"]).fine();
    siltstone(&["backup", &place.db(), &place.text("home")]).refused(1, &["holds no backups", "letter.txt"]);
    assert_eq!(snapshot(&place.path("home")).len(), 1);
}

#[test]
fn no_command_takes_a_directory_of_other_things_for_a_database() {
    let place = Place::new();
    std::fs::create_dir(place.path("home")).unwrap();
    place.file("home/letter.new", "dear");
    place.file("home/syslog.log", "Jan 1 00:00:00 host kernel: booted");
    let (home, backups, rows) =
        (&place.text("home"), &place.text("backups"), &place.file("rows.tsv", "k\tv\n"));
    siltstone(&["put", &place.db(), "k", "v"]).fine();
    let made = siltstone(&["backup", &place.db(), backups]);
    assert_eq!(made.code, 0, "{made:?}");
    let before = snapshot(&place.path("home"));
    for command in [
        &["get", home, "k"][..],
        &["put", home, "k", "v"],
        &["check", home],
        &["repair", home],
        &["restore", backups, home],
        &["load", home, rows],
        &["compact", home],
        &["backup", home, backups],
        &["serve", home, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"],
    ] {
        let said = siltstone(command);
        assert!(said.code > 0 && said.err.contains(home), "{command:?}: {said:?}");
        assert_eq!(snapshot(&place.path("home")), before, "{command:?}");
    }
    assert_eq!(std::fs::read_dir(place.path("")).unwrap().count(), 4, "nothing is made beside it");
}

#[test]
fn what_cannot_be_opened_is_not_said_to_hold_nothing() {
    let place = Place::new();
    std::os::unix::fs::symlink("loop", place.path("loop")).unwrap();
    let at = &place.text("loop");
    for command in
        [&["get", at, "k"][..], &["put", at, "k", "v"], &["check", at], &["repair", at], &["inspect", at]]
    {
        siltstone(command).refused(1, &["symbolic links"]);
    }
}

#[test]
fn a_database_without_current_is_damaged_for_every_command() {
    let place = Place::new();
    let db = &place.db();
    siltstone(&["put", db, "k", "v"]).fine();
    std::fs::remove_file(place.path("db/CURRENT")).unwrap();
    for command in [
        &["get", db, "k"][..],
        &["put", db, "k", "v"],
        &["scan", db],
        &["delete", db, "k"],
        &["compact", db],
        &["inspect", db],
        &["family", "list", db],
    ] {
        siltstone(command).refused(1, &["CURRENT is missing"]);
    }
    let checked = siltstone(&["check", db]);
    assert!(checked.code == 1 && String::from_utf8_lossy(&checked.out).contains("CURRENT is missing"));
    siltstone(&["repair", db]).fine();
    assert_eq!(siltstone(&["get", db, "k"]).fine(), "v\n");
}

#[test]
fn a_load_that_a_full_wal_ends_names_line_and_rows() {
    let place = Place::new();
    let rows: String = (0..3_000).map(|n| format!("key{n:06}\t{}\n", "v".repeat(2_000))).collect();
    let file = place.file("rows.tsv", rows);
    let limit = "trap '' XFSZ; ulimit -f 4096; exec \"$0\" load \"$1\" \"$2\"";
    let siltstone = env!("CARGO_BIN_EXE_siltstone");
    let said = Command::new("sh").args(["-c", limit, siltstone, &place.db(), &file]).output().unwrap();
    Said::new(said).refused(1, &["rows.tsv line ", "stored"]);
}

#[test]
fn a_directory_in_use_is_busy_for_writers_and_open_for_readers() {
    let place = Place::new();
    let db = siltstone::Db::open(place.path("db")).unwrap();
    db.put(b"k", b"v").unwrap();
    let rows = place.file("rows.tsv", "a\tb\n");
    for command in [
        &["put", &place.db(), "k", "w"][..],
        &["load", &place.db(), &rows],
        &["compact", &place.db()],
        &["check", &place.db()],
        &["repair", &place.db()],
    ] {
        siltstone(command).refused(1, &["is in use"]);
    }
    assert_eq!(siltstone(&["get", &place.db(), "k"]).fine(), "v\n");
}

#[test]
fn a_malformed_line_is_named_and_the_rows_before_it_stay() {
    let place = Place::new();
    let db = &place.db();
    siltstone(&["put", db, "old", "value"]).fine();
    let long = format!("{}\tv\n", "k".repeat(70_000));
    for (name, text, line, why) in [
        ("bad.tsv", "a\t1\nb\t2\nno tab\nc\t3\n".to_string(), "line 3", "expected a tab"),
        ("bad.csv", "a,1\nb,2\nc\n".to_string(), "line 3", "found 1 field"),
        (
            "bad.jsonl",
            "{\"key\":\"a\",\"value\":\"1\"}\n{\"key\":\"b\",\"value\":\"2\"}\n{\n".to_string(),
            "line 3",
            "EOF",
        ),
        ("long.tsv", format!("a\t1\nb\t2\n{long}"), "line 3", "70000 bytes"),
    ] {
        let file = place.file(name, text);
        siltstone(&["load", db, &file]).refused(1, &[name, line, why, "2 rows before it stored"]);
        assert_eq!(siltstone(&["scan", db]).fine(), "a\t1\nb\t2\nold\tvalue\n", "{name}");
        siltstone(&["delete", db, "a"]).fine();
        siltstone(&["delete", db, "b"]).fine();
    }
    let said = siltstone_with_input(&["load", db, "-", "--format", "tsv"], b"x");
    said.refused(1, &["standard input line 1"]);
}

#[test]
fn an_unknown_family_and_the_wrong_file_are_named() {
    let place = Place::new();
    let db = &place.db();
    siltstone(&["put", db, "k", "v"]).fine();
    let rows = place.file("rows.tsv", "a\tb\n");
    for command in
        [&["get", db, "k"][..], &["put", db, "k", "v"], &["scan", db], &["compact", db], &["load", db, &rows]]
    {
        siltstone(&[command, &["--family", "none"]].concat()).refused(1, &["no family none"]);
    }
    siltstone(&["inspect", db, "none.table"]).refused(1, &["none.table"]);
    siltstone(&["inspect", db, &rows]).refused(1, &["rows.tsv"]);
    siltstone(&["dump", db, "/nonexistent/rows.tsv"]).refused(1, &["/nonexistent/rows.tsv"]);
    assert_eq!(siltstone(&["scan", db]).fine(), "k\tv\n");
}

#[test]
fn damage_is_one_line_with_file_and_offset_and_no_half_dump() {
    let place = Place::new();
    let db = &place.db();
    siltstone(&["put", db, "k", "v"]).fine();
    siltstone(&["compact", db]).fine();
    let files = snapshot(&place.path("db"));
    let (table, bytes, _) = files.iter().find(|(name, ..)| name.ends_with(".table")).unwrap();
    let mut bytes = bytes.clone();
    bytes[40] ^= 1;
    place.file(&format!("db/{table}"), bytes);
    place.file("rows.tsv", "before");
    siltstone(&["get", db, "k"]).refused(1, &[table, "at byte"]);
    siltstone(&["dump", db, &place.text("rows.tsv")]).refused(1, &[table, "at byte"]);
    assert_eq!(place.bytes("rows.tsv"), b"before");
    assert!(!place.path("rows.tsv.part").exists());
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let place = Place::new();
    let rows: String = (0..50_000).map(|n| format!("key{n:06}\tvalue\n")).collect();
    siltstone(&["load", &place.db(), &place.file("rows.tsv", rows)]).fine();
    let mut command = Command::new(env!("CARGO_BIN_EXE_siltstone"));
    let mut child =
        command.args(["scan", &place.db()]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let said = Said::new(child.wait_with_output().unwrap());
    assert_eq!((said.code, said.err.as_str()), (0, ""));
}
