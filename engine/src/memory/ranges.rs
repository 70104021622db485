//! The range tombstones of an active segment.
//!
//! They are added one by one, and readers ask what covers a key. Cutting all of them into fragments whenever one more comes
//! would cost as much as there are; so they lie in *blocks*, in the order in which they came: single ones at the end, eight
//! of one size make a block of the next, up to `BLOCK_MAX`. A block has its tombstones cut into fragments for readers that
//! see all of it, reduced to what these need; who reads at an older point goes through its list. So an addition costs
//! O(log n) in the mean, a look O(log² n) and one more step for each `BLOCK_MAX` there are, and memory is O(n) however they
//! overlap.

use crate::sync::{ArcSwap, AtomicUsize, Mutex, Ordering};
use crate::types::{Cover, Fragments, KeyRange, RangeTombstone, SeqNo, Timestamp, Window};
use std::sync::Arc;

/// So many blocks of a size make one of the next.
const FAN: usize = 8;
/// Tombstones of the largest blocks: bounds what one addition may cost.
const BLOCK_MAX: usize = 4096;
/// Of a block with no more than that the list is looked through.
const LISTED: usize = 8;
/// Covers a tombstone of a block that is cut, at most. (Only those with a lowest timestamp take more, where they are nested.)
const COVERS: usize = 4;
/// What a tombstone takes beside its keys: in its block's list, and cut.
const ENTRY_BYTES: usize = 2 * size_of::<RangeTombstone>() + 64;

pub(crate) struct Ranges {
    /// One addition at a time.
    adding: Mutex<()>,
    blocks: ArcSwap<Blocks>,
    /// How many there are, so that readers of a segment without range tombstones touch nothing else.
    len: AtomicUsize,
    bytes: AtomicUsize,
}

/// Oldest first.
#[derive(Clone, Default)]
struct Blocks {
    /// Those of the largest size. An addition shares them with the blocks before it.
    large: Arc<Vec<Arc<Block>>>,
    small: Vec<Arc<Block>>,
}

impl Blocks {
    fn iter(&self) -> impl DoubleEndedIterator<Item = &Block> {
        self.large.iter().chain(&self.small).map(|block| &**block)
    }

    fn tombstones(&self) -> impl Iterator<Item = &RangeTombstone> {
        self.iter().flat_map(|block| &block.list).map(|t| &**t)
    }

    fn push(&mut self, block: Block) {
        match block.list.len() < BLOCK_MAX {
            true => self.small.push(Arc::new(block)),
            false => self.large = Arc::new(self.large.iter().cloned().chain([Arc::new(block)]).collect()),
        }
    }

    fn add(&mut self, tombstone: RangeTombstone) {
        self.push(Block::new(vec![Arc::new(tombstone)]));
        while let Some(size) = self.small.last().map(|block| block.list.len())
            && let from = self.small.iter().rposition(|block| block.list.len() != size).map_or(0, |at| at + 1)
            && self.small.len() - from >= FAN
        {
            let list = self.small.drain(from..).flat_map(|block| block.list.clone()).collect();
            self.push(Block::new(list));
        }
    }
}

struct Block {
    list: Vec<Arc<RangeTombstone>>,
    newest: SeqNo,
    oldest: SeqNo,
    /// For who sees all of it; none where the list is short, or where it would take many times as much.
    fragments: Option<Fragments>,
}

impl Block {
    fn new(list: Vec<Arc<RangeTombstone>>) -> Self {
        let newest = list.iter().map(|t| t.seq).max().unwrap_or_default();
        let oldest = list.iter().map(|t| t.seq).min().unwrap_or_default();
        let cut = || Fragments::of_newest(list.iter().map(|t| &**t), COVERS * list.len());
        let fragments = if list.len() > LISTED { cut() } else { None };
        Self { list, newest, oldest, fragments }
    }

    /// Calls `take` with what of it covers the key for a reader there.
    fn over(&self, key: &[u8], read: SeqNo, take: &mut dyn FnMut(Cover)) {
        if let Some(fragments) = self.fragments.as_ref().filter(|_| self.newest <= read) {
            fragments.find(key).iter().flat_map(|fragment| &fragment.covers).for_each(|c| take(*c));
            return;
        }
        for t in self.list.iter().filter(|t| t.seq <= read && t.range.contains(key)) {
            take(Cover { seq: t.seq, from: t.from, to: t.to });
        }
    }
}

impl Ranges {
    pub(crate) fn new() -> Self {
        Self {
            adding: Mutex::new(()),
            blocks: ArcSwap::from_pointee(Blocks::default()),
            len: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
        }
    }

    pub(crate) fn add(&self, tombstone: RangeTombstone) {
        let _one = self.adding.lock();
        let keys = tombstone.range.start.len() + tombstone.range.end.as_ref().map_or(0, Vec::len);
        let mut blocks = Blocks::clone(&self.blocks.load());
        blocks.add(tombstone);
        self.blocks.store(Arc::new(blocks));
        self.bytes.fetch_add(ENTRY_BYTES + 3 * keys, Ordering::Relaxed);
        self.len.fetch_add(1, Ordering::Release);
    }

    pub(crate) fn len(&self) -> usize {
        self.len.load(Ordering::Acquire)
    }

    /// About how much memory they take.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// The newest one at or below `read` that deletes cells of the key with this timestamp, of all that were added before
    /// this call.
    pub(crate) fn newest_over(&self, key: &[u8], timestamp: Timestamp, read: SeqNo) -> Option<SeqNo> {
        let mut best = None;
        for block in self.blocks.load().iter().rev() {
            if block.oldest <= read && best.is_none_or(|best| block.newest > best) {
                block.over(key, read, &mut |cover| {
                    if cover.seq <= read && cover.from <= timestamp && timestamp <= cover.to {
                        best = best.max(Some(cover.seq));
                    }
                });
            }
        }
        best
    }

    /// All that count over the key for a reader there, as tombstones of that key alone.
    pub(crate) fn over(&self, only: &KeyRange, read: SeqNo) -> Vec<RangeTombstone> {
        let mut found = Vec::new();
        for block in self.blocks.load().iter() {
            block.over(&only.start, read, &mut |Cover { seq, from, to }| {
                found.push(RangeTombstone { range: only.clone(), from, to, seq });
            });
        }
        found
    }

    /// As [`super::Active::look_around`].
    pub(super) fn look_around(&self, key: &[u8], read: SeqNo, window: &mut Window) {
        for block in self.blocks.load().iter() {
            if window.is_above(block.newest) || block.oldest > read {
                continue;
            }
            match block.fragments.as_ref().filter(|_| block.newest <= read) {
                Some(fragments) => fragments.look_around(key, read, window),
                None => block.list.iter().filter(|t| t.seq <= read).for_each(|t| window.look_at(t, key)),
            }
        }
    }

    /// All of them as far as they reach into the range. O(n).
    pub(crate) fn within(&self, range: &KeyRange) -> Vec<RangeTombstone> {
        let blocks = self.blocks.load();
        let all = blocks.tombstones().filter(|t| t.range.overlaps(range));
        all.map(|t| RangeTombstone { range: t.range.intersect(range), ..t.clone() }).collect()
    }

    /// The smallest range that holds all of them. O(n).
    pub(super) fn bounds(&self) -> Option<KeyRange> {
        let blocks = self.blocks.load();
        let ranges = blocks.tombstones().map(|t| &t.range);
        ranges.filter(|range| !range.is_empty()).fold(None, |bounds: Option<KeyRange>, range| {
            Some(bounds.map_or_else(|| range.clone(), |bounds| bounds.cover(range)))
        })
    }
}

#[cfg(all(test, not(models)))]
mod tests {
    use super::*;

    fn tombstone(i: u64) -> RangeTombstone {
        let range = match i % 3 {
            0 => KeyRange::new(format!("{:06}", i), format!("{:06}", 900_000 - i)),
            1 => KeyRange::new(format!("{:06}", 10 * i), format!("{:06}", 10 * i + 5)),
            _ => KeyRange::new(format!("{:06}", 5_000 - i), format!("{:06}", 9_000)),
        };
        let (from, to) = if i.is_multiple_of(7) {
            (Timestamp(3), Timestamp(9))
        } else {
            (Timestamp::ZERO, Timestamp::MAX)
        };
        RangeTombstone { range, from, to, seq: SeqNo(i + 1) }
    }

    #[test]
    fn blocks_answer_as_all_of_them_cut_at_once_would() {
        let ranges = Ranges::new();
        let all: Vec<RangeTombstone> = (0..700).map(tombstone).collect();
        all.iter().for_each(|t| ranges.add(t.clone()));
        assert!(ranges.blocks.load().iter().count() <= 4 * FAN);
        let whole = Fragments::new(all);
        for key in (0..9_500).step_by(37).map(|key| format!("{key:06}")) {
            for (timestamp, read) in [(0, 700), (5, 700), (5, 351), (0, 63), (5, 1), (0, u64::MAX)] {
                let (timestamp, read) = (Timestamp(timestamp), SeqNo(read));
                let found = ranges.newest_over(key.as_bytes(), timestamp, read);
                assert_eq!(found, whole.newest_over(key.as_bytes(), timestamp, read), "{key} at {read}");
            }
        }
    }

    /// Counted work: what is held of n that are nested grows as n does, and so do the blocks that a look passes.
    #[test]
    fn ten_times_as_many_nested_ones_take_ten_times_the_memory() {
        let held = |n: u64| {
            let ranges = Ranges::new();
            (0..n).for_each(|i| ranges.add(tombstone(3 * i)));
            let blocks = ranges.blocks.load();
            let fragments = blocks.iter().filter_map(|block| block.fragments.as_ref());
            let covers = fragments.flat_map(Fragments::iter).map(|f| f.covers.len()).sum::<usize>();
            (covers, blocks.iter().count(), ranges.bytes())
        };
        let (few, many) = (held(1_000), held(10_000));
        assert!(many.0 <= 12 * few.0 && many.2 == 10 * few.2, "{few:?} {many:?}");
        assert!(many.1 <= few.1 + 4 * FAN, "{few:?} {many:?}");
    }
}
