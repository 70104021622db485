//! Backups, and moves and cuts of the passing family, for child and parent: what they do, and what a kill may
//! leave of it.

use crate::kill::oracle::{Oracle, Slot};
use crate::kill::work::{CUT_OFF, PASSING, Paths, STREAMS};
use siltstone::storage::Env;
use siltstone::{Backups, Db, Family};
use std::path::Path;

/// A copy of the passing family, for a moment.
const COPY: &str = "copy of passing";

fn backups(paths: &Paths) -> Backups {
    Backups::new(&Env::local(), &paths.backups)
}

/// Adds a backup, restores it and removes the others.
pub fn backup(db: &Db, oracle: &Oracle, paths: &Paths) -> Result<(), String> {
    let from: Vec<u64> = (0..STREAMS).map(|stream| oracle.get(Slot::Acked(stream))).collect();
    let made = db.backup(&paths.backups).map_err(|e| format!("backup: {e}"))?;
    for (stream, from) in from.into_iter().enumerate() {
        oracle.set(Slot::BackupFrom(stream), from);
    }
    oracle.set(Slot::BackupDone, made.id);
    clear(&paths.restored)?;
    let restored = match made.id.is_multiple_of(2) {
        true => backups(paths).restore(Some(made.id), &paths.restored, &mut |_| {}),
        false => backups(paths).restore_shared(Some(made.id), &paths.restored, &mut |_| {}),
    };
    restored.map_err(|e| format!("restore: {e}"))?;
    let removed = backups(paths).keep_last(1).map_err(|e| format!("remove backups: {e}"))?;
    match removed.iter().any(|id| *id >= made.id) {
        true => Err(format!("backup {} was removed with {removed:?}", made.id)),
        false => Ok(()),
    }
}

/// Restores the newest backup; `None` when there is none, which must not be after one was acknowledged. An
/// unfinished restore must not open.
pub fn restore_newest(oracle: &Oracle, paths: &Paths) -> Result<Option<()>, String> {
    let half = paths.restored.exists() && !paths.restored.join("CURRENT").exists();
    if half && Db::builder().open_read_only(&paths.restored).is_ok() {
        return Err("a half restored database opens".into());
    }
    clear(&paths.restored)?;
    let done = oracle.get(Slot::BackupDone);
    let newest = backups(paths).list().map_err(|e| format!("list backups: {e}"))?.pop();
    match newest {
        None if done == 0 => Ok(None),
        Some(newest) if newest.id >= done => {
            let restored = backups(paths).restore(None, &paths.restored, &mut |_| {});
            restored.map(|_| Some(())).map_err(|e| format!("restore: {e}"))
        }
        found => Err(format!("backup {done} was acknowledged, found {found:?}")),
    }
}

/// Copies the passing family, which is there, and drops the copy; what a kill has left of an earlier one goes
/// first.
fn copy_passing(db: &Db) -> Result<(), String> {
    if db.families().iter().any(|name| name == COPY) {
        db.drop_family(COPY).map_err(|e| format!("drop a copy: {e}"))?;
    }
    let copied = db.copy_families(db, &[(PASSING, COPY)]).map_err(|e| format!("copy: {e}"))?;
    let (expected, found) = (cells(&db.family(PASSING).map_err(|e| e.to_string())?)?, cells(&copied[0])?);
    if found != expected {
        return Err(format!("a copy of {PASSING} has {found} of {expected} cells"));
    }
    db.drop_family(COPY).map_err(|e| format!("drop a copy: {e}"))
}

/// Copies the passing family, if it is there, takes it out of the database and puts it back.
pub fn move_passing(db: &Db, oracle: &Oracle, paths: &Paths) -> Result<(), String> {
    if !is_there(db) {
        return Ok(());
    }
    copy_passing(db)?;
    let cells = cells(&db.family(PASSING).map_err(|e| e.to_string())?)?;
    oracle.set(Slot::MovingCells, cells + 1);
    db.detach(PASSING, &paths.moving).map_err(|e| format!("detach: {e}"))?;
    finish_move(db, oracle, paths)
}

/// Finishes a move that was begun: afterwards the family is in the database, with all it held, and nowhere
/// else.
pub fn finish_move(db: &Db, oracle: &Oracle, paths: &Paths) -> Result<(), String> {
    let moving = oracle.get(Slot::MovingCells);
    if moving == 0 {
        return Ok(());
    }
    if !is_there(db) {
        db.attach(PASSING, &paths.moving).map_err(|e| format!("attach: {e}"))?;
    }
    let found = cells(&db.family(PASSING).map_err(|e| e.to_string())?)?;
    if found + 1 != moving {
        return Err(format!("family {PASSING} moved with {} cells, found {found}", moving - 1));
    }
    clear(&paths.moving)?;
    oracle.set(Slot::MovingCells, 0);
    Ok(())
}

/// Cuts the passing family in two and puts it together again.
pub fn cut_passing(db: &Db, oracle: &Oracle) -> Result<(), String> {
    let family = db.family(PASSING).map_err(|e| e.to_string())?;
    oracle.set(Slot::CutCells, cells(&family)? + 1);
    family.split(b"p5", CUT_OFF).map_err(|e| format!("split: {e}"))?;
    check_cut(db, oracle)?;
    finish_cut(db, oracle)
}

/// Puts together what was cut: afterwards the family has all it had.
pub fn finish_cut(db: &Db, oracle: &Oracle) -> Result<(), String> {
    if oracle.get(Slot::CutCells) == 0 {
        return Ok(());
    }
    if has(db, CUT_OFF) {
        let cut_off = db.family(CUT_OFF).map_err(|e| e.to_string())?;
        let family = db.family(PASSING).map_err(|e| e.to_string())?;
        family.join(&cut_off).map_err(|e| format!("join: {e}"))?;
    }
    check_cut(db, oracle)?;
    oracle.set(Slot::CutCells, 0);
    Ok(())
}

/// A family that is being cut has all its cells, in one part or in two.
pub fn check_cut(db: &Db, oracle: &Oracle) -> Result<(), String> {
    let cut = oracle.get(Slot::CutCells);
    if cut == 0 {
        return Ok(());
    }
    let mut found = 0;
    for name in [PASSING, CUT_OFF].into_iter().filter(|name| has(db, name)) {
        found += cells(&db.family(name).map_err(|e| e.to_string())?)?;
    }
    match found + 1 == cut {
        true => Ok(()),
        false => Err(format!("family {PASSING} was cut with {} cells, found {found}", cut - 1)),
    }
}

fn is_there(db: &Db) -> bool {
    has(db, PASSING)
}

fn has(db: &Db, family: &str) -> bool {
    db.families().iter().any(|name| name == family)
}

fn cells(family: &Family) -> Result<u64, String> {
    let cells = family.scan::<&str>(..).map(|entry| entry.map(|_| 1)).sum::<Result<u64, _>>();
    cells.map_err(|e| format!("scan of {PASSING}: {e}"))
}

fn clear(dir: &Path) -> Result<(), String> {
    match std::fs::remove_dir_all(dir) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(format!("remove {}: {e}", dir.display())),
        _ => Ok(()),
    }
}
