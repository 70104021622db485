//! Moving a database into shared storage.

use super::*;
use siltstone::{Builder, Options};

fn get_shared(place: &Place, dir: &str, key: &str) -> Vec<u8> {
    let options =
        Options { shared: Some(place.path("shared")), create_if_missing: false, ..Options::default() };
    let db = Builder::new().options(options).open(place.path(dir)).unwrap();
    db.get(key).unwrap().unwrap().to_vec()
}

#[test]
fn a_database_moves_and_its_directory_is_a_part_of_the_shared_one() {
    let place = Place::new();
    let (db, shared) = (&place.db(), &place.text("shared"));
    siltstone(&["put", db, "river", "silt"]).fine();
    siltstone(&["compact", db]).fine();
    siltstone(&["put", db, "lake", "mud"]).fine();
    siltstone(&["shared", "adopt", db, &format!("{db}/inside")]).refused(1, &["lies in the directory"]);
    let said = siltstone(&["shared", "adopt", db, shared]).fine();
    assert!(said.contains(&format!("the shared database in {shared}: 1 SSTable with ")), "{said}");
    siltstone(&["get", db, "river"]).refused(1, &[db]);
    siltstone(&["put", db, "river", "sand"]).refused(1, &[db, "local part", shared]);
    for dir in ["db", "elsewhere"] {
        assert_eq!(get_shared(&place, dir, "river"), b"silt");
        assert_eq!(get_shared(&place, dir, "lake"), b"mud");
    }
    let again = json(&siltstone(&["shared", "adopt", db, shared, "--json"]).fine());
    assert_eq!(again["uploaded_bytes"], 0);
    siltstone(&["shared", "adopt", db, shared, "--undo"]).refused(1, &[db, "local part", shared]);
}

#[test]
fn what_cannot_move_is_refused_and_left_alone() {
    let place = Place::new();
    let (db, other, shared) = (&place.db(), &place.text("other"), &place.text("shared"));
    siltstone(&["put", db, "river", "silt"]).fine();
    siltstone(&["put", other, "river", "sand"]).fine();
    siltstone(&["shared", "adopt", db, shared]).fine();
    siltstone(&["shared", "adopt", other, shared]).refused(1, &[shared, "another database"]);
    siltstone(&["shared", "adopt", other, "s4://bucket/prefix"]).refused(1, &["s4://bucket/prefix"]);
    siltstone(&["shared", "adopt", other, ""]).refused(2, &["LOCATION"]);
    siltstone(&["shared", "adopt", &place.text("nothing"), shared]).refused(1, &["holds no database"]);
    // Nothing was begun, so there is nothing to undo.
    siltstone(&["shared", "adopt", other, shared, "--undo"]).fine();
    assert_eq!(siltstone(&["get", other, "river"]).fine(), "sand\n");
}
