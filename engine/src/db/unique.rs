//! What a merge leaves of what goes into it, as the sketches of its tables and of memory say (TRI-3, idea 6).

use crate::memory::Segment;
use crate::types::{Sketch, TableId};
use crate::version::Version;
use std::cell::RefCell;
use std::collections::BTreeSet;

/// Answers that are remembered.
const KNOWN: usize = 8;

/// What sets of tables, each with the same memory, hold; as it was asked for lately. A level 0 that waits is asked for again
/// and again, and sketches are read from files.
#[derive(Default)]
pub(crate) struct Unions(RefCell<Vec<(Vec<TableId>, Counted)>>);

/// Keys and cells, each counted in every table or piece of memory that has it, and the keys of all together.
#[derive(Clone, Copy)]
struct Counted {
    keys: u64,
    cells: u64,
    union: u64,
}

impl Unions {
    /// The share that is left when the pieces and these tables are merged, if so many cells of a key stay.
    ///
    /// The first time it hashes every cell of the pieces and reads the sketches of the tables.
    pub(super) fn left(&self, version: &Version, pieces: &[Segment], tables: &[TableId], kept: u64) -> f64 {
        if kept == u64::MAX {
            return 1.0;
        }
        let known = self.0.borrow().iter().find(|(of, _)| of == tables).map(|(_, counted)| *counted);
        let counted = known.unwrap_or_else(|| {
            let counted = Counted::of(version, pieces, tables);
            let mut known = self.0.borrow_mut();
            known.truncate(KNOWN - 1);
            known.insert(0, (tables.to_vec(), counted));
            counted
        });
        counted.left(kept)
    }
}

impl Counted {
    /// A sketch that cannot be read counts as its table's own estimate.
    fn of(version: &Version, pieces: &[Segment], tables: &[TableId]) -> Self {
        let wanted: BTreeSet<TableId> = tables.iter().copied().collect();
        let mut union = Sketch::new();
        let mut all = Counted { keys: 0, cells: 0, union: 0 };
        for flat in pieces.iter().filter_map(Segment::as_flat) {
            let mut keys = Sketch::new();
            flat.sketch_into(&mut keys);
            all.keys += keys.estimate();
            all.cells += flat.cells() as u64;
            union.merge(&keys);
        }
        for open in version.tables().filter(|open| wanted.contains(&open.info.id)) {
            all.keys += open.info.distinct;
            all.cells += open.info.cells;
            match open.table().sketch() {
                Ok(keys) => union.merge(&keys),
                Err(_) => all.union += open.info.distinct,
            }
        }
        all.union += union.estimate();
        all
    }

    fn left(self, kept: u64) -> f64 {
        let all = if kept == 1 { self.keys } else { self.cells };
        match all {
            0 => 1.0,
            all => (self.union.saturating_mul(kept) as f64 / all as f64).min(1.0),
        }
    }
}
