//! What a merge run elsewhere hands out is believed only as far as it was checked (invariant I5): names, order, bounds and
//! counts here, each table's index when it is opened, each block when it is first read.

use super::executor::Totals;
use super::spec::MergeSpec;
use crate::shape::TableInfo;
use crate::types::{KeyRange, TableId};
use std::sync::Arc;

/// The steps of one run so far.
pub(crate) struct Verifier {
    /// Names of its tables, but for the part.
    name: TableId,
    /// Keys below are done.
    low: Vec<u8>,
    end: Option<Vec<u8>>,
    last: Option<TableId>,
    cells_in: Option<u64>,
    cells_out: u64,
    range_tombstones: u64,
    done: bool,
}

impl Verifier {
    pub(crate) fn new(spec: &MergeSpec) -> Self {
        Self {
            name: spec.output.id,
            low: spec.range.start.clone(),
            end: spec.range.end.clone(),
            last: None,
            cells_in: spec.cells(),
            cells_out: 0,
            range_tombstones: 0,
            done: false,
        }
    }

    /// Whether the step may follow those before; why not.
    pub(crate) fn step(
        &mut self,
        outputs: &[Arc<TableInfo>],
        upto: Option<&[u8]>,
        totals: &Totals,
    ) -> Result<(), String> {
        if planted!(Bug::UnverifiedResult) {
            return Ok(());
        }
        if self.done {
            return Err("a step behind the last one".into());
        }
        if let Some(upto) = upto
            && (upto <= self.low.as_slice() || self.end.as_deref().is_some_and(|end| upto > end))
        {
            return Err("a step that does not end within what is left of the merge's range".into());
        }
        let end = upto.map(<[u8]>::to_vec).or_else(|| self.end.clone());
        let mut left = KeyRange { start: self.low.clone(), end: end.clone() };
        for table in outputs {
            let id = table.id;
            if (TableId { part: id.part, ..self.name }) != id || self.last.is_some_and(|last| id <= last) {
                return Err(format!(
                    "table {id} is not the next one behind {}",
                    self.last.unwrap_or(self.name)
                ));
            }
            if table.range.is_empty() || !left.covers(&table.range) {
                return Err(format!("table {id} has keys outside the step, or beside its neighbour's"));
            }
            left.start = table.range.end.clone().unwrap_or_default();
            self.last = Some(id);
            self.cells_out += table.cells;
            self.range_tombstones += table.range_tombstones;
            if table.range.end.is_none() && !std::ptr::eq(table, &outputs[outputs.len() - 1]) {
                return Err(format!("table {id} has no end, and others follow"));
            }
        }
        // At the end of a step nothing is held back.
        if self.cells_out != totals.kept || totals.kept > totals.taken {
            return Err(format!("{} cells, {} were kept of {}", self.cells_out, totals.kept, totals.taken));
        }
        if self.range_tombstones != totals.range_tombstones {
            let (there, written) = (self.range_tombstones, totals.range_tombstones);
            return Err(format!("{there} range tombstones of {written} that were written"));
        }
        self.low = end.unwrap_or_default();
        self.done = upto.is_none();
        if self.done && self.cells_in.is_some_and(|cells| cells != totals.taken) {
            return Err(format!("{} cells met, the inputs hold {:?}", totals.taken, self.cells_in));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::merge::spec::tests::spec;
    use crate::types::StoreId;

    fn table(part: u32, start: &str, end: &str) -> Arc<TableInfo> {
        let mut table = TableInfo::plain(TableId { store: StoreId(2), epoch: 3, job: 4, part }, 100);
        table.range = KeyRange::new(start, end);
        table.cells = 10;
        Arc::new(table)
    }

    fn totals(taken: u64, kept: u64) -> Totals {
        Totals { taken, kept, ..Totals::default() }
    }

    #[test]
    fn steps_that_follow_each_other_are_taken_and_others_are_not() {
        let spec = spec("a", "z", 30);
        let verifier = || Verifier::new(&spec);
        let mut good = verifier();
        assert_eq!(good.step(&[table(0, "a", "c"), table(1, "c", "f")], Some(b"g"), &totals(25, 20)), Ok(()));
        assert_eq!(good.step(&[], None, &totals(30, 20)), Ok(()));
        assert!(good.step(&[], None, &totals(30, 20)).is_err(), "behind the last");
        let refused = |outputs: &[Arc<TableInfo>], upto: Option<&[u8]>, totals| {
            assert!(verifier().step(outputs, upto, &totals).is_err(), "{outputs:?} {upto:?}");
        };
        refused(&[], Some(b"a"), totals(0, 0));
        refused(&[], Some(b"zz"), totals(0, 0));
        refused(&[table(0, "a", "h")], Some(b"g"), totals(10, 10));
        refused(&[table(0, "A", "b")], Some(b"g"), totals(10, 10));
        refused(&[table(0, "a", "c"), table(1, "b", "d")], Some(b"g"), totals(20, 20));
        refused(&[table(1, "a", "c"), table(1, "c", "d")], Some(b"g"), totals(20, 20));
        refused(&[table(0, "a", "c")], Some(b"g"), totals(10, 9));
        refused(&[table(0, "a", "c")], Some(b"g"), totals(11, 11));
        refused(&[table(0, "a", "c")], None, totals(30, 11));
        refused(&[table(0, "a", "c")], None, totals(29, 10));
        let mut other = TableInfo::clone(&table(0, "a", "c"));
        other.id.epoch = 2;
        refused(&[Arc::new(other)], Some(b"g"), totals(10, 10));
    }
}
