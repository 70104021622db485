//! Edits as bytes: the payload of a record of the manifest (docs/format.md).

use super::edit::{Change, Edit};
use crate::shape::{Clip, ShapeChange, TABLE_COUNT_MAX, TableInfo, TablePlace};
use crate::types::codec::{Decoded, Decoder, Malformed, put_bytes, put_varint};
use crate::types::{Generation, KeyRange, LogFileId, LogPosition, SeqNo, StoreId, TableId, Timestamp};
use crate::wal::{RetainedFile, WalEnd};
use std::sync::Arc;

/// The error of a change that this release does not know.
const UNKNOWN: Malformed = Malformed("unknown change");

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

/// Whether the bytes have a change that this release does not know. They come from under a checksum, so a
/// newer release wrote it.
pub(super) fn has_unknown(bytes: &[u8]) -> bool {
    decode(bytes).is_err_and(|e| e == UNKNOWN)
}

/// Encodes a count and as many items.
fn put_list<T>(out: &mut Vec<u8>, items: &[T], put: impl Fn(&mut Vec<u8>, &T)) {
    put_varint(out, items.len() as u64);
    items.iter().for_each(|item| put(out, item));
}

/// Encodes whether there is a value, and the value.
fn put_option<T>(out: &mut Vec<u8>, value: Option<T>, put: impl FnOnce(&mut Vec<u8>, T)) {
    out.push(u8::from(value.is_some()));
    if let Some(value) = value {
        put(out, value);
    }
}

fn put_range(out: &mut Vec<u8>, range: &KeyRange) {
    put_bytes(out, &range.start);
    put_option(out, range.end.as_deref(), put_bytes);
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

// Over 70 lines: one match, a few lines for each kind of change.
fn encode_change(change: &Change, out: &mut Vec<u8>) {
    match change {
        Change::Database { id } => {
            out.push(1);
            put_varint(out, *id);
        }
        Change::Split { store, at, right, name, bytes } => {
            out.push(18);
            put_varint(out, u64::from(store.0));
            put_bytes(out, at);
            put_varint(out, u64::from(right.0));
            put_bytes(out, name.as_bytes());
            put_list(out, bytes, |out, (table, below)| {
                put_table_id(out, *table);
                put_varint(out, *below);
            });
        }
        Change::Join { store, with, renamed } => {
            out.push(19);
            put_varint(out, u64::from(store.0));
            put_varint(out, u64::from(with.0));
            put_list(out, renamed, |out, (old, new)| {
                put_table_id(out, *old);
                put_table_id(out, *new);
            });
        }
        Change::Region { store, range, origins } => {
            out.push(20);
            put_varint(out, u64::from(store.0));
            put_range(out, range);
            put_list(out, origins, |out, origin| put_varint(out, u64::from(origin.0)));
        }
        Change::Owners(owners) => {
            out.push(21);
            put_list(out, owners, |out, (table, count)| {
                put_table_id(out, *table);
                put_varint(out, u64::from(*count));
            });
        }
        Change::Tables { location } => {
            out.push(17);
            put_bytes(out, location.as_bytes());
        }
        Change::Shared { location, nonce } => {
            out.push(23);
            put_bytes(out, location.as_bytes());
            put_varint(out, *nonce);
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
        Change::WalFirst(first) => {
            out.push(12);
            put_varint(out, first.0);
        }
        Change::WalRetained { from, files } => {
            out.push(22);
            put_varint(out, from.0);
            put_list(out, files, |out, kept| {
                put_varint(out, kept.file.0);
                put_varint(out, kept.used);
                put_varint(out, kept.first_seq.0);
            });
        }
        Change::WalSynced(to) => {
            out.push(13);
            put_position(out, *to);
        }
        Change::WalEnd(end) => {
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
    put_list(out, &change.removed, put_place);
    put_list(out, &change.clipped, |out, (place, clip)| {
        put_place(out, place);
        put_clip(out, clip);
    });
    put_list(out, &change.added, |out, (level, run, table)| {
        put_varint(out, *level as u64);
        put_varint(out, *run);
        put_table(out, table);
    });
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
    put_list(out, &table.logs, |out, file| put_varint(out, file.0));
    put_option(out, table.ingested_at, |out, seq| put_varint(out, seq.0));
    put_option(out, table.clip.as_ref(), put_clip);
    put_option(out, table.above, put_varint);
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
        12 => Change::WalFirst(LogFileId(input.varint()?)),
        13 => Change::WalSynced(position(input)?),
        14 => Change::WalEnd(WalEnd { at: position(input)?, next: LogFileId(input.varint()?) }),
        15 => Change::Forgotten { store: store(input)?, seq: SeqNo(input.varint()?) },
        18 => Change::Split {
            store: store(input)?,
            at: input.bytes()?.to_vec(),
            right: store(input)?,
            name: text(input)?,
            bytes: list(input, |input| Ok((table_id(input)?, input.varint()?)))?,
        },
        19 => Change::Join {
            store: store(input)?,
            with: store(input)?,
            renamed: list(input, |input| Ok((table_id(input)?, table_id(input)?)))?,
        },
        20 => Change::Region { store: store(input)?, range: range(input)?, origins: list(input, store)? },
        21 => Change::Owners(list(input, |input| Ok((table_id(input)?, small(input)?)))?),
        22 => Change::WalRetained {
            from: LogFileId(input.varint()?),
            files: list(input, |input| {
                let (file, used) = (LogFileId(input.varint()?), input.varint()?);
                Ok(RetainedFile { file, used, first_seq: SeqNo(input.varint()?) })
            })?,
        },
        17 => Change::Tables { location: text(input)? },
        23 => Change::Shared { location: text(input)?, nonce: input.varint()? },
        16 => Change::Attached { store: store(input)?, seq: SeqNo(input.varint()?) },
        _ => return Err(UNKNOWN),
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

/// Decodes a count and as many items. Memory grows with the bytes at hand, not with the count.
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
            return Err(Malformed("WAL files of a table out of order"));
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
        above: if flag(input)? { Some(input.varint()?) } else { None },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_change_of_another_release_is_unknown() {
        let shared = encode(&[Change::Shared { location: "s3://bucket/prod".into(), nonce: 9 }]);
        assert!(!has_unknown(&shared) && !has_unknown(&shared[..4]), "known, and cut short");
        let mut newer = shared.clone();
        newer.extend([24, 0]);
        assert!(has_unknown(&newer));
        // The decoder of a release that does not know the mark meets it as this one meets tag 24.
        let mut marked_by_newer = shared;
        marked_by_newer[0] = 24;
        assert!(has_unknown(&marked_by_newer));
    }
}
