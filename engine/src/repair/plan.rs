//! The choice of the manifest to trust.
//!
//! The one in force if it can be read whole and the WAL does not know of a longer one. Else the newest of
//! which anything can be read, with what of its records fits together; then the list of SSTables is not
//! *sure*: SSTables may have come and gone since, and which is newer at a key is not known any more, though
//! each cell still knows.

use super::logged;
use crate::catalog::{read_wal, refuse_leftovers, refuse_local_part, refuse_no_database};
use crate::error::{Error, ErrorKind, Result};
use crate::storage::Env;
use crate::version::edit::State;
use crate::version::manifest::{self, Loaded, Mark};
use crate::wal;
use std::path::Path;

#[derive(Default)]
pub(super) struct Plan {
    pub(super) state: State,
    /// Whether it is known which SSTables there are, and in which order.
    pub(super) sure: bool,
    /// Whether all families are named, so that one that is missing was dropped.
    pub(super) all_families: bool,
    /// Whether recovery can read the WAL.
    pub(super) wal_sound: bool,
    /// Numbers of new manifests begin above.
    pub(super) highest_manifest: u64,
    /// Unusable or stale manifests, to be moved into `lost/` before a new one replaces them.
    pub(super) damaged: Vec<Damaged>,
}

pub(super) struct Damaged {
    pub(super) file: String,
    pub(super) why: String,
}

/// The manifest in force, or why it cannot be read; an error if there is no database at all, or one that is,
/// or becomes, a shared one.
pub(super) fn in_force(env: &Env, dir: &Path) -> Result<Result<Loaded>> {
    let found = match manifest::load(env, dir) {
        Ok(Some(loaded)) => Ok(loaded),
        Ok(None) => match refuse_leftovers(env, dir) {
            Ok(()) => Err(Error::new(ErrorKind::NotFound, format!("{} holds no database", dir.display()))),
            Err(e) => Err(e),
        },
        Err(e) => Err(e),
    };
    match found {
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::Invalid) => Err(e),
        found => Ok(found),
    }
}

pub(super) fn plan(env: &Env, dir: &Path) -> Result<Plan> {
    refuse_local_part(env, dir)?;
    refuse_no_database(env, dir)?;
    let in_force = in_force(env, dir)?;
    let numbers = manifest::numbers(env, dir)?;
    let highest_manifest = numbers.first().copied().unwrap_or(0);
    let mut plan = Plan { highest_manifest, ..Plan::default() };
    let mark = match in_force {
        Ok(loaded) => {
            (plan.state, plan.sure, plan.all_families) = (loaded.state, true, true);
            Some(loaded.mark)
        }
        Err(e) => {
            let file = e.file().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
            plan.damaged.push(Damaged { file: file.unwrap_or_else(|| "CURRENT".into()), why: e.to_string() });
            salvage(env, dir, &numbers, &mut plan)?
        }
    };
    plan.highest_manifest = plan.highest_manifest.max(mark.map_or(0, |mark| mark.number));
    let read = read_wal(env, dir, &plan.state, mark, &mut |_| Ok(()), &mut |_, _| {});
    plan.wal_sound = mark.is_some() && read.is_ok();
    if let Err(e) = read {
        // Either the WAL is damaged, or it knows of a longer manifest.
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

/// Takes what is readable of the newest manifest of which anything is.
fn salvage(env: &Env, dir: &Path, numbers: &[u64], plan: &mut Plan) -> Result<Option<Mark>> {
    let mut databases: Vec<u64> =
        manifest::current(env, dir).ok().flatten().map(|(database, _)| database).into_iter().collect();
    databases.extend(wal::databases(env, dir)?);
    for number in numbers {
        let tries = std::iter::once(None).chain(databases.iter().copied().map(Some));
        let mut found = tries.filter_map(|database| manifest::salvage(env, dir, *number, database));
        if let Some(found) = found.next() {
            if let Some(mark) = &found.state.shared {
                return Err(mark.refusal(dir));
            }
            plan.sure = found.lost.is_empty();
            // A lost record may have created a family.
            plan.all_families = found.lost.is_empty();
            plan.state = found.state;
            return Ok(Some(found.mark));
        }
    }
    plan.state.database = databases.first().copied().unwrap_or_else(|| env.random.next_u64() | 1);
    Ok(None)
}
