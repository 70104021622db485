//! A directory that is replaced while it is open: the database is renamed, and something else lies where it
//! was. Whatever is done then, what lies there now keeps every byte, and each database opens with all that
//! was acknowledged to it.

use super::files::{Inventory, inventory, litter, untouched};
use super::{ROWS, builder, has_rows, within};
use crate::campaign::{Checked, failed};
use siltstone::Db;
use siltstone::storage::sim::Rng;
use std::path::{Path, PathBuf};

/// The files in the place of the open database.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Instead {
    Nothing,
    /// A database that is closed again.
    Another,
    /// One that another handle has open, and writes to.
    AnotherOpen,
    /// A copy of the database itself.
    Checkpoint,
    /// A link to another database.
    Link,
    Strangers,
}

const INSTEAD: [Instead; 6] = [
    Instead::Nothing,
    Instead::Another,
    Instead::AnotherOpen,
    Instead::Checkpoint,
    Instead::Link,
    Instead::Strangers,
];

/// Writes to a database as long as it takes it; how many rows it has acknowledged then.
fn write(db: &Db, from: u32, rows: u32) -> u32 {
    let taken = (from..from + rows).take_while(|key| db.put(key.to_be_bytes(), [7; 500]).is_ok());
    from + taken.count() as u32
}

pub(super) fn case(rng: &mut Rng) -> Checked {
    let place =
        tempfile::Builder::new().prefix("siltstone-replaced-").tempdir().map_err(|e| e.to_string())?;
    let instead = *rng.pick(&INSTEAD);
    replaced(place.path(), instead, rng)
        .map_err(|e| format!("{instead:?} in the place of an open database: {e}"))
}

fn replaced(place: &Path, instead: Instead, rng: &mut Rng) -> Checked {
    let (dir, aside, copy) = (place.join("theirs"), place.join("aside"), place.join("copy"));
    let db = builder().open(&dir).map_err(failed("open"))?;
    let mut rows = write(&db, 0, ROWS + rng.range(0..1_000) as u32);
    let copied = rows;
    if instead == Instead::Checkpoint {
        db.checkpoint(&copy).map_err(failed("checkpoint"))?;
    }
    std::fs::rename(&dir, &aside).map_err(|e| e.to_string())?;
    let other = put(&dir, &copy, instead, rng)?;
    let before = there(&dir, &other)?;
    let mut of_other = if instead == Instead::Checkpoint { copied } else { ROWS };
    // An open one changes by what is done to it alone.
    let open = (instead == Instead::AnotherOpen).then(|| builder().open(&dir)).transpose();
    let open = open.map_err(failed("open the other"))?;
    for _ in 0..rng.range(2..6) {
        rows = write(&db, rows, rng.range(1..400) as u32);
        // These may be refused, and are to touch nothing there.
        drop(within("a flush", || db.flush())?);
        drop(within("a compaction", || db.default_family().compact::<&[u8]>(..))?);
        if let Some(open) = &open {
            of_other = write(open, of_other, 200);
            open.flush().map_err(failed("flush the other"))?;
        }
    }
    drop(within("a close", || db.close())?);
    // A database that could not be closed is dropped.
    drop(db);
    match open {
        Some(open) => open.close().map_err(failed("close the other"))?,
        None => untouched(&before, &[&dir, &other])?,
    }
    if !matches!(instead, Instead::Nothing | Instead::Strangers) {
        has_rows(&dir, of_other).map_err(|e| format!("the other: {e}"))?;
    }
    has_rows(&aside, rows).map_err(|e| format!("the one that was renamed: {e}"))
}

/// Puts that there. The directory where it lies, if it lies elsewhere.
fn put(dir: &Path, copy: &Path, instead: Instead, rng: &mut Rng) -> Checked<PathBuf> {
    let io = |e: std::io::Error| e.to_string();
    let other = dir.with_file_name("other");
    std::fs::create_dir_all(&other).map_err(io)?;
    match instead {
        Instead::Nothing => {}
        Instead::Another | Instead::AnotherOpen => make(dir)?,
        Instead::Checkpoint => std::fs::rename(copy, dir).map_err(io)?,
        Instead::Link => {
            make(&other)?;
            std::os::unix::fs::symlink(&other, dir).map_err(io)?;
        }
        Instead::Strangers => {
            std::fs::create_dir(dir).map_err(io)?;
            litter(dir, &other, true, rng)?;
        }
    }
    Ok(other)
}

/// Makes a database of so many rows, and closes it.
fn make(dir: &Path) -> Checked {
    let db = builder().open(dir).map_err(failed("make another"))?;
    let rows = write(&db, 0, ROWS);
    db.close().map_err(failed("close another"))?;
    if rows == ROWS { Ok(()) } else { Err(format!("another takes only {rows} rows")) }
}

/// What lies there before the open database works on.
fn there(dir: &Path, other: &Path) -> Checked<Inventory> {
    let mut all = inventory(other)?;
    if dir.exists() {
        all.append(&mut inventory(dir)?);
    }
    Ok(all)
}
