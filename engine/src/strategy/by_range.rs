//! Decisions of a strategy that divides memory by key range: where ranges begin, which one is flushed, and
//! with which SSTables its memory is merged. Pure functions, as all of this folder.

use super::CompactionPlan;
use crate::shape::Shape;
use crate::types::{KeyRange, TableId};

#[derive(Clone, PartialEq, Debug)]
pub(crate) struct RangeMemory {
    pub(crate) range: KeyRange,
    /// Bytes of memory that flushing the range frees.
    pub(crate) bytes: u64,
    /// Bytes that its cells take in an SSTable, about.
    pub(crate) written: u64,
    /// The number of operations of the database since its oldest cell was written.
    pub(crate) age: u64,
}

/// The share of cells that a compaction of these SSTables, with the memory merged into it, would leave,
/// estimated by sketches.
pub(crate) type Unique<'a> = &'a dyn Fn(&[TableId]) -> f64;

/// A strategy's decisions about ranges; see the page above.
pub(crate) trait ByRange {
    /// The keys at which ranges begin, in order; the first range begins before all keys and is not named.
    fn bounds(&self, shape: &Shape) -> Vec<Vec<u8>>;

    /// The mean bytes of a range's SSTables that are written again when it is flushed.
    fn rewritten(&self, shape: &Shape) -> u64;

    /// The range to flush, as an index into `memory`, and why. None of the ranges is empty.
    fn victim(&self, shape: &Shape, memory: &[RangeMemory]) -> Option<(usize, String)>;

    /// Whether a flush of the range should compact it before it has to, lest too many ranges have to at the
    /// same time.
    fn is_early(&self, shape: &Shape, range: &KeyRange) -> bool;

    /// The compaction that merges a range's memory, newer than all SSTables, into SSTables, `early` or when
    /// it has to be. `None` where the shape has something in the way: then the memory goes to L0 as it is.
    fn flush(
        &self,
        shape: &Shape,
        memory: &RangeMemory,
        early: bool,
        unique: Unique<'_>,
    ) -> Option<CompactionPlan>;

    /// Sets the size of the plan's output SSTables.
    fn cut(&self, plan: &mut CompactionPlan, unique: Unique<'_>);
}

/// The range to flush while compactions are running on some ranges (`merging`). Memory of such a range cannot
/// be merged with its SSTables and would go to L0, so another range is taken if that frees at least half as
/// much.
pub(crate) fn victim_beside(
    by_range: &dyn ByRange,
    shape: &Shape,
    memory: &[RangeMemory],
    merging: &[KeyRange],
) -> Option<(usize, String)> {
    let chosen = by_range.victim(shape, memory)?;
    let is_merging = |range: &KeyRange| merging.iter().any(|other| other.overlaps(range));
    if !is_merging(&memory[chosen.0].range) {
        return Some(chosen);
    }
    let free: Vec<usize> = (0..memory.len()).filter(|n| !is_merging(&memory[*n].range)).collect();
    let others: Vec<RangeMemory> = free.iter().map(|n| memory[*n].clone()).collect();
    match by_range.victim(shape, &others) {
        Some((other, why)) if 2 * others[other].bytes >= memory[chosen.0].bytes => Some((free[other], why)),
        _ => Some(chosen),
    }
}

/// The most memtables that a range's memory may be in.
const MEMTABLES_MAX: usize = 4;
/// The largest memtable that joining may make: positions in memory reach twice as far.
const JOINED_BYTES_MAX: u64 = 8 << 30;

/// The number of a range's memtables (bytes of each, newest first) that are joined with `new` bytes of new
/// cells.
///
/// As few as leave at most four, and on from there as long as the next is no larger than what is copied
/// already: so a cell is copied a number of times that grows with the logarithm of the range's memory, and a
/// reader has few places to look.
pub(crate) fn memtables_to_join(new: u64, memtables: &[u64]) -> usize {
    let (mut taken, mut bytes) = (0, new);
    let mut left = memtables.len() + 1;
    while let Some(next) = memtables.get(taken)
        && (left > MEMTABLES_MAX || (taken > 0 && *next <= bytes))
        && bytes + next <= JOINED_BYTES_MAX
    {
        bytes += next;
        taken += 1;
        left -= 1;
    }
    taken
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::strategy::{RangemergeOptions, Victim};

    #[test]
    fn beside_a_compaction_of_its_range_another_is_flushed_if_that_frees_half_as_much() {
        let options = RangemergeOptions { victim: Victim::MostBytes, ..Default::default() };
        let held = |range: KeyRange, bytes| RangeMemory { range, bytes, written: bytes, age: 1 };
        let memory = |bytes| {
            [
                held(KeyRange::new("", "f"), 10),
                held(KeyRange::new("f", "m"), bytes),
                held(KeyRange::new("m", "z"), 1),
            ]
        };
        let chosen = |bytes, merging: &[KeyRange]| {
            victim_beside(&options, &Shape::default(), &memory(bytes), merging).unwrap().0
        };
        let first = KeyRange::new("c", "d");
        assert_eq!(chosen(5, &[]), 0);
        assert_eq!(chosen(5, &[KeyRange::new("g", "z")]), 0, "the compaction is elsewhere");
        assert_eq!(chosen(5, std::slice::from_ref(&first)), 1);
        assert_eq!(chosen(4, std::slice::from_ref(&first)), 0, "too little to gain");
        assert_eq!(chosen(5, &[first, KeyRange::new("g", "h")]), 0, "nothing else is left but a crumb");
        assert_eq!(chosen(5, &[KeyRange::all()]), 0);
        assert_eq!(victim_beside(&options, &Shape::default(), &[], &[KeyRange::all()]), None);
    }

    #[test]
    fn a_range_has_at_most_four_memtables_and_each_cell_is_copied_a_few_times() {
        for (rounds, most) in [(20, 4.0), (1000, 20.0)] {
            let (mut memtables, mut copied) = (Vec::<u64>::new(), 0);
            for _ in 0..rounds {
                let taken = memtables_to_join(100, &memtables);
                let joined = 100 + memtables.drain(..taken).sum::<u64>();
                copied += joined;
                memtables.insert(0, joined);
                assert!(memtables.len() <= MEMTABLES_MAX, "{memtables:?}");
            }
            assert_eq!(memtables.iter().sum::<u64>(), 100 * rounds);
            let times = copied as f64 / (100 * rounds) as f64;
            assert!(times < most, "of {rounds} each was copied {times} times");
        }
    }

    #[test]
    fn a_small_piece_is_not_copied_with_each_large_one() {
        assert_eq!(memtables_to_join(1, &[100, 100]), 0);
        assert_eq!(memtables_to_join(1, &[1, 100, 100, 100]), 1);
        assert_eq!(memtables_to_join(10, &[5, 10, 100, 1000]), 2);
        assert_eq!(memtables_to_join(1, &[1 << 32, 1 << 32, 1, 1, 1]), 1, "no piece gets too large");
    }
}
