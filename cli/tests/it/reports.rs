//! What commands report, and that reading changes nothing.

use super::*;

/// A database with two tables' worth of flushes, a log and a family.
fn filled() -> Place {
    let place = Place::new();
    let db = siltstone::Db::open(place.path("db")).unwrap();
    let other = db.create_family("other", siltstone::FamilyOptions::default()).unwrap();
    for n in 0..1_000 {
        db.put(format!("key{n:04}").as_bytes(), b"value").unwrap();
    }
    db.flush().unwrap();
    other.put(b"k", b"v").unwrap();
    db.put(b"key\xff", b"in memory").unwrap();
    db.close().unwrap();
    place
}

fn table_of(place: &Place) -> String {
    let names = snapshot(&place.path("db")).into_iter().map(|(name, ..)| name);
    names.into_iter().find(|name| name.ends_with(".table")).unwrap()
}

#[test]
fn reading_commands_change_no_byte() {
    let place = filled();
    let (db, table) = (place.db(), table_of(&place));
    let before = snapshot(&place.path("db"));
    let commands: [&[&str]; 10] = [
        &["get", &db, "key0001"],
        &["scan", &db, "--limit", "3"],
        &["dump", &db, "-", "--format", "tsv"],
        &["inspect", &db],
        &["inspect", &db, "--events", "--log", "--json"],
        &["inspect", &db, &table],
        &["inspect", &db, &table, "--json"],
        &["scan", &db, "--family", "other", "--reverse"],
        &["check", &db],
        &["check", &db, "--json"],
    ];
    for command in commands {
        siltstone(command).fine();
        assert!(snapshot(&place.path("db")) == before, "{command:?} changed the database");
    }
}

#[test]
fn inspect_shows_shape_memory_wal_decisions_and_blocks() {
    let place = filled();
    let (db, table) = (place.db(), table_of(&place));
    let text = siltstone(&["inspect", &db, "--events", "--log"]).fine();
    for part in
        ["family default: 1 SSTable", "[key0000,key0999", "family other: 0 SSTables", "memory: ", "WAL: "]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    for part in ["bytes used of", "statistics", "sstable bytes", "flush default: ", "family other: created"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let report = json(&siltstone(&["inspect", &db, "--events", "--limit", "2", "--json"]).fine());
    assert_eq!(report["families"][0]["name"], "default");
    let levels = report["families"][0]["levels"].as_array().unwrap();
    let listed = levels.iter().flat_map(|level| level.as_array().unwrap()).next().unwrap();
    assert_eq!(listed["tables"][0]["file"], table.as_str());
    assert_eq!(listed["tables"][0]["cells"], 1_000);
    assert_eq!(report["events"].as_array().unwrap().len(), 2);
    assert!(!report["wal"].as_array().unwrap().is_empty());

    let text = siltstone(&["inspect", &db, &table]).fine();
    assert!(text.contains("1,000 of 1,000 keys") && text.contains("first key"), "{text}");
    let report = json(&siltstone(&["inspect", &db, &place.text(&format!("db/{table}")), "--json"]).fine());
    let blocks = report["blocks"].as_array().unwrap();
    assert_eq!(blocks.iter().map(|block| block["cells"].as_u64().unwrap()).sum::<u64>(), 1_000);
    assert_eq!(blocks[0]["first_key"], "key0000");
    assert!(blocks.len() > 1);
}

#[test]
fn compact_merges_all_or_a_range_or_what_is_due() {
    let place = filled();
    let db = &place.db();
    let report = json(&siltstone(&["compact", db, "--json"]).fine());
    assert_eq!(report["sstables"], 1);
    let shape = json(&siltstone(&["inspect", db, "--json"]).fine());
    let levels = shape["families"][0]["levels"].as_array().unwrap();
    assert_eq!(levels[0].as_array().unwrap().len(), 0, "level 0 is empty after a major compaction");
    assert_eq!(json(&siltstone(&["compact", db, "--json"]).fine())["compactions"], 0);
    assert_eq!(json(&siltstone(&["compact", db, "--rewrite", "--json"]).fine())["compactions"], 1);
    siltstone(&["delete", db, "--prefix", "key00"]).fine();
    siltstone(&["compact", db, "--start", "key00", "--end", "key01"]).fine();
    assert!(siltstone(&["compact", db, "--until-settled"]).fine().starts_with("SSTables held "));
    let rows = siltstone(&["scan", db, "--keys"]).fine();
    assert_eq!(rows.lines().count(), 901);
}

#[test]
fn check_finds_damage_and_repair_rescues_the_rest() {
    let place = filled();
    let (db, table) = (&place.db(), table_of(&place));
    let said = siltstone(&["check", db]).fine();
    assert!(said.contains("2 families, 1 table") && said.contains("as they were written"), "{said}");
    assert!(siltstone(&["repair", db]).fine().contains("nothing was lost"));

    // One bit in the middle of the SSTable's data.
    let mut bytes = place.bytes(&format!("db/{table}"));
    bytes[2_000] ^= 4;
    place.file(&format!("db/{table}"), bytes);
    let said = siltstone(&["check", db]);
    let report = String::from_utf8(said.out).unwrap();
    assert!(said.code == 1 && report.contains(&format!("damage in {table} at byte ")), "{report}");
    assert!(
        said.err.starts_with("siltstone: 1 damage found") && said.err.lines().count() == 1,
        "{}",
        said.err
    );

    let said = siltstone(&["repair", db, "--json"]);
    assert_eq!((said.code, said.err.as_str()), (1, "siltstone: 1 loss; the rest is rescued\n"));
    let report = json(std::str::from_utf8(&said.out).unwrap());
    assert_eq!(report["lost"][0]["file"], table.as_str());
    assert_eq!(report["lost"][0]["family"], "default");
    let (start, end) = (&report["lost"][0]["start"], &report["lost"][0]["end"]);
    let (start, end) = (start.as_str().unwrap(), end.as_str().unwrap());
    siltstone(&["check", db]).fine();
    let rows = siltstone(&["scan", db, "--keys"]).fine();
    for n in 0..1_000 {
        let key = format!("key{n:04}");
        let lost = start <= key.as_str() && key.as_str() < end;
        assert!(lost || rows.lines().any(|row| row == key), "{key} is outside the loss {start} to {end}");
    }
    assert!(rows.lines().count() > 500 && rows.lines().count() < 1_001);
    assert_eq!(siltstone(&["get", db, "key\\xff"]).fine(), "in memory\n");
}

#[test]
fn simulate_reports_as_text_and_json() {
    let arguments = ["simulate", "--data", "20GB", "--memory", "64MiB", "--workload", "zipf:0.99"];
    let text = siltstone(&arguments).fine();
    for part in [
        "write amplification",
        "read amplification",
        "space amplification",
        "largest compaction",
        "peak debt",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(text.contains("times the strategy's size"), "the scaling is printed: {text}");
    let report = json(&siltstone(&[&arguments[..], &["--json"]].concat()).fine());
    assert!(report["write_amplification"].as_f64().unwrap() > 1.0);
    let methods = ["simulate", "--methods", "--data", "10GiB", "--memory", "1GiB", "--overwrite", "0"];
    let table = siltstone(&methods).fine();
    for line in ["| remerge | 6.4 | 6.4 | 1.0 | 1 |", "| nomerge | 1.0 | 1.0 | 5.5 | 10 |", "| exploring |"] {
        assert!(table.contains(line), "{line}: {table}");
    }
    let reports = json(&siltstone(&[&methods[..], &["--json"]].concat()).fine());
    assert_eq!(reports.as_array().map(Vec::len), Some(11));
}

#[test]
fn every_command_has_help_with_an_example() {
    let help = siltstone(&["--help"]).fine();
    let commands = help.lines().skip_while(|line| !line.starts_with("Commands:")).skip(1);
    let commands: Vec<_> = commands.map_while(|line| line.split_whitespace().next()).collect();
    assert!(commands.len() >= 11, "{commands:?}");
    for command in commands {
        let help = siltstone(&[command, "--help"]).fine();
        assert!(
            help.contains(&format!("siltstone {command} ")) && help.contains("Example: "),
            "{command}: {help}"
        );
    }
    assert!(siltstone(&["--version"]).fine().starts_with("siltstone "));
}
