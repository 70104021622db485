//! Pieces: the cells of one key range, copied from flat memtables into memory of exactly their size, so that
//! a range's memory is freed when the range is flushed, even if other ranges still need these memtables.
//!
//! Cells that no reader can see any more are dropped (I4), as in a data compaction. Range tombstones are cut
//! at the range's bounds. Update counts are copied, for the cache; the sketch of keys is not: a flush makes
//! it from the cells when needed.

use super::arena::Arena;
use super::cell;
use super::flat::{Dead, FlatMemtable, Parts, fragments_of};
use super::flatten::{Judge, Visibility};
use super::stats::Stats;
use crate::types::{CellRef, KeyRange, common_prefix, prefix64};
use std::sync::Arc;

impl FlatMemtable {
    /// The range's piece from these memtables, newest first. `None` if they have nothing in the range.
    pub(crate) fn gathered(
        sources: &[Arc<FlatMemtable>],
        range: &KeyRange,
        keep: &Visibility<'_>,
    ) -> Option<FlatMemtable> {
        let fragments = fragments_of(sources, range, keep);
        // Each cell, and the first of a key in its memtable with the key's updates there.
        let mut all: Vec<(CellRef<'_>, u32)> = Vec::new();
        for flat in sources {
            let mut before: Option<&[u8]> = None;
            all.extend(flat.entries(range).map(|entry| {
                let cell = flat.cell(entry);
                let is_first = before.replace(cell.key) != Some(cell.key);
                (cell, if is_first { flat.updates_at(entry) } else { 0 })
            }));
        }
        if sources.len() > 1 {
            // The sort is stable: of equal cells the newer memtable's comes first.
            all.sort_by(|(a, _), (b, _)| a.order(b));
        }
        let mut updates: Vec<(u32, u32)> = Vec::new();
        let mut judge = Judge::new(*keep, !fragments.is_empty()).under(fragments.clone());
        let (mut key, mut kept, mut first, mut updated) = (None::<&[u8]>, 0u32, 0u32, 0u32);
        all.retain(|&(cell, of_cell)| {
            if key.replace(cell.key) != Some(cell.key) {
                judge.next_key(cell.key);
                updates.extend((kept > first && updated > 1).then_some((first, updated)));
                (first, updated) = (kept, 0);
            }
            updated += of_cell;
            let keeps = judge.keeps(cell.timestamp, cell.seq, cell.kind);
            kept += u32::from(keeps);
            keeps
        });
        updates.extend((kept > first && updated > 1).then_some((first, updated)));
        if all.is_empty() && fragments.is_empty() {
            return None;
        }
        let mut arena = Arena::exact(all.iter().map(|(cell, _)| cell::size(cell)));
        let stats = Stats::new();
        let places = all.iter().map(|(cell, _)| {
            stats.note(cell);
            cell::copy(&mut arena, cell)
        });
        let places: Vec<u32> = places.collect();
        for tombstone in fragments.tombstones_within(&KeyRange::all()) {
            stats.note_range(&tombstone);
        }
        let ends = all.first().zip(all.last());
        let shared = ends.map_or(0, |((first, _), (last, _))| common_prefix(first.key, last.key));
        Some(FlatMemtable::assemble(Parts {
            generation: sources.iter().map(|flat| flat.generation()).max().expect("something was found"),
            shared: all.first().map_or(Vec::new(), |(first, _)| first.key[..shared].to_vec()),
            prefixes: all.iter().map(|(cell, _)| prefix64(&cell.key[shared..])).collect(),
            places,
            addressing: arena.places(),
            chunks: arena.into_chunks(),
            updates,
            kept: Vec::new(),
            sketch: None,
            stats,
            fragments,
            dead: Dead::default(),
            kept_bytes: 0,
        }))
    }

    /// Whether it has a cell or range tombstone in the range.
    pub(crate) fn touches(&self, range: &KeyRange) -> bool {
        !self.entries(range).is_empty() || self.fragments().iter().any(|f| f.range.overlaps(range))
    }

    /// The bytes of a piece of the range, about.
    pub(crate) fn bytes_within(&self, range: &KeyRange) -> u64 {
        let share = self.entries(range).len() as f64 / self.cells().max(1) as f64;
        (self.user_bytes() as f64 * share) as u64
    }
}

#[cfg(all(test, not(models)))]
mod tests {
    use super::*;
    use crate::memtable::{ActiveMemtable, MemoryOptions, Memtable, Sizes};
    use crate::types::{Generation, RangeTombstone, SeqNo, Timestamp};

    const ALL: Visibility<'_> = Visibility { counts: false, visible: SeqNo::MAX, snapshots: &[] };

    fn flat(generation: u64, cells: &[(&str, u64)], deleted: &[(&str, &str, u64)]) -> Arc<FlatMemtable> {
        let active = Arc::new(ActiveMemtable::new(
            Generation(generation),
            MemoryOptions { chunks: Sizes::all(1 << 10), spares: None },
        ));
        for (key, seq) in cells {
            let value = format!("{key}{seq}");
            active.writer().insert(&CellRef::plain(key.as_bytes(), *seq, value.as_bytes()));
        }
        for (start, end, seq) in deleted {
            let range = KeyRange::new(*start, *end);
            let (from, to) = (Timestamp::ZERO, Timestamp::MAX);
            active.writer().add_range_tombstone(RangeTombstone { range, from, to, seq: SeqNo(*seq) });
        }
        let all = Visibility { counts: false, visible: SeqNo::ZERO, snapshots: &[] };
        Memtable::from(active).flatten(&all).as_flat().unwrap().clone()
    }

    #[test]
    fn a_piece_knows_how_often_its_keys_were_updated() {
        let older = flat(1, &[("a", 1), ("b", 2), ("b", 3)], &[]);
        let newer = flat(2, &[("b", 4), ("b", 5), ("c", 6)], &[]);
        let piece = FlatMemtable::gathered(&[newer, older], &KeyRange::all(), &ALL).unwrap();
        assert_eq!(told(&piece), "a1 b5 c6");
        assert_eq!([0, 1, 2].map(|entry| piece.updates_at(entry)), [1, 4, 1]);
        let again = FlatMemtable::gathered(&[Arc::new(piece)], &KeyRange::new("b", "z"), &ALL).unwrap();
        assert_eq!([0, 1].map(|entry| again.updates_at(entry)), [4, 1]);
    }

    fn told(flat: &FlatMemtable) -> String {
        let cells = (0..flat.cells()).map(|i| String::from_utf8(flat.cell(i).value.to_vec()).unwrap());
        let deleted = flat.fragments();
        let deleted = deleted.iter().map(|f| {
            let text = |key: &[u8]| String::from_utf8(key.to_vec()).unwrap();
            let seqs: Vec<u64> = f.covers.iter().map(|c| c.seq.0).collect();
            format!("-{}..{}@{seqs:?}", text(&f.range.start), f.range.end.as_deref().map_or("".into(), text))
        });
        cells.chain(deleted).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn pieces_hold_what_readers_see_of_their_range_and_no_more_memory() {
        let new = flat(5, &[("a", 9), ("c", 8), ("d", 7)], &[("b", "e", 6)]);
        let old = flat(3, &[("a", 4), ("b", 3), ("c", 5), ("e", 2)], &[]);
        let both = [new, old];
        let piece = |start: &str, end: &str| FlatMemtable::gathered(&both, &KeyRange::new(start, end), &ALL);
        let left = piece("", "c").unwrap();
        assert_eq!((told(&left).as_str(), left.generation()), ("a9 -b..c@[6]", Generation(5)));
        let right = piece("c", "z").unwrap();
        assert_eq!(told(&right), "c8 d7 e2 -c..e@[6]");
        assert!(piece("f", "z").is_none());
        let older = Visibility { counts: false, visible: SeqNo::MAX, snapshots: &[SeqNo(5)] };
        let kept = FlatMemtable::gathered(&both, &KeyRange::new("a", "d"), &older).unwrap();
        assert_eq!(told(&kept), "a9 a4 b3 c8 c5 -b..d@[6]");
        // Three cells of 20 bytes before key and value, each rounded up to 8.
        let plain = FlatMemtable::gathered(&both[..1], &KeyRange::new("a", "b"), &ALL).unwrap();
        assert_eq!(plain.bytes(), (20 + 1 + 2usize).next_multiple_of(8) + 12);
    }
}
