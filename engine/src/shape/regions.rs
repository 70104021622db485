//! How shapes are split and joined: what becomes of a store's SSTables when it is split at a key, or takes in
//! its neighbour. An SSTable with keys on both sides belongs to both stores afterwards, each with its part.

use super::{Clip, Level, Run, Shape, TableInfo};
use crate::types::{KeyRange, TableId};
use std::collections::BTreeMap;
use std::sync::Arc;

impl Shape {
    /// The SSTables that have keys on both sides of `at`. O(runs x log SSTables).
    pub(crate) fn over<'a>(&'a self, at: &'a [u8]) -> impl Iterator<Item = &'a Arc<TableInfo>> {
        let over = move |run: &'a Run| {
            let behind = run.tables().partition_point(|table| table.live_start() < at);
            let last = behind.checked_sub(1).map(|last| &run.tables()[last]);
            last.filter(|table| table.range.ends_after(at))
        };
        self.runs().filter_map(move |(_, run)| over(run))
    }

    /// The two shapes with the keys below `at`, and from `at` on. `below` has, for each SSTable with keys on
    /// both sides, about how many of its bytes lie below `at`.
    pub(crate) fn split(&self, at: &[u8], below: &BTreeMap<TableId, u64>) -> (Shape, Shape) {
        let part = |keep: &dyn Fn(&Arc<TableInfo>) -> Option<Arc<TableInfo>>| {
            let run = |run: &Run| Run::new(run.id, run.tables().iter().filter_map(keep).collect());
            let runs =
                |level: &Level| level.runs.iter().map(run).filter(|run| !run.tables().is_empty()).collect();
            let mut shape =
                Shape { levels: self.levels.iter().map(|level| Level { runs: runs(level) }).collect() };
            shape.drop_empty_levels();
            shape
        };
        let bytes_below = |table: &TableInfo| below.get(&table.id).copied().unwrap_or(table.bytes / 2);
        let left = part(&|table| {
            if !table.range.ends_after(at) {
                return Some(table.clone());
            }
            (table.live_start() < at).then(|| {
                let range = KeyRange { end: Some(at.to_vec()), ..table.range.clone() };
                let above = table.bytes.saturating_sub(bytes_below(table)).max(table.above.unwrap_or(0));
                Arc::new(TableInfo { range, above: Some(above), ..TableInfo::clone(table) })
            })
        });
        let right = part(&|table| {
            if table.live_start() >= at {
                return Some(table.clone());
            }
            table.range.ends_after(at).then(|| {
                let before = table.clip.as_ref().map_or(0, |clip| clip.bytes_below);
                let clip = Clip { key: at.to_vec(), bytes_below: bytes_below(table).max(before) };
                Arc::new(TableInfo { clip: Some(clip), ..TableInfo::clone(table) })
            })
        });
        (left, right)
    }

    /// This shape joined with a neighbour's, and the SSTables whose parts were reunited. SSTables in
    /// `renamed` get another name. Runs of both shapes, paired by age in each level, become one, as their
    /// keys do not overlap. `Err` if the two are no neighbours.
    pub(crate) fn join(
        &self,
        other: &Shape,
        renamed: &BTreeMap<TableId, TableId>,
    ) -> Result<(Shape, Vec<TableId>), String> {
        let mut joined = Shape::default();
        let mut whole = Vec::new();
        for number in 0..self.levels.len().max(other.levels.len()) {
            let mut level = Vec::new();
            for (run, own, their) in pairs(runs_of(self, number), runs_of(other, number)) {
                let mut tables = own.map_or(Vec::new(), |own| own.tables().to_vec());
                for table in their.map_or(&[][..], Run::tables) {
                    let id = renamed.get(&table.id).copied().unwrap_or(table.id);
                    match tables.iter_mut().find(|own| own.id == id) {
                        Some(own) => {
                            *own = Arc::new(together(own, table)?);
                            whole.push(id);
                        }
                        None => tables.push(Arc::new(TableInfo { id, ..TableInfo::clone(table) })),
                    }
                }
                level.push(Run::new(run, tables));
            }
            joined.levels.push(Level { runs: level });
        }
        joined.drop_empty_levels();
        joined.check().map(|()| (joined, whole))
    }

    /// SSTables of a neighbour that this shape has a part of, and that cannot be reunited: the parts lie in
    /// different levels or runs, or something is missing between them.
    pub(crate) fn apart_from(&self, other: &Shape) -> Vec<Arc<TableInfo>> {
        let (mut shared, mut theirs) = (BTreeMap::new(), Vec::new());
        for number in 0..self.levels.len().max(other.levels.len()) {
            for (run, own, their) in pairs(runs_of(self, number), runs_of(other, number)) {
                let tables = own.map_or(&[][..], Run::tables);
                shared.extend(tables.iter().map(|table| (table.id, (number, run, table))));
                let tables = their.map_or(&[][..], Run::tables);
                theirs.extend(tables.iter().map(|table| (number, run, table)));
            }
        }
        let is_apart = |(number, run, table): &(usize, u64, &Arc<TableInfo>)| match shared.get(&table.id) {
            Some((level, of, own)) => (level, of) != (number, run) || together(own, table).is_err(),
            None => false,
        };
        theirs.into_iter().filter(is_apart).map(|(_, _, table)| table.clone()).collect()
    }
}

fn runs_of(shape: &Shape, level: usize) -> &[Run] {
    shape.levels.get(level).map_or(&[], |level| &level.runs)
}

/// Pairs the runs of a level of two shapes, newest first: runs that were one before a split become one again,
/// and those between such runs are paired by age. Any pairing that keeps each shape's own order is right, as
/// their keys do not overlap.
///
/// A pair takes the id of one of its runs, so the memory of both stays newer than it.
fn pairs<'a>(ours: &'a [Run], theirs: &'a [Run]) -> Vec<(u64, Option<&'a Run>, Option<&'a Run>)> {
    let (mut ours, mut theirs) = (ours, theirs);
    let mut paired = Vec::new();
    loop {
        let same = ours.iter().enumerate().find_map(|(own, run)| {
            theirs.iter().position(|their| their.id == run.id).map(|their| (own, their))
        });
        let (own, their) = same.unwrap_or((ours.len(), theirs.len()));
        between(&ours[..own], &theirs[..their], &mut paired);
        let Some((own, their)) = same else { return paired };
        paired.push((ours[own].id, Some(&ours[own]), Some(&theirs[their])));
        (ours, theirs) = (&ours[own + 1..], &theirs[their + 1..]);
    }
}

/// Pairs runs that have no id in common, by age: the oldest of both become one.
fn between<'a>(
    ours: &'a [Run],
    theirs: &'a [Run],
    paired: &mut Vec<(u64, Option<&'a Run>, Option<&'a Run>)>,
) {
    let mut numbers: Vec<u64> = ours.iter().chain(theirs).map(|run| run.id).collect();
    numbers.sort_unstable_by(|a, b| b.cmp(a));
    let count = ours.len().max(theirs.len());
    let from_oldest =
        |runs: &'a [Run], place: usize| (runs.len() + place).checked_sub(count).map(|at| &runs[at]);
    let numbered = numbers.into_iter().take(count).enumerate();
    paired.extend(
        numbered.map(|(place, number)| (number, from_oldest(ours, place), from_oldest(theirs, place))),
    );
}

fn together(a: &TableInfo, b: &TableInfo) -> Result<TableInfo, String> {
    let (low, high) = if a.live_start() <= b.live_start() { (a, b) } else { (b, a) };
    if low.range.end.as_deref() != Some(high.live_start()) || low.identity != high.identity {
        return Err(format!("the parts of table {} are not neighbours", low.id));
    }
    let mut whole = low.clone();
    (whole.range.end, whole.above) = (high.range.end.clone(), high.above);
    Ok(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(part: u32, start: &str, end: &str) -> Arc<TableInfo> {
        Arc::new(TableInfo::over(part, KeyRange::new(start, end), 100))
    }

    fn shape() -> Shape {
        let runs = |runs: Vec<Run>| Level { runs };
        let top = vec![Run::new(9, vec![table(1, "a", "z")]), Run::new(7, vec![table(2, "c", "f")])];
        let deep = vec![Run::new(3, vec![table(3, "a", "g"), table(4, "g", "m"), table(5, "m", "z")])];
        Shape { levels: vec![runs(top), runs(Vec::new()), runs(deep)] }
    }

    #[test]
    fn a_split_shape_is_checked_shares_what_lies_over_the_key_and_joins_to_what_it_was() {
        let whole = shape();
        let below = BTreeMap::from([(TableId { part: 1, ..TableId::default() }, 30)]);
        let over: Vec<u32> = whole.over(b"h").map(|table| table.id.part).collect();
        assert_eq!(over, [1, 4]);
        let (left, right) = whole.split(b"h", &below);
        assert_eq!((left.check(), right.check()), (Ok(()), Ok(())));
        let parts = |shape: &Shape| shape.tables().map(|(_, _, t)| t.id.part).collect::<Vec<_>>();
        assert_eq!((parts(&left), parts(&right)), (vec![1, 2, 3, 4], vec![1, 4, 5]));
        assert_eq!(left.live_bytes() + right.live_bytes(), whole.live_bytes(), "shared bytes count once");
        let (joined, together) = left.join(&right, &BTreeMap::new()).unwrap();
        assert_eq!(together.len(), 2);
        assert!(left.apart_from(&right).is_empty());
        let keys =
            |shape: &Shape| shape.tables().map(|(l, r, t)| (l, r.id, t.live_range())).collect::<Vec<_>>();
        assert_eq!(keys(&joined), keys(&whole));
        let (again, _) = right.join(&left, &BTreeMap::new()).unwrap();
        assert_eq!(keys(&again), keys(&whole), "whoever takes in whom");
    }

    #[test]
    fn runs_of_neighbours_are_paired_by_number_and_by_age_between_and_stay_in_order() {
        let runs = |ids: &[u64]| ids.iter().map(|id| Run::new(*id, Vec::new())).collect::<Vec<_>>();
        let told = |ours: &[u64], theirs: &[u64]| {
            let (ours, theirs) = (runs(ours), runs(theirs));
            let id = |run: Option<&Run>| run.map_or(0, |run| run.id);
            let pairs = pairs(&ours, &theirs).into_iter();
            pairs.map(|(n, own, their)| (n, id(own), id(their))).collect::<Vec<_>>()
        };
        assert_eq!(told(&[9], &[8, 7, 6]), [(9, 0, 8), (8, 0, 7), (7, 9, 6)]);
        assert_eq!(told(&[9, 7], &[9]), [(9, 9, 9), (7, 7, 0)]);
        let expected = [(12, 12, 11), (10, 10, 10), (8, 0, 8), (7, 6, 7), (5, 5, 5), (1, 0, 1)];
        assert_eq!(told(&[12, 10, 6, 5], &[11, 10, 8, 7, 5, 1]), expected);
    }

    #[test]
    fn parts_that_went_different_ways_are_told_and_joined_under_another_name() {
        let (left, right) = shape().split(b"h", &BTreeMap::new());
        let mut moved = right.clone();
        // The upper part of SSTable 4 has moved from the last level to a run above.
        moved.levels[2] = Level { runs: vec![Run::new(3, vec![table(5, "m", "z")])] };
        moved.levels[1] = Level { runs: vec![Run::new(5, right.levels[2].runs[0].tables()[..1].to_vec())] };
        assert!(left.join(&moved, &BTreeMap::new()).is_err());
        let apart: Vec<TableId> = left.apart_from(&moved).iter().map(|table| table.id).collect();
        assert_eq!(apart.iter().map(|id| id.part).collect::<Vec<_>>(), [4]);
        let renamed = BTreeMap::from([(apart[0], TableId { part: 99, ..apart[0] })]);
        assert_eq!(left.join(&moved, &renamed).unwrap().1.len(), 1, "only the other one is put together");
    }
}
