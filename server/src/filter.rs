//! Row filters: what of a row's cells a reader gets.
//!
//! A filter is compiled once a call ([`Filter::compile`]: regular expressions, bounds, and everything that is wrong with it) and
//! then applied to each row's cells. What it excludes for certain is told to the reader first ([`Filter::need`]), so that these
//! families, columns, times and versions are not read at all.
//!
//! Regular expressions have RE2's syntax, match the whole of what they look at, byte by byte (Latin-1), in time linear in its
//! length.

mod need;
pub(crate) mod pattern;

pub(crate) use need::Need;

use crate::proto::data::row_filter::Filter as Message;
use crate::proto::data::{self, RowFilter};
use bytes::Bytes;
use pattern::Pattern;
use prost::Message as _;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;
use tonic::Status;

/// Bytes of an encoded filter, at most.
const FILTER_MAX: usize = 20 << 10;

/// How often a filter may return a cell.
const GROWTH_MAX: usize = 1_000;

/// A cell of a row.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Cell {
    pub(crate) family: Arc<str>,
    pub(crate) qualifier: Bytes,
    pub(crate) timestamp: i64,
    pub(crate) value: Bytes,
    pub(crate) labels: Vec<String>,
}

/// A compiled filter.
#[derive(Debug)]
pub(crate) enum Filter {
    PassAll,
    BlockAll,
    Chain(Vec<Filter>),
    Interleave(Vec<Filter>),
    Condition { predicate: Box<Filter>, then: Box<Filter>, otherwise: Box<Filter> },
    Sink,
    RowKey(Pattern),
    RowSample { share: f64, number: u64 },
    Family(Pattern),
    Qualifier(Pattern),
    Columns { family: String, range: (Bound<Bytes>, Bound<Bytes>) },
    Times { from: i64, to: Option<i64> },
    ValuePattern(Pattern),
    Values((Bound<Bytes>, Bound<Bytes>)),
    RowOffset(usize),
    RowLimit(usize),
    ColumnLimit(usize),
    StripValue,
    Label(String),
}

impl Filter {
    /// Compiles a call's filter; none lets everything through.
    pub(crate) fn compile(filter: Option<&RowFilter>) -> Result<Self, Status> {
        let Some(filter) = filter else { return Ok(Self::PassAll) };
        let len = filter.encoded_len();
        if len > FILTER_MAX {
            return Err(Status::invalid_argument(format!(
                "the filter has {len} bytes, the limit is {FILTER_MAX}"
            )));
        }
        let filter = Self::part(filter, false, &mut 0)?;
        match filter.growth() {
            growth if growth > GROWTH_MAX => {
                let message =
                    format!("the filter may return a cell {growth} times, the limit is {GROWTH_MAX}");
                Err(Status::invalid_argument(message))
            }
            _ => Ok(filter),
        }
    }

    /// How often it may return a cell, at most: interleaves add up, and multiply along a chain.
    fn growth(&self) -> usize {
        match self {
            Self::Chain(all) => all.iter().fold(1, |growth: usize, one| growth.saturating_mul(one.growth())),
            Self::Interleave(all) => {
                all.iter().fold(0, |growth: usize, one| growth.saturating_add(one.growth())).max(1)
            }
            Self::Condition { predicate, then, otherwise } => {
                predicate.growth().max(then.growth()).max(otherwise.growth())
            }
            _ => 1,
        }
    }

    fn part(filter: &RowFilter, in_condition: bool, samples: &mut u64) -> Result<Self, Status> {
        let wrong = |what: String| Err(Status::invalid_argument(format!("filter: {what}")));
        let set = |what: &str, on: bool, filter: Self| match on {
            true => Ok(filter),
            false => wrong(format!("{what} must be true where it is set")),
        };
        let count = |what: &str, n: i32, least: i32| match usize::try_from(n) {
            Ok(count) if n >= least => Ok(count),
            _ => {
                Err(Status::invalid_argument(format!("filter: {what} is {n}, and must be at least {least}")))
            }
        };
        let Some(filter) = &filter.filter else { return Ok(Self::PassAll) };
        Ok(match filter {
            Message::PassAllFilter(on) => set("pass_all_filter", *on, Self::PassAll)?,
            Message::BlockAllFilter(on) => set("block_all_filter", *on, Self::BlockAll)?,
            Message::Chain(chain) if chain.filters.is_empty() => return wrong("an empty chain".into()),
            Message::Chain(chain) => {
                let mut all = Vec::new();
                for filter in &chain.filters {
                    match Self::part(filter, in_condition, samples)? {
                        Self::Chain(inner) => all.extend(inner),
                        filter => all.push(filter),
                    }
                }
                Self::Chain(all)
            }
            Message::Interleave(all) if all.filters.is_empty() => return wrong("an empty interleave".into()),
            Message::Interleave(all) => Self::Interleave(
                all.filters.iter().map(|f| Self::part(f, in_condition, samples)).collect::<Result<_, _>>()?,
            ),
            Message::Condition(condition) => {
                let mut of = |filter: &Option<Box<RowFilter>>| match filter {
                    Some(filter) => Self::part(filter, true, samples).map(Box::new),
                    None => Ok(Box::new(Self::BlockAll)),
                };
                if condition.predicate_filter.is_none() {
                    return wrong("a condition without a predicate".into());
                }
                let predicate = of(&condition.predicate_filter)?;
                Self::Condition {
                    predicate,
                    then: of(&condition.true_filter)?,
                    otherwise: of(&condition.false_filter)?,
                }
            }
            Message::Sink(_) if in_condition => return wrong("a sink within a condition".into()),
            Message::Sink(on) => set("sink", *on, Self::Sink)?,
            Message::RowKeyRegexFilter(pattern) => Self::RowKey(Pattern::new("row key", pattern)?),
            Message::RowSampleFilter(share) if *share > 0.0 && *share < 1.0 => {
                *samples += 1;
                Self::RowSample { share: *share, number: *samples }
            }
            Message::RowSampleFilter(share) => {
                return wrong(format!("row_sample is {share}, and must be between 0 and 1, exclusive"));
            }
            Message::FamilyNameRegexFilter(pattern) => {
                Self::Family(Pattern::new("family name", pattern.as_bytes())?)
            }
            Message::ColumnQualifierRegexFilter(pattern) => {
                Self::Qualifier(Pattern::new("column qualifier", pattern)?)
            }
            Message::ColumnRangeFilter(range) => {
                use data::column_range::{EndQualifier, StartQualifier};
                let from = match &range.start_qualifier {
                    None => Bound::Unbounded,
                    Some(StartQualifier::StartQualifierClosed(at)) => Bound::Included(at.clone()),
                    Some(StartQualifier::StartQualifierOpen(at)) => Bound::Excluded(at.clone()),
                };
                let to = match &range.end_qualifier {
                    None => Bound::Unbounded,
                    Some(EndQualifier::EndQualifierClosed(at)) => Bound::Included(at.clone()),
                    Some(EndQualifier::EndQualifierOpen(at)) => Bound::Excluded(at.clone()),
                };
                Self::Columns {
                    family: range.family_name.clone(),
                    range: in_order("column range", (from, to))?,
                }
            }
            Message::TimestampRangeFilter(range) => {
                let (from, to) = times(range)?;
                Self::Times { from, to }
            }
            Message::ValueRegexFilter(pattern) => Self::ValuePattern(Pattern::new("value", pattern)?),
            Message::ValueRangeFilter(range) => {
                use data::value_range::{EndValue, StartValue};
                let from = match &range.start_value {
                    None => Bound::Unbounded,
                    Some(StartValue::StartValueClosed(at)) => Bound::Included(at.clone()),
                    Some(StartValue::StartValueOpen(at)) => Bound::Excluded(at.clone()),
                };
                let to = match &range.end_value {
                    None => Bound::Unbounded,
                    Some(EndValue::EndValueClosed(at)) => Bound::Included(at.clone()),
                    Some(EndValue::EndValueOpen(at)) => Bound::Excluded(at.clone()),
                };
                Self::Values(in_order("value range", (from, to))?)
            }
            Message::CellsPerRowOffsetFilter(n) => Self::RowOffset(count("cells_per_row_offset", *n, 0)?),
            Message::CellsPerRowLimitFilter(n) => Self::RowLimit(count("cells_per_row_limit", *n, 1)?),
            Message::CellsPerColumnLimitFilter(n) => {
                Self::ColumnLimit(count("cells_per_column_limit", *n, 1)?)
            }
            Message::StripValueTransformer(on) => set("strip_value_transformer", *on, Self::StripValue)?,
            Message::ApplyLabelTransformer(label) => {
                let is_label = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
                match (1..=15).contains(&label.len()) && label.bytes().all(is_label) {
                    true => Self::Label(label.clone()),
                    false => {
                        return wrong(format!(
                            "label \"{label}\" must be 1 to 15 characters of a-z, 0-9 and '-'"
                        ));
                    }
                }
            }
        })
    }

    /// What of a row's cells it lets through, in their order.
    pub(crate) fn apply(&self, row: &[u8], cells: Vec<Cell>) -> Vec<Cell> {
        let mut sunk = Vec::new();
        let mut cells = self.pass(row, cells, &mut sunk);
        if !sunk.is_empty() {
            cells.extend(sunk);
            in_order_of_columns(&mut cells);
        }
        cells
    }

    fn pass(&self, row: &[u8], mut cells: Vec<Cell>, sunk: &mut Vec<Cell>) -> Vec<Cell> {
        match self {
            Self::PassAll => {}
            Self::BlockAll => cells.clear(),
            Self::Chain(all) => {
                for filter in all {
                    if cells.is_empty() {
                        break;
                    }
                    cells = filter.pass(row, cells, sunk);
                }
            }
            Self::Interleave(all) => {
                let mut out = Vec::new();
                for filter in all {
                    out.extend(filter.pass(row, cells.clone(), sunk));
                }
                in_order_of_columns(&mut out);
                return out;
            }
            Self::Condition { predicate, then, otherwise } => {
                let holds = !predicate.pass(row, cells.clone(), sunk).is_empty();
                return if holds { then } else { otherwise }.pass(row, cells, sunk);
            }
            Self::Sink => sunk.append(&mut cells),
            Self::RowKey(pattern) if !pattern.matches(row) => cells.clear(),
            Self::RowKey(_) => {}
            // A row is in a sample or not, whoever asks.
            Self::RowSample { share, number } => {
                let mut random = siltstone::Rng::new(
                    row.iter().fold(0xcbf2_9ce4_8422_2325 ^ *number, |hash: u64, byte| {
                        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
                    }),
                );
                #[expect(clippy::cast_precision_loss, reason = "a share")]
                if random.next_u64() as f64 / u64::MAX as f64 >= *share {
                    cells.clear();
                }
            }
            Self::Family(pattern) => cells.retain(|cell| pattern.matches(cell.family.as_bytes())),
            Self::Qualifier(pattern) => cells.retain(|cell| pattern.matches(&cell.qualifier)),
            Self::Columns { family, range } => {
                cells.retain(|cell| *cell.family == **family && range.contains(&cell.qualifier));
            }
            Self::Times { from, to } => {
                cells.retain(|cell| cell.timestamp >= *from && to.is_none_or(|to| cell.timestamp < to));
            }
            Self::ValuePattern(pattern) => cells.retain(|cell| pattern.matches(&cell.value)),
            Self::Values(range) => cells.retain(|cell| range.contains(&cell.value)),
            Self::RowOffset(n) => drop(cells.drain(..(*n).min(cells.len()))),
            Self::RowLimit(n) => cells.truncate(*n),
            Self::ColumnLimit(n) => {
                let mut taken = 0;
                let mut last: Option<(Arc<str>, Bytes)> = None;
                cells.retain(|cell| {
                    match last.as_ref().is_some_and(|(f, q)| *f == cell.family && *q == cell.qualifier) {
                        true => taken += 1,
                        false => {
                            taken = 1;
                            last = Some((cell.family.clone(), cell.qualifier.clone()));
                        }
                    }
                    taken <= *n
                });
            }
            Self::StripValue => cells.iter_mut().for_each(|cell| cell.value = Bytes::new()),
            Self::Label(label) => cells.iter_mut().for_each(|cell| cell.labels.push(label.clone())),
        }
        cells
    }
}

/// The bounds of a range of timestamps in microseconds; the end is exclusive.
pub(crate) fn times(range: &data::TimestampRange) -> Result<(i64, Option<i64>), Status> {
    let (from, to) = (range.start_timestamp_micros, range.end_timestamp_micros);
    if from < 0 || to < 0 || (to != 0 && to < from) {
        return Err(Status::invalid_argument(format!(
            "timestamp range from {from} to {to} is inverted or negative"
        )));
    }
    Ok((from, (to != 0).then_some(to)))
}

fn in_order(what: &str, range: (Bound<Bytes>, Bound<Bytes>)) -> Result<(Bound<Bytes>, Bound<Bytes>), Status> {
    let inverted = match (&range.0, &range.1) {
        (Bound::Included(from) | Bound::Excluded(from), Bound::Included(to) | Bound::Excluded(to)) => {
            from > to
        }
        _ => false,
    };
    match inverted {
        true => Err(Status::invalid_argument(format!("filter: {what} is inverted"))),
        false => Ok(range),
    }
}

/// By family, qualifier, and newest first; equal ones stay as they are.
fn in_order_of_columns(cells: &mut [Cell]) {
    cells.sort_by(|a, b| {
        (&a.family, &a.qualifier).cmp(&(&b.family, &b.qualifier)).then(b.timestamp.cmp(&a.timestamp))
    });
}

#[cfg(test)]
mod tests;
