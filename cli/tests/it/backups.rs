//! Backing up, listing, restoring.

use super::*;

#[test]
fn a_database_comes_back_from_any_of_its_backups() {
    let place = Place::new();
    let (db, backups) = (place.db(), place.text("backups"));
    for value in ["one", "two", "three"] {
        siltstone(&["put", &db, "river", value]).fine();
        let text = siltstone(&["backup", &db, &backups]).fine();
        assert!(text.starts_with("backup ") && text.contains("copied"), "{text}");
    }
    let listed = siltstone(&["backup", &db, &backups, "--list"]).fine();
    assert_eq!(listed.lines().count(), 3, "{listed}");
    assert!(listed.lines().all(|line| line.contains("Z holds the writes up to ")), "{listed}");
    siltstone(&["restore", &backups, &place.text("second"), "--id", "2"]).fine();
    assert_eq!(siltstone(&["get", &place.text("second"), "river"]).fine(), "two\n");
    let restored = json(&siltstone(&["restore", &backups, &place.text("newest"), "--json"]).fine());
    assert_eq!(restored["id"], 3);
    assert_eq!(siltstone(&["get", &place.text("newest"), "river"]).fine(), "three\n");
    siltstone(&["check", &place.text("newest")]).fine();
}

#[test]
fn only_the_newest_backups_are_kept_where_that_is_asked_for() {
    let place = Place::new();
    let (db, backups) = (place.db(), place.text("backups"));
    siltstone(&["put", &db, "river", "silt"]).fine();
    for _ in 0..3 {
        siltstone(&["backup", &db, &backups]).fine();
    }
    let made = json(&siltstone(&["backup", &db, &backups, "--keep", "2", "--json"]).fine());
    assert_eq!((&made["backup"]["id"], &made["removed"]), (&4.into(), &serde_json::json!([1, 2])));
    let listed = json(&siltstone(&["backup", &db, &backups, "--list", "--json"]).fine());
    let ids: Vec<_> = listed.as_array().unwrap().iter().map(|b| b["id"].as_u64().unwrap()).collect();
    assert_eq!(ids, [3, 4]);
}

#[test]
fn what_cannot_be_backed_up_or_restored_is_told_in_one_line() {
    let place = Place::new();
    let (db, backups) = (place.db(), place.text("backups"));
    siltstone(&["backup", &db, &backups]).refused(1, &["holds no database"]);
    siltstone(&["put", &db, "river", "silt"]).fine();
    siltstone(&["backup", &db, &backups]).fine();
    siltstone(&["backup", &db, &db]).refused(1, &["a directory of their own"]);
    siltstone(&["backup", &db, &backups, "--keep", "0"]).refused(2, &["--keep"]);
    siltstone(&["backup", &db, &backups, "--keep", "2", "--list"]).refused(2, &["--list"]);
    siltstone(&["restore", &place.text("nowhere"), &place.text("r")]).refused(1, &["holds no backups"]);
    siltstone(&["restore", &backups, &place.text("r"), "--id", "9"]).refused(1, &["holds no backup 9"]);
    siltstone(&["restore", &backups, &db]).refused(1, &["new or empty directory"]);
    let log =
        snapshot(&place.path("backups")).into_iter().map(|(name, ..)| name).find(|n| n.ends_with(".log"));
    let log = log.expect("the write is in the log");
    let mut bytes = place.bytes(&format!("backups/{log}"));
    bytes[40] ^= 1;
    place.file(&format!("backups/{log}"), bytes);
    siltstone(&["restore", &backups, &place.text("r")]).refused(1, &[&log, "checksum"]);
    assert!(!place.path("r").exists());
}
