//! The range tombstones of an active memtable.
//!
//! They are added one by one, and readers need those that cover a key. Cutting all of them into fragments at
//! each addition would be O(n); so they are in *blocks*, in order of addition. Single ones are at the end,
//! and eight blocks of one size make one of the next, up to `BLOCK_MAX`. Larger blocks are *merged* once the
//! newer ones together are as large as an older one: each addition does a few steps of that, so that none
//! takes long, whatever their number. Until then readers use the blocks that are being merged.
//!
//! A block has its tombstones cut into fragments. Mostly these are exact for every read point: rows that are
//! deleted one by one do not overlap. Where many overlap, the fragments are reduced to what is needed by
//! readers that see all of the block; a reader at an older read point descends to the blocks that it was made
//! of, down to their lists.
//!
//! So an addition is O(log n) on average, a search visits O(log n) blocks, and memory is O(n) however the
//! tombstones overlap. Two searches cost more: one at an old read point within nested tombstones visits a
//! block for each `BLOCK_MAX` of these; and nested tombstones with a lowest timestamp are not cut at all, as
//! none of them may be left out.
//!
//! Readers take no lock: they load the immutable list of blocks, and find all that was added before.

use crate::sync::{ArcSwap, AtomicUsize, Mutex, Ordering};
use crate::types::{Cover, Fragment, Fragments, KeyRange, RangeTombstone, SeqNo, Timestamp, Window};
use std::sync::Arc;

/// The number of blocks of a size that make one of the next.
const FAN: usize = 8;
/// Tombstones of the largest block that one addition makes, which bounds its cost.
const BLOCK_MAX: usize = 4096;
/// Fragments of larger blocks that one addition makes. A tombstone becomes two at most, once for each
/// doubling of a block.
const STEPS: usize = 32;
/// The longest list that is searched as it is and not cut.
const LISTED: usize = 8;
/// The most covers per tombstone of a block that is cut. (Only nested ones with a lowest timestamp take
/// more.)
const COVERS: usize = 4;
/// Covers per fragment, on average, where nothing is left out.
const COVERS_OF_ALL: usize = 2;
/// Bytes per tombstone beside its keys: in its block's list, and cut.
const ENTRY_BYTES: usize = 2 * size_of::<RangeTombstone>() + 64;

pub(crate) struct Ranges {
    /// The lock of additions, with the running merge of blocks, which each addition advances by a few steps.
    adding: Mutex<Option<Merge>>,
    blocks: ArcSwap<Blocks>,
    /// The number of tombstones, so that readers of a memtable without any read nothing else.
    len: AtomicUsize,
    bytes: AtomicUsize,
}

/// The blocks of an active memtable, oldest first.
#[derive(Clone, Default)]
struct Blocks {
    /// Blocks of `BLOCK_MAX` tombstones and more, in an `Arc` that the lists before and after an addition
    /// share.
    large: Arc<Vec<Arc<Block>>>,
    small: Vec<Arc<Block>>,
}

impl Blocks {
    fn iter(&self) -> impl DoubleEndedIterator<Item = &Block> {
        self.large.iter().chain(&self.small).map(|block| &**block)
    }

    fn push(&mut self, block: Block) {
        match block.len < BLOCK_MAX {
            true => self.small.push(Arc::new(block)),
            false => self.large = Arc::new(self.large.iter().cloned().chain([Arc::new(block)]).collect()),
        }
    }

    fn add(&mut self, tombstone: RangeTombstone) {
        self.push(Block::new(vec![Arc::new(tombstone)]));
        while let Some(size) = self.small.last().map(|block| block.len)
            && let from = self.small.iter().rposition(|block| block.len != size).map_or(0, |at| at + 1)
            && self.small.len() - from >= FAN
        {
            let list = self.small.drain(from..).flat_map(|block| block.list.clone()).collect();
            self.push(Block::new(list));
        }
    }

    /// Advances the merge by some steps, or begins one that is due.
    fn merge_on(&mut self, merge: &mut Option<Merge>) {
        if merge.is_none() {
            *merge = Merge::start(&self.large);
        }
        let Some(under_way) = merge else { return };
        if let Some(whole) = under_way.advance() {
            let mut large = Vec::clone(&self.large);
            let places = under_way.from..under_way.from + under_way.blocks.len();
            drop(large.splice(places, [Arc::new(whole)]));
            self.large = Arc::new(large);
            *merge = None;
        }
    }
}

struct Block {
    /// The tombstones in order of addition; empty in a merged block.
    list: Vec<Arc<RangeTombstone>>,
    /// The blocks that a merged block was made of, if its fragments are not exact.
    parts: Vec<Arc<Block>>,
    len: usize,
    newest: SeqNo,
    oldest: SeqNo,
    /// The fragments; `None` if the list is short, or if they would take many times as much.
    cut: Option<Fragments>,
    /// Whether the fragments are exact for every read point, not only for readers that see all of the block.
    is_exact: bool,
}

impl Block {
    fn new(list: Vec<Arc<RangeTombstone>>) -> Self {
        let newest = list.iter().map(|t| t.seq).max().unwrap_or_default();
        let oldest = list.iter().map(|t| t.seq).min().unwrap_or_default();
        let (mut cut, mut is_exact) = (None, false);
        if list.len() > LISTED {
            let all = || list.iter().map(|t| &**t);
            cut = Fragments::of_all(all(), COVERS_OF_ALL * list.len());
            is_exact = cut.is_some();
            cut = cut.or_else(|| Fragments::of_newest(all(), COVERS * list.len()));
        }
        Self { parts: Vec::new(), len: list.len(), list, newest, oldest, cut, is_exact }
    }

    /// A merged block from blocks that are cut. `cut` are their fragments, joined.
    fn merged(blocks: &[Arc<Block>], cut: Option<Fragments>, is_exact: bool) -> Self {
        let is_exact = is_exact && cut.is_some();
        let parts = |block: &Arc<Block>| match block.parts.is_empty() {
            true => vec![block.clone()],
            false => block.parts.clone(),
        };
        Self {
            list: Vec::new(),
            parts: if is_exact { Vec::new() } else { blocks.iter().flat_map(parts).collect() },
            len: blocks.iter().map(|block| block.len).sum(),
            newest: blocks.iter().map(|block| block.newest).max().unwrap_or_default(),
            oldest: blocks.iter().map(|block| block.oldest).min().unwrap_or_default(),
            cut,
            is_exact,
        }
    }

    /// Its fragments, if they are exact at read point `read`.
    fn cut_for(&self, read: SeqNo) -> Option<&Fragments> {
        self.cut.as_ref().filter(|_| self.is_exact || self.newest <= read)
    }

    /// Calls `take` with each cover of the key that is visible at read point `read`.
    fn over(&self, key: &[u8], read: SeqNo, take: &mut dyn FnMut(Cover)) {
        if self.oldest > read {
            return;
        }
        if let Some(cut) = self.cut_for(read) {
            let covers = cut.find(key).into_iter().flat_map(|fragment| &fragment.covers);
            covers.filter(|c| c.seq <= read).for_each(|c| take(*c));
            return;
        }
        for t in self.list.iter().filter(|t| t.seq <= read && t.range.contains(key)) {
            take(Cover { seq: t.seq, from: t.from, to: t.to });
        }
        for part in &self.parts {
            part.over(key, read, take);
        }
    }

    fn look_around(&self, key: &[u8], read: SeqNo, window: &mut Window) {
        if window.is_above(self.newest) || self.oldest > read {
            return;
        }
        if let Some(cut) = self.cut_for(read) {
            cut.look_around(key, read, window);
            return;
        }
        self.list.iter().filter(|t| t.seq <= read).for_each(|t| window.look_at(t, key));
        for part in &self.parts {
            part.look_around(key, read, window);
        }
    }

    fn has_newer(&self, range: &KeyRange, seq: SeqNo) -> bool {
        // Left-out tombstones are older than the fragments' ones of the same keys.
        self.newest > seq
            && match &self.cut {
                Some(cut) => cut.has_newer(range, seq),
                None => {
                    self.list.iter().any(|t| t.seq > seq && t.range.overlaps(range))
                        || self.parts.iter().any(|part| part.has_newer(range, seq))
                }
            }
    }

    /// Calls `take` with all tombstones, some in several pieces.
    fn each(&self, take: &mut dyn FnMut(&RangeTombstone)) {
        if let Some(cut) = self.cut.as_ref().filter(|_| self.list.is_empty() && self.is_exact) {
            cut.tombstones_within(&KeyRange::all()).for_each(|t| take(&t));
            return;
        }
        for t in self.list.iter().map(|t| &**t) {
            take(t);
        }
        for part in &self.parts {
            part.each(take);
        }
    }
}

/// A merge of large blocks: their fragments are cut at each other's bounds, some at a time.
struct Merge {
    /// The number of the first of `blocks` in the list; the blocks before it stay during the merge.
    from: usize,
    blocks: Vec<Arc<Block>>,
    /// The number of fragments of each block that the merge has passed.
    passed: Vec<usize>,
    /// The key up to which fragments are merged.
    reached: Vec<u8>,
    list: Vec<Fragment>,
    covers: usize,
    is_exact: bool,
}

impl Merge {
    /// A merge that begins with the oldest block that is no larger than all newer ones together; `None` if
    /// there is none. Blocks that are not cut stay as they are, and so do those before them.
    fn start(large: &[Arc<Block>]) -> Option<Self> {
        let (mut from, mut newer) = (None, 0);
        for (at, block) in large.iter().enumerate().rev().take_while(|(_, block)| block.cut.is_some()) {
            if block.len <= newer {
                from = Some(at);
            }
            newer += block.len;
        }
        let from = from?;
        let blocks = large[from..].to_vec();
        Some(Self {
            from,
            passed: vec![0; blocks.len()],
            reached: Vec::new(),
            list: Vec::new(),
            covers: 0,
            is_exact: blocks.iter().all(|block| block.is_exact),
            blocks,
        })
    }

    /// Advances by some steps; at the end, returns the merged block.
    fn advance(&mut self) -> Option<Block> {
        for _ in 0..STEPS {
            let len: usize = self.blocks.iter().map(|block| block.len).sum();
            if self.covers > 2 * COVERS * len {
                return Some(Block::merged(&self.blocks, None, false));
            }
            let Some(next) = self.next() else {
                let cut = Fragments::of_sorted(std::mem::take(&mut self.list));
                return Some(Block::merged(&self.blocks, Some(cut), self.is_exact));
            };
            self.take(next);
        }
        None
    }

    /// The first fragment of each block that the merge has not passed.
    fn ahead(&self) -> impl Iterator<Item = &Fragment> {
        let blocks = self.blocks.iter().zip(&self.passed);
        blocks.filter_map(|(block, passed)| block.cut.as_ref().and_then(|cut| cut.get(*passed)))
    }

    /// The next fragment: the next keys with covers, as far as these stay the same.
    fn next(&self) -> Option<Fragment> {
        let first = self.ahead().map(|f| f.range.start.as_slice()).min()?;
        let start = first.max(self.reached.as_slice());
        let bounds = self.ahead().filter_map(|f| match f.range.start.as_slice() > start {
            true => Some(f.range.start.as_slice()),
            false => f.range.end.as_deref(),
        });
        let range = KeyRange { start: start.to_vec(), end: bounds.min().map(<[u8]>::to_vec) };
        let over = self.ahead().filter(|f| f.range.start.as_slice() <= start);
        let mut covers: Vec<Cover> = over.flat_map(|f| f.covers.iter().copied()).collect();
        Cover::sort(&mut covers);
        Some(Fragment { range, covers })
    }

    fn take(&mut self, mut next: Fragment) {
        for (block, passed) in self.blocks.iter().zip(&mut self.passed) {
            let ahead = block.cut.as_ref().and_then(|cut| cut.get(*passed));
            *passed += usize::from(ahead.is_some_and(|f| f.range.end == next.range.end));
        }
        self.reached.clear();
        self.reached.extend_from_slice(next.range.end.as_deref().unwrap_or_default());
        let all = next.covers.len();
        if !self.is_exact || self.covers + all > COVERS_OF_ALL * (self.list.len() + 1) {
            Cover::keep_newest(&mut next.covers);
            self.is_exact &= next.covers.len() == all;
        }
        match self.list.last_mut() {
            Some(last)
                if last.range.end.as_ref() == Some(&next.range.start) && last.covers == next.covers =>
            {
                last.range.end = next.range.end;
            }
            _ => {
                self.covers += next.covers.len();
                self.list.push(next);
            }
        }
    }
}

impl Ranges {
    pub(crate) fn new() -> Self {
        Self {
            adding: Mutex::new(None),
            blocks: ArcSwap::from_pointee(Blocks::default()),
            len: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
        }
    }

    pub(crate) fn add(&self, tombstone: RangeTombstone) {
        let mut merge = self.adding.lock();
        let keys = tombstone.range.start.len() + tombstone.range.end.as_ref().map_or(0, Vec::len);
        let mut blocks = Blocks::clone(&self.blocks.load());
        blocks.add(tombstone);
        blocks.merge_on(&mut merge);
        self.blocks.store(Arc::new(blocks));
        self.bytes.fetch_add(ENTRY_BYTES + 3 * keys, Ordering::Relaxed);
        self.len.fetch_add(1, Ordering::Release);
    }

    pub(crate) fn len(&self) -> usize {
        self.len.load(Ordering::Acquire)
    }

    /// Bytes of memory of the tombstones, about.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// The newest tombstone at or below `read` that deletes cells of the key with this timestamp, of all
    /// added before this call.
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

    /// The tombstones over a key that are visible at read point `read`, cut to that key; `only` is its range.
    pub(crate) fn over(&self, only: &KeyRange, read: SeqNo) -> Vec<RangeTombstone> {
        let mut found = Vec::new();
        for block in self.blocks.load().iter() {
            block.over(&only.start, read, &mut |Cover { seq, from, to }| {
                found.push(RangeTombstone { range: only.clone(), from, to, seq });
            });
        }
        found
    }

    /// See [`super::ActiveMemtable::look_around`].
    pub(super) fn look_around(&self, key: &[u8], read: SeqNo, window: &mut Window) {
        self.blocks.load().iter().for_each(|block| block.look_around(key, read, window));
    }

    /// Whether a tombstone with a higher sequence number overlaps the range.
    pub(super) fn has_newer(&self, range: &KeyRange, seq: SeqNo) -> bool {
        self.blocks.load().iter().any(|block| block.has_newer(range, seq))
    }

    /// All tombstones, cut to the range, some in several pieces. O(n).
    pub(crate) fn within(&self, range: &KeyRange) -> Vec<RangeTombstone> {
        let mut found = Vec::new();
        self.each(&mut |t| {
            if t.range.overlaps(range) {
                found.push(RangeTombstone { range: t.range.intersect(range), ..t.clone() });
            }
        });
        found
    }

    /// The smallest range with all tombstones. O(n).
    pub(super) fn bounds(&self) -> Option<KeyRange> {
        let mut bounds: Option<KeyRange> = None;
        self.each(&mut |t| {
            if !t.range.is_empty() {
                bounds = Some(bounds.take().map_or_else(|| t.range.clone(), |all| all.cover(&t.range)));
            }
        });
        bounds
    }

    fn each(&self, take: &mut dyn FnMut(&RangeTombstone)) {
        for block in self.blocks.load().iter() {
            block.each(take);
        }
    }
}

#[cfg(all(test, not(models)))]
mod tests {
    use super::*;
    use crate::types::{Rng, looks};

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

    /// Counted work: for n nested tombstones, memory and the blocks that a search visits are O(n).
    #[test]
    fn ten_times_as_many_nested_ones_take_ten_times_the_memory() {
        let held = |n: u64| {
            let ranges = Ranges::new();
            (0..n).for_each(|i| ranges.add(tombstone(3 * i)));
            let blocks = ranges.blocks.load();
            let fragments = blocks.iter().filter_map(|block| block.cut.as_ref());
            let covers = fragments.flat_map(Fragments::iter).map(|f| f.covers.len()).sum::<usize>();
            (covers, blocks.iter().count(), ranges.bytes())
        };
        let (few, many) = (held(1_000), held(10_000));
        assert!(many.0 <= 12 * few.0 && many.2 == 10 * few.2, "{few:?} {many:?}");
        assert!(many.1 <= few.1 + 4 * FAN, "{few:?} {many:?}");
    }

    /// Rows that are deleted one by one.
    #[derive(Clone, Copy, Debug)]
    enum Order {
        Up,
        Down,
        Shuffled,
        /// Each row twice.
        Twice,
    }

    fn deleted(n: u64, order: Order) -> Ranges {
        let mut rows: Vec<u64> = (0..n).collect();
        match order {
            Order::Up => {}
            Order::Down => rows.reverse(),
            Order::Shuffled => Rng::new(5).shuffle(&mut rows),
            Order::Twice => rows.iter_mut().for_each(|row| *row /= 2),
        }
        let ranges = Ranges::new();
        for (i, row) in rows.into_iter().enumerate() {
            let range = KeyRange::new(format!("{row:07}"), format!("{row:07}\x01"));
            let (from, to) = (Timestamp::ZERO, Timestamp::MAX);
            ranges.add(RangeTombstone { range, from, to, seq: SeqNo(i as u64 + 1) });
        }
        ranges
    }

    /// Counted work: the blocks that a search visits are logarithmic in the number of tombstones, in any
    /// order of addition, for present reads and for older read points.
    #[test]
    fn a_look_among_rows_deleted_one_by_one_touches_a_logarithm_of_them() {
        for order in [Order::Up, Order::Down, Order::Shuffled, Order::Twice] {
            let most = |n: u64| {
                let ranges = deleted(n, order);
                let reads = [SeqNo(n), SeqNo(n / 2), SeqNo(n - 3)];
                let asked = (0..n).step_by(n as usize / 50).flat_map(|row| reads.map(|read| (row, read)));
                let touched = asked.map(|(row, read)| {
                    let key = format!("{row:07}");
                    looks::count(|| ranges.look_around(key.as_bytes(), read, &mut Window::all()))
                });
                touched.max().unwrap()
            };
            for n in [1_000u64, 10_000, 100_000] {
                // Up to seven blocks of each small size, the smallest of which are lists.
                let bound = 8 * u64::from(n.ilog2());
                assert!(most(n) <= bound, "{} of {n}, {order:?}", most(n));
            }
        }
    }

    #[test]
    fn merged_blocks_answer_as_all_of_them_cut_at_once_would() {
        let mut rng = Rng::new(11);
        let mut draw = |seq: u64| {
            let start = rng.range(0..20_000);
            let end = start + if seq.is_multiple_of(1_000) { 9_000 } else { 1 + rng.range(0..3) };
            let range = KeyRange::new(format!("{start:06}"), format!("{end:06}"));
            let from = if seq.is_multiple_of(9) { Timestamp(3) } else { Timestamp::ZERO };
            RangeTombstone { range, from, to: Timestamp::MAX, seq: SeqNo(seq) }
        };
        let all: Vec<RangeTombstone> = (1..=20_000).map(&mut draw).collect();
        let ranges = Ranges::new();
        all.iter().for_each(|t| ranges.add(t.clone()));
        assert!(ranges.blocks.load().large.len() < 4, "four of the smallest large size are merged");
        let whole = Fragments::new(all);
        for key in (0..30_000).step_by(97).map(|key| format!("{key:06}")) {
            for (timestamp, read) in
                [(0, 20_000), (5, 20_000), (5, 15_000), (0, 5_000), (5, 1), (0, u64::MAX)]
            {
                let (timestamp, read) = (Timestamp(timestamp), SeqNo(read));
                let found = ranges.newest_over(key.as_bytes(), timestamp, read);
                assert_eq!(found, whole.newest_over(key.as_bytes(), timestamp, read), "{key} at {read}");
                let mut window = Window::all();
                ranges.look_around(key.as_bytes(), read, &mut window);
                let (_, around, _) = window.into_parts();
                assert_eq!(around.newest_over(key.as_bytes(), timestamp, read), found, "{key} at {read}");
            }
            let only =
                KeyRange { start: key.clone().into_bytes(), end: Some(format!("{key}\0").into_bytes()) };
            for seq in [SeqNo(0), SeqNo(10_000), SeqNo(19_900)] {
                let newer = whole.find(key.as_bytes()).is_some_and(|f| f.covers.iter().any(|c| c.seq > seq));
                assert_eq!(ranges.has_newer(&only, seq), newer, "{key} after {seq}");
            }
        }
        // A copy gives the same answers.
        let again = Fragments::new(ranges.within(&KeyRange::all()));
        for key in (0..30_000).step_by(53).map(|key| format!("{key:06}")) {
            let over = |f: &Fragments| f.newest_over(key.as_bytes(), Timestamp(5), SeqNo(15_000));
            assert_eq!(over(&again), over(&whole), "{key}");
        }
    }
}
