//! The memory of a follower: what the stream of a shared database has of its WAL, and no SSTable yet.
//!
//! The owner's memtables cannot be made again: it lays them out, compacts, splits and joins them, and the
//! stream does not tell. It tells enough for other memtables with the same cells: of each cell the store, the
//! generation and the WAL file that it was logged for and in; up to which generation SSTables have which keys
//! (invariant I1); and the first WAL file that memory needs. So there is a memtable for each store,
//! generation and file, to which cells are only added. A memtable that was begun never changes in another
//! way, and readers of earlier moments share it. Which part of it counts follows from the manifest's state
//! alone: the keys of its generation that are not flushed, within those of the store that has them now, which
//! may be another one after splits and joins. Nothing of it counts once its file is no longer needed.
//!
//! *Order* (I3). New writes of a key have a generation and a file at least as high as older ones, so
//! memtables stand in that order, newest first.
//!
//! *Cells that were logged again*, as hot cells of a flush or by WAL cleaning, keep their sequence numbers,
//! and stand in memtables of their own. As long as the first place of such a cell counts, the second one does
//! not: a merge operand must be met once. Those whose first place does not count any more are copied into one
//! memtable, the oldest. That is in order, too: their first place was flushed or its file let go, and then so
//! was that of all older cells of the key, and what is left of the key is newer.
//!
//! Memory takes about as much as the WAL that a recoverer would replay. The owner's own memory may be less,
//! as it drops versions that no reader sees.

use crate::error::Result;
use crate::memtable::{ActiveMemtable, MemoryOptions, Memtable};
use crate::types::{CellRef, Cursor, Generation, KeyRange, LogFileId, RangeTombstone, StoreId};
use crate::version::edit::{State, StoreState};
use crate::wal::{Entry, Logged};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;

/// The size for which memtables choose their chunks; smaller ones begin with smaller chunks.
const MEMTABLE_BYTES: usize = 8 << 20;

/// See the page above.
#[derive(Default)]
pub(super) struct LoggedMemory {
    memtables: BTreeMap<(StoreId, Generation, LogFileId), Pair>,
}

/// The cells logged for a store and generation in one file.
#[derive(Default)]
struct Pair {
    written: Option<Arc<ActiveMemtable>>,
    /// Cells that were logged again.
    again: Option<Arc<ActiveMemtable>>,
}

/// The stores that may have keys of what was logged for that one: itself, and those that came from it.
pub(super) fn heirs(state: &State, logged_for: StoreId) -> impl Iterator<Item = StoreId> {
    let is_heir = move |(id, store): &(&StoreId, &StoreState)| {
        **id == logged_for || store.origins.contains(&logged_for)
    };
    state.stores.iter().filter(is_heir).map(|(id, _)| *id)
}

fn memtable(generation: Generation) -> Arc<ActiveMemtable> {
    let options = MemoryOptions::for_active_bytes(MEMTABLE_BYTES, 0, None);
    Arc::new(ActiveMemtable::new(generation, options))
}

impl LoggedMemory {
    /// Adds what was logged, unless SSTables have it; whether that began a memtable of written cells.
    pub(super) fn add(&mut self, state: &State, logged: &Logged<'_>) -> bool {
        let generation = logged.generation;
        let is_gone = match state.stores.get(&logged.store) {
            Some(store) => is_flushed(store, logged),
            None => heirs(state, logged.store).next().is_none(),
        };
        if is_gone {
            return false;
        }
        let pair = self.memtables.entry((logged.store, generation, logged.place.at.file)).or_default();
        let part = if logged.copied { &mut pair.again } else { &mut pair.written };
        let begins = part.is_none() && !logged.copied;
        let mut writer = part.get_or_insert_with(|| memtable(generation)).writer();
        match &logged.entry {
            Entry::Cell(cell) => _ = writer.insert(cell),
            Entry::RangeTombstone(tombstone) => writer.add_range_tombstone(tombstone.clone()),
        }
        begins
    }

    /// The memtables of a store as the state has it, those that share keys newest first.
    pub(super) fn of(&self, state: &State, id: StoreId) -> Result<Vec<Memtable>> {
        let Some(store) = state.stores.get(&id) else { return Ok(Vec::new()) };
        let (mut written, mut again) = (Vec::new(), Vec::new());
        for origin in store.origins.iter().chain([&id]) {
            let all =
                (*origin, Generation::ZERO, LogFileId::ZERO)..=(*origin, Generation::MAX, LogFileId::MAX);
            let needed = self.memtables.range(all).filter(|((_, _, file), _)| *file >= state.wal_first);
            for ((_, generation, file), pair) in needed {
                for keys in unflushed(store, *generation) {
                    written.extend(part(pair.written.as_ref(), &keys).map(|one| ((*generation, *file), one)));
                    again.extend(part(pair.again.as_ref(), &keys));
                }
            }
        }
        written.sort_by_key(|(age, _)| Reverse(*age));
        let mut memory: Vec<Memtable> = written.into_iter().map(|(_, one)| one).collect();
        if !again.is_empty() {
            let oldest = only_again(&again, &memory)?;
            memory.extend((!oldest.is_empty()).then(|| Memtable::from(oldest)));
        }
        Ok(memory)
    }

    /// The stores of which something was logged in a file before that one.
    pub(super) fn logged_before(&self, first: LogFileId) -> BTreeSet<StoreId> {
        let before = self.memtables.keys().filter(|(_, _, file)| *file < first);
        before.map(|(store, _, _)| *store).collect()
    }

    /// Forgets memtables of which nothing counts. O(memtables and stores).
    pub(super) fn forget(&mut self, state: &State) {
        let mut heirs: BTreeMap<StoreId, Vec<&StoreState>> = BTreeMap::new();
        for (id, store) in &state.stores {
            for origin in store.origins.iter().chain([id]) {
                heirs.entry(*origin).or_default().push(store);
            }
        }
        self.memtables.retain(|(logged_for, generation, file), _| {
            let counts = |store: &&StoreState| !store.flushed.covers(&store.range, *generation);
            *file >= state.wal_first && heirs.get(logged_for).is_some_and(|heirs| heirs.iter().any(counts))
        });
    }
}

/// Whether SSTables have all of it, where the store has all of its keys.
fn is_flushed(store: &StoreState, logged: &Logged<'_>) -> bool {
    match &logged.entry {
        Entry::Cell(cell) => {
            logged.generation <= store.flushed.at(cell.key) && store.range.contains(cell.key)
        }
        Entry::RangeTombstone(tombstone) => {
            store.flushed.covers(&tombstone.range, logged.generation) && store.range.covers(&tombstone.range)
        }
    }
}

/// The store's keys whose cells of that generation are in no SSTable.
fn unflushed(store: &StoreState, generation: Generation) -> Vec<KeyRange> {
    let mut left: Vec<KeyRange> = Vec::new();
    for (interval, _) in store.flushed.intervals().filter(|(_, flushed)| *flushed < generation) {
        match left.last_mut() {
            Some(last) if last.end.as_ref() == Some(&interval.start) => last.end = interval.end,
            _ => left.push(interval),
        }
    }
    let own = left.into_iter().map(|keys| keys.intersect(&store.range));
    own.filter(|keys| !keys.is_empty()).collect()
}

fn part(memtable: Option<&Arc<ActiveMemtable>>, keys: &KeyRange) -> Option<Memtable> {
    let whole = Memtable::from(memtable?.clone());
    if *keys == KeyRange::all() { Some(whole) } else { whole.part(keys) }
}

/// What was logged again and is in none of those memtables: each cell once.
fn only_again(again: &[Memtable], written: &[Memtable]) -> Result<Arc<ActiveMemtable>> {
    let only = memtable(Generation::ZERO);
    let mut tombstones: Vec<RangeTombstone> = Vec::new();
    for one in again {
        let mut cursor = one.cursor();
        cursor.seek(&[])?;
        while cursor.valid() {
            let cell = cursor.cell();
            if !written.iter().any(|memtable| holds(memtable, &cell)) {
                only.writer().insert(&cell);
            }
            cursor.next()?;
        }
        tombstones.extend(one.tombstones_within(&KeyRange::all()));
    }
    // One that is in another memtable too does no harm.
    tombstones
        .sort_by(|a, b| (a.seq, &a.range.start, &a.range.end).cmp(&(b.seq, &b.range.start, &b.range.end)));
    tombstones.dedup();
    tombstones.into_iter().for_each(|tombstone| only.writer().add_range_tombstone(tombstone));
    Ok(only)
}

fn holds(memtable: &Memtable, cell: &CellRef<'_>) -> bool {
    let is_it = |found: &CellRef<'_>| (found.timestamp, found.seq) == (cell.timestamp, cell.seq);
    memtable.seqs().is_some_and(|seqs| seqs.contains(&cell.seq))
        && memtable
            .get(cell.key, cell.seq, &mut |found, _| match is_it(found) {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            })
            .is_break()
}

#[cfg(all(test, not(models)))]
mod tests {
    use super::*;
    use crate::types::{LogPosition, SeqNo};
    use crate::version::edit::Change;
    use crate::wal::EntryPosition;

    const STORE: StoreId = StoreId(1);
    const RIGHT: StoreId = StoreId(2);

    fn state(changes: &[Change]) -> State {
        let mut state = State::default();
        let new = Change::NewStore { id: STORE, name: "f".into(), options: "{}".into() };
        [new].iter().chain(changes).for_each(|change| state.apply(change).unwrap());
        state
    }

    fn flushed(store: StoreId, start: &str, end: &str, generation: u64) -> Change {
        Change::Flushed { store, range: KeyRange::new(start, end), generation: Generation(generation) }
    }

    /// Logs a value: of that key and sequence number, under that generation, in that file.
    fn log(
        memory: &mut LoggedMemory,
        state: &State,
        what: (&str, u64),
        under: (u64, u64),
        copied: bool,
    ) -> bool {
        let (key, seq) = what;
        let at = LogPosition { file: LogFileId(under.1), offset: 80 };
        let entry = Entry::Cell(CellRef::plain(key.as_bytes(), seq, b"v"));
        let place = EntryPosition { at, length: 40 };
        let logged = Logged { store: STORE, generation: Generation(under.0), place, copied, entry };
        memory.add(state, &logged)
    }

    /// The sequence numbers of a key in the order in which a reader meets them.
    fn met(memory: &LoggedMemory, state: &State, store: StoreId, key: &str) -> Vec<u64> {
        let mut met = Vec::new();
        for memtable in memory.of(state, store).unwrap() {
            let _ = memtable.get(key.as_bytes(), SeqNo::MAX, &mut |cell, _| {
                met.push(cell.seq.0);
                ControlFlow::Continue(())
            });
        }
        met
    }

    #[test]
    fn each_cell_counts_once_from_where_it_was_written_to_where_it_was_logged_again() {
        let mut memory = LoggedMemory::default();
        let now = state(&[]);
        assert!(log(&mut memory, &now, ("k", 1), (3, 1), false));
        assert!(!log(&mut memory, &now, ("k", 2), (3, 1), false), "the memtable was begun");
        assert!(log(&mut memory, &now, ("k", 4), (7, 2), false));
        // A flush of generations up to 5 leaves the newest of its cells in memory, as generation 6.
        assert!(!log(&mut memory, &now, ("k", 2), (6, 2), true));
        assert_eq!(met(&memory, &now, STORE, "k"), [4, 2, 1]);
        let half = state(&[flushed(STORE, "", "k", 5)]);
        assert_eq!(met(&memory, &half, STORE, "k"), [4, 2, 1], "its keys are still to come");
        let now = state(&[flushed(STORE, "", "z", 5)]);
        assert_eq!(met(&memory, &now, STORE, "k"), [4, 2]);
        memory.forget(&now);
        assert_eq!(met(&memory, &now, STORE, "k"), [4, 2]);
        // Cleaning logs it once more, and then the file goes.
        assert!(!log(&mut memory, &now, ("k", 2), (6, 3), true));
        let now = state(&[flushed(STORE, "", "z", 5), Change::WalFirst(LogFileId(3))]);
        assert_eq!(memory.logged_before(LogFileId(3)), BTreeSet::from([STORE]));
        assert_eq!(met(&memory, &now, STORE, "k"), [2], "nothing needs the file of 4, so it is no more");
        memory.forget(&now);
        assert_eq!(memory.memtables.len(), 1);
        let all = Change::Flushed { store: STORE, range: KeyRange::all(), generation: Generation(7) };
        let now = state(&[all]);
        assert!(!log(&mut memory, &now, ("k", 2), (6, 4), true), "SSTables have it");
        memory.forget(&now);
        assert!(memory.memtables.is_empty());
    }

    #[test]
    fn what_was_logged_for_a_store_is_its_heirs_by_key() {
        let mut memory = LoggedMemory::default();
        let before = state(&[]);
        for (seq, key) in [(1, "a"), (2, "m"), (3, "z")] {
            log(&mut memory, &before, (key, seq), (3, 1), false);
        }
        let split = Change::Split {
            store: STORE,
            at: b"m".to_vec(),
            right: RIGHT,
            name: "right".into(),
            bytes: Vec::new(),
        };
        let now = state(&[split.clone(), flushed(RIGHT, "n", "zz", 3)]);
        assert_eq!(heirs(&now, STORE).collect::<Vec<_>>(), [STORE, RIGHT]);
        let of = |store| ["a", "m", "z"].map(|key| met(&memory, &now, store, key).len());
        assert_eq!((of(STORE), of(RIGHT)), ([1, 0, 0], [0, 1, 0]));
        let now = state(&[split, Change::DropStore { id: STORE }]);
        memory.forget(&now);
        assert_eq!(met(&memory, &now, RIGHT, "z"), [3], "the heir outlives it");
        memory.forget(&state(&[Change::DropStore { id: STORE }]));
        assert!(memory.memtables.is_empty());
    }
}
