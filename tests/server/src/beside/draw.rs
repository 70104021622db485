//! Calls drawn from a seed: mostly right ones over few rows, columns and times, so that they meet each other.

use super::Call;
use crate::child::{INSTANCE, TABLE, admin, data};
use admin::modify_column_families_request::{Modification, modification::Mod};
use bytes::Bytes;
use data::column_range::{EndQualifier, StartQualifier};
use data::mutation::Mutation as Change;
use data::mutation::{AddToCell, DeleteFromColumn, DeleteFromFamily, DeleteFromRow, MergeToCell, SetCell};
use data::read_modify_write_rule::Rule;
use data::row_filter::{Chain, Condition, Filter, Interleave};
use data::row_range::{EndKey, StartKey};
use data::value::Kind;
use data::value_range::{EndValue, StartValue};
use siltstone::Rng;
use std::collections::BTreeSet;

/// Families that are there as long as the table is; one comes and goes; and one is a sum.
const ALWAYS: [&str; 2] = ["f", "g"];
const SOMETIMES: &str = "h";
const SUM: &str = "s";
const KEY_BYTES: &[u8] = b"abc\x00\xff";
const QUALIFIERS: [&[u8]; 6] = [b"", b"a", b"b", b"ab", b"\x80", b"a\nb"];
const VALUES: [&[u8]; 8] = [b"", b"v1", b"v2", b"10", b"\0\0\0\0\0\0\0\x07", b"\xff\0", b"a\nb", b"ab"];
/// Patterns that RE2 takes; none of Latin-1 letters whose case is folded.
const PATTERNS: [&[u8]; 13] = [
    b".*", b"a", b"a.*", b"[ab]+", b"\\C*", b"v[0-9]", b"(a|b)+", b"\\x80", b"(?i)A.?", b"v1|10", b"\\C",
    b"[^a]*", b"a\\nb",
];
/// Microseconds of the granularity of times.
const UNIT: i64 = 1_000;

/// What draws the calls, and what it knows of the table.
pub(super) struct Draw {
    random: Rng,
    table_is_there: bool,
    family_is_there: bool,
}

impl Draw {
    pub(super) fn new(seed: u64) -> Self {
        Self { random: Rng::new(seed), table_is_there: false, family_is_there: false }
    }

    /// The table that all is about.
    pub(super) fn table(&self) -> &'static str {
        TABLE
    }

    /// The next call.
    pub(super) fn call(&mut self) -> Call {
        if !self.table_is_there {
            return self.create_table();
        }
        let name = self.name();
        match self.random.range(0..1_000) {
            0..5 => self.create_table(),
            5..10 => Call::DeleteTable(admin::DeleteTableRequest { name }),
            10..20 => Call::GetTable(admin::GetTableRequest { name, ..Default::default() }),
            20..25 => {
                Call::ListTables(admin::ListTablesRequest { parent: INSTANCE.into(), ..Default::default() })
            }
            25..45 => self.modify_families(name),
            45..55 => self.drop_rows(name),
            55..65 => {
                Call::SampleRowKeys(data::SampleRowKeysRequest { table_name: name, ..Default::default() })
            }
            65..365 => self.read(name),
            365..615 => self.mutate(name),
            615..715 => self.mutate_many(name),
            715..865 => self.check_and_mutate(name),
            _ => self.read_modify_write(name),
        }
    }

    /// Learns how a call went.
    pub(super) fn note(&mut self, call: &Call, is_done: bool) {
        match call {
            Call::CreateTable(_) if is_done => {
                self.table_is_there = true;
                self.family_is_there = false;
            }
            Call::DeleteTable(_) if is_done => self.table_is_there = false,
            Call::ModifyColumnFamilies(of) if is_done => {
                for one in of.modifications.iter().filter(|one| one.id == SOMETIMES) {
                    self.family_is_there = !matches!(one.r#mod, Some(Mod::Drop(_)));
                }
            }
            _ => {}
        }
    }

    /// The table's name, and sometimes one that is not there.
    fn name(&mut self) -> String {
        if self.random.one_in(100) { format!("{INSTANCE}/tables/none") } else { TABLE.to_string() }
    }

    fn create_table(&mut self) -> Call {
        use admin::r#type::{Aggregate, Int64, Kind, aggregate, int64};
        let encoding = int64::encoding::Encoding::BigEndianBytes(int64::encoding::BigEndianBytes::default());
        let encoding = Some(int64::Encoding { encoding: Some(encoding) });
        let number = admin::Type { kind: Some(Kind::Int64Type(Int64 { encoding })) };
        let sum = Aggregate {
            input_type: Some(Box::new(number)),
            aggregator: Some(aggregate::Aggregator::Sum(aggregate::Sum {})),
            ..Default::default()
        };
        let value_type = Some(admin::Type { kind: Some(Kind::AggregateType(Box::new(sum))) });
        let sum = (SUM.to_string(), admin::ColumnFamily { value_type, ..Default::default() });
        let plain = ALWAYS.map(|name| (name.to_string(), admin::ColumnFamily::default()));
        let splits: BTreeSet<Bytes> = (0..self.random.range(0..4)).map(|_| self.key()).collect();
        Call::CreateTable(Box::new(admin::CreateTableRequest {
            parent: INSTANCE.into(),
            table_id: "t".into(),
            table: Some(admin::Table {
                column_families: plain.into_iter().chain([sum]).collect(),
                ..Default::default()
            }),
            initial_splits: splits
                .into_iter()
                .map(|key| admin::create_table_request::Split { key })
                .collect(),
        }))
    }

    fn modify_families(&mut self, name: String) -> Call {
        let versions = i32::try_from(self.random.range(1_000..1_010)).unwrap_or(1_000);
        let gc_rule = Some(admin::GcRule { rule: Some(admin::gc_rule::Rule::MaxNumVersions(versions)) });
        let family = admin::ColumnFamily { gc_rule, ..Default::default() };
        let one =
            |id: &str, r#mod: Mod| Modification { id: id.into(), r#mod: Some(r#mod), ..Default::default() };
        // Sometimes what cannot be done.
        let drops = self.family_is_there != self.random.one_in(5);
        let modifications = match self.random.range(0..4) {
            0 => vec![one("g", Mod::Update(family))],
            1 => vec![one("brief", Mod::Create(family)), one("brief", Mod::Drop(true))],
            _ if drops => vec![one(SOMETIMES, Mod::Drop(true))],
            _ => vec![one(SOMETIMES, Mod::Create(family))],
        };
        Call::ModifyColumnFamilies(admin::ModifyColumnFamiliesRequest {
            name,
            modifications,
            ..Default::default()
        })
    }

    fn drop_rows(&mut self, name: String) -> Call {
        use admin::drop_row_range_request::Target;
        let target = match self.random.one_in(5) {
            true => Target::DeleteAllDataFromTable(true),
            false => Target::RowKeyPrefix(self.key()),
        };
        Call::DropRowRange(admin::DropRowRangeRequest { name, target: Some(target) })
    }

    fn read(&mut self, table_name: String) -> Call {
        let rows_limit = if self.random.one_in(3) { self.number(1..6) } else { 0 };
        Call::ReadRows(data::ReadRowsRequest {
            table_name,
            rows: self.row_set(),
            filter: self.random.chance(70).then(|| self.filter(2)),
            rows_limit,
            reversed: self.random.one_in(4),
            ..Default::default()
        })
    }

    fn row_set(&mut self) -> Option<data::RowSet> {
        let (keys, ranges) = *self.random.pick(&[(0, 0), (0, 0), (4, 0), (0, 3), (3, 2)]);
        let row_keys = (0..keys).map(|_| self.key()).collect();
        let row_ranges = (0..ranges).map(|_| self.row_range()).collect();
        (keys + ranges > 0).then_some(data::RowSet { row_keys, row_ranges })
    }

    fn row_range(&mut self) -> data::RowRange {
        let (mut from, mut to) = self.two(Self::key);
        if self.random.one_in(50) {
            std::mem::swap(&mut from, &mut to);
        }
        let (start, end) = (self.random.range(0..3), self.random.range(0..3));
        data::RowRange {
            start_key: match start {
                0 => None,
                1 => Some(StartKey::StartKeyClosed(from)),
                _ => Some(StartKey::StartKeyOpen(from)),
            },
            end_key: match end {
                0 => None,
                1 => Some(EndKey::EndKeyClosed(to)),
                _ => Some(EndKey::EndKeyOpen(to)),
            },
        }
    }

    fn mutate(&mut self, table_name: String) -> Call {
        let row_key = self.key_or_none(&table_name);
        let mut mutations = self.mutations(1, true);
        // At the server's time one cell alone.
        if mutations.len() == 1
            && self.random.one_in(4)
            && let Some(Change::SetCell(set)) = &mut mutations[0].mutation
        {
            set.timestamp_micros = -1;
        }
        Call::MutateRow(data::MutateRowRequest { table_name, row_key, mutations, ..Default::default() })
    }

    fn mutate_many(&mut self, table_name: String) -> Call {
        let entries = (0..self.random.range(1..6)).map(|_| data::mutate_rows_request::Entry {
            row_key: self.key_or_none(&table_name),
            mutations: self.mutations(1, false),
            ..Default::default()
        });
        let entries = entries.collect();
        Call::MutateRows(data::MutateRowsRequest { table_name, entries, ..Default::default() })
    }

    fn check_and_mutate(&mut self, table_name: String) -> Call {
        let least = self.random.range(0..2);
        Call::CheckAndMutateRow(data::CheckAndMutateRowRequest {
            table_name,
            row_key: self.key(),
            predicate_filter: self.random.chance(80).then(|| self.filter(2)),
            true_mutations: self.mutations(least, true),
            false_mutations: self.mutations(1 - least, true),
            ..Default::default()
        })
    }

    fn read_modify_write(&mut self, table_name: String) -> Call {
        let columns: BTreeSet<(&str, Bytes)> =
            (0..self.random.range(1..4)).map(|_| (self.family(), self.qualifier())).collect();
        let rules = columns.into_iter().map(|(family, column_qualifier)| data::ReadModifyWriteRule {
            family_name: family.into(),
            column_qualifier,
            rule: Some(match self.random.one_in(2) {
                true => Rule::AppendValue(self.value()),
                false => Rule::IncrementAmount(self.number(0..200) - 100),
            }),
        });
        let rules = rules.collect();
        let row_key = self.key();
        Call::ReadModifyWriteRow(data::ReadModifyWriteRowRequest {
            table_name,
            row_key,
            rules,
            ..Default::default()
        })
    }

    /// So many mutations at least. They delete from a family that is not there only where the call has one
    /// code.
    fn mutations(&mut self, least: u64, any_family: bool) -> Vec<data::Mutation> {
        let count = self.random.range(least..5);
        let one = |change| data::Mutation { mutation: Some(change) };
        (0..count).map(|_| one(self.change(any_family))).collect()
    }

    fn change(&mut self, any_family: bool) -> Change {
        match self.random.range(0..20) {
            0..11 => Change::SetCell(SetCell {
                family_name: self.family().into(),
                column_qualifier: self.qualifier(),
                timestamp_micros: if self.random.one_in(60) { self.wrong_time() } else { self.time() },
                value: self.value(),
            }),
            11..13 => {
                let family = if self.random.one_in(20) { ALWAYS[0] } else { SUM };
                let (qualifier, at) = self.place();
                let input = Some(value_of(Kind::IntValue(self.number(0..100))));
                let family_name = family.into();
                Change::AddToCell(AddToCell {
                    family_name,
                    column_qualifier: qualifier,
                    timestamp: at,
                    input,
                })
            }
            13 => {
                let (qualifier, at) = self.place();
                let number = self.number(0..100).to_be_bytes().to_vec();
                let input = Some(value_of(Kind::RawValue(number.into())));
                let family_name = SUM.into();
                Change::MergeToCell(MergeToCell {
                    family_name,
                    column_qualifier: qualifier,
                    timestamp: at,
                    input,
                })
            }
            14..17 => Change::DeleteFromColumn(DeleteFromColumn {
                family_name: if self.random.one_in(6) { SUM } else { self.family() }.into(),
                column_qualifier: self.qualifier(),
                time_range: self.random.one_in(2).then(|| self.times()),
            }),
            17..19 => {
                let is_missing = any_family && self.random.one_in(4);
                let family = if is_missing { SOMETIMES } else { *self.random.pick(&ALWAYS) };
                Change::DeleteFromFamily(DeleteFromFamily { family_name: family.into() })
            }
            _ => Change::DeleteFromRow(DeleteFromRow {}),
        }
    }

    /// A column and a time of an aggregate.
    fn place(&mut self) -> (Option<data::Value>, Option<data::Value>) {
        let (qualifier, at) = (self.qualifier(), self.time());
        (Some(value_of(Kind::RawValue(qualifier))), Some(value_of(Kind::RawTimestampMicros(at))))
    }

    /// A filter; interleaves do not lie within chains.
    fn filter(&mut self, depth: u32) -> data::RowFilter {
        match self.random.range(0..if depth == 0 { 4 } else { 8 }) {
            0 | 1 => self.plain(),
            2 => {
                let mut filters = vec![self.plain(), self.plain()];
                if self.random.one_in(2) {
                    filters.insert(0, self.plain_condition());
                }
                if self.random.one_in(4) {
                    filters.push(of(Filter::ApplyLabelTransformer("seen".into())));
                }
                of(Filter::Chain(Chain { filters }))
            }
            3 => {
                // Of one family, as the order of families is another there.
                let family = of(Filter::FamilyNameRegexFilter((*self.random.pick(&ALWAYS)).into()));
                let count = self.random.pick(&[1, 2, 3]);
                let some = match self.random.one_in(2) {
                    true => of(Filter::CellsPerRowLimitFilter(*count)),
                    false => of(Filter::CellsPerRowOffsetFilter(*count)),
                };
                of(Filter::Chain(Chain { filters: vec![family, some] }))
            }
            4 | 5 => {
                let count = self.random.range(2..4);
                let filters = (0..count).map(|_| self.filter(depth - 1)).collect();
                of(Filter::Interleave(Interleave { filters }))
            }
            _ => {
                let predicate = self.filter(depth - 1);
                let then = self.random.chance(80).then(|| self.filter(depth - 1));
                let otherwise = self.random.chance(60).then(|| self.filter(depth - 1));
                condition(predicate, then, otherwise)
            }
        }
    }

    fn plain_condition(&mut self) -> data::RowFilter {
        let (predicate, then) = (self.plain(), self.plain());
        let otherwise = self.random.one_in(2).then(|| self.plain());
        condition(predicate, Some(then), otherwise)
    }

    fn plain(&mut self) -> data::RowFilter {
        let pattern = Bytes::from_static(self.random.pick::<&[u8]>(&PATTERNS));
        // An empty one means an empty qualifier or value.
        let or_empty = if self.random.one_in(8) { Bytes::new() } else { pattern.clone() };
        of(match self.random.range(0..20) {
            0 => Filter::PassAllFilter(true),
            1 => Filter::BlockAllFilter(true),
            2 | 3 => Filter::RowKeyRegexFilter(pattern),
            4 => Filter::FamilyNameRegexFilter((*self.random.pick(&["f", "[fg]", "g|h", ".", "s"])).into()),
            5..8 => Filter::ColumnQualifierRegexFilter(or_empty),
            8..10 => {
                let (from, to) = self.two(Self::qualifier);
                let (start, end) = (self.random.range(0..3), self.random.range(0..3));
                Filter::ColumnRangeFilter(data::ColumnRange {
                    family_name: (*self.random.pick(&ALWAYS)).into(),
                    start_qualifier: match start {
                        0 => None,
                        1 => Some(StartQualifier::StartQualifierClosed(from)),
                        _ => Some(StartQualifier::StartQualifierOpen(from)),
                    },
                    end_qualifier: match end {
                        0 => None,
                        1 => Some(EndQualifier::EndQualifierClosed(to)),
                        _ => Some(EndQualifier::EndQualifierOpen(to)),
                    },
                })
            }
            10..12 => Filter::TimestampRangeFilter(self.times()),
            12..15 => Filter::ValueRegexFilter(or_empty),
            15..17 => {
                let (from, to) = self.two(Self::value);
                let (start, end) = (self.random.range(0..3), self.random.range(0..3));
                Filter::ValueRangeFilter(data::ValueRange {
                    start_value: match start {
                        0 => None,
                        1 => Some(StartValue::StartValueClosed(from)),
                        _ => Some(StartValue::StartValueOpen(from)),
                    },
                    end_value: match end {
                        0 => None,
                        1 => Some(EndValue::EndValueClosed(to)),
                        _ => Some(EndValue::EndValueOpen(to)),
                    },
                })
            }
            17..19 => Filter::CellsPerColumnLimitFilter(*self.random.pick(&[1, 2, 3])),
            _ => Filter::StripValueTransformer(true),
        })
    }

    fn key(&mut self) -> Bytes {
        let len = self.random.range(1..3);
        (0..len).map(|_| *self.random.pick(KEY_BYTES)).collect::<Vec<u8>>().into()
    }

    /// A key, and sometimes an empty one, which is refused; one thing at a time.
    fn key_or_none(&mut self, table: &str) -> Bytes {
        if table == TABLE && self.random.one_in(80) { Bytes::new() } else { self.key() }
    }

    /// Two different ones, the smaller first.
    fn two(&mut self, draw: impl Fn(&mut Self) -> Bytes) -> (Bytes, Bytes) {
        loop {
            let (one, other) = (draw(self), draw(self));
            match one.cmp(&other) {
                std::cmp::Ordering::Less => return (one, other),
                std::cmp::Ordering::Greater => return (other, one),
                std::cmp::Ordering::Equal => {}
            }
        }
    }

    fn family(&mut self) -> &'static str {
        if self.random.one_in(15) { SOMETIMES } else { self.random.pick::<&str>(&ALWAYS) }
    }

    fn qualifier(&mut self) -> Bytes {
        Bytes::from_static(self.random.pick::<&[u8]>(&QUALIFIERS))
    }

    fn value(&mut self) -> Bytes {
        Bytes::from_static(self.random.pick::<&[u8]>(&VALUES))
    }

    fn number(&mut self, range: std::ops::Range<u64>) -> i64 {
        i64::try_from(self.random.range(range)).unwrap_or(0)
    }

    fn time(&mut self) -> i64 {
        UNIT * self.number(1..6)
    }

    fn wrong_time(&mut self) -> i64 {
        *self.random.pick(&[-5, UNIT + 1])
    }

    fn times(&mut self) -> data::TimestampRange {
        let start_timestamp_micros = UNIT * self.number(0..5);
        let end_timestamp_micros = match self.random.one_in(3) {
            true => 0,
            false => start_timestamp_micros + UNIT * self.number(1..4),
        };
        data::TimestampRange { start_timestamp_micros, end_timestamp_micros }
    }
}

fn of(filter: Filter) -> data::RowFilter {
    data::RowFilter { filter: Some(filter) }
}

fn condition(
    predicate: data::RowFilter,
    then: Option<data::RowFilter>,
    otherwise: Option<data::RowFilter>,
) -> data::RowFilter {
    of(Filter::Condition(Box::new(Condition {
        predicate_filter: Some(Box::new(predicate)),
        true_filter: then.map(Box::new),
        false_filter: otherwise.map(Box::new),
    })))
}

fn value_of(kind: Kind) -> data::Value {
    data::Value { kind: Some(kind), ..Default::default() }
}
