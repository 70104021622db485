//! The ways through a range: a scan forward, backward, from both ends at once, of keys alone, and a cursor
//! that is moved about. Whatever the way, the entries are the same.

use crate::campaign::{Checked, failed};
use crate::model::Row;
use crate::subject::{difference, rows};
use siltstone::storage::sim::Rng;
use siltstone::{Cursor, Entry, Scan};

/// Goes through the scan some way; `forward` is what it holds.
pub fn check(scan: Scan, forward: &[Row], rng: &mut Rng) -> Checked {
    let way = rng.pick(&["forward", "backward", "both ends", "keys", "cursor"]);
    let same = |found: Vec<Row>| match found == forward {
        true => Ok(()),
        false => Err(format!("{way}: {}", difference(forward, &found))),
    };
    match *way {
        "forward" => same(rows(scan).map_err(failed("scan"))?),
        "backward" => {
            let mut found = rows(scan.rev()).map_err(failed("scan backward"))?;
            found.reverse();
            same(found)
        }
        "both ends" => check_both_ends(scan, forward, rng),
        "keys" => {
            let found: Vec<_> = scan.keys().collect::<siltstone::Result<_>>().map_err(failed("keys"))?;
            match found.iter().eq(forward.iter().map(|row| &row.0)) {
                true => Ok(()),
                false => Err(format!("{} keys of {} rows", found.len(), forward.len())),
            }
        }
        _ => move_about(scan.cursor(), forward, rng),
    }
}

/// Goes through a scan from both ends at once.
pub fn check_both_ends<S>(scan: S, forward: &[Row], rng: &mut Rng) -> Checked
where
    S: DoubleEndedIterator<Item = siltstone::Result<Entry>>,
{
    let found = from_both_ends(scan, rng)?;
    match found == forward {
        true => Ok(()),
        false => Err(format!("both ends: {}", difference(forward, &found))),
    }
}

fn from_both_ends<S>(mut scan: S, rng: &mut Rng) -> Result<Vec<Row>, String>
where
    S: DoubleEndedIterator<Item = siltstone::Result<Entry>>,
{
    let (mut front, mut back) = (Vec::new(), Vec::new());
    let ends_at_front = loop {
        let at_front = rng.chance(50);
        let next = if at_front { scan.next() } else { scan.next_back() };
        let Some(entry) = next.transpose().map_err(failed("scan from both ends"))? else { break at_front };
        let row = (entry.key, entry.timestamp.0, entry.value.to_vec());
        if at_front { front.push(row) } else { back.push(row) }
    };
    // Once one end has met the other both are at their end.
    let more = if ends_at_front { scan.next_back() } else { scan.next() };
    if more.is_some() {
        return Err("one end of a scan goes on where the other has come".into());
    }
    front.extend(back.into_iter().rev());
    Ok(front)
}

fn move_about(mut cursor: Cursor, rows: &[Row], rng: &mut Rng) -> Checked {
    // Its position, as a number of rows.
    let mut at: Option<usize> = None;
    for _ in 0..40 {
        let key = match rows.is_empty() {
            true => Vec::new(),
            false => {
                let mut key = rng.pick(rows).0.clone();
                if rng.one_in(3) {
                    key.push(rng.next_u64() as u8);
                }
                key
            }
        };
        let (moved, what) = match rng.range(0..8) {
            0 => (cursor.first(), "first"),
            1 => (cursor.last(), "last"),
            2 => (cursor.seek(&key), "seek"),
            3 => (cursor.seek_back(&key), "seek_back"),
            4 | 5 => (cursor.next(), "next"),
            _ => (cursor.prev(), "prev"),
        };
        at = match what {
            "first" => Some(0),
            "last" => rows.len().checked_sub(1),
            "seek" => Some(rows.partition_point(|row| row.0 < key)),
            "seek_back" => rows.partition_point(|row| row.0 <= key).checked_sub(1),
            "next" => at.map(|at| at + 1),
            _ => at.and_then(|at| at.checked_sub(1)),
        };
        at = at.filter(|at| *at < rows.len());
        let moved = moved.map_err(failed(what))?;
        let found = cursor.entry().map(|e| (e.key.clone(), e.timestamp.0, e.value.to_vec()));
        if found.is_some() != moved || found.as_ref() != at.map(|at| &rows[at]) {
            let name = |row: Option<&Row>| row.map(|row| (row.0.escape_ascii().to_string(), row.1));
            let (expected, found) = (name(at.map(|at| &rows[at])), name(found.as_ref()));
            return Err(format!(
                "a cursor's {what} to {}: expected {expected:?}, found {found:?}",
                key.escape_ascii()
            ));
        }
    }
    Ok(())
}
