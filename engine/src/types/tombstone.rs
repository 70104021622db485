//! Range tombstones, and the fragments that they are cut into for searches.
//!
//! A range tombstone deletes the cells of a key range that are older than it (by sequence number) and whose
//! timestamp lies in its bounds. Tombstones may overlap; for searches they are cut at each other's bounds
//! into *fragments* that do not, each with the list of (sequence number, timestamps) that cover it.

use super::ids::{SeqNo, Timestamp};
use super::key::KeyRange;
use super::multiset::Counts;
use super::time::TimeRange;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// A range tombstone: deletes older cells of a range of keys.
///
/// ```
/// use siltstone::{KeyRange, RangeTombstone, SeqNo, Timestamp};
/// let range = KeyRange::prefix(b"user:");
/// let all = RangeTombstone { range, from: Timestamp::ZERO, to: Timestamp::MAX, seq: SeqNo(9) };
/// assert!(all.range.contains(b"user:ada"));
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RangeTombstone {
    /// The keys.
    pub range: KeyRange,
    /// Smallest timestamp deleted.
    pub from: Timestamp,
    /// Largest timestamp deleted.
    pub to: Timestamp,
    /// Deletes only cells with a smaller sequence number.
    pub seq: SeqNo,
}

/// The tombstones that cover every key of one fragment: newest first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Fragment {
    pub(crate) range: KeyRange,
    pub(crate) covers: Vec<Cover>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Cover {
    pub(crate) seq: SeqNo,
    pub(crate) from: Timestamp,
    pub(crate) to: Timestamp,
}

impl Cover {
    /// Whether it deletes all timestamps.
    fn is_whole(&self) -> bool {
        self.from == Timestamp::ZERO && self.to == Timestamp::MAX
    }

    /// Sorts covers in the order of a fragment, each once.
    pub(crate) fn sort(covers: &mut Vec<Cover>) {
        covers.sort_unstable_by_key(|c| (Reverse(c.seq), c.from, c.to));
        covers.dedup();
    }

    /// Removes the covers that a reader who sees all of them does not need: of those that delete all
    /// timestamps only the newest stays, with newer covers, and with those that have a lowest timestamp.
    pub(crate) fn keep_newest(covers: &mut Vec<Cover>) {
        let whole = covers.iter().filter(|c| c.is_whole()).map(|c| c.seq).max();
        let hides = |c: &Cover| whole.is_some_and(|whole| c.seq < whole || (c.seq == whole && !c.is_whole()));
        covers.retain(|c| c.from > Timestamp::ZERO || !hides(c));
    }
}

/// Counts the work of searches for range tombstones, for tests.
#[cfg(all(test, not(models)))]
pub(crate) mod looks {
    use std::cell::Cell;

    thread_local! {
        static TOUCHED: Cell<u64> = const { Cell::new(0) };
    }

    /// Counts one sorted list that is searched, or one tombstone that is visited.
    pub(crate) fn note() {
        TOUCHED.set(TOUCHED.get() + 1);
    }

    /// The number of these on this thread during `work`.
    pub(crate) fn count(work: impl FnOnce()) -> u64 {
        let before = TOUCHED.get();
        work();
        TOUCHED.get() - before
    }
}

/// A range of keys with the same covers. Sources of tombstones are asked about one key, twice: first for its
/// covers, then for the range where these are the same.
#[derive(Debug)]
pub(crate) struct Window {
    range: KeyRange,
    /// The newest tombstone over all timestamps, and the others.
    whole: Option<SeqNo>,
    covers: Vec<Cover>,
    /// Set if bounds are wanted: tombstones older than this do not narrow them.
    floor: Option<SeqNo>,
}

impl Window {
    pub(crate) fn all() -> Self {
        Self { range: KeyRange::all(), whole: None, covers: Vec::new(), floor: None }
    }

    /// From now on bounds are wanted, those of tombstones that matter beside the covers found: those older
    /// than one that deletes all timestamps do not. `emptied`: a tombstone known to delete, in its range
    /// around the key, all that tombstones up to its own sequence number delete.
    pub(crate) fn bounded(mut self, emptied: Option<&RangeTombstone>) -> Self {
        let newest = self.whole.take().unwrap_or_default();
        self.covers.clear();
        self.floor = Some(newest);
        if let Some(t) = emptied.filter(|t| t.seq >= newest) {
            self.floor = Some(t.seq.next());
            self.within(&t.range);
            self.add(Cover { seq: t.seq, from: t.from, to: t.to });
        }
        self
    }

    /// Whether nothing older than `newest` matters.
    pub(crate) fn is_above(&self, newest: SeqNo) -> bool {
        self.floor.is_some_and(|floor| newest < floor)
    }

    /// Leaves out the keys before this one.
    pub(crate) fn starts_at(&mut self, key: &[u8]) {
        if self.floor.is_some() && self.range.start.as_slice() < key {
            self.range.start.clear();
            self.range.start.extend_from_slice(key);
        }
    }

    /// Leaves out this key and those after it.
    pub(crate) fn ends_before(&mut self, key: &[u8]) {
        if self.floor.is_none() {
            return;
        }
        match &mut self.range.end {
            None => self.range.end = Some(key.to_vec()),
            Some(end) if key < end.as_slice() => {
                end.clear();
                end.extend_from_slice(key);
            }
            Some(_) => {}
        }
    }

    /// Leaves out the keys that are not in the range.
    pub(crate) fn within(&mut self, range: &KeyRange) {
        self.starts_at(&range.start);
        if let Some(end) = &range.end {
            self.ends_before(end);
        }
    }

    /// Adds a cover of all remaining keys. Of those that delete all timestamps only the newest counts.
    fn add(&mut self, cover: Cover) {
        match cover.is_whole() {
            true => self.whole = self.whole.max(Some(cover.seq)),
            false => self.covers.push(cover),
        }
    }

    /// Adds a tombstone that covers the key; of others, only the bounds narrow the range.
    pub(crate) fn look_at(&mut self, t: &RangeTombstone, key: &[u8]) {
        #[cfg(all(test, not(models)))]
        looks::note();
        if self.is_above(t.seq) {
            return;
        }
        if t.range.contains(key) {
            self.within(&t.range);
            self.add(Cover { seq: t.seq, from: t.from, to: t.to });
        } else if key < t.range.start.as_slice() {
            if !t.range.is_empty() {
                self.ends_before(&t.range.start);
            }
        } else if let Some(end) = &t.range.end {
            self.starts_at(end);
        }
    }

    /// The keys, their covers as the one fragment that has them, and the newest of these that deletes all
    /// timestamps.
    pub(crate) fn into_parts(mut self) -> (KeyRange, Fragments, Option<SeqNo>) {
        let whole = |seq| Cover { seq, from: Timestamp::ZERO, to: Timestamp::MAX };
        self.covers.extend(self.whole.map(whole));
        Cover::sort(&mut self.covers);
        let fragment = Fragment { range: self.range.clone(), covers: self.covers };
        let list = if fragment.covers.is_empty() { Vec::new() } else { vec![fragment] };
        (self.range, Fragments::of_sorted(list), self.whole)
    }
}

/// Range tombstones cut into sorted, disjoint fragments.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Fragments {
    list: Vec<Fragment>,
    /// The lowest and the highest timestamp that any of them deletes.
    times: Option<(Timestamp, Timestamp)>,
}

impl Fragments {
    /// Cuts the tombstones at each other's bounds. O(n log n + output), which is O(n²) for n that are nested.
    pub(crate) fn new(tombstones: impl IntoIterator<Item = RangeTombstone>) -> Self {
        let all: Vec<RangeTombstone> = tombstones.into_iter().collect();
        Self::build(all.iter(), None, usize::MAX).unwrap_or_default()
    }

    /// Cuts the tombstones at each other's bounds; `None` if that would give more than `covers_max` covers.
    pub(crate) fn of_all<'t>(
        tombstones: impl Iterator<Item = &'t RangeTombstone>,
        covers_max: usize,
    ) -> Option<Self> {
        Self::build(tombstones, None, covers_max)
    }

    /// Takes fragments that are sorted and disjoint already.
    pub(crate) fn of_sorted(list: Vec<Fragment>) -> Self {
        let covers = || list.iter().flat_map(|fragment| &fragment.covers);
        let times = covers().map(|c| c.from).min().zip(covers().map(|c| c.to).max());
        Self { list, times }
    }

    /// Fragments for readers that see all tombstones, without those that such readers do not need; `None` if
    /// they would have more than `covers_max` covers.
    pub(crate) fn of_newest<'t>(
        tombstones: impl Iterator<Item = &'t RangeTombstone>,
        covers_max: usize,
    ) -> Option<Self> {
        Self::build(tombstones, Some(&|_| 0), covers_max)
    }

    /// Cuts the tombstones at each other's bounds, without those that no reader needs: of the ones that
    /// delete all timestamps of a key and are seen by the same readers only the newest stays, with newer
    /// ones. (Those with a lowest timestamp all stay: they record that a version was deleted alone, see
    /// `version_limit`.) `points` are the snapshots' read points, ascending; other readers read at `upto` or
    /// later. O(n log n) for few points.
    pub(crate) fn reduced(
        tombstones: impl IntoIterator<Item = RangeTombstone>,
        points: &[SeqNo],
        upto: SeqNo,
    ) -> Self {
        let stripe = |seq: SeqNo| match seq <= upto {
            true => points.partition_point(|point| *point < seq) as u64,
            false => points.len() as u64 + (seq.0 - upto.0),
        };
        let all: Vec<RangeTombstone> = tombstones.into_iter().collect();
        Self::build(all.iter(), Some(&stripe), usize::MAX).unwrap_or_default()
    }

    fn build<'t>(
        tombstones: impl Iterator<Item = &'t RangeTombstone>,
        stripe: Option<&dyn Fn(SeqNo) -> u64>,
        covers_max: usize,
    ) -> Option<Self> {
        let mut by_start: Vec<&RangeTombstone> = tombstones.filter(|t| !t.range.is_empty()).collect();
        let mut by_end: Vec<&RangeTombstone> =
            by_start.iter().copied().filter(|t| t.range.end.is_some()).collect();
        by_start.sort_by(|a, b| a.range.start.cmp(&b.range.start));
        by_end.sort_by(|a, b| a.range.end.cmp(&b.range.end));
        let mut bounds: Vec<&[u8]> = Vec::with_capacity(by_start.len() + by_end.len());
        bounds.extend(by_start.iter().map(|t| t.range.start.as_slice()));
        bounds.extend(by_end.iter().filter_map(|t| t.range.end.as_deref()));
        // The stable sort is fast on sorted parts.
        bounds.sort();
        bounds.dedup();
        let mut list: Vec<Fragment> = Vec::new();
        let mut count = 0;
        let mut over = Over::default();
        let (mut starting, mut ending) = (by_start.into_iter().peekable(), by_end.into_iter().peekable());
        for (i, &bound) in bounds.iter().enumerate() {
            while let Some(t) = ending.next_if(|t| t.range.end.as_deref() == Some(bound)) {
                over.end(t, stripe);
            }
            while let Some(t) = starting.next_if(|t| t.range.start.as_slice() == bound) {
                over.start(t, stripe);
            }
            let covers = over.covers(stripe);
            if covers.is_empty() {
                continue;
            }
            let end = bounds.get(i + 1).map(|end| end.to_vec());
            match list.last_mut() {
                Some(last)
                    if stripe.is_some()
                        && last.range.end.as_deref() == Some(bound)
                        && last.covers == covers =>
                {
                    last.range.end = end;
                }
                _ => {
                    count += covers.len();
                    if count > covers_max {
                        return None;
                    }
                    list.push(Fragment { range: KeyRange { start: bound.to_vec(), end }, covers });
                }
            }
        }
        Some(Self::of_sorted(list))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Fragment> {
        self.list.iter()
    }

    /// The nth fragment.
    pub(crate) fn get(&self, n: usize) -> Option<&Fragment> {
        self.list.get(n)
    }

    /// The fragments that share keys with the range. O(log n).
    fn overlapping(&self, range: &KeyRange) -> &[Fragment] {
        if range.is_empty() {
            return &[];
        }
        let from = self.list.partition_point(|f| !f.range.ends_after(&range.start));
        let to = self.list.partition_point(|f| range.ends_after(&f.range.start));
        &self.list[from..to.max(from)]
    }

    /// Whether a fragment with a higher sequence number overlaps the range. O(log n), and the number of
    /// overlapping ones.
    pub(crate) fn has_newer(&self, range: &KeyRange, seq: SeqNo) -> bool {
        self.overlapping(range).iter().flat_map(|f| &f.covers).any(|cover| cover.seq > seq)
    }

    /// Whether one of them may delete cells of those timestamps.
    pub(crate) fn speak_of(&self, times: TimeRange) -> bool {
        self.times.is_some_and(|(first, last)| times.overlaps(&(first..=last)))
    }

    /// The tombstones, cut at `within`'s bounds. O(log n), and their number.
    pub(crate) fn tombstones_within<'a>(
        &'a self,
        within: &'a KeyRange,
    ) -> impl Iterator<Item = RangeTombstone> + 'a {
        self.overlapping(within).iter().flat_map(move |f| {
            let range = f.range.intersect(within);
            f.covers.iter().map(move |c| RangeTombstone {
                range: range.clone(),
                from: c.from,
                to: c.to,
                seq: c.seq,
            })
        })
    }

    /// The fragment with `key`. O(log n).
    pub(crate) fn find(&self, key: &[u8]) -> Option<&Fragment> {
        let after = self.list.partition_point(|f| f.range.start.as_slice() <= key);
        let fragment = &self.list[after.checked_sub(1)?];
        fragment.range.ends_after(key).then_some(fragment)
    }

    /// Adds the covers of the key for a reader at `read`, and narrows the window to the keys with the same
    /// covers. O(log n).
    pub(crate) fn look_around(&self, key: &[u8], read: SeqNo, window: &mut Window) {
        #[cfg(all(test, not(models)))]
        looks::note();
        // When keys are deleted in order, most fragments lie before the key.
        if let Some(end) = self.list.last().and_then(|last| last.range.end.as_deref())
            && end <= key
        {
            return window.starts_at(end);
        }
        let after = self.list.partition_point(|f| f.range.start.as_slice() <= key);
        if let Some(next) = self.list.get(after) {
            window.ends_before(&next.range.start);
        }
        let Some(at) = after.checked_sub(1) else { return };
        let fragment = &self.list[at];
        if fragment.range.ends_after(key) {
            window.within(&fragment.range);
            fragment.covers.iter().filter(|c| c.seq <= read).for_each(|c| window.add(*c));
        } else if let Some(end) = &fragment.range.end {
            window.starts_at(end);
        }
    }

    /// The newest tombstone at or below `read` that deletes cells of `key` with this timestamp, if any: a
    /// cell with a smaller sequence number is deleted.
    pub(crate) fn newest_over(&self, key: &[u8], timestamp: Timestamp, read: SeqNo) -> Option<SeqNo> {
        self.find(key)?.newest_over(timestamp, read)
    }

    /// The smallest range that holds all fragments.
    pub(crate) fn bounds(&self) -> Option<KeyRange> {
        let (first, last) = (self.list.first()?, self.list.last()?);
        Some(KeyRange { start: first.range.start.clone(), end: last.range.end.clone() })
    }
}

/// The tombstones over one position in the sweep over keys.
#[derive(Default)]
struct Over {
    /// Sequence numbers of those that delete all timestamps, by stripe.
    whole: BTreeMap<u64, Counts<SeqNo>>,
    /// The tombstones with a lowest timestamp, newest first.
    bounded: Counts<(Reverse<SeqNo>, Timestamp, Timestamp)>,
}

impl Over {
    fn stripe(t: &RangeTombstone, stripe: Option<&dyn Fn(SeqNo) -> u64>) -> Option<u64> {
        let cover = Cover { seq: t.seq, from: t.from, to: t.to };
        stripe.filter(|_| cover.is_whole()).map(|stripe| stripe(t.seq))
    }

    fn start(&mut self, t: &RangeTombstone, stripe: Option<&dyn Fn(SeqNo) -> u64>) {
        match Self::stripe(t, stripe) {
            Some(stripe) => self.whole.entry(stripe).or_default().add(t.seq),
            None => self.bounded.add((Reverse(t.seq), t.from, t.to)),
        };
    }

    fn end(&mut self, t: &RangeTombstone, stripe: Option<&dyn Fn(SeqNo) -> u64>) {
        let Some(stripe) = Self::stripe(t, stripe) else {
            self.bounded.remove(&(Reverse(t.seq), t.from, t.to));
            return;
        };
        if let Some(seqs) = self.whole.get_mut(&stripe) {
            seqs.remove(&t.seq);
            if seqs.is_empty() {
                self.whole.remove(&stripe);
            }
        }
    }

    /// The covers that are needed, newest first.
    fn covers(&self, stripe: Option<&dyn Fn(SeqNo) -> u64>) -> Vec<Cover> {
        let newest = |seqs: &Counts<SeqNo>| seqs.last().copied();
        let whole = self.whole.values().filter_map(newest);
        let whole = whole.map(|seq| Cover { seq, from: Timestamp::ZERO, to: Timestamp::MAX });
        let counts = |seq: SeqNo, from: Timestamp| {
            let of_stripe = stripe.and_then(|stripe| self.whole.get(&stripe(seq))).and_then(newest);
            from > Timestamp::ZERO || of_stripe.is_none_or(|whole| whole < seq)
        };
        let bounded = self.bounded.keys().filter(|(Reverse(seq), from, _)| counts(*seq, *from));
        let bounded = bounded.map(|&(Reverse(seq), from, to)| Cover { seq, from, to });
        let mut covers: Vec<Cover> = whole.chain(bounded).collect();
        Cover::sort(&mut covers);
        covers
    }
}

impl Fragment {
    pub(crate) fn newest_over(&self, timestamp: Timestamp, read: SeqNo) -> Option<SeqNo> {
        self.covers.iter().find(|c| c.seq <= read && c.from <= timestamp && timestamp <= c.to).map(|c| c.seq)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tombstone(start: &str, end: &str, seq: u64) -> RangeTombstone {
        let range = KeyRange::new(start, end);
        RangeTombstone { range, from: Timestamp::ZERO, to: Timestamp::MAX, seq: SeqNo(seq) }
    }

    #[test]
    fn overlapping_tombstones_are_cut_at_each_others_bounds() {
        let fragments =
            Fragments::new([tombstone("b", "f", 5), tombstone("d", "h", 9), tombstone("x", "y", 1)]);
        let shown: Vec<String> = fragments
            .iter()
            .map(|f| format!("{}:{:?}", f.range, f.covers.iter().map(|c| c.seq.0).collect::<Vec<_>>()))
            .collect();
        assert_eq!(shown, ["[b, d):[5]", "[d, f):[9, 5]", "[f, h):[9]", "[x, y):[1]"]);
        assert_eq!(fragments.newest_over(b"e", Timestamp::ZERO, SeqNo::MAX), Some(SeqNo(9)));
        assert_eq!(fragments.newest_over(b"e", Timestamp::ZERO, SeqNo(8)), Some(SeqNo(5)));
        assert_eq!(fragments.newest_over(b"h", Timestamp::ZERO, SeqNo::MAX), None);
        assert_eq!(fragments.newest_over(b"a", Timestamp::ZERO, SeqNo::MAX), None);
    }

    #[test]
    fn a_tombstone_without_end_covers_every_later_key() {
        let mut open = tombstone("m", "", 3);
        open.range.end = None;
        let fragments = Fragments::new([open, tombstone("a", "p", 7)]);
        assert_eq!(fragments.newest_over(b"zzz", Timestamp(4), SeqNo::MAX), Some(SeqNo(3)));
        assert_eq!(fragments.newest_over(b"n", Timestamp(4), SeqNo::MAX), Some(SeqNo(7)));
    }

    #[test]
    fn what_no_reader_needs_goes_and_every_reader_sees_the_same() {
        let mut tombstones = Vec::new();
        for i in 0..60u64 {
            let (from, to) = (i * 7 % 20, i * 11 % 30 + 1);
            let mut t = tombstone(&format!("{:02}", from.min(to)), &format!("{:02}", from.max(to)), i + 1);
            if i % 5 == 0 {
                (t.from, t.to) = (Timestamp(i % 3), Timestamp(i % 7 + 2));
            }
            tombstones.push(t);
        }
        let whole = Fragments::new(tombstones.clone());
        for (points, upto) in [(vec![], 60), (vec![20, 41], 60), (vec![20], 55)] {
            let points: Vec<SeqNo> = points.into_iter().map(SeqNo).collect();
            let reduced = Fragments::reduced(tombstones.clone(), &points, SeqNo(upto));
            let covers = |f: &Fragments| f.iter().map(|f| f.covers.len()).sum::<usize>();
            assert!(covers(&reduced) < covers(&whole));
            for read in points.iter().copied().chain((upto..=60).map(SeqNo)) {
                for (key, timestamp) in (0..31).flat_map(|key| (0..10).map(move |t| (key, Timestamp(t)))) {
                    let key = format!("{key:02}");
                    let over = |f: &Fragments| f.newest_over(key.as_bytes(), timestamp, read);
                    assert_eq!(over(&reduced), over(&whole), "{key} {timestamp:?} at {read}");
                }
            }
        }
    }

    #[test]
    fn nested_tombstones_take_as_many_covers_as_there_are_and_one_over_all_takes_one() {
        let nested = |i: u64| tombstone(&format!("{i:06}"), &format!("{:06}", 900_000 - i), i + 1);
        let reduced = Fragments::reduced((0..2_000).map(nested), &[], SeqNo::MAX);
        assert!(reduced.iter().map(|f| f.covers.len()).sum::<usize>() <= 4_000);
        let outward = |i: u64| tombstone(&format!("{:06}", 5_000 - i), &format!("{:06}", 900_000 + i), i + 1);
        let reduced = Fragments::reduced((0..2_000).map(outward), &[], SeqNo::MAX);
        assert_eq!(reduced.iter().count(), 1);
    }

    #[test]
    fn timestamps_outside_the_bounds_are_not_deleted() {
        let mut t = tombstone("a", "b", 7);
        (t.from, t.to) = (Timestamp(10), Timestamp(20));
        let fragments = Fragments::new([t]);
        let covered = |ts| fragments.newest_over(b"a", Timestamp(ts), SeqNo::MAX).is_some();
        assert_eq!([9, 10, 20, 21].map(covered), [false, true, true, false]);
    }
}
