//! A reference model of the database: every write ever made, in one ordered map a family, and reads that
//! follow the definition word by word. It never compacts, drops or caches anything, so it is slow and right.
//!
//! The definition of what a reader at a read point sees of a key:
//! - a point tombstone deletes cells of its key with a timestamp at or below its own and a smaller sequence
//!   number;
//! - a range tombstone deletes cells of its keys with a timestamp within its bounds and a smaller sequence
//!   number;
//! - of one (key, timestamp) the newest cell counts; operands combine with what is older, down to the first
//!   value, tombstone or deleted cell;
//! - of more than `versions` timestamps of a key that are there after a write, the lowest is gone from then
//!   on;
//! - expired and filtered values are not there.

use siltstone::KeyRange;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Combines a base with operands, oldest first.
pub type Operator = fn(Option<&[u8]>, &[&[u8]]) -> Vec<u8>;
/// Whether a value (key, timestamp, value, now in microseconds) is unwanted.
pub type Filter = fn(&[u8], u64, &[u8], u64) -> bool;

/// How a family is read.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rules {
    /// Whether cells carry timestamps; otherwise all are zero.
    pub explicit: bool,
    /// Versions of a key that are seen; 0 for all.
    pub versions: usize,
    /// Life of a cell from its timestamp, or with implicit timestamps from its writing; 0 for ever.
    pub ttl_us: u64,
    /// Without one the newest operand stands.
    pub operator: Option<Operator>,
    /// Without one every value is wanted.
    pub filter: Option<Filter>,
}

/// One write. `family` is an index into the rules the model was made with.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the fields are named as the engine's are")]
pub enum Op {
    Put {
        family: usize,
        key: Vec<u8>,
        timestamp: u64,
        value: Vec<u8>,
    },
    Delete {
        family: usize,
        key: Vec<u8>,
        timestamp: u64,
    },
    Merge {
        family: usize,
        key: Vec<u8>,
        timestamp: u64,
        operand: Vec<u8>,
    },
    /// Timestamps `from` to `to`, both included.
    DeleteRange {
        family: usize,
        range: KeyRange,
        from: u64,
        to: u64,
    },
}

/// A key, a timestamp and a value: what scans yield.
pub type Row = (Vec<u8>, u64, Vec<u8>);

/// The read point and the time of a read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct At {
    /// Sees writes with a sequence number at or below.
    pub seq: u64,
    /// Wall clock in microseconds, for expiry and filters.
    pub now_us: u64,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum What {
    Tombstone,
    Value(Vec<u8>),
    Operand(Vec<u8>),
}

#[derive(Clone, Debug)]
struct Cell {
    what: What,
    written_us: u64,
}

/// The cells of one key by timestamp and sequence number, newest first.
type Cells = BTreeMap<(Reverse<u64>, Reverse<u64>), Cell>;

#[derive(Clone, Debug)]
struct RangeDelete {
    range: KeyRange,
    from: u64,
    to: u64,
    seq: u64,
}

#[derive(Clone, Debug, Default)]
struct Family {
    rules: Rules,
    cells: BTreeMap<Vec<u8>, Cells>,
    range_deletes: Vec<RangeDelete>,
}

/// The model. A snapshot is a sequence number; a clone is a model of its own.
#[derive(Clone, Debug)]
pub struct Model {
    families: Vec<Family>,
    seq: u64,
}

impl Model {
    /// An empty database with these families.
    pub fn new(rules: impl IntoIterator<Item = Rules>) -> Self {
        let families = rules.into_iter().map(|rules| Family { rules, ..Family::default() }).collect();
        Self { families, seq: 0 }
    }

    /// Applies a batch written at that wall time. Each write takes the next sequence number; the last one is
    /// returned.
    pub fn apply(&mut self, batch: &[Op], now_us: u64) -> u64 {
        for op in batch {
            self.seq += 1;
            self.apply_one(op, now_us);
        }
        self.seq
    }

    fn apply_one(&mut self, op: &Op, now_us: u64) {
        let seq = self.seq;
        let (family, key, timestamp, what) = match op {
            Op::Put { family, key, timestamp, value } => (family, key, timestamp, What::Value(value.clone())),
            Op::Delete { family, key, timestamp } => (family, key, timestamp, What::Tombstone),
            Op::Merge { family, key, timestamp, operand } => {
                (family, key, timestamp, What::Operand(operand.clone()))
            }
            Op::DeleteRange { family, range, from, to } => {
                let delete = RangeDelete { range: range.clone(), from: *from, to: *to, seq };
                self.families[*family].range_deletes.push(delete);
                return;
            }
        };
        let family = &mut self.families[*family];
        let timestamp = if family.rules.explicit { *timestamp } else { 0 };
        let cell = Cell { what, written_us: now_us };
        family.cells.entry(key.clone()).or_default().insert((Reverse(timestamp), Reverse(seq)), cell);
    }

    /// Sequence number of the newest write.
    pub fn seq(&self) -> u64 {
        self.seq
    }

    /// How many families there are.
    pub fn families(&self) -> usize {
        self.families.len()
    }

    /// The newest value of a key.
    pub fn get(&self, family: usize, key: &[u8], at: At) -> Option<Vec<u8>> {
        self.get_versions(family, key, 1, at).pop().map(|(_, value)| value)
    }

    /// The `count` newest versions of a key, newest first.
    pub fn get_versions(&self, family: usize, key: &[u8], count: usize, at: At) -> Vec<(u64, Vec<u8>)> {
        let mut versions = self.families[family].versions(key, at);
        versions.truncate(count);
        versions
    }

    /// Whether something that concerns the key was written after that.
    pub fn is_written_since(&self, family: usize, key: &[u8], seq: u64) -> bool {
        let family = &self.families[family];
        let cells = family.cells.get(key).into_iter().flat_map(|cells| cells.keys());
        cells.into_iter().any(|(_, at)| at.0 > seq)
            || family.range_deletes.iter().any(|delete| delete.seq > seq && delete.range.contains(key))
    }

    /// What was written of a key, in order: `put 5`, `delete 5`, `merge 5`, `delete 3..=5`, each behind its
    /// number.
    pub fn history(&self, family: usize, key: &[u8]) -> String {
        let family = &self.families[family];
        let cells = family.cells.get(key).into_iter().flatten().map(|((timestamp, seq), cell)| {
            let what = match cell.what {
                What::Tombstone => "delete",
                What::Value(_) => "put",
                What::Operand(_) => "merge",
            };
            (seq.0, format!("{what} {}", timestamp.0))
        });
        let deletes = family.range_deletes.iter().filter(|delete| delete.range.contains(key));
        let deletes = deletes.map(|delete| (delete.seq, format!("delete {}..={}", delete.from, delete.to)));
        let mut writes: Vec<(u64, String)> = cells.chain(deletes).collect();
        writes.sort();
        let writes = writes.into_iter().map(|(seq, what)| format!("{seq}: {what}"));
        format!("versions {}; {}", family.rules.versions, writes.collect::<Vec<_>>().join(", "))
    }

    /// Everything visible in a range: keys ascending, versions newest first.
    pub fn scan(&self, family: usize, range: &KeyRange, at: At) -> Vec<Row> {
        let keys = self.families[family].cells.keys().filter(|key| range.contains(key));
        keys.flat_map(|key| {
            let versions = self.families[family].versions(key, at);
            versions.into_iter().map(|(timestamp, value)| (key.clone(), timestamp, value))
        })
        .collect()
    }

    /// Everything visible of every family now.
    pub fn contents(&self, now_us: u64) -> Vec<Vec<Row>> {
        let at = At { seq: self.seq, now_us };
        (0..self.families.len()).map(|family| self.scan(family, &KeyRange::all(), at)).collect()
    }
}

impl Family {
    fn versions(&self, key: &[u8], at: At) -> Vec<(u64, Vec<u8>)> {
        let Some(all) = self.cells.get(key) else { return Vec::new() };
        let visible: Vec<(u64, u64, &Cell)> = all
            .iter()
            .map(|((timestamp, seq), cell)| (timestamp.0, seq.0, cell))
            .filter(|&(_, seq, _)| seq <= at.seq)
            .collect();
        let timestamps: BTreeSet<Reverse<u64>> = visible.iter().map(|v| Reverse(v.0)).collect();
        let pushed_out = self.pushed_out(key, &visible, at);
        let version_at = |timestamp: u64| {
            let gone_to = pushed_out.get(&timestamp).copied().unwrap_or(0);
            let value = self.value_at(key, timestamp, &visible, at, gone_to)?;
            let unwanted = self.rules.filter.is_some_and(|filter| filter(key, timestamp, &value, at.now_us));
            (!unwanted).then_some((timestamp, value))
        };
        timestamps.into_iter().filter_map(|Reverse(timestamp)| version_at(timestamp)).collect()
    }

    /// The writes one after the other: which timestamps were one too many, and when last.
    fn pushed_out(&self, key: &[u8], visible: &[(u64, u64, &Cell)], at: At) -> BTreeMap<u64, u64> {
        let mut out = BTreeMap::new();
        if !self.rules.explicit || self.rules.versions == 0 {
            return out;
        }
        enum Write {
            Cell(u64, bool),
            Delete(u64, u64),
        }
        let cells = visible
            .iter()
            .map(|(timestamp, seq, cell)| (*seq, Write::Cell(*timestamp, cell.what == What::Tombstone)));
        let deletes = self.range_deletes.iter().filter(|d| d.seq <= at.seq && d.range.contains(key));
        let deletes = deletes.map(|d| (d.seq, Write::Delete(d.from, d.to)));
        let mut writes: Vec<(u64, Write)> = cells.chain(deletes).collect();
        writes.sort_by_key(|(seq, _)| *seq);
        let mut there = BTreeSet::new();
        for (seq, write) in writes {
            match write {
                Write::Cell(timestamp, true) => there.retain(|t| *t > timestamp),
                Write::Delete(from, to) => there.retain(|t| !(from..=to).contains(t)),
                Write::Cell(timestamp, false) => {
                    there.insert(timestamp);
                    if there.len() > self.rules.versions {
                        out.extend(there.pop_first().map(|lowest| (lowest, seq)));
                    }
                }
            }
        }
        out
    }

    fn value_at(
        &self,
        key: &[u8],
        timestamp: u64,
        visible: &[(u64, u64, &Cell)],
        at: At,
        gone_to: u64,
    ) -> Option<Vec<u8>> {
        let by_points = visible.iter().filter(|(t, _, cell)| *t >= timestamp && cell.what == What::Tombstone);
        let by_ranges = self.range_deletes.iter().filter(|delete| {
            delete.seq <= at.seq
                && delete.range.contains(key)
                && (delete.from..=delete.to).contains(&timestamp)
        });
        let deleted_below =
            by_points.map(|v| v.1).chain(by_ranges.map(|delete| delete.seq)).max().unwrap_or(0);
        let mut base = None;
        let mut operands: Vec<&[u8]> = Vec::new();
        for (_, seq, cell) in visible.iter().filter(|v| v.0 == timestamp) {
            let born = if self.rules.explicit { timestamp } else { cell.written_us };
            let expired = self.rules.ttl_us > 0 && born.saturating_add(self.rules.ttl_us) <= at.now_us;
            if *seq < deleted_below || *seq <= gone_to || expired {
                break;
            }
            match &cell.what {
                What::Tombstone => break,
                What::Operand(operand) => operands.push(operand),
                What::Value(value) => {
                    base = Some(value.as_slice());
                    break;
                }
            }
        }
        if operands.is_empty() {
            return base.map(<[u8]>::to_vec);
        }
        let Some(operator) = self.rules.operator else { return Some(operands[0].to_vec()) };
        operands.reverse();
        Some(operator(base, &operands))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(key: &str, timestamp: u64, value: &str) -> Op {
        Op::Put { family: 0, key: key.into(), timestamp, value: value.into() }
    }

    fn delete(key: &str, timestamp: u64) -> Op {
        Op::Delete { family: 0, key: key.into(), timestamp }
    }

    fn merge(key: &str, operand: &str) -> Op {
        Op::Merge { family: 0, key: key.into(), timestamp: 0, operand: operand.into() }
    }

    fn concat(base: Option<&[u8]>, operands: &[&[u8]]) -> Vec<u8> {
        [base.unwrap_or_default(), &operands.concat()].concat()
    }

    fn model(rules: Rules, batch: &[Op]) -> Model {
        let mut model = Model::new([rules]);
        model.apply(batch, 1000);
        model
    }

    fn shown(model: &Model, seq: u64, now_us: u64) -> String {
        let rows = model.scan(0, &KeyRange::all(), At { seq, now_us });
        let rows = rows.iter().map(|(k, t, v)| format!("{}@{t}={}", k.escape_ascii(), v.escape_ascii()));
        rows.collect::<Vec<_>>().join(" ")
    }

    const EXPLICIT: Rules = Rules { explicit: true, versions: 0, ttl_us: 0, operator: None, filter: None };

    #[test]
    fn a_newer_write_replaces_and_a_read_point_sees_the_older_one() {
        let model =
            model(Rules::default(), &[put("a", 9, "1"), put("a", 5, "2"), delete("a", 0), put("a", 0, "3")]);
        let seen: Vec<_> = (0..=4).map(|seq| shown(&model, seq, 0)).collect();
        assert_eq!(seen, ["", "a@0=1", "a@0=2", "", "a@0=3"]);
    }

    #[test]
    fn a_point_tombstone_deletes_at_or_below_its_timestamp_what_is_older() {
        let batch = [put("a", 5, "5"), put("a", 6, "6"), put("a", 7, "7"), delete("a", 6), put("a", 4, "4")];
        assert_eq!(shown(&model(EXPLICIT, &batch), 9, 0), "a@7=7 a@4=4");
    }

    #[test]
    fn a_range_tombstone_deletes_within_its_keys_and_timestamps_what_is_older() {
        let range = Op::DeleteRange { family: 0, range: KeyRange::new("a", "c"), from: 5, to: 6 };
        let batch =
            [put("a", 4, "x"), put("a", 5, "x"), put("b", 6, "x"), put("c", 6, "x"), range, put("a", 6, "y")];
        let model = model(EXPLICIT, &batch);
        assert_eq!(shown(&model, 9, 0), "a@6=y a@4=x c@6=x");
        assert_eq!(shown(&model, 4, 0), "a@5=x a@4=x b@6=x c@6=x");
    }

    #[test]
    fn operands_combine_down_to_the_first_value_or_tombstone() {
        let rules = Rules { operator: Some(concat), ..Rules::default() };
        let batch = [put("a", 0, "1"), merge("a", "2"), merge("a", "3"), delete("a", 0), merge("a", "4")];
        let model = model(rules, &batch);
        assert_eq!((shown(&model, 3, 0), shown(&model, 5, 0)), ("a@0=123".into(), "a@0=4".into()));
    }

    #[test]
    fn versions_count_when_they_are_written_whatever_the_filter_says_of_them() {
        let odd: Filter = |_, timestamp, _, _| timestamp % 2 == 1;
        let rules = Rules { versions: 2, ttl_us: 100, filter: Some(odd), ..EXPLICIT };
        let batch: Vec<Op> = (1..=8).map(|t| put("a", t, "x")).collect();
        let model = model(rules, &batch);
        assert_eq!(shown(&model, 99, 0), "a@8=x");
        assert_eq!(shown(&model, 99, 108), "");
        assert_eq!(model.get_versions(0, b"a", 1, At { seq: 3, now_us: 0 }), [(2, b"x".to_vec())]);
    }

    #[test]
    fn a_version_that_the_count_pushed_out_does_not_come_back() {
        let rules = Rules { versions: 1, ..EXPLICIT };
        let range = Op::DeleteRange { family: 0, range: KeyRange::new("a", "c"), from: 9, to: 9 };
        let batch = [put("a", 5, "x"), put("a", 9, "y"), range, put("a", 4, "z")];
        let model = model(rules, &batch);
        let seen: Vec<_> = (1..=4).map(|seq| shown(&model, seq, 0)).collect();
        assert_eq!(seen, ["a@5=x", "a@9=y", "", "a@4=z"]);
    }

    #[test]
    fn implicit_cells_expire_by_the_moment_of_writing() {
        let rules = Rules { ttl_us: 100, ..Rules::default() };
        let model = model(rules, &[put("a", 0, "x")]);
        assert_eq!((shown(&model, 1, 1099), shown(&model, 1, 1100)), ("a@0=x".into(), String::new()));
    }
}
