//! Which manifest to believe.
//!
//! The one in force if it can be read whole and the log does not know of a longer one. Else the newest of
//! which anything can be read, with what of its records fits together; then the list of tables is not *sure*:
//! tables may have come and gone since, and which is newer at a key is not known any more, though each cell
//! still knows.

use super::logged;
use crate::catalog::{read_log, refuse_leftovers, refuse_no_database};
use crate::error::{Error, ErrorKind, Result};
use crate::storage::Env;
use crate::version::edit::State;
use crate::version::manifest::{self, Mark};
use crate::wal;
use std::path::Path;

pub(super) struct Plan {
    pub(super) state: State,
    /// Which tables there are, and in what order, is known.
    pub(super) sure: bool,
    /// The families named are all there are: one that is missing was dropped.
    pub(super) all_families: bool,
    /// Recovery can read the log.
    pub(super) log_sound: bool,
    /// Numbers of new manifests begin above.
    pub(super) highest_manifest: u64,
    /// Unusable or stale; to be kept aside before a new manifest replaces them.
    pub(super) damaged: Vec<Damaged>,
}

/// A damaged `CURRENT` or manifest.
pub(super) struct Damaged {
    pub(super) file: String,
    pub(super) why: String,
}

pub(super) fn plan(env: &Env, dir: &Path) -> Result<Plan> {
    refuse_no_database(env, dir)?;
    let in_force = match manifest::load(env, dir) {
        Ok(Some(loaded)) => Ok((loaded.state, loaded.mark)),
        Ok(None) => match refuse_leftovers(env, dir) {
            Ok(()) => {
                return Err(Error::new(ErrorKind::NotFound, format!("{} holds no database", dir.display())));
            }
            Err(e) => Err(e),
        },
        Err(e) => Err(e),
    };
    let numbers = manifest::numbers(env, dir)?;
    let mut plan = Plan {
        state: State::default(),
        sure: false,
        all_families: false,
        log_sound: false,
        highest_manifest: numbers.first().copied().unwrap_or(0),
        damaged: Vec::new(),
    };
    let mark = match in_force {
        Ok((state, mark)) => {
            (plan.state, plan.sure, plan.all_families) = (state, true, true);
            Some(mark)
        }
        Err(e) => {
            let file = e.file().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
            plan.damaged.push(Damaged { file: file.unwrap_or_else(|| "CURRENT".into()), why: e.to_string() });
            salvage(env, dir, &numbers, &mut plan)?
        }
    };
    plan.highest_manifest = plan.highest_manifest.max(mark.map_or(0, |mark| mark.number));
    let read = read_log(env, dir, &plan.state, mark, &mut |_| Ok(()), &mut |_, _| {});
    plan.log_sound = mark.is_some() && read.is_ok();
    if let Err(e) = read {
        // Either the log is damaged, or it knows of a longer manifest.
        let found = logged::salvage(env, dir, &plan.state, &mut |_| Ok(()))?;
        if let (Some(note), Some(mark)) = (found.note, mark)
            && (Mark { number: note.manifest, length: note.length }) > mark
        {
            plan.sure = false;
            plan.highest_manifest = plan.highest_manifest.max(note.manifest);
            plan.damaged.push(Damaged { file: manifest::file_name(mark.number), why: e.to_string() });
        }
    }
    Ok(plan)
}

/// Takes what can be had of the newest manifest that gives anything.
fn salvage(env: &Env, dir: &Path, numbers: &[u64], plan: &mut Plan) -> Result<Option<Mark>> {
    let mut databases: Vec<u64> =
        manifest::current(env, dir).ok().flatten().map(|(database, _)| database).into_iter().collect();
    databases.extend(wal::databases(env, dir)?);
    for number in numbers {
        let tries = std::iter::once(None).chain(databases.iter().copied().map(Some));
        let mut found = tries.filter_map(|database| manifest::salvage(env, dir, *number, database));
        if let Some(found) = found.next() {
            plan.sure = found.lost.is_empty();
            // A lost record may have made a family.
            plan.all_families = found.lost.is_empty();
            plan.state = found.state;
            return Ok(Some(found.mark));
        }
    }
    plan.state.database = databases.first().copied().unwrap_or_else(|| env.random.next_u64() | 1);
    Ok(None)
}
