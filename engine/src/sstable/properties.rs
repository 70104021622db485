//! The properties of an SSTable, written in it: a list of (tag, bytes). A reader ignores unknown tags, so
//! that a later release can add some without a new format version.

use super::compression::Compression;
use crate::shape::TableInfo;
use crate::types::codec::{Decoded, Decoder, Malformed, put_bytes, put_varint};
use crate::types::{CellRef, KeyRange, Kind, LogFileId, SeqNo, TableId, Timestamp};
use std::collections::BTreeMap;

#[derive(Clone, PartialEq, Eq, Debug, Default)]
// Over 15 fields: one property of the file format each.
pub(crate) struct Properties {
    pub(crate) cells: u64,
    pub(crate) tombstones: u64,
    pub(crate) operands: u64,
    pub(crate) range_tombstones: u64,
    /// The exact number of distinct keys: the builder sees every key once.
    pub(crate) distinct: u64,
    pub(crate) key_bytes: u64,
    pub(crate) value_bytes: u64,
    pub(crate) data_blocks: u64,
    pub(crate) seqs: (SeqNo, SeqNo),
    pub(crate) times: (Timestamp, Timestamp),
    pub(crate) range: KeyRange,
    pub(crate) created: u64,
    pub(crate) block_bytes: u64,
    pub(crate) bloom_bits: u64,
    /// Bytes of values that are in the WAL; `value_bytes` includes them.
    pub(crate) log_bytes: u64,
    /// The database of that WAL; zero if no values are in it.
    pub(crate) log_database: u64,
    /// Cells that a newer one of the same key and timestamp replaces, which were kept for snapshots.
    pub(crate) overwritten: u64,
    /// The most timestamps of a key, beyond one.
    pub(crate) later_versions_max: u64,
    /// Timestamps of keys, beyond one for each key. SSTables of older releases do not have it.
    pub(crate) later_versions: u64,
    /// WAL files referred to, each with the end of the last entry referred to.
    pub(crate) logs: BTreeMap<LogFileId, u64>,
    pub(crate) compression: Compression,
    /// Free-form names: writer, merge operator and the like.
    pub(crate) names: BTreeMap<String, String>,
}

const RANGE_START: u64 = 32;
const RANGE_END: u64 = 33;
const COMPRESSION: u64 = 34;
const NAME: u64 = 35;
const LOG: u64 = 36;
/// Numbers from this tag on are left out if they are zero.
const OPTIONAL_FROM: u64 = 16;

impl Properties {
    /// The tagged numbers, in one place for both directions.
    fn numbers(&mut self) -> [(u64, &mut u64); 20] {
        [
            (1, &mut self.cells),
            (2, &mut self.tombstones),
            (3, &mut self.operands),
            (4, &mut self.range_tombstones),
            (5, &mut self.distinct),
            (6, &mut self.key_bytes),
            (7, &mut self.value_bytes),
            (8, &mut self.data_blocks),
            (9, &mut self.seqs.0.0),
            (10, &mut self.seqs.1.0),
            (11, &mut self.times.0.0),
            (12, &mut self.times.1.0),
            (13, &mut self.created),
            (14, &mut self.block_bytes),
            (15, &mut self.bloom_bits),
            (16, &mut self.log_bytes),
            (17, &mut self.log_database),
            (18, &mut self.overwritten),
            (19, &mut self.later_versions_max),
            (20, &mut self.later_versions),
        ]
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut put = |tag: u64, bytes: &[u8]| {
            put_varint(&mut out, tag);
            put_bytes(&mut out, bytes);
        };
        for (tag, number) in self.clone().numbers() {
            if tag >= OPTIONAL_FROM && *number == 0 {
                continue;
            }
            let mut bytes = Vec::with_capacity(10);
            put_varint(&mut bytes, *number);
            put(tag, &bytes);
        }
        put(RANGE_START, &self.range.start);
        if let Some(end) = &self.range.end {
            put(RANGE_END, end);
        }
        put(COMPRESSION, self.compression.to_string().as_bytes());
        for (file, end) in &self.logs {
            let mut bytes = Vec::new();
            put_varint(&mut bytes, file.0);
            put_varint(&mut bytes, *end);
            put(LOG, &bytes);
        }
        for (name, value) in &self.names {
            let mut bytes = Vec::new();
            put_bytes(&mut bytes, name.as_bytes());
            put_bytes(&mut bytes, value.as_bytes());
            put(NAME, &bytes);
        }
        out
    }

    pub(super) fn decode(bytes: &[u8]) -> Decoded<Self> {
        let text = |bytes: &[u8]| {
            String::from_utf8(bytes.to_vec()).map_err(|_| Malformed("text property is not UTF-8"))
        };
        let mut properties = Self { compression: Compression::None, ..Self::default() };
        let mut seen = 0u64;
        let mut d = Decoder::new(bytes);
        while !d.is_empty() {
            let tag = d.varint()?;
            let value = d.bytes()?;
            match tag {
                RANGE_START => properties.range.start = value.to_vec(),
                RANGE_END => properties.range.end = Some(value.to_vec()),
                COMPRESSION => {
                    properties.compression =
                        text(value)?.parse().map_err(|_| Malformed("unknown compression property"))?;
                }
                NAME => {
                    let mut pair = Decoder::new(value);
                    let (name, value) = (text(pair.bytes()?)?, text(pair.bytes()?)?);
                    pair.finish()?;
                    properties.names.insert(name, value);
                }
                LOG => {
                    let mut pair = Decoder::new(value);
                    properties.logs.insert(LogFileId(pair.varint()?), pair.varint()?);
                    pair.finish()?;
                }
                _ => {
                    if let Some((_, number)) = properties.numbers().into_iter().find(|(t, _)| *t == tag) {
                        let mut value = Decoder::new(value);
                        *number = value.varint()?;
                        value.finish()?;
                        seen |= 1 << tag;
                    }
                }
            }
        }
        if (1..=13).any(|tag| seen & 1 << tag == 0) {
            return Err(Malformed("a property that every table has is missing"));
        }
        Ok(properties)
    }

    /// The least number of cells that a compaction with all older data drops without snapshots, where `kept`
    /// versions of a key are kept. Deletes and the cells they delete do not count. After such a compaction it
    /// is zero, so that none is planned for it again.
    pub(crate) fn surplus(&self, kept: u64) -> u64 {
        // At most one cell of a timestamp is neither.
        let others = self.overwritten + self.operands + self.tombstones;
        let versions = self.cells.saturating_sub(others);
        self.overwritten + versions.saturating_sub(kept.saturating_mul(self.distinct))
    }

    /// Whether such a compaction would drop any cell.
    pub(crate) fn has_surplus(&self, kept: u64) -> bool {
        self.later_versions_max >= kept || self.surplus(kept) > 0
    }

    /// Counts a cell of the SSTable, whose cells before it are counted already.
    #[inline]
    pub(super) fn count(&mut self, cell: &CellRef<'_>, is_first: bool) {
        let time = match cell.timestamp {
            Timestamp::ZERO => Timestamp(cell.written),
            timestamp => timestamp,
        };
        self.times = if is_first { (time, time) } else { (self.times.0.min(time), self.times.1.max(time)) };
        self.cells += 1;
        self.key_bytes += cell.key.len() as u64;
        self.value_bytes += cell.value.len() as u64;
        self.tombstones += u64::from(cell.kind == Kind::Tombstone);
        self.operands += u64::from(cell.kind == Kind::Operand);
    }

    /// Notes a sequence number, the first of all if `is_first`.
    #[inline]
    pub(super) fn note_seq(&mut self, seq: SeqNo, is_first: bool) {
        self.seqs = if is_first { (seq, seq) } else { (self.seqs.0.min(seq), self.seqs.1.max(seq)) };
    }

    /// The SSTable's description in the manifest.
    pub(super) fn info(&self, id: TableId, identity: u64, bytes: u64) -> TableInfo {
        TableInfo {
            id,
            identity,
            bytes,
            cells: self.cells,
            tombstones: self.tombstones,
            range_tombstones: self.range_tombstones,
            distinct: self.distinct,
            range: self.range.clone(),
            seqs: self.seqs,
            times: self.times,
            created: self.created,
            log_bytes: self.log_bytes,
            logs: self.logs.keys().copied().collect(),
            ingested_at: None,
            clip: None,
            above: None,
        }
    }
}

/// Counts versions and overwritten cells, cell by cell.
#[derive(Default)]
pub(super) struct VersionCounter {
    /// The number of timestamps of the present key so far, the last of them, and whether a cell at that
    /// timestamp is decisive.
    versions: u64,
    timestamp: Timestamp,
    decided: bool,
}

impl VersionCounter {
    /// Counts the next cell of the SSTable.
    #[inline]
    pub(super) fn count(&mut self, properties: &mut Properties, cell: &CellRef<'_>, same_key: bool) {
        if !same_key {
            self.versions = 0;
        }
        if self.versions == 0 || cell.timestamp != self.timestamp {
            (self.timestamp, self.decided) = (cell.timestamp, false);
            properties.later_versions += u64::from(self.versions > 0);
            properties.later_versions_max = properties.later_versions_max.max(self.versions);
            self.versions += 1;
        }
        properties.overwritten += u64::from(self.decided);
        self.decided |= cell.kind != Kind::Operand;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts cells like `k@2v`: key, timestamp and kind (value, tombstone, operand).
    fn counted(cells: &str) -> Properties {
        let (mut properties, mut counter) = (Properties::default(), VersionCounter::default());
        let mut last = None;
        for (n, text) in cells.split(' ').enumerate() {
            let (key, rest) = text.split_once('@').unwrap();
            let (timestamp, kind) = rest.split_at(rest.len() - 1);
            let kind = match kind {
                "v" => Kind::Value,
                "t" => Kind::Tombstone,
                _ => Kind::Operand,
            };
            let (timestamp, seq) = (Timestamp(timestamp.parse().unwrap()), SeqNo(99 - n as u64));
            let cell = CellRef { key: key.as_bytes(), timestamp, seq, kind, written: 0, value: b"" };
            let same_key = last.replace(key) == Some(key);
            counter.count(&mut properties, &cell, same_key);
            properties.count(&cell, n == 0);
            properties.distinct += u64::from(!same_key);
        }
        properties
    }

    #[test]
    fn what_no_reader_of_now_needs_is_counted() {
        let surplus = |cells: &str, kept| (counted(cells).surplus(kept), counted(cells).has_surplus(kept));
        assert_eq!(surplus("a@0v b@0v", 1), (0, false));
        assert_eq!(surplus("a@0v a@0v b@0v", 1), (1, true));
        // Operands that no operator has combined stay, with their base.
        assert_eq!(surplus("a@0o a@0o a@0v", 1), (0, false));
        assert_eq!(surplus("a@0o a@0v a@0o a@0v", 1), (2, true));
        assert_eq!(surplus("a@9v a@8v b@9v b@8v", 2), (0, false));
        assert_eq!(surplus("a@9v a@8v b@9v b@8v", 1), (2, true));
        // One key has too many, though the mean is within the limit.
        assert_eq!(surplus("a@9v a@8v a@7v b@9v c@9v", 2), (0, true));
        assert_eq!(surplus("a@9v a@9v a@8v", u64::MAX), (1, true));
    }

    fn sample() -> Properties {
        Properties {
            cells: 7,
            seqs: (SeqNo(3), SeqNo(900)),
            range: KeyRange { start: b"a".to_vec(), end: None },
            compression: Compression::Zstd { level: 5 },
            names: BTreeMap::from([("merge operator".into(), "sum".into())]),
            ..Properties::default()
        }
    }

    #[test]
    fn unknown_properties_are_ignored() {
        let mut bytes = sample().encode();
        put_varint(&mut bytes, 4711);
        put_bytes(&mut bytes, b"of a later release");
        assert_eq!(Properties::decode(&bytes), Ok(sample()));
    }

    #[test]
    fn every_cut_is_refused_or_lacks_only_optional_properties() {
        let bytes = sample().encode();
        for n in 0..bytes.len() {
            if let Ok(found) = Properties::decode(&bytes[..n]) {
                assert_eq!((found.cells, found.seqs), (7, (SeqNo(3), SeqNo(900))));
            }
        }
    }
}
