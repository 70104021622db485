//! Row filters: what of a row's cells a reader gets.
//!
//! A filter is compiled once a call ([`Filter::compile`]: regular expressions, bounds, and everything that is
//! wrong with it) and then applied to each row's cells. The reader first learns what the filter excludes for
//! certain ([`Filter::need`]), and does not read these families, columns, times and versions at all.
//!
//! A row's cells come in any number of pieces ([`Filter::pass`]), in their order, and the output is the same
//! as if they came at once: a filter takes one cell after the other, and its state is no more than counts and
//! the last column. Conditions alone need to know the row before: of a row in several pieces they are decided
//! first ([`Filter::begin_to_decide`]), by going through it as often as one depends on another.
//!
//! Regular expressions (`pattern`) have RE2's syntax (`re2`, with sets of bytes by their names in `classes`),
//! match the whole of what they look at, byte by byte (Latin-1), in time linear in its length. `need` is what
//! must be read of a family.

mod classes;
mod need;
pub(crate) mod pattern;
mod re2;

pub(crate) use need::Need;

use crate::net::work::Work;
use crate::proto::data::row_filter::Filter as Message;
use crate::proto::data::{self, RowFilter};
use bytes::Bytes;
use pattern::{Pattern, Patterns};
use prost::Message as _;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;
use tonic::Status;

/// Bytes of an encoded filter, at most.
const FILTER_MAX: usize = 20 << 10;

/// How often a filter may return a cell.
const GROWTH_MAX: usize = 1_000;

/// Cells that a filter may make of those of a row, by interleaves and conditions.
const MADE_MAX: u64 = 10_000_000;

/// Cells that a filter takes or makes at once.
const CELLS_AT_ONCE: usize = 4_096;

/// Parts of a filter that is applied where the call came in.
const LIGHT_PARTS: usize = 64;

/// A cell of a row.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Cell {
    pub(crate) family: Arc<str>,
    pub(crate) qualifier: Bytes,
    pub(crate) timestamp: i64,
    pub(crate) value: Bytes,
    pub(crate) labels: Vec<String>,
}

/// Whether a condition's predicate lets anything of a row through.
#[derive(Clone, Copy, Debug)]
enum Holds {
    /// It is asked when the cells come, which are all that there are.
    AtOnce,
    /// It is being asked.
    Asked { has_hit: bool },
    /// It was.
    Known(bool),
}

/// A compiled filter, and where it stands within a row.
#[derive(Clone, Debug)]
pub(crate) enum Filter {
    PassAll,
    BlockAll,
    Chain(Vec<Filter>),
    Interleave(Vec<Filter>),
    Condition(Box<Condition>),
    Sink,
    RowKey(Pattern),
    RowSample { share: f64, number: u64 },
    Family(Pattern),
    Qualifier(Pattern),
    Columns { family: String, range: (Bound<Bytes>, Bound<Bytes>) },
    Times { from: i64, to: Option<i64> },
    ValuePattern(Pattern),
    Values((Bound<Bytes>, Bound<Bytes>)),
    RowOffset(Count),
    RowLimit(Count),
    ColumnLimit(Count, Option<(Arc<str>, Bytes)>),
    StripValue,
    Label(String),
}

/// A number of cells, and how many of them have come.
#[derive(Clone, Debug)]
pub(crate) struct Count {
    most: usize,
    came: usize,
}

impl Count {
    fn new(most: usize) -> Self {
        Self { most, came: 0 }
    }

    /// Counts one more. Returns whether it is one of the number.
    fn takes_one(&mut self) -> bool {
        let takes = self.came < self.most;
        self.came += usize::from(takes);
        takes
    }
}

/// One filter or another, by what a third lets through.
#[derive(Clone, Debug)]
pub(crate) struct Condition {
    predicate: Filter,
    then: Filter,
    otherwise: Filter,
    holds: Holds,
}

/// The state of compiling a filter.
struct Compiler<'a> {
    in_condition: bool,
    samples: u64,
    patterns: Patterns,
    work: &'a mut Work,
}

/// The state of cells that pass through a filter.
struct Passage<'a> {
    row: &'a [u8],
    /// Cells that came to a sink.
    sunk: Vec<Cell>,
    /// Cells that the filter made of others of the row.
    made: &'a mut u64,
    work: &'a mut Work,
}

impl Passage<'_> {
    /// Another copy of them.
    fn copy_of(&mut self, cells: &[Cell]) -> Result<Vec<Cell>, Status> {
        *self.made += cells.len() as u64;
        if *self.made > MADE_MAX {
            let message = format!("the filter makes over {MADE_MAX} cells of the others of a row");
            return Err(Status::resource_exhausted(message));
        }
        self.work.count(cells.len() as u64)?;
        Ok(cells.to_vec())
    }

    /// Keeps those whose bytes match a pattern.
    fn matching(
        &mut self,
        mut cells: Vec<Cell>,
        pattern: &Pattern,
        bytes: impl Fn(&Cell) -> &[u8],
    ) -> Result<Vec<Cell>, Status> {
        let mut counted = Ok(());
        cells.retain(|cell| {
            let matched = counted.is_ok().then(|| pattern.matches_counted(bytes(cell), self.work));
            match matched {
                None => false,
                Some(Ok(matches)) => matches,
                Some(Err(e)) => {
                    counted = Err(e);
                    false
                }
            }
        });
        counted.map(|()| cells)
    }
}

impl Filter {
    /// The first cells of a row, so many.
    pub(crate) fn row_limit(most: usize) -> Self {
        Self::RowLimit(Count::new(most))
    }

    /// The first cells of each column, so many.
    pub(crate) fn column_limit(most: usize) -> Self {
        Self::ColumnLimit(Count::new(most), None)
    }

    /// Whether it takes little to compile a filter, and to apply it to a cell: it has neither patterns nor
    /// parts that multiply.
    pub(crate) fn is_light(filter: Option<&RowFilter>) -> bool {
        fn are_light(filter: &RowFilter, left: &mut usize) -> bool {
            *left = left.saturating_sub(1);
            match &filter.filter {
                _ if *left == 0 => false,
                Some(Message::Interleave(_) | Message::Condition(_)) => false,
                Some(Message::Chain(chain)) => chain.filters.iter().all(|one| are_light(one, left)),
                Some(
                    Message::RowKeyRegexFilter(pattern)
                    | Message::ColumnQualifierRegexFilter(pattern)
                    | Message::ValueRegexFilter(pattern),
                ) => Pattern::is_exact(pattern),
                Some(Message::FamilyNameRegexFilter(pattern)) => Pattern::is_exact(pattern.as_bytes()),
                _ => true,
            }
        }
        if siltstone::planted_bug!(WorkInPlace) {
            return true;
        }
        let mut left = LIGHT_PARTS;
        filter.is_none_or(|filter| are_light(filter, &mut left))
    }

    /// Compiles a call's filter; none lets everything through.
    pub(crate) fn compile(filter: Option<&RowFilter>, work: &mut Work) -> Result<Self, Status> {
        let Some(filter) = filter else { return Ok(Self::PassAll) };
        let len = filter.encoded_len();
        if len > FILTER_MAX {
            return Err(Status::invalid_argument(format!(
                "the filter has {len} bytes, the limit is {FILTER_MAX}"
            )));
        }
        let patterns = Patterns::of(count_patterns(filter))?;
        let filter = Self::part(filter, &mut Compiler { in_condition: false, samples: 0, patterns, work })?;
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
            Self::Condition(of) => of.predicate.growth().max(of.then.growth()).max(of.otherwise.growth()),
            _ => 1,
        }
    }

    /// How many filters it is made of.
    fn parts(&self) -> usize {
        match self {
            Self::Chain(all) | Self::Interleave(all) => 1 + all.iter().map(Self::parts).sum::<usize>(),
            Self::Condition(of) => 1 + of.predicate.parts() + of.then.parts() + of.otherwise.parts(),
            _ => 1,
        }
    }

    /// How many cells may be given to it at once, so that it takes and makes a bounded number.
    pub(crate) fn cells_at_once(&self) -> usize {
        (CELLS_AT_ONCE / self.growth().max(self.parts())).max(1)
    }

    fn has_label(&self) -> bool {
        match self {
            Self::Label(_) => true,
            Self::Chain(all) | Self::Interleave(all) => all.iter().any(Self::has_label),
            Self::Condition(of) => [&of.predicate, &of.then, &of.otherwise].into_iter().any(Self::has_label),
            _ => false,
        }
    }

    /// Whether conditions are to be decided before a row that comes in pieces.
    pub(crate) fn has_conditions(&self) -> bool {
        match self {
            Self::Condition(_) => true,
            Self::Chain(all) | Self::Interleave(all) => all.iter().any(Self::has_conditions),
            _ => false,
        }
    }

    fn part(filter: &RowFilter, with: &mut Compiler<'_>) -> Result<Self, Status> {
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
                let mut labels = 0;
                for filter in &chain.filters {
                    let part = Self::part(filter, with)?;
                    labels += usize::from(part.has_label());
                    match part {
                        Self::Chain(inner) => all.extend(inner),
                        filter => all.push(filter),
                    }
                }
                if labels > 1 {
                    return wrong(
                        "apply_label_transformer in two filters of a chain: a cell has one label at most"
                            .into(),
                    );
                }
                Self::Chain(all)
            }
            Message::Interleave(all) if all.filters.is_empty() => return wrong("an empty interleave".into()),
            Message::Interleave(all) => {
                Self::Interleave(all.filters.iter().map(|f| Self::part(f, with)).collect::<Result<_, _>>()?)
            }
            Message::Condition(condition) => {
                let Some(predicate) = &condition.predicate_filter else {
                    return wrong("a condition without a predicate".into());
                };
                let is_within = std::mem::replace(&mut with.in_condition, true);
                let predicate = Self::part(predicate, with)?;
                let mut of = |filter: &Option<Box<RowFilter>>| match filter {
                    Some(filter) => Self::part(filter, with),
                    None => Ok(Self::BlockAll),
                };
                let (then, otherwise) = (of(&condition.true_filter)?, of(&condition.false_filter)?);
                with.in_condition = is_within;
                Self::Condition(Box::new(Condition { predicate, then, otherwise, holds: Holds::AtOnce }))
            }
            Message::Sink(_) if with.in_condition => return wrong("a sink within a condition".into()),
            Message::Sink(on) => set("sink", *on, Self::Sink)?,
            Message::RowKeyRegexFilter(pattern) => Self::RowKey(with.pattern_of_name("row key", pattern)?),
            Message::RowSampleFilter(share) if *share > 0.0 && *share < 1.0 => {
                with.samples += 1;
                Self::RowSample { share: *share, number: with.samples }
            }
            Message::RowSampleFilter(share) => {
                return wrong(format!("row_sample is {share}, and must be between 0 and 1, exclusive"));
            }
            Message::FamilyNameRegexFilter(pattern) => {
                Self::Family(with.pattern_of_name("family name", pattern.as_bytes())?)
            }
            Message::ColumnQualifierRegexFilter(pattern) => {
                Self::Qualifier(with.pattern("column qualifier", pattern)?)
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
            Message::ValueRegexFilter(pattern) => Self::ValuePattern(with.pattern("value", pattern)?),
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
            Message::CellsPerRowOffsetFilter(n) => {
                Self::RowOffset(Count::new(count("cells_per_row_offset", *n, 0)?))
            }
            Message::CellsPerRowLimitFilter(n) => Self::row_limit(count("cells_per_row_limit", *n, 1)?),
            Message::CellsPerColumnLimitFilter(n) => {
                Self::column_limit(count("cells_per_column_limit", *n, 1)?)
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

    /// A row begins, whose conditions are decided when its cells come, which then must come at once.
    pub(crate) fn begin(&mut self) {
        self.reset(Some(Holds::AtOnce));
    }

    /// A row begins whose conditions are to be decided, by going through it until [`Filter::is_decided`].
    pub(crate) fn begin_to_decide(&mut self) {
        self.reset(Some(Holds::Asked { has_hit: false }));
    }

    /// The row begins again; what was decided stays.
    pub(crate) fn begin_again(&mut self) {
        self.reset(None);
    }

    fn reset(&mut self, holds: Option<Holds>) {
        match self {
            Self::Chain(all) | Self::Interleave(all) => all.iter_mut().for_each(|one| one.reset(holds)),
            Self::Condition(of) => {
                // What let something through before all in front of it was decided says nothing.
                of.holds = match holds.unwrap_or(of.holds) {
                    Holds::Asked { .. } => Holds::Asked { has_hit: false },
                    decided => decided,
                };
                let Condition { predicate, then, otherwise, .. } = &mut **of;
                [predicate, then, otherwise].into_iter().for_each(|one| one.reset(holds));
            }
            Self::RowOffset(count) | Self::RowLimit(count) => count.came = 0,
            Self::ColumnLimit(_, column) => *column = None,
            _ => {}
        }
    }

    /// Goes to the conditions that are being asked and whose cells are all known: those before them are
    /// decided. Returns whether there is none that is being asked.
    fn asked(&mut self, to: &mut dyn FnMut(&mut Holds)) -> bool {
        match self {
            Self::Chain(all) => all.iter_mut().all(|one| one.asked(to)),
            // Each is asked, whatever the others say.
            Self::Interleave(all) => {
                all.iter_mut().filter_map(|one| (!one.asked(to)).then_some(())).count() == 0
            }
            Self::Condition(of) => match of.holds {
                Holds::Known(true) => of.then.asked(to),
                Holds::Known(false) => of.otherwise.asked(to),
                Holds::Asked { .. } | Holds::AtOnce => {
                    if of.predicate.asked(to) {
                        to(&mut of.holds);
                    }
                    false
                }
            },
            _ => true,
        }
    }

    /// Whether the rest of the row may still decide something.
    pub(crate) fn is_looking(&mut self) -> bool {
        let mut is_looking = false;
        self.asked(&mut |holds| is_looking |= matches!(holds, Holds::Asked { has_hit: false }));
        is_looking
    }

    /// The row has been gone through. Returns whether all conditions are decided.
    pub(crate) fn is_decided(&mut self) -> bool {
        self.asked(&mut |holds| *holds = Holds::Known(matches!(holds, Holds::Asked { has_hit: true })));
        self.asked(&mut |_| ())
    }

    /// The part of a family that must be read for it; `None` for nothing.
    pub(crate) fn need(&self, family: &str) -> Option<Need> {
        let mut need = Need::default();
        let chain = match self {
            Self::Chain(all) => &all[..],
            one => std::slice::from_ref(one),
        };
        // Whether cells that are read are cells at this place of the chain, as far as they count.
        let mut exact = true;
        for (at, filter) in chain.iter().enumerate() {
            match filter {
                Self::BlockAll => return None,
                Self::Family(pattern) if !pattern.matches(family.as_bytes()) => return None,
                Self::Columns { family: own, .. } if own != family => return None,
                Self::PassAll | Self::Family(_) => {}
                Self::StripValue | Self::Label(_) => need.is_all = false,
                Self::Columns { range, .. } => need.narrow(range),
                Self::Qualifier(Pattern::Exact(name)) => {
                    let at = Bound::Included(Bytes::copy_from_slice(name));
                    need.narrow(&(at.clone(), at));
                }
                // Of whole columns.
                Self::Qualifier(_) => (exact, need.is_all) = (false, false),
                // Whole rows.
                Self::RowKey(_) | Self::RowSample { .. } => need.is_all = false,
                // Times may be excluded only before versions are counted.
                Self::Times { from, to } if need.newest.is_none() => {
                    need.times.0 = need.times.0.max(*from);
                    need.times.1 = match (need.times.1, to) {
                        (Some(a), Some(b)) => Some(a.min(*b)),
                        (a, b) => a.or(*b),
                    };
                }
                Self::ColumnLimit(Count { most, .. }, _) => {
                    need.newest = Some(need.newest.map_or(*most, |newest| newest.min(*most)));
                }
                Self::RowLimit(Count { most, .. }) if exact => {
                    need.first = Some(*most);
                    need.is_all &= at + 1 == chain.len();
                    break;
                }
                Self::Interleave(all) if all.iter().all(|filter| filter.need(family).is_none()) => {
                    return None;
                }
                // Which cells come after these depends on all that come before.
                _ => {
                    need.is_all = false;
                    break;
                }
            }
        }
        Some(need)
    }

    /// What of the next cells of a row it lets through, in their order. Of the row's cells it has made `made`
    /// so far.
    pub(crate) fn pass(
        &mut self,
        row: &[u8],
        cells: Vec<Cell>,
        made: &mut u64,
        work: &mut Work,
    ) -> Result<Vec<Cell>, Status> {
        let mut passage = Passage { row, sunk: Vec::new(), made, work };
        let mut cells = self.let_through(cells, &mut passage)?;
        if !passage.sunk.is_empty() {
            cells.append(&mut passage.sunk);
            in_order_of_columns(&mut cells);
        }
        Ok(cells)
    }

    fn let_through(&mut self, mut cells: Vec<Cell>, to: &mut Passage<'_>) -> Result<Vec<Cell>, Status> {
        to.work.count(cells.len() as u64)?;
        match self {
            Self::PassAll => {}
            Self::BlockAll => cells.clear(),
            Self::Chain(all) => {
                for filter in all {
                    if cells.is_empty() {
                        break;
                    }
                    cells = filter.let_through(cells, to)?;
                }
            }
            Self::Interleave(all) => {
                let mut out = Vec::new();
                for filter in all {
                    let copy = to.copy_of(&cells)?;
                    out.append(&mut filter.let_through(copy, to)?);
                }
                in_order_of_columns(&mut out);
                return Ok(out);
            }
            Self::Condition(of) => {
                let holds = match &mut of.holds {
                    Holds::Known(holds) => *holds,
                    Holds::AtOnce => {
                        let copy = to.copy_of(&cells)?;
                        !of.predicate.let_through(copy, to)?.is_empty()
                    }
                    Holds::Asked { has_hit } => {
                        *has_hit |= !of.predicate.let_through(cells, to)?.is_empty();
                        return Ok(Vec::new());
                    }
                };
                return if holds { &mut of.then } else { &mut of.otherwise }.let_through(cells, to);
            }
            Self::Sink => to.sunk.append(&mut cells),
            Self::RowKey(pattern) if !pattern.matches(to.row) => cells.clear(),
            Self::RowKey(_) => {}
            // A row is in a sample or not, for all callers alike.
            Self::RowSample { share, number } => {
                let mut random = siltstone::Rng::new(
                    to.row.iter().fold(0xcbf2_9ce4_8422_2325 ^ *number, |hash: u64, byte| {
                        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
                    }),
                );
                #[expect(clippy::cast_precision_loss, reason = "a share")]
                if random.next_u64() as f64 / u64::MAX as f64 >= *share {
                    cells.clear();
                }
            }
            Self::Family(pattern) => return to.matching(cells, pattern, |cell| cell.family.as_bytes()),
            Self::Qualifier(pattern) => return to.matching(cells, pattern, |cell| &cell.qualifier),
            Self::Columns { family, range } => {
                cells.retain(|cell| *cell.family == **family && range.contains(&cell.qualifier));
            }
            Self::Times { from, to } => {
                cells.retain(|cell| cell.timestamp >= *from && to.is_none_or(|to| cell.timestamp < to));
            }
            Self::ValuePattern(pattern) => return to.matching(cells, pattern, |cell| &cell.value),
            Self::Values(range) => cells.retain(|cell| range.contains(&cell.value)),
            Self::RowOffset(count) => cells.retain(|_| !count.takes_one()),
            Self::RowLimit(count) => cells.retain(|_| count.takes_one()),
            Self::ColumnLimit(count, last) => cells.retain(|cell| {
                if !last.as_ref().is_some_and(|(f, q)| *f == cell.family && *q == cell.qualifier) {
                    count.came = 0;
                    *last = Some((cell.family.clone(), cell.qualifier.clone()));
                }
                count.takes_one()
            }),
            Self::StripValue => cells.iter_mut().for_each(|cell| cell.value = Bytes::new()),
            Self::Label(label) => cells.iter_mut().for_each(|cell| cell.labels.push(label.clone())),
        }
        Ok(cells)
    }
}

impl Compiler<'_> {
    fn pattern(&mut self, what: &str, pattern: &[u8]) -> Result<Pattern, Status> {
        self.patterns.compile(what, pattern, self.work)
    }

    /// A pattern of what is never empty.
    fn pattern_of_name(&mut self, what: &str, pattern: &[u8]) -> Result<Pattern, Status> {
        match pattern.is_empty() {
            true => Err(Status::invalid_argument(format!("filter: the pattern of {what} is empty"))),
            false => self.pattern(what, pattern),
        }
    }
}

/// Patterns of a filter that are regular expressions.
fn count_patterns(filter: &RowFilter) -> usize {
    let within = |filter: &Option<Box<RowFilter>>| filter.as_deref().map_or(0, count_patterns);
    match &filter.filter {
        Some(Message::Chain(chain)) => chain.filters.iter().map(count_patterns).sum(),
        Some(Message::Interleave(all)) => all.filters.iter().map(count_patterns).sum(),
        Some(Message::Condition(of)) => {
            within(&of.predicate_filter) + within(&of.true_filter) + within(&of.false_filter)
        }
        Some(
            Message::RowKeyRegexFilter(pattern)
            | Message::ColumnQualifierRegexFilter(pattern)
            | Message::ValueRegexFilter(pattern),
        ) => usize::from(!Pattern::is_exact(pattern)),
        Some(Message::FamilyNameRegexFilter(pattern)) => usize::from(!Pattern::is_exact(pattern.as_bytes())),
        _ => 0,
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
