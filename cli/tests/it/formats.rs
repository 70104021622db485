//! Rows in and out.

use super::*;

/// Rows that are hard to write: every byte, text, nothing.
fn hard_rows(db: &siltstone::Family) {
    let all: Vec<u8> = (0..=255).collect();
    db.put(&all, &all).unwrap();
    db.put(b"", b"the empty key").unwrap();
    db.put(b"the empty value", b"").unwrap();
    db.put("größe".as_bytes(), "\u{2028} \\x41 \"quoted, twice\"\r\n".as_bytes()).unwrap();
    for byte in 0..=255 {
        db.put([byte], [byte, b'\n', byte]).unwrap();
    }
}

fn rows(dir: &Path, family: &str) -> Vec<(Vec<u8>, u64, Vec<u8>)> {
    let db = siltstone::Builder::new().open_read_only(dir).unwrap();
    let row = |e: siltstone::Entry| (e.key, e.timestamp.0, e.value.to_vec());
    db.family(family).unwrap().scan::<&str>(..).map(|entry| row(entry.unwrap())).collect()
}

#[test]
fn each_format_brings_every_row_back_through_files_and_streams() {
    let place = Place::new();
    let db = siltstone::Db::open(place.path("db")).unwrap();
    hard_rows(&db.default_family());
    db.close().unwrap();
    let expected = rows(&place.path("db"), "default");
    assert_eq!(expected.len(), 260);
    for format in ["tsv", "csv", "jsonl"] {
        let (file, copy) = (place.text(&format!("rows.{format}")), place.text(&format!("copy-{format}")));
        let said = siltstone(&["dump", &place.db(), &file]).fine();
        assert!(said.starts_with("dumped 260 rows to "), "{said}");
        let said = siltstone(&["load", &copy, &file]).fine();
        assert!(said.starts_with("loaded 260 rows, "), "{said}");
        assert_eq!(rows(Path::new(&copy), "default"), expected, "{format}");

        let piped = place.text(&format!("piped-{format}"));
        let stream = siltstone(&["dump", &copy, "-", "--format", format]);
        assert_eq!(stream.out, place.bytes(&format!("rows.{format}")));
        siltstone_with_input(&["load", &piped, "-", "--format", format], &stream.out).fine();
        assert_eq!(rows(Path::new(&piped), "default"), expected, "{format} piped");
        assert!(!place.path(&format!("rows.{format}.part")).exists());
    }
}

#[test]
fn versions_travel_with_their_timestamps() {
    let place = Place::new();
    let options = siltstone::FamilyOptions {
        timestamps: siltstone::Timestamps::Explicit,
        versions: 3,
        ..siltstone::FamilyOptions::default()
    };
    for name in ["db", "copy"] {
        let db = siltstone::Db::open(place.path(name)).unwrap();
        let family = db.create_family("history", options.clone()).unwrap();
        for time in 1..=4 {
            let value = format!("v{time}");
            (name == "db")
                .then(|| family.put_at(b"k", siltstone::Timestamp(time), value.as_bytes()).unwrap());
        }
        db.close().unwrap();
    }
    for format in ["tsv", "csv", "jsonl"] {
        let file = place.text(&format!("rows.{format}"));
        siltstone(&["dump", &place.db(), &file, "--family", "history"]).fine();
        siltstone(&["load", &place.text("copy"), &file, "--family", "history"]).fine();
        let found = rows(&place.path("copy"), "history");
        assert_eq!(found, rows(&place.path("db"), "history"), "{format}");
        assert_eq!(found.iter().map(|row| row.1).collect::<Vec<_>>(), [4, 3, 2]);
    }
    siltstone(&["load", &place.db(), &place.text("rows.tsv")]).refused(1, &["line 1", "keeps none"]);
    let scan = |times: &[&str]| {
        let scan = ["scan", &place.db(), "--family", "history"];
        siltstone(&[&scan[..], times].concat()).fine()
    };
    assert_eq!(scan(&["--from-time", "3"]), "k\tv4\t4\nk\tv3\t3\n");
    assert_eq!(scan(&["--from-time", "1", "--to-time", "4"]), "k\tv3\t3\nk\tv2\t2\n");
    siltstone(&["scan", &place.db(), "--from-time", "3"]).refused(1, &["no timestamps"]);
}

#[test]
fn single_rows_are_put_read_scanned_and_deleted() {
    let place = Place::new();
    let db = &place.db();
    for (key, value) in [("a", "1"), ("b\\x00", "tab\\t"), ("b\\xff", "\\\\"), ("c", "")] {
        assert_eq!(siltstone(&["put", db, key, value]).fine(), "");
        assert_eq!(siltstone(&["get", db, key]).fine(), format!("{value}\n"));
    }
    assert_eq!(siltstone(&["get", db, "b\\x00", "--raw"]).out, b"tab\t");
    assert_eq!(
        siltstone(&["get", db, "b\\xff", "--json"]).fine(),
        "{\"key\":\"b\\\\xff\",\"value\":\"\\\\\\\\\"}\n"
    );
    assert_eq!(siltstone(&["scan", db]).fine(), "a\t1\nb\\x00\ttab\\t\nb\\xff\t\\\\\nc\t\n");
    assert_eq!(siltstone(&["scan", db, "--prefix", "b", "--keys", "--reverse"]).fine(), "b\\xff\nb\\x00\n");
    assert_eq!(
        siltstone(&["scan", db, "--start", "b", "--end", "c", "--limit", "1"]).fine(),
        "b\\x00\ttab\\t\n"
    );
    siltstone(&["delete", db, "a"]).fine();
    siltstone(&["delete", db, "--prefix", "b"]).fine();
    assert_eq!(siltstone(&["scan", db, "--json"]).fine(), "{\"key\":\"c\",\"value\":\"\"}\n");
    siltstone(&["delete", db, "--prefix", ""]).refused(2, &["--all"]);
    assert_eq!(siltstone(&["scan", db]).fine(), "c\t\n", "nothing was deleted");
    siltstone(&["delete", db, "--all"]).fine();
    assert_eq!(siltstone(&["scan", db]).fine(), "");
    let absent = siltstone(&["get", db, "a"]);
    assert_eq!((absent.code, absent.out.len(), absent.err.as_str()), (1, 0, ""));
}

#[test]
fn families_are_apart_and_made_only_when_asked() {
    let place = Place::new();
    let db = &place.db();
    siltstone(&["put", db, "k", "v", "--family", "f", "--create-family"]).fine();
    siltstone(&["put", db, "k", "w"]).fine();
    assert_eq!(siltstone(&["get", db, "k", "--family", "f"]).fine(), "v\n");
    assert_eq!(siltstone(&["get", db, "k"]).fine(), "w\n");
}
