//! The rows of the example `packages`, through the command line.

use super::*;

#[path = "../../../examples/packages/rows.rs"]
mod rows;

#[test]
fn the_machines_packages_go_in_by_load_and_come_back_by_dump() {
    let place = Place::new();
    let index = rows::index();
    assert!(index.packages >= 1_000, "{} has {}", index.source, index.packages);
    let mut tsv = Vec::new();
    rows::export(&index.rows, &mut tsv).unwrap();
    let file = place.file("packages.tsv", &tsv);
    let db = &place.db();
    let report = siltstone(&["load", db, &file, "--family", "packages", "--create-family", "--json"]).fine();
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    assert_eq!(report["rows"], index.rows.len());

    siltstone(&["dump", db, &place.text("dump.tsv"), "--family", "packages"]).fine();
    let mut expected = index.rows.clone();
    expected.sort();
    let dump = place.bytes("dump.tsv");
    let unescaped = |text: &str| text.replace("\\n", "\n").replace("\\t", "\t");
    let mut lines = std::str::from_utf8(&dump).unwrap().lines();
    for (key, value) in &expected {
        let (found_key, found_value) = lines.next().unwrap().split_once('\t').unwrap();
        assert_eq!(found_key, key);
        // Values with a backslash of their own are compared by the get below.
        assert!(found_value.contains('\\') || found_value == value, "{key}: {found_value}");
        assert!(value.contains('\\') || unescaped(found_value) == *value, "{key}: {found_value}");
    }
    assert_eq!(lines.next(), None);

    let (key, value) = &expected[expected.len() / 2];
    let got = siltstone(&["get", db, key, "--family", "packages", "--raw"]);
    assert_eq!((got.code, got.out), (0, value.clone().into_bytes()));
}

#[test]
fn made_up_packages_are_enough_and_in_the_same_format() {
    let index = rows::made_up();
    assert_eq!(index.packages, 2_000);
    let (key, value) = index.rows.iter().find(|(key, _)| key.ends_with("/Tag")).unwrap();
    assert_eq!((key.as_str(), value.as_str()), ("clay0-bin/Tag", "role::bin,\nmade-of::clay"));
    assert_eq!(rows::parse("no record\n\n: x\n\n\n", "nothing").rows.len(), 0);
}
