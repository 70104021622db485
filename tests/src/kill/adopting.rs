//! Moves of a small database into shared storage: what a child does, and what a kill may leave of it.

use crate::kill::oracle::{Oracle, Slot};
use crate::kill::work::Paths;
use siltstone::{Builder, Db, Options, Tuning};
use std::path::Path;

/// Makes a database, begins to move it to a place that takes no SSTables, undoes that, and moves it.
pub fn adopt(oracle: &Oracle, paths: &Paths, rows: u64) -> Result<(), String> {
    finish(oracle, paths)?;
    let db = open(local(), &paths.adopted)?;
    for n in 0..rows {
        db.put(key(n), value(n)).map_err(|e| format!("put: {e}"))?;
        if n == rows / 2 {
            db.flush().map_err(|e| format!("flush: {e}"))?;
        }
    }
    db.close().map_err(|e| format!("close: {e}"))?;
    drop(db);
    oracle.set(Slot::AdoptedRows, rows + 1);
    std::fs::create_dir_all(&paths.place)
        .and_then(|()| std::fs::write(paths.place.join("t"), ""))
        .map_err(|e| format!("block {}: {e}", paths.place.display()))?;
    if let Ok(adopted) = shared(paths).adopt(&paths.adopted, &mut |_| {}) {
        return Err(format!("a database moved to a place that takes no SSTables: {adopted:?}"));
    }
    unblock(paths)?;
    shared(paths).undo_adoption(&paths.adopted).map_err(|e| format!("undo a move: {e}"))?;
    compare(local(), &paths.adopted, rows)?;
    finish(oracle, paths)
}

/// Finishes a move that was begun: the database is the shared one then, for its directory and for any other.
pub fn finish(oracle: &Oracle, paths: &Paths) -> Result<(), String> {
    let rows = oracle.get(Slot::AdoptedRows);
    if rows > 0 {
        unblock(paths)?;
        let moved = shared(paths).adopt(&paths.adopted, &mut |_| {});
        moved.map_err(|e| format!("move a database: {e}"))?;
        compare(shared(paths), &paths.elsewhere, rows - 1)?;
        compare(shared(paths), &paths.adopted, rows - 1)?;
        oracle.set(Slot::AdoptedRows, 0);
    }
    [&paths.adopted, &paths.place, &paths.elsewhere].into_iter().try_for_each(|dir| clear(dir))
}

fn local() -> Builder {
    Builder::new().options(options())
}

fn shared(paths: &Paths) -> Builder {
    Builder::new().options(Options { shared: Some(paths.place.clone()), ..options() })
}

fn options() -> Options {
    Options {
        write_memory: 64 << 10,
        memory_budget: 1 << 20,
        tuning: Tuning { wal_file_bytes: 16 << 10, ..Tuning::default() },
        ..Options::default()
    }
}

fn open(builder: Builder, dir: &Path) -> Result<Db, String> {
    builder.open(dir).map_err(|e| format!("open {}: {e}", dir.display()))
}

fn key(n: u64) -> String {
    format!("r{n:04}")
}

fn value(n: u64) -> String {
    key(n).repeat(20)
}

fn compare(builder: Builder, dir: &Path, rows: u64) -> Result<(), String> {
    let db = open(builder, dir)?;
    let found: Result<Vec<_>, _> = db.scan::<&str>(..).collect();
    let found = found.map_err(|e| format!("scan: {e}"))?;
    let is_same = found.len() as u64 == rows
        && found
            .iter()
            .zip(0..)
            .all(|(row, n)| row.key == key(n).as_bytes() && row.value[..] == *value(n).as_bytes());
    if !is_same {
        return Err(format!("{} has {} rows, expected {rows} as written", dir.display(), found.len()));
    }
    db.close().map_err(|e| format!("close: {e}"))
}

/// Lets the place take SSTables.
fn unblock(paths: &Paths) -> Result<(), String> {
    let path = paths.place.join("t");
    match path.is_file() {
        true => std::fs::remove_file(&path).map_err(|e| format!("remove {}: {e}", path.display())),
        false => Ok(()),
    }
}

fn clear(dir: &Path) -> Result<(), String> {
    match std::fs::remove_dir_all(dir) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(format!("remove {}: {e}", dir.display())),
        _ => Ok(()),
    }
}
