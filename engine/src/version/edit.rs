//! Changes to what the manifest knows, and their encoding. An [`Edit`] is a list of [`Change`]s that become durable
//! together; [`State`] is what all edits so far add up to. Applying a change is pure.

use crate::log::LogEnd;
use crate::shape::{Clip, Shape, ShapeChange, TABLE_COUNT_MAX, TableInfo, TablePlace};
use crate::types::codec::{Decoded, Decoder, Malformed, put_bytes, put_varint};
use crate::types::{Generation, KeyRange, LogFileId, LogPosition, SeqNo, StoreId, TableId, Timestamp};
use std::collections::BTreeMap;
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
    /// A family was dropped; its tables go with it.
    DropStore { id: StoreId },
    /// A family's options changed.
    StoreOptions { id: StoreId, options: String },
    /// Tables came, went, or answer for less.
    Shape { store: StoreId, change: ShapeChange },
    /// Every cell of `range` up to that generation is in tables (invariant I1).
    Flushed { store: StoreId, range: KeyRange, generation: Generation },
    /// Generations at or below are taken.
    LastGeneration { store: StoreId, generation: Generation },
    /// No log file below is needed.
    LogFirst(LogFileId),
    /// The log was synced to here.
    LogSynced(LogPosition),
    /// A recovery ended history here and went on in another file.
    LogEnd(LogEnd),
    /// Of keys written up to this sequence number no cell may be left.
    Forgotten { store: StoreId, seq: SeqNo },
    /// Tables lie there, apart from log and manifest.
    Tables { location: String },
    /// The family came from another database at that moment: its tables have sequence numbers of that one.
    Attached { store: StoreId, seq: SeqNo },
}

/// Changes that become durable together.
pub(crate) type Edit = Vec<Change>;

/// What the manifest knows of one store.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct StoreState {
    pub(crate) name: String,
    pub(crate) options: String,
    pub(crate) shape: Shape,
    pub(crate) flushed: Flushed,
    pub(crate) last_generation: Generation,
    /// Of keys written up to this sequence number no cell may be left.
    pub(crate) forgotten: SeqNo,
    /// When it came from another database, if it did.
    pub(crate) attached: SeqNo,
}

/// What an edit may have changed, as it was before.
pub(crate) struct Before {
    stores: BTreeMap<StoreId, Option<StoreState>>,
    /// All but the stores.
    rest: State,
}

/// What all edits add up to.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct State {
    pub(crate) database: u64,
    pub(crate) epoch: u32,
    pub(crate) last_seq: SeqNo,
    pub(crate) last_store: StoreId,
    pub(crate) stores: BTreeMap<StoreId, StoreState>,
    /// Where tables lie; empty: in the database's own directory.
    pub(crate) tables: String,
    pub(crate) log_first: LogFileId,
    pub(crate) log_synced: LogPosition,
    pub(crate) log_ends: Vec<LogEnd>,
}

impl State {
    /// Applies a change; `Err` says why it cannot follow what came before (a damaged or foreign manifest).
    pub(crate) fn apply(&mut self, change: &Change) -> Result<(), String> {
        let missing = |id: StoreId| format!("store {id} is not there");
        match change {
            Change::Database { id } => self.database = *id,
            Change::Tables { location } => self.tables.clone_from(location),
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
                self.stores.remove(id);
            }
            Change::StoreOptions { id, options } => {
                self.stores.get_mut(id).ok_or_else(|| missing(*id))?.options.clone_from(options);
            }
            Change::Shape { store, change } => {
                self.stores.get_mut(store).ok_or_else(|| missing(*store))?.shape.change(change)?;
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
                store.attached = store.attached.max(*seq);
            }
            Change::LogFirst(first) => {
                self.log_first = self.log_first.max(*first);
                let first = self.log_first;
                self.log_ends.retain(|end| end.next > first);
            }
            Change::LogSynced(to) => self.log_synced = self.log_synced.max(*to),
            Change::LogEnd(end) => {
                if end.next > self.log_first {
                    self.log_ends.push(*end);
                }
            }
        }
        Ok(())
    }

    /// What the edit may change, as it is now. O(the stores that it names).
    pub(crate) fn before(&self, edit: &[Change]) -> Before {
        let named = edit.iter().filter_map(|change| match change {
            Change::NewStore { id, .. } | Change::DropStore { id } | Change::StoreOptions { id, .. } => {
                Some(*id)
            }
            Change::Shape { store, .. }
            | Change::Flushed { store, .. }
            | Change::LastGeneration { store, .. }
            | Change::Forgotten { store, .. }
            | Change::Attached { store, .. } => Some(*store),
            _ => None,
        });
        let stores = named.map(|id| (id, self.stores.get(&id).cloned())).collect();
        let rest = State {
            stores: BTreeMap::new(),
            log_ends: self.log_ends.clone(),
            tables: self.tables.clone(),
            ..*self
        };
        Before { stores, rest }
    }

    /// Makes it as it was before an edit.
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

    /// Applies what of a change can be applied, for a manifest of which records are lost.
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
        for (&id, store) in &self.stores {
            edit.push(Change::NewStore { id, name: store.name.clone(), options: store.options.clone() });
            edit.push(Change::LastGeneration { store: id, generation: store.last_generation });
            if store.forgotten > SeqNo::ZERO {
                edit.push(Change::Forgotten { store: id, seq: store.forgotten });
            }
            if store.attached > SeqNo::ZERO {
                edit.push(Change::Attached { store: id, seq: store.attached });
            }
            for (range, generation) in store.flushed.intervals() {
                edit.push(Change::Flushed { store: id, range, generation });
            }
            let added =
                store.shape.tables().map(|(level, run, table)| (level, run.id, table.clone())).collect();
            edit.push(Change::Shape { store: id, change: ShapeChange { added, ..ShapeChange::default() } });
        }
        edit.push(Change::LogFirst(self.log_first));
        edit.push(Change::LogSynced(self.log_synced));
        edit.extend(self.log_ends.iter().map(|end| Change::LogEnd(*end)));
        edit
    }
}

/// Per key interval, the highest generation whose cells are in tables. Starts with generation 0 for all keys,
/// which no segment has.
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
    /// The generation up to which cells of `key` are in tables.
    pub(crate) fn at(&self, key: &[u8]) -> Generation {
        let after = self.starts.partition_point(|(start, _)| start.as_slice() <= key);
        self.starts[after - 1].1
    }

    /// Whether nothing of that generation at any key of `range` needs replaying.
    #[cfg(test)]
    pub(crate) fn covers(&self, range: &KeyRange, generation: Generation) -> bool {
        self.intervals().all(|(interval, at)| at >= generation || !interval.overlaps(range))
    }

    pub(crate) fn raise(&mut self, range: &KeyRange, generation: Generation) {
        if range.is_empty() {
            return;
        }
        self.cut(&range.start);
        if let Some(end) = &range.end {
            self.cut(end);
        }
        for (start, at) in &mut self.starts {
            if range.contains(start) {
                *at = generation.max(*at);
            }
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

pub(crate) fn encode(edit: &[Change]) -> Vec<u8> {
    let mut out = Vec::new();
    for change in edit {
        encode_change(change, &mut out);
    }
    out
}

pub(crate) fn decode(bytes: &[u8]) -> Decoded<Edit> {
    let mut input = Decoder::new(bytes);
    let mut edit = Edit::new();
    while !input.is_empty() {
        edit.push(decode_change(&mut input)?);
    }
    Ok(edit)
}

fn put_range(out: &mut Vec<u8>, range: &KeyRange) {
    put_bytes(out, &range.start);
    match &range.end {
        Some(end) => {
            out.push(1);
            put_bytes(out, end);
        }
        None => out.push(0),
    }
}

fn put_position(out: &mut Vec<u8>, position: LogPosition) {
    put_varint(out, position.file.0);
    put_varint(out, position.offset);
}

fn put_table_id(out: &mut Vec<u8>, id: TableId) {
    for n in [id.store.0, id.epoch, id.job, id.part] {
        put_varint(out, u64::from(n));
    }
}

fn put_clip(out: &mut Vec<u8>, clip: &Clip) {
    put_bytes(out, &clip.key);
    put_varint(out, clip.bytes_below);
}

fn encode_change(change: &Change, out: &mut Vec<u8>) {
    match change {
        Change::Database { id } => {
            out.push(1);
            put_varint(out, *id);
        }
        Change::Tables { location } => {
            out.push(17);
            put_bytes(out, location.as_bytes());
        }
        Change::Epoch(epoch) => {
            out.push(2);
            put_varint(out, u64::from(*epoch));
        }
        Change::LastSeq(seq) => {
            out.push(3);
            put_varint(out, seq.0);
        }
        Change::NewStore { id, name, options } => {
            out.push(4);
            put_varint(out, u64::from(id.0));
            put_bytes(out, name.as_bytes());
            put_bytes(out, options.as_bytes());
        }
        Change::DropStore { id } => {
            out.push(5);
            put_varint(out, u64::from(id.0));
        }
        Change::StoreOptions { id, options } => {
            out.push(6);
            put_varint(out, u64::from(id.0));
            put_bytes(out, options.as_bytes());
        }
        Change::Shape { store, change } => {
            out.push(7);
            put_varint(out, u64::from(store.0));
            put_shape_change(out, change);
        }
        Change::Flushed { store, range, generation } => {
            out.push(10);
            put_varint(out, u64::from(store.0));
            put_range(out, range);
            put_varint(out, generation.0);
        }
        Change::LastGeneration { store, generation } => {
            out.push(11);
            put_varint(out, u64::from(store.0));
            put_varint(out, generation.0);
        }
        Change::LogFirst(first) => {
            out.push(12);
            put_varint(out, first.0);
        }
        Change::LogSynced(to) => {
            out.push(13);
            put_position(out, *to);
        }
        Change::LogEnd(end) => {
            out.push(14);
            put_position(out, end.at);
            put_varint(out, end.next.0);
        }
        Change::Attached { store, seq } => {
            out.push(16);
            put_varint(out, u64::from(store.0));
            put_varint(out, seq.0);
        }
        Change::Forgotten { store, seq } => {
            out.push(15);
            put_varint(out, u64::from(store.0));
            put_varint(out, seq.0);
        }
    }
}

fn put_place(out: &mut Vec<u8>, place: &TablePlace) {
    put_varint(out, place.level as u64);
    put_varint(out, place.run);
    put_table_id(out, place.table);
}

fn put_shape_change(out: &mut Vec<u8>, change: &ShapeChange) {
    put_range(out, &change.range);
    put_varint(out, change.removed.len() as u64);
    for place in &change.removed {
        put_place(out, place);
    }
    put_varint(out, change.clipped.len() as u64);
    for (place, clip) in &change.clipped {
        put_place(out, place);
        put_clip(out, clip);
    }
    put_varint(out, change.added.len() as u64);
    for (level, run, table) in &change.added {
        put_varint(out, *level as u64);
        put_varint(out, *run);
        put_table(out, table);
    }
}

fn put_table(out: &mut Vec<u8>, table: &TableInfo) {
    put_table_id(out, table.id);
    put_varint(out, table.identity);
    for n in [table.bytes, table.cells, table.tombstones, table.range_tombstones, table.distinct] {
        put_varint(out, n);
    }
    put_range(out, &table.range);
    for n in [table.seqs.0.0, table.seqs.1.0, table.times.0.0, table.times.1.0, table.created] {
        put_varint(out, n);
    }
    put_varint(out, table.log_bytes);
    put_varint(out, table.logs.len() as u64);
    for file in &table.logs {
        put_varint(out, file.0);
    }
    match table.ingested_at {
        Some(seq) => {
            out.push(1);
            put_varint(out, seq.0);
        }
        None => out.push(0),
    }
    match &table.clip {
        Some(clip) => {
            out.push(1);
            put_clip(out, clip);
        }
        None => out.push(0),
    }
}

fn decode_change(input: &mut Decoder<'_>) -> Decoded<Change> {
    Ok(match input.u8()? {
        1 => Change::Database { id: input.varint()? },
        2 => Change::Epoch(small(input)?),
        3 => Change::LastSeq(SeqNo(input.varint()?)),
        4 => Change::NewStore { id: store(input)?, name: text(input)?, options: text(input)? },
        5 => Change::DropStore { id: store(input)? },
        6 => Change::StoreOptions { id: store(input)?, options: text(input)? },
        7 => Change::Shape { store: store(input)?, change: shape_change(input)? },
        10 => Change::Flushed {
            store: store(input)?,
            range: range(input)?,
            generation: Generation(input.varint()?),
        },
        11 => Change::LastGeneration { store: store(input)?, generation: Generation(input.varint()?) },
        12 => Change::LogFirst(LogFileId(input.varint()?)),
        13 => Change::LogSynced(position(input)?),
        14 => Change::LogEnd(LogEnd { at: position(input)?, next: LogFileId(input.varint()?) }),
        15 => Change::Forgotten { store: store(input)?, seq: SeqNo(input.varint()?) },
        17 => Change::Tables { location: text(input)? },
        16 => Change::Attached { store: store(input)?, seq: SeqNo(input.varint()?) },
        _ => return Err(Malformed("unknown change")),
    })
}

fn small(input: &mut Decoder<'_>) -> Decoded<u32> {
    u32::try_from(input.varint()?).map_err(|_| Malformed("number over 32 bits"))
}

fn store(input: &mut Decoder<'_>) -> Decoded<StoreId> {
    small(input).map(StoreId)
}

fn text(input: &mut Decoder<'_>) -> Decoded<String> {
    let bytes = input.bytes()?;
    String::from_utf8(bytes.to_vec()).map_err(|_| Malformed("text is not UTF-8"))
}

fn flag(input: &mut Decoder<'_>) -> Decoded<bool> {
    match input.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Malformed("flag is neither 0 nor 1")),
    }
}

fn range(input: &mut Decoder<'_>) -> Decoded<KeyRange> {
    let start = input.bytes()?.to_vec();
    let end = if flag(input)? { Some(input.bytes()?.to_vec()) } else { None };
    Ok(KeyRange { start, end })
}

fn position(input: &mut Decoder<'_>) -> Decoded<LogPosition> {
    Ok(LogPosition { file: LogFileId(input.varint()?), offset: input.varint()? })
}

fn table_id(input: &mut Decoder<'_>) -> Decoded<TableId> {
    Ok(TableId {
        store: StoreId(small(input)?),
        epoch: small(input)?,
        job: small(input)?,
        part: small(input)?,
    })
}

fn clip(input: &mut Decoder<'_>) -> Decoded<Clip> {
    Ok(Clip { key: input.bytes()?.to_vec(), bytes_below: input.varint()? })
}

fn level(input: &mut Decoder<'_>) -> Decoded<usize> {
    small(input).map(|level| level as usize)
}

fn place(input: &mut Decoder<'_>) -> Decoded<TablePlace> {
    Ok(TablePlace { level: level(input)?, run: input.varint()?, table: table_id(input)? })
}

/// As many items as the count before them says; grows with the bytes at hand, not with the count.
fn list<T>(input: &mut Decoder<'_>, item: impl Fn(&mut Decoder<'_>) -> Decoded<T>) -> Decoded<Vec<T>> {
    let mut left = input.varint()?;
    let mut items = Vec::new();
    while left > 0 {
        items.push(item(input)?);
        left -= 1;
    }
    Ok(items)
}

fn shape_change(input: &mut Decoder<'_>) -> Decoded<ShapeChange> {
    Ok(ShapeChange {
        range: range(input)?,
        removed: list(input, place)?,
        clipped: list(input, |input| Ok((place(input)?, clip(input)?)))?,
        added: list(input, |input| Ok((level(input)?, input.varint()?, Arc::new(table(input)?))))?,
    })
}

fn count(input: &mut Decoder<'_>) -> Decoded<u64> {
    match input.varint()? {
        n if n <= TABLE_COUNT_MAX => Ok(n),
        _ => Err(Malformed("a table's count over 2^44")),
    }
}

fn logs(input: &mut Decoder<'_>) -> Decoded<Vec<LogFileId>> {
    let mut logs: Vec<LogFileId> = Vec::new();
    for _ in 0..input.varint()? {
        let file = LogFileId(input.varint()?);
        if logs.last().is_some_and(|last| *last >= file) {
            return Err(Malformed("log files of a table out of order"));
        }
        logs.push(file);
    }
    Ok(logs)
}

fn table(input: &mut Decoder<'_>) -> Decoded<TableInfo> {
    Ok(TableInfo {
        id: table_id(input)?,
        identity: input.varint()?,
        bytes: count(input)?,
        cells: count(input)?,
        tombstones: count(input)?,
        range_tombstones: count(input)?,
        distinct: count(input)?,
        range: range(input)?,
        seqs: (SeqNo(input.varint()?), SeqNo(input.varint()?)),
        times: (Timestamp(input.varint()?), Timestamp(input.varint()?)),
        created: input.varint()?,
        log_bytes: count(input)?,
        logs: logs(input)?,
        ingested_at: if flag(input)? { Some(SeqNo(input.varint()?)) } else { None },
        clip: if flag(input)? { Some(clip(input)?) } else { None },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

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
            Change::LogFirst(LogFileId(5)),
            Change::LogSynced(LogPosition { file: LogFileId(6), offset: 80 }),
            Change::LogEnd(LogEnd { at: LogPosition { file: LogFileId(6), offset: 88 }, next: LogFileId(9) }),
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
        assert_eq!(whole.stores[&StoreId(3)].shape.levels[0].runs[0].id, 2);
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
