//! What a compaction leaves of what goes into it, as the sketches of its tables and of memory say (TRI-3,
//! idea 6).

use super::Version;
use crate::memtable::Memtable;
use crate::types::{Sketch, TableId};
use std::cell::RefCell;
use std::collections::BTreeSet;

/// Answers that are remembered.
const KNOWN: usize = 8;

/// What sets of tables, each with the same memory, hold; as it was asked for lately. A level 0 that waits is
/// asked for again and again, and sketches are read from files.
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
    pub(crate) fn left(&self, version: &Version, pieces: &[Memtable], tables: &[TableId], kept: u64) -> f64 {
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
    fn of(version: &Version, pieces: &[Memtable], tables: &[TableId]) -> Self {
        let wanted: BTreeSet<TableId> = tables.iter().copied().collect();
        let mut union = Sketch::new();
        let mut all = Counted { keys: 0, cells: 0, union: 0 };
        for flat in pieces.iter().filter_map(Memtable::as_flat) {
            let mut keys = Sketch::new();
            flat.sketch_into(&mut keys);
            all.keys += keys.estimate();
            all.cells += flat.cells() as u64;
            union.merge(&keys);
        }
        for open in version.tables().filter(|open| wanted.contains(&open.info.id)) {
            all.keys += open.info.distinct;
            all.cells += open.info.cells;
            match open.table().and_then(|table| table.sketch()) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stays_is_the_union_as_often_as_cells_of_a_key_are_kept() {
        let counted = Counted { keys: 100, cells: 400, union: 50 };
        for (kept, share) in [(1, 0.5), (2, 0.25), (8, 1.0), (9, 1.0)] {
            assert_eq!(counted.left(kept), share, "{kept} kept");
        }
        let union = Counted { keys: 100, cells: 100, union: 103 };
        assert_eq!(union.left(1), 1.0, "estimates differ");
        assert_eq!(Counted { keys: 0, cells: 0, union: 0 }.left(1), 1.0);
    }

    #[test]
    fn a_sketch_that_was_read_is_remembered_and_keys_that_tables_share_count_once() {
        let dir = tempfile::tempdir().unwrap();
        let db = crate::Db::open(dir.path()).unwrap();
        for round in 0..3u32 {
            for n in 0..1000 {
                db.put((n + round % 2 * 500u32).to_be_bytes(), [1; 100]).unwrap();
            }
            db.flush().unwrap();
        }
        let version = db.default_family().store.version_full();
        let tables: Vec<TableId> = version.tables().map(|open| open.info.id).collect();
        let unions = Unions::default();
        let share = unions.left(&version, &[], &tables, 1);
        let cells: u64 = version.tables().map(|open| open.info.cells).sum();
        assert!((share - 1500.0 / cells as f64).abs() < 0.03, "{share} of {cells}");
        assert_eq!(unions.0.borrow().len(), 1);
        assert_eq!(unions.left(&version, &[], &tables, u64::MAX), 1.0);
        assert_eq!(unions.left(&version, &[], &tables[..1], 1), 1.0);
        assert_eq!(unions.left(&version, &[], &tables, 1), share);
        assert_eq!(unions.0.borrow().len(), 2, "each asked for once");
    }
}
