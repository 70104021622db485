//! Finds the versions of a key that are gone because newer ones exceed the number of versions to keep.
//!
//! A family that keeps N versions keeps the N with the highest timestamps *at each moment*. A version is
//! pushed out by the write after which N others with higher timestamps are live, and one that is written
//! below N such never becomes live. A version that is pushed out stays so, even if some of the others are
//! deleted later. So the versions of a key depend on its history alone, and not on what compactions have
//! dropped meanwhile.
//!
//! An example with N = 2: a key gets versions with timestamps 1, 2 and 3, in this order. The third write
//! pushes version 1 out. When version 3 is deleted afterwards, the key has version 2 alone: version 1 does
//! not come back.
//!
//! A version is live for a range of sequence numbers: from its first cell to the first delete after that, or
//! until it is pushed out (and again from a later cell on). Going through a key's versions from the highest
//! timestamp down, [`Pushed`] counts how many are live at each moment. Where N or more are, all lower
//! versions are pushed out, which ends their range too.

use super::{SeqNo, tombstone::Fragment};
use crate::types::{Kind, Timestamp};

/// The versions of one key so far, by the ranges in which they are live; see the page above.
pub(crate) struct Pushed {
    /// N; zero if all versions are kept.
    kept: u32,
    /// The number of live versions from that sequence number on, until the next one; none before the first.
    steps: Vec<(SeqNo, u32)>,
    /// Point tombstones so far, ascending: all later cells have a timestamp at or below theirs.
    points: Vec<SeqNo>,
}

impl Pushed {
    pub(crate) fn new(kept: u32) -> Self {
        Self { kept, steps: Vec::new(), points: Vec::new() }
    }

    /// Whether versions are counted at all.
    #[inline]
    pub(crate) fn counts(&self) -> bool {
        self.kept > 0
    }

    /// Begins the next key.
    pub(crate) fn clear(&mut self) {
        self.steps.clear();
        self.points.clear();
    }

    /// Takes the cells of one timestamp, newest first; the next have lower ones. `fragment` has the range
    /// tombstones over the key, of which only those up to `read` count.
    pub(crate) fn add(
        &mut self,
        timestamp: Timestamp,
        cells: impl DoubleEndedIterator<Item = (SeqNo, Kind)> + Clone,
        fragment: Option<&Fragment>,
        read: SeqNo,
    ) {
        if !self.counts() {
            return;
        }
        for (seq, _) in cells.clone().filter(|(_, kind)| *kind == Kind::Tombstone) {
            let at = self.points.partition_point(|point| *point < seq);
            self.points.insert(at, seq);
        }
        let deleted_behind = |seq: SeqNo| {
            let point = self.points.get(self.points.partition_point(|point| *point <= seq)).copied();
            let covers = fragment.map_or(&[][..], |fragment| &fragment.covers);
            let covers = covers.iter().filter(|c| c.from <= timestamp && timestamp <= c.to);
            covers.map(|c| c.seq).filter(|c| seq < *c && *c <= read).chain(point).min()
        };
        let mut lives = Vec::new();
        let mut dead_to = SeqNo::ZERO;
        for (seq, _) in cells.rev().filter(|(_, kind)| *kind != Kind::Tombstone) {
            if seq < dead_to {
                continue;
            }
            let end = deleted_behind(seq).unwrap_or(SeqNo::MAX).min(self.when(seq).unwrap_or(SeqNo::MAX));
            if end > seq {
                lives.push((seq, end));
            }
            dead_to = end;
        }
        lives.into_iter().for_each(|(from, end)| self.live(from, end));
    }

    /// Adds a version that is live from `from` to `end`.
    fn live(&mut self, from: SeqNo, end: SeqNo) {
        let first = self.step_at(from);
        let last = if end == SeqNo::MAX { self.steps.len() } else { self.step_at(end) };
        for (_, count) in &mut self.steps[first..last] {
            *count = (*count + 1).min(self.kept);
        }
        self.steps.dedup_by_key(|(_, count)| *count);
    }

    /// The step that begins at `seq`, created if there is none.
    fn step_at(&mut self, seq: SeqNo) -> usize {
        let at = self.steps.partition_point(|(from, _)| *from < seq);
        if self.steps.get(at).is_none_or(|(from, _)| *from != seq) {
            let count = at.checked_sub(1).map_or(0, |before| self.steps[before].1);
            self.steps.insert(at, (seq, count));
        }
        at
    }

    /// When the version written at `seq`, below all timestamps so far, is pushed out; `seq` itself if it is
    /// never live.
    #[inline]
    pub(crate) fn when(&self, seq: SeqNo) -> Option<SeqNo> {
        let behind = self.steps.partition_point(|(from, _)| *from <= seq);
        if behind > 0 && self.steps[behind - 1].1 >= self.kept {
            return Some(seq);
        }
        self.steps[behind..].iter().find(|(_, count)| *count >= self.kept).map(|(from, _)| *from)
    }

    /// Whether all lower timestamps are pushed out at that read point, whenever they were written.
    #[inline]
    pub(crate) fn all_at(&self, read: SeqNo) -> bool {
        self.counts() && self.steps.last().is_some_and(|(from, count)| *count >= self.kept && *from <= read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{Fragments, KeyRange, RangeTombstone};

    /// The versions visible after writes in that order: `5` puts a version, `-5` deletes it and all lower
    /// ones, `x5` deletes it alone.
    fn left(kept: u32, writes: &str) -> Vec<u64> {
        let mut cells: Vec<(u64, SeqNo, Kind)> = Vec::new();
        let mut tombstones = Vec::new();
        for (at, write) in writes.split(' ').enumerate() {
            let seq = SeqNo(at as u64 + 1);
            let number = |text: &str| text.parse::<u64>().unwrap();
            match (write.strip_prefix('-'), write.strip_prefix('x')) {
                (Some(upto), _) => cells.push((number(upto), seq, Kind::Tombstone)),
                (_, Some(only)) => tombstones.push(RangeTombstone {
                    range: KeyRange::all(),
                    from: Timestamp(number(only)),
                    to: Timestamp(number(only)),
                    seq,
                }),
                _ => cells.push((number(write), seq, Kind::Value)),
            }
        }
        cells.sort_by_key(|cell| std::cmp::Reverse((cell.0, cell.1)));
        let fragments = Fragments::new(tombstones);
        let mut pushed = Pushed::new(kept);
        let mut found = Vec::new();
        for group in cells.chunk_by(|a, b| a.0 == b.0) {
            let timestamp = Timestamp(group[0].0);
            let fragment = fragments.find(b"k");
            let deleted = |seq: SeqNo| {
                let newer = |(at, point, kind): &(u64, SeqNo, Kind)| {
                    *kind == Kind::Tombstone && *at >= timestamp.0 && *point > seq
                };
                cells.iter().any(newer)
                    || fragment.and_then(|f| f.newest_over(timestamp, SeqNo::MAX)).is_some_and(|c| c > seq)
            };
            let newest = group.iter().find(|(_, _, kind)| *kind == Kind::Value);
            if newest.is_some_and(|(_, seq, _)| !deleted(*seq) && (kept == 0 || pushed.when(*seq).is_none()))
            {
                found.push(timestamp.0);
            }
            pushed.add(timestamp, group.iter().map(|(_, seq, kind)| (*seq, *kind)), fragment, SeqNo::MAX);
        }
        found
    }

    #[test]
    fn stories_of_versions_that_the_count_pushed_out() {
        let stories: &[(&str, u32, &str, &[u64])] = &[
            ("the newest stay", 2, "1 2 3", &[3, 2]),
            ("in whatever order they were written", 2, "3 1 2", &[3, 2]),
            ("one pushed out does not come back", 1, "1 2 x2", &[]),
            ("nor one written under enough others", 1, "2 1 x2", &[]),
            ("one written behind the delete is there", 1, "2 x2 1", &[1]),
            ("and one that was never one too many", 2, "1 2 x2", &[1]),
            ("a version written again lives again", 1, "1 2 x2 1", &[1]),
            ("two at once push out, one after the other does not", 2, "1 5 x5 6", &[6, 1]),
            ("an overwrite between keeps a version alive", 2, "1 8 10 x8 10", &[10]),
            ("a delete of all below", 2, "1 2 3 -2 1", &[3, 1]),
            ("of which none comes back", 1, "1 2 -1 x2", &[]),
            ("one pushed out counts no more", 1, "5 9 x9 4", &[4]),
            ("also where it is written again", 1, "5 9 5 x9 4 5", &[5]),
            ("all are kept", 0, "1 2 3 x2", &[3, 1]),
        ];
        for (story, kept, writes, expected) in stories {
            assert_eq!(left(*kept, writes), *expected, "{story}");
        }
    }

    #[test]
    fn a_thousand_versions_take_as_many_steps_as_are_kept() {
        let mut pushed = Pushed::new(3);
        for timestamp in (0..1_000).rev() {
            let cells = [(SeqNo(1 + timestamp * 7919 % 1_000), Kind::Value)];
            pushed.add(Timestamp(timestamp), cells.into_iter(), None, SeqNo::MAX);
            assert!(pushed.steps.len() <= 4, "{:?}", pushed.steps);
        }
        assert!(pushed.all_at(SeqNo(10)) && !pushed.all_at(SeqNo(1)));
    }
}
