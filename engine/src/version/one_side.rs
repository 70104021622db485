//! Scans that are served wholly by one side of a compaction (OFF-5, [`crate::Tuning::scan_one_side`]).
//!
//! A compaction that is installed step by step has new SSTables below the key up to which it has come, and
//! old ones, clipped, above it. A scan over that key reads both, which is right: they are of one version. The
//! paper's store could not do that, and had such a scan read the old files alone. To compare with it, a
//! version may keep the SSTables as they were before the first step, together with what was flushed since; a
//! scan over the key reads these instead. They have the same cells, so the only difference is which blocks
//! are read.
//!
//! The old SSTables are kept until the last running compaction ends, or until any change that is neither a
//! flush nor a step of a compaction; then scans read both sides until the next compaction begins.

use super::version::open_runs;
use super::{Graveyard, OpenRun, PinnedTables, TableHandle, Version};
use crate::shape::{Shape, ShapeChange};
use crate::types::{KeyRange, TableId};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The SSTables as they would be if no step of the running compactions had been installed.
#[derive(Clone)]
pub(crate) struct OldSide {
    shape: Arc<Shape>,
    runs: Arc<[OpenRun]>,
    /// The keys up to which the compactions have come.
    upto: Vec<Vec<u8>>,
    /// A hold on the SSTables' files, of which nothing is freed meanwhile.
    held: Arc<PinnedTables>,
}

/// The old side of a version that has one.
pub(crate) type OldSides = Option<Arc<OldSide>>;

impl Version {
    /// Gives this version, which follows `now` by a flush or a step of a compaction, its old side; none where
    /// no change is told.
    pub(crate) fn keep_old_side(
        &mut self,
        now: &Version,
        change: Option<&ShapeChange>,
        is_flush: bool,
        upto: Option<&[u8]>,
        opened: &BTreeMap<TableId, Arc<TableHandle>>,
        graveyard: &Arc<Graveyard>,
    ) {
        self.old_side = match change {
            None => None,
            Some(change) if is_flush => now.old_side_after_flush(change, opened),
            Some(_) => now.old_side_after_step(&self.shape, upto, graveyard),
        };
    }

    /// The old side for the version after a step of a compaction. `after` has the SSTables then.
    fn old_side_after_step(
        &self,
        after: &Shape,
        upto: Option<&[u8]>,
        graveyard: &Arc<Graveyard>,
    ) -> Option<Arc<OldSide>> {
        let old = self.old_side.as_deref();
        let mut keys: Vec<Vec<u8>> = old.map_or(Vec::new(), |old| old.upto.clone());
        keys.extend(upto.map(<[u8]>::to_vec));
        // A compaction is under way as long as one of its inputs is cut at the key.
        let cuts: Vec<&[u8]> = after
            .tables()
            .filter_map(|(_, _, table)| table.clip.as_ref().map(|clip| &clip.key[..]))
            .collect();
        keys.retain(|key| cuts.contains(&&key[..]));
        if keys.is_empty() {
            return None;
        }
        let OldSide { shape, runs, held, .. } = match old {
            Some(old) => old.clone(),
            None => OldSide {
                shape: self.shape.clone(),
                runs: self.runs.clone(),
                upto: Vec::new(),
                held: Arc::new(graveyard.hold(self.tables().map(|open| open.handle.clone()).collect())),
            },
        };
        Some(Arc::new(OldSide { shape, runs, upto: keys, held }))
    }

    /// The old side for the version after a flush; `None` where the flush removed or clipped SSTables.
    fn old_side_after_flush(
        &self,
        change: &ShapeChange,
        opened: &BTreeMap<TableId, Arc<TableHandle>>,
    ) -> Option<Arc<OldSide>> {
        let old = self.old_side.as_deref()?;
        if !change.removed.is_empty() || !change.clipped.is_empty() {
            return None;
        }
        let mut shape = Shape::clone(&old.shape);
        shape.change(change).ok()?;
        let runs = open_runs(&shape, &old.runs, opened);
        Some(Arc::new(OldSide { shape: Arc::new(shape), runs, ..old.clone() }))
    }

    /// This version as a scan of those keys is to see it: with the old side, if a compaction's key lies among
    /// them.
    pub(crate) fn for_scan(self: Arc<Self>, range: &KeyRange) -> Arc<Self> {
        let spans = |key: &Vec<u8>| range.start < *key && range.ends_after(key);
        match self.old_side.as_ref().filter(|old| old.upto.iter().any(spans)) {
            None => self,
            Some(old) => Arc::new(Version {
                shape: old.shape.clone(),
                runs: old.runs.clone(),
                ..self.with_memory(self.memory.clone())
            }),
        }
    }
}
