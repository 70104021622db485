//! Changes to the state that the manifest records. An [`Edit`] is a list of [`Change`]s that become durable
//! together; [`State`] is the sum of all edits so far. Applying a change is pure.

use super::shared_mark::SharedMark;
use crate::shape::{Shape, ShapeChange};
use crate::types::{Generation, KeyRange, LogFileId, LogPosition, SeqNo, StoreId, TableId};
use crate::wal::{RetainedFile, WalEnd};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// One change.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Change {
    /// First record of every manifest.
    Database { id: u64 },
    /// The database was opened: names made from now on carry this epoch.
    Epoch(u32),
    /// Nothing at or below this sequence number will be given out again.
    LastSeq(SeqNo),
    /// A family was created. `options` is JSON of `FamilyOptions`.
    NewStore { id: StoreId, name: String, options: String },
    /// A family was dropped, with its SSTables.
    DropStore { id: StoreId },
    /// A family's options changed.
    StoreOptions { id: StoreId, options: String },
    /// SSTables were added, removed, or clipped.
    Shape { store: StoreId, change: ShapeChange },
    /// Every cell of `range` up to that generation is in SSTables (invariant I1).
    Flushed { store: StoreId, range: KeyRange, generation: Generation },
    /// Generations up to this one are taken.
    LastGeneration { store: StoreId, generation: Generation },
    /// The first WAL file that is needed.
    WalFirst(LogFileId),
    /// WAL files that are kept though they are not needed: none below `from`, and these.
    WalRetained { from: LogFileId, files: Vec<RetainedFile> },
    /// The WAL was synced to here.
    WalSynced(LogPosition),
    /// A recovery ended history here and went on in another file.
    WalEnd(WalEnd),
    /// Compactions may have dropped all cells of keys that were written up to this sequence number. So a
    /// search that finds none of a key does not prove that it was not written before then.
    Forgotten { store: StoreId, seq: SeqNo },
    /// The store keeps the keys below `at`; those from there on are a new store's. `bytes`: about how many
    /// bytes the SSTables that both have hold below.
    Split { store: StoreId, at: Vec<u8>, right: StoreId, name: String, bytes: Vec<(TableId, u64)> },
    /// The store takes in its neighbour, whose SSTables named here have other names from now on.
    Join { store: StoreId, with: StoreId, renamed: Vec<(TableId, TableId)> },
    /// The keys that the store answers for, and the stores for which its cells may have been logged.
    Region { store: StoreId, range: KeyRange, origins: Vec<StoreId> },
    /// The number of owners of each SSTable that several stores share.
    Owners(Vec<(TableId, u32)>),
    /// The place of the SSTables, apart from WAL and manifest.
    Tables { location: String },
    /// The family came from another database at that moment: its SSTables have sequence numbers of that one.
    /// Recorded twice, first with the number from which on no write had one, so that this database is above
    /// the other.
    Attached { store: StoreId, seq: SeqNo },
    /// The database becomes the shared one in that place; see [`SharedMark`].
    Shared { location: String, nonce: u64 },
}

impl Change {
    /// The stores that it names.
    pub(crate) fn stores(&self) -> impl Iterator<Item = StoreId> + use<> {
        let (one, other) = match self {
            Change::NewStore { id, .. } | Change::DropStore { id } | Change::StoreOptions { id, .. } => {
                (Some(*id), None)
            }
            Change::Shape { store, .. }
            | Change::Flushed { store, .. }
            | Change::LastGeneration { store, .. }
            | Change::Forgotten { store, .. }
            | Change::Region { store, .. }
            | Change::Attached { store, .. } => (Some(*store), None),
            Change::Split { store, right, .. } => (Some(*store), Some(*right)),
            Change::Join { store, with, .. } => (Some(*store), Some(*with)),
            _ => (None, None),
        };
        one.into_iter().chain(other)
    }
}

/// Changes that become durable together.
pub(crate) type Edit = Vec<Change>;

/// The manifest's state of one store.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct StoreState {
    pub(crate) name: String,
    pub(crate) options: String,
    pub(crate) shape: Shape,
    pub(crate) flushed: Flushed,
    pub(crate) last_generation: Generation,
    /// The highest sequence number such that compactions may have dropped all cells of keys written up to it.
    pub(crate) forgotten: SeqNo,
    /// The sequence number at which the store came from another database; zero if it did not.
    pub(crate) attached: SeqNo,
    /// The sequence number from which up to `attached` no write has a number.
    pub(crate) attached_from: SeqNo,
    /// The keys that it answers for.
    pub(crate) range: KeyRange,
    /// Other stores for which its cells may have been logged: those that it was split off, and those that it
    /// took in. The set becomes empty once all cells that came from them are in SSTables; else a chain of
    /// splits would gather one for each.
    pub(crate) origins: BTreeSet<StoreId>,
}

impl StoreState {
    /// The change that removes its origins, if all memory that came from them, up to generation `inherited`,
    /// is in SSTables once the keys of `range` are flushed up to `flushed`.
    pub(crate) fn without_origins(
        &self,
        store: StoreId,
        inherited: Generation,
        range: &KeyRange,
        flushed: Generation,
    ) -> Option<Change> {
        let mut all = self.flushed.clone();
        all.raise(range, flushed);
        let is_left = self.origins.is_empty() || !all.covers(&self.range, inherited);
        (!is_left).then(|| Change::Region { store, range: self.range.clone(), origins: Vec::new() })
    }
}

/// The part of the state that an edit may change, as it was before.
pub(crate) struct Before {
    stores: BTreeMap<StoreId, Option<StoreState>>,
    /// All but the stores.
    rest: State,
}

/// The sum of all edits.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct State {
    pub(crate) database: u64,
    pub(crate) epoch: u32,
    pub(crate) last_seq: SeqNo,
    pub(crate) last_store: StoreId,
    pub(crate) stores: BTreeMap<StoreId, StoreState>,
    /// SSTables that several stores share, with the number of their owners.
    pub(crate) owners: Arc<BTreeMap<TableId, u32>>,
    /// The place of the SSTables; empty: in the database's own directory.
    pub(crate) tables: String,
    pub(crate) wal_first: LogFileId,
    /// WAL files kept for streams of changes; some may not be there any more.
    pub(crate) wal_retained: Arc<BTreeMap<LogFileId, RetainedFile>>,
    pub(crate) wal_synced: LogPosition,
    pub(crate) wal_ends: Vec<WalEnd>,
    pub(crate) shared: Option<SharedMark>,
}

impl State {
    /// Applies a change; `Err` says why it cannot follow what came before (a damaged or foreign manifest).
    // Over 70 lines: one match, a few lines for each kind of change.
    pub(crate) fn apply(&mut self, change: &Change) -> Result<(), String> {
        let missing = |id: StoreId| format!("store {id} is not there");
        match change {
            Change::Database { id } => self.database = *id,
            Change::Tables { location } => self.tables.clone_from(location),
            Change::Shared { location, nonce } => {
                self.shared = Some(SharedMark { location: location.clone(), nonce: *nonce });
            }
            Change::Epoch(epoch) => self.epoch = self.epoch.max(*epoch),
            Change::LastSeq(seq) => self.last_seq = self.last_seq.max(*seq),
            Change::NewStore { id, name, options } => {
                self.last_store = self.last_store.max(*id);
                let store = StoreState { name: name.clone(), options: options.clone(), ..Default::default() };
                if self.stores.insert(*id, store).is_some() {
                    return Err(format!("store {id} is created twice"));
                }
            }
            Change::DropStore { id } => {
                self.last_store = self.last_store.max(*id);
                if let Some(store) = self.stores.remove(id) {
                    store.shape.tables().for_each(|(_, _, table)| self.disown(table.id));
                }
            }
            Change::Split { store, at, right, name, bytes } => {
                self.last_store = self.last_store.max(*right);
                self.split(*store, at, *right, name, bytes)?;
            }
            Change::Join { store, with, renamed } => self.join(*store, *with, renamed)?,
            Change::Region { store, range, origins } => {
                let store = self.stores.get_mut(store).ok_or_else(|| missing(*store))?;
                store.range = range.clone();
                store.origins = origins.iter().copied().collect();
            }
            Change::Owners(owners) => self.owners = Arc::new(owners.iter().copied().collect()),
            Change::StoreOptions { id, options } => {
                self.stores.get_mut(id).ok_or_else(|| missing(*id))?.options.clone_from(options);
            }
            Change::Shape { store, change } => {
                self.stores.get_mut(store).ok_or_else(|| missing(*store))?.shape.change(change)?;
                let again = |id: TableId| change.added.iter().any(|(_, _, table)| table.id == id);
                let gone = change.removed.iter().map(|place| place.table).filter(|id| !again(*id));
                gone.for_each(|id| self.disown(id));
            }
            Change::Flushed { store, range, generation } => {
                let store = self.stores.get_mut(store).ok_or_else(|| missing(*store))?;
                store.flushed.raise(range, *generation);
                store.last_generation = store.last_generation.max(*generation);
            }
            Change::LastGeneration { store, generation } => {
                let store = self.stores.get_mut(store).ok_or_else(|| missing(*store))?;
                store.last_generation = store.last_generation.max(*generation);
            }
            Change::Forgotten { store, seq } => {
                let store = self.stores.get_mut(store).ok_or_else(|| missing(*store))?;
                store.forgotten = store.forgotten.max(*seq);
            }
            Change::Attached { store, seq } => {
                let store = self.stores.get_mut(store).ok_or_else(|| missing(*store))?;
                if store.attached == SeqNo::ZERO {
                    store.attached_from = *seq;
                }
                store.attached = store.attached.max(*seq);
            }
            Change::WalFirst(first) => {
                self.wal_first = self.wal_first.max(*first);
                let first = self.wal_first;
                self.wal_ends.retain(|end| end.next > first);
            }
            Change::WalRetained { from, files } => {
                let kept = Arc::make_mut(&mut self.wal_retained);
                *kept = kept.split_off(from);
                kept.extend(files.iter().map(|kept| (kept.file, *kept)));
            }
            Change::WalSynced(to) => self.wal_synced = self.wal_synced.max(*to),
            Change::WalEnd(end) => {
                if end.next > self.wal_first {
                    self.wal_ends.push(*end);
                }
            }
        }
        Ok(())
    }

    /// The oldest WAL file that memory or streams of changes need.
    pub(crate) fn wal_oldest(&self) -> LogFileId {
        let kept = self.wal_retained.keys().next().copied();
        kept.map_or(self.wal_first, |kept| kept.min(self.wal_first))
    }

    /// Whether a store has the SSTable. O(SSTables).
    pub(crate) fn has_table(&self, table: TableId) -> bool {
        self.stores.values().any(|store| store.shape.tables().any(|(_, _, one)| one.id == table))
    }

    /// The part of the state that the edit may change, as it is now. O(the stores that it names).
    pub(crate) fn before(&self, edit: &[Change]) -> Before {
        let named = edit.iter().flat_map(Change::stores);
        let stores = named.map(|id| (id, self.stores.get(&id).cloned())).collect();
        let rest = State {
            stores: BTreeMap::new(),
            wal_ends: self.wal_ends.clone(),
            tables: self.tables.clone(),
            owners: self.owners.clone(),
            wal_retained: self.wal_retained.clone(),
            shared: self.shared.clone(),
            ..*self
        };
        Before { stores, rest }
    }

    /// Restores the state from before an edit.
    pub(crate) fn take_back(&mut self, before: Before) {
        let mut stores = std::mem::take(&mut self.stores);
        for (id, store) in before.stores {
            match store {
                Some(store) => stores.insert(id, store),
                None => stores.remove(&id),
            };
        }
        *self = State { stores, ..before.rest };
    }

    /// Applies as much of a change as can be applied, for a manifest of which records are lost.
    pub(crate) fn apply_what_fits(&mut self, change: &Change) {
        let Change::Shape { store, change } = change else {
            // These change nothing when they are refused.
            let _ = self.apply(change);
            return;
        };
        let Some(store) = self.stores.get_mut(store) else { return };
        let one = || ShapeChange::default();
        let single = (change.removed.iter().map(|place| ShapeChange { removed: vec![*place], ..one() }))
            .chain(change.clipped.iter().map(|clip| ShapeChange { clipped: vec![clip.clone()], ..one() }))
            .chain(change.added.iter().map(|table| ShapeChange { added: vec![table.clone()], ..one() }));
        for single in single {
            let mut next = store.shape.clone();
            if next.change(&single).is_ok() {
                store.shape = next;
            }
        }
    }

    /// The edit that makes this state from nothing.
    pub(crate) fn to_edit(&self) -> Edit {
        let mut edit = vec![
            Change::Database { id: self.database },
            Change::Epoch(self.epoch),
            Change::LastSeq(self.last_seq),
            // Keeps ids of dropped stores from being given out again.
            Change::DropStore { id: self.last_store },
        ];
        if !self.tables.is_empty() {
            edit.push(Change::Tables { location: self.tables.clone() });
        }
        if let Some(SharedMark { location, nonce }) = &self.shared {
            edit.push(Change::Shared { location: location.clone(), nonce: *nonce });
        }
        for (&id, store) in &self.stores {
            edit.push(Change::NewStore { id, name: store.name.clone(), options: store.options.clone() });
            edit.push(Change::LastGeneration { store: id, generation: store.last_generation });
            if store.forgotten > SeqNo::ZERO {
                edit.push(Change::Forgotten { store: id, seq: store.forgotten });
            }
            if store.attached > SeqNo::ZERO {
                edit.push(Change::Attached { store: id, seq: store.attached_from });
                edit.push(Change::Attached { store: id, seq: store.attached });
            }
            if store.range != KeyRange::all() || !store.origins.is_empty() {
                let origins = store.origins.iter().copied().collect();
                edit.push(Change::Region { store: id, range: store.range.clone(), origins });
            }
            for (range, generation) in store.flushed.intervals() {
                edit.push(Change::Flushed { store: id, range, generation });
            }
            let added =
                store.shape.tables().map(|(level, run, table)| (level, run.id, table.clone())).collect();
            edit.push(Change::Shape { store: id, change: ShapeChange { added, ..ShapeChange::default() } });
        }
        if !self.owners.is_empty() {
            edit.push(Change::Owners(self.owners.iter().map(|(id, count)| (*id, *count)).collect()));
        }
        if !self.wal_retained.is_empty() {
            let files = self.wal_retained.values().copied().collect();
            edit.push(Change::WalRetained { from: LogFileId::ZERO, files });
        }
        edit.push(Change::WalFirst(self.wal_first));
        edit.push(Change::WalSynced(self.wal_synced));
        edit.extend(self.wal_ends.iter().map(|end| Change::WalEnd(*end)));
        edit
    }
}

/// The highest generation whose cells are in SSTables, by key interval. Starts with generation 0 for all
/// keys, which no memtable has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Flushed {
    /// Sorted (interval start, generation); the first starts at the empty key.
    starts: Vec<(Vec<u8>, Generation)>,
}

impl Default for Flushed {
    fn default() -> Self {
        Self { starts: vec![(Vec::new(), Generation::ZERO)] }
    }
}

impl Flushed {
    /// The generation up to which cells of `key` are in SSTables.
    pub(crate) fn at(&self, key: &[u8]) -> Generation {
        let after = self.starts.partition_point(|(start, _)| start.as_slice() <= key);
        self.starts[after - 1].1
    }

    /// Whether nothing of that generation at any key of `range` needs replaying.
    pub(crate) fn covers(&self, range: &KeyRange, generation: Generation) -> bool {
        self.intervals().all(|(interval, at)| at >= generation || !interval.overlaps(range))
    }

    pub(crate) fn raise(&mut self, range: &KeyRange, generation: Generation) {
        self.change(range, |before| generation.max(before));
    }

    /// Sets the generation up to which cells of the range are in SSTables, whatever it was before.
    pub(super) fn set(&mut self, range: &KeyRange, generation: Generation) {
        self.change(range, |_| generation);
    }

    fn change(&mut self, range: &KeyRange, to: impl Fn(Generation) -> Generation) {
        if range.is_empty() {
            return;
        }
        self.cut(&range.start);
        if let Some(end) = &range.end {
            self.cut(end);
        }
        for (_, at) in self.starts.iter_mut().filter(|(start, _)| range.contains(start)) {
            *at = to(*at);
        }
        self.starts.dedup_by(|later, earlier| later.1 == earlier.1);
    }

    fn cut(&mut self, key: &[u8]) {
        let after = self.starts.partition_point(|(start, _)| start.as_slice() <= key);
        let (start, generation) = &self.starts[after - 1];
        if start != key {
            let generation = *generation;
            self.starts.insert(after, (key.to_vec(), generation));
        }
    }

    pub(crate) fn intervals(&self) -> impl Iterator<Item = (KeyRange, Generation)> {
        self.starts.iter().enumerate().map(|(i, (start, generation))| {
            let end = self.starts.get(i + 1).map(|(end, _)| end.clone());
            (KeyRange { start: start.clone(), end }, *generation)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::code::{decode, encode};
    use super::*;
    use crate::shape::{Clip, TableInfo, TablePlace};
    use crate::types::Timestamp;

    fn table(part: u32, start: &str, end: &str) -> Arc<TableInfo> {
        Arc::new(TableInfo {
            id: TableId { store: StoreId(3), epoch: 1, job: 2, part },
            identity: u64::MAX - u64::from(part),
            bytes: 1000,
            cells: 10,
            tombstones: 1,
            range_tombstones: 0,
            distinct: 9,
            range: KeyRange::new(start, end),
            seqs: (SeqNo(1), SeqNo(9)),
            times: (Timestamp(0), Timestamp(0)),
            created: 77,
            log_bytes: u64::from(part) * 100,
            logs: (0..u64::from(part)).map(|file| LogFileId(3 * file)).collect(),
            ingested_at: (part == 1).then_some(SeqNo(4)),
            clip: None,
            above: (part == 2).then_some(7),
        })
    }

    #[test]
    fn what_an_edit_changed_is_taken_back_whole() {
        let story = story();
        for split in 0..story.len() {
            let mut state = State::default();
            story[..split].iter().for_each(|change| state.apply(change).unwrap());
            let before = state.clone();
            let taken = state.before(&story[split..]);
            story[split..].iter().for_each(|change| state.apply(change).unwrap());
            assert_ne!(state, before);
            state.take_back(taken);
            assert_eq!(state, before, "from change {split} on");
        }
    }

    fn story() -> Edit {
        let store = StoreId(3);
        vec![
            Change::Database { id: 42 },
            Change::Epoch(2),
            Change::LastSeq(SeqNo(99)),
            Change::NewStore { id: store, name: "default".into(), options: "{}".into() },
            Change::Shape {
                store,
                change: ShapeChange {
                    added: vec![
                        (0, 1, table(1, "a", "m")),
                        (0, 2, table(2, "c", "d")),
                        (0, 3, table(4, "c", "d")),
                        (2, 0, table(3, "m", "z")),
                    ],
                    ..ShapeChange::default()
                },
            },
            Change::Shape {
                store,
                change: ShapeChange {
                    range: KeyRange::all(),
                    removed: vec![TablePlace { level: 0, run: 3, table: table(4, "", "").id }],
                    clipped: vec![(
                        TablePlace { level: 0, run: 1, table: table(1, "", "").id },
                        Clip { key: b"f".to_vec(), bytes_below: 400 },
                    )],
                    added: vec![],
                },
            },
            Change::Flushed { store, range: KeyRange::new("a", "f"), generation: Generation(7) },
            Change::Attached { store, seq: SeqNo(11) },
            Change::Attached { store, seq: SeqNo(98) },
            Change::Shared { location: "s3://bucket/prod".into(), nonce: u64::MAX - 5 },
            Change::WalRetained {
                from: LogFileId(3),
                files: vec![RetainedFile { file: LogFileId(4), used: 4000, first_seq: SeqNo(70) }],
            },
            Change::WalFirst(LogFileId(5)),
            Change::WalSynced(LogPosition { file: LogFileId(6), offset: 80 }),
            Change::WalEnd(WalEnd { at: LogPosition { file: LogFileId(6), offset: 88 }, next: LogFileId(9) }),
        ]
    }

    fn state(edit: &[Change]) -> State {
        let mut state = State::default();
        edit.iter().for_each(|change| state.apply(change).unwrap());
        state
    }

    #[test]
    fn an_edit_reads_back_as_written_and_every_cut_is_malformed_or_a_prefix() {
        let edit = story();
        let bytes = encode(&edit);
        assert_eq!(decode(&bytes).unwrap(), edit);
        for cut in 0..bytes.len() {
            if let Ok(part) = decode(&bytes[..cut]) {
                assert_eq!(part, edit[..part.len()]);
            }
        }
    }

    #[test]
    fn a_state_written_as_one_edit_is_the_same_state() {
        let whole = state(&story());
        assert_eq!(state(&whole.to_edit()), whole);
        let store = &whole.stores[&StoreId(3)];
        assert_eq!(store.shape.levels[0].runs[0].id, 2);
        assert_eq!((store.attached_from, store.attached), (SeqNo(11), SeqNo(98)));
    }

    #[test]
    fn flushed_generations_are_kept_by_interval_and_never_sink() {
        let mut flushed = Flushed::default();
        flushed.raise(&KeyRange::new("c", "f"), Generation(5));
        flushed.raise(&KeyRange::new("", "d"), Generation(3));
        assert_eq!(["a", "c", "d", "f"].map(|k| flushed.at(k.as_bytes()).0), [3, 5, 5, 0]);
        assert!(flushed.covers(&KeyRange::new("a", "e"), Generation(3)));
        assert!(!flushed.covers(&KeyRange::new("a", "e"), Generation(4)));
        assert!(!flushed.covers(&KeyRange::new("e", "g"), Generation(1)));
    }

    #[test]
    fn changes_to_what_is_not_there_are_refused() {
        let mut state = state(&story());
        let gone = TableId { epoch: 9, job: 9, part: 9, ..TableId::default() };
        let removed = vec![TablePlace { level: 0, run: 1, table: gone }];
        let change = ShapeChange { range: KeyRange::all(), removed, ..ShapeChange::default() };
        for store in [StoreId(3), StoreId(4)] {
            assert!(state.apply(&Change::Shape { store, change: change.clone() }).is_err());
        }
    }
}
