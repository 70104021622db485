//! Verification of a compaction in another process, which is not trusted (invariant I5): names, order, bounds
//! and counts are checked here (against the inputs, `bounds`), each SSTable's index when it is opened, each
//! block when it is first read.

use super::bounds::{Counts, Expected};
use super::merge_run::Totals;
use super::spec::CompactionSpec;
use crate::shape::TableInfo;
use crate::types::{KeyRange, SeqNo, TableId};
use std::sync::Arc;

/// The verified steps of one run so far.
#[derive(Clone)]
pub(crate) struct Verifier {
    /// The names of its SSTables, without the part.
    name: TableId,
    /// The end of the last step.
    low: Vec<u8>,
    end: Option<Vec<u8>>,
    last: Option<TableId>,
    /// The least number of cells in the inputs; whether it is exact.
    cells_in: (u64, bool),
    /// The highest sequence number of the inputs.
    newest: SeqNo,
    /// Cells, range tombstones and bytes of SSTables as counted here, the other totals as reported with the
    /// last step.
    totals: Totals,
    done: bool,
}

impl Verifier {
    pub(crate) fn new(spec: &CompactionSpec) -> Self {
        let newest = spec.inputs.iter().flatten().map(|table| table.ingested_at.unwrap_or(table.seqs.1));
        Self {
            name: spec.output.id,
            low: spec.range.start.clone(),
            end: spec.range.end.clone(),
            last: None,
            cells_in: spec.cells(),
            newest: newest.max().unwrap_or_default(),
            totals: Totals::default(),
            done: false,
        }
    }

    pub(crate) fn totals(&self) -> Totals {
        self.totals
    }

    /// Whether an SSTable of that name can only be an output of this run that was not accepted.
    pub(crate) fn may_remove(&self, table: TableId) -> bool {
        (TableId { part: table.part, ..self.name }) == table && self.last.is_none_or(|last| table > last)
    }

    /// The state after that step, if it may follow the previous ones and agrees with the inputs; otherwise
    /// the reason.
    pub(crate) fn step(
        &self,
        outputs: &[Arc<TableInfo>],
        upto: Option<&[u8]>,
        totals: &Totals,
        expected: &Expected,
    ) -> Result<Self, String> {
        let mut next = self.clone();
        if planted!(Bug::UnverifiedResult) {
            next.totals = *totals;
            return Ok(next);
        }
        if self.done {
            return Err("a step behind the last one".into());
        }
        if let Some(upto) = upto
            && (upto <= self.low.as_slice() || self.end.as_deref().is_some_and(|end| upto > end))
        {
            return Err("a step that does not end within what is left of the compaction's range".into());
        }
        let end = upto.map(<[u8]>::to_vec).or_else(|| self.end.clone());
        let mut left = KeyRange { start: self.low.clone(), end: end.clone() };
        for table in outputs {
            let id = table.id;
            if !next.may_remove(id) {
                let last = next.last.unwrap_or(self.name);
                return Err(format!("table {id} is not the next one behind {last}"));
            }
            if !table.is_whole() || table.ingested_at.is_some() {
                return Err(format!("table {id} is not as it was written"));
            }
            if table.range.is_empty() || !left.covers(&table.range) {
                return Err(format!("table {id} has keys outside the step, or beside its neighbour's"));
            }
            left.start = table.range.end.clone().unwrap_or_default();
            next.last = Some(id);
            // Saturating: wrong numbers must not become right by overflow.
            next.totals.kept = next.totals.kept.saturating_add(table.cells);
            next.totals.range_tombstones =
                next.totals.range_tombstones.saturating_add(table.range_tombstones);
            next.totals.bytes_written = next.totals.bytes_written.saturating_add(table.bytes);
            if table.range.end.is_none() && !std::ptr::eq(table, &outputs[outputs.len() - 1]) {
                return Err(format!("table {id} has no end, and others follow"));
            }
        }
        // At the end of a step nothing is held back.
        if next.totals.kept != totals.kept || totals.kept > totals.taken {
            return Err(format!("{} cells, {} were kept of {}", next.totals.kept, totals.kept, totals.taken));
        }
        if next.totals.range_tombstones != totals.range_tombstones {
            let (there, written) = (next.totals.range_tombstones, totals.range_tombstones);
            return Err(format!("{there} range tombstones of {written} that were written"));
        }
        if totals.taken < self.totals.taken || totals.forgotten > self.newest {
            return Err(format!("{} cells met, none newer than {} kept", totals.taken, totals.forgotten.0));
        }
        self.compare(totals, expected)?;
        (next.totals.taken, next.totals.forgotten) = (totals.taken, totals.forgotten);
        next.low = end.unwrap_or_default();
        next.done = upto.is_none();
        let (least, is_all) = self.cells_in;
        if next.done && (totals.taken < least || (is_all && totals.taken != least)) {
            return Err(format!("{} cells met, the inputs hold {least}", totals.taken));
        }
        Ok(next)
    }

    /// Compares the cells read and kept since the last step, and in all, with their bounds.
    fn compare(&self, totals: &Totals, expected: &Expected) -> Result<(), String> {
        let taken = totals.taken.saturating_sub(self.totals.taken);
        let kept = totals.kept.saturating_sub(self.totals.kept);
        may_be("a step", taken, kept, &expected.step)?;
        may_be("all steps", totals.taken, totals.kept, &expected.so_far)
    }
}

/// Checks whether that many cells may have been read and kept.
fn may_be(of: &str, taken: u64, kept: u64, expected: &Counts) -> Result<(), String> {
    let (least, most) = expected.taken;
    if planted!(Bug::BelieveCounts) {
        return Ok(());
    }
    if !(least..=most).contains(&taken) {
        return Err(format!("{taken} cells met in {of}, the inputs hold {least} to {most} there"));
    }
    if kept < expected.kept {
        let least = expected.kept;
        return Err(format!("{kept} of {taken} cells kept in {of}, of which {least} at least must be"));
    }
    if taken.saturating_sub(kept) > expected.dropped {
        let most = expected.dropped;
        return Err(format!("{kept} of {taken} cells kept in {of}, of which {most} at most may be dropped"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compaction::spec::sample::spec;
    use crate::shape::Clip;
    use crate::types::StoreId;

    const ANY: Expected = Expected::ANY;

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
        let good = verifier();
        let good =
            good.step(&[table(0, "a", "c"), table(1, "c", "f")], Some(b"g"), &totals(25, 20), &ANY).unwrap();
        let again = good.step(&[table(1, "h", "i")], None, &totals(30, 30), &ANY);
        assert!(again.is_err(), "handed out twice");
        let removable: Vec<bool> = (0..4).map(|part| good.may_remove(table(part, "h", "i").id)).collect();
        assert_eq!(removable, [false, false, true, true], "what was taken stays");
        assert_eq!((good.totals().kept, good.totals().bytes_written), (20, 200));
        let good = good.step(&[], None, &totals(30, 20), &ANY).unwrap();
        assert!(good.step(&[], None, &totals(30, 20), &ANY).is_err(), "behind the last");
        let refused = |outputs: &[Arc<TableInfo>], upto: Option<&[u8]>, totals| {
            assert!(verifier().step(outputs, upto, &totals, &ANY).is_err(), "{outputs:?} {upto:?}");
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
        assert!(!verifier().may_remove(TableId { epoch: 2, ..table(0, "a", "c").id }));
        let changed = |change: fn(&mut TableInfo)| {
            let mut other = TableInfo::clone(&table(0, "a", "c"));
            change(&mut other);
            refused(&[Arc::new(other)], Some(b"g"), totals(10, 10));
        };
        changed(|table| table.id.epoch = 2);
        changed(|table| table.clip = Some(Clip { key: b"b".to_vec(), bytes_below: 1 }));
        changed(|table| table.above = Some(3));
        changed(|table| table.ingested_at = Some(SeqNo(3)));
        let new = Totals { forgotten: SeqNo(1 << 40), ..totals(10, 10) };
        refused(&[table(0, "a", "c")], Some(b"g"), new);
    }

    #[test]
    fn of_clipped_inputs_the_others_are_to_be_met_at_least() {
        let mut spec = spec("a", "z", 30);
        let mut clipped = spec.inputs[0][0].clone();
        clipped.clip = Some(Clip { key: b"b".to_vec(), bytes_below: 1 });
        spec.inputs.push(vec![clipped]);
        let verifier = Verifier::new(&spec);
        assert!(verifier.step(&[], None, &totals(29, 0), &ANY).is_err());
        assert!(verifier.step(&[], None, &totals(30, 0), &ANY).is_ok());
        assert!(verifier.step(&[], None, &totals(50, 0), &ANY).is_ok());
    }

    #[test]
    fn fewer_cells_than_the_inputs_lead_one_to_expect_are_refused_in_a_step_and_in_all() {
        let spec = spec("a", "z", 30);
        let tables = [table(0, "a", "c"), table(1, "c", "f")];
        let step = |taken, kept, expected: &Expected| {
            let outputs = &tables[..(kept / 10) as usize];
            Verifier::new(&spec).step(outputs, Some(b"g"), &totals(taken, kept), expected)
        };
        let counts = |taken, kept| Counts { taken, kept, dropped: u64::MAX };
        let of = |counts| Expected { step: counts, so_far: counts };
        for (taken, kept, expected, is_true) in [
            (20, 20, counts((15, 25), 20), true),
            (15, 10, counts((15, 25), 10), true),
            (14, 10, counts((15, 25), 10), false),
            (26, 20, counts((15, 25), 10), false),
            (20, 10, counts((15, 25), 11), false),
            (20, 0, counts((15, 25), 1), false),
        ] {
            let found = step(taken, kept, &of(expected));
            assert_eq!(found.is_ok(), is_true, "{taken} met, {kept} kept, {expected:?}");
            for part in
                [Expected { step: expected, ..Expected::ANY }, Expected { so_far: expected, ..Expected::ANY }]
            {
                assert_eq!(step(taken, kept, &part).is_ok(), is_true, "{part:?}");
            }
        }
        // The exact number of cells is unknown, but hardly one may be dropped.
        for dropped in 0..12 {
            let counts = Counts { dropped, ..counts((15, 25), 5) };
            assert_eq!(step(20, 10, &of(counts)).is_ok(), dropped >= 10, "{dropped}");
        }
        // Earlier cells count for all steps, not for this one.
        let before = step(20, 20, &ANY).unwrap();
        let expected = Expected { step: counts((0, 10), 0), so_far: counts((30, 30), 20) };
        assert!(before.step(&[], None, &totals(30, 20), &expected).is_ok());
        let more = Expected { step: counts((0, 10), 1), ..expected };
        let refused = before.step(&[], None, &totals(30, 20), &more).err().unwrap();
        assert!(refused.contains("0 of 10 cells kept in a step"), "{refused}");
    }
}
