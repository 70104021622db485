//! The headers say what the sources say.

use std::path::Path;

/// What cbindgen makes of these files.
fn made(config: &str, sources: &[&str]) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(root.join(config)).unwrap();
    let mut builder = cbindgen::Builder::new().with_config(config);
    for source in sources {
        builder = builder.with_src(root.join("src").join(source));
    }
    let mut text = Vec::new();
    builder.generate().unwrap().write(&mut text);
    String::from_utf8(text).unwrap()
}

/// `SILTSTONE_HEADER=write` writes it instead.
fn is_current(header: &str, made: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("include").join(header);
    if std::env::var_os("SILTSTONE_HEADER").is_some_and(|what| what == "write") {
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, made).unwrap();
    }
    let there = std::fs::read_to_string(&file).unwrap();
    assert!(there == made, "{} is not what the sources say: cargo xtask c --header", file.display());
}

#[test]
fn the_header_is_current() {
    let sources = [
        "bytes.rs",
        "text.rs",
        "error.rs",
        "operator.rs",
        "options.rs",
        "range.rs",
        "db.rs",
        "family.rs",
        "snapshot.rs",
        "iterator.rs",
        "batch.rs",
        "transaction.rs",
        "upkeep.rs",
    ];
    is_current("siltstone.h", &made("cbindgen.toml", &sources));
}

#[test]
fn the_header_of_leveldb_is_current() {
    let sources = ["order.rs", "options.rs", "db.rs", "batch.rs", "iterator.rs", "memory.rs"];
    let sources = sources.map(|source| format!("leveldb/{source}"));
    let sources: Vec<&str> = sources.iter().map(String::as_str).collect();
    is_current("siltstone/leveldb/c.h", &made("cbindgen-leveldb.toml", &sources));
}
