//! Mutations of rows as batches of the engine, and the calls that read before they write.
//!
//! All mutations of a row, over all families, are one batch: one record of the WAL, whole or not at all. A
//! conditional mutation is written under a condition that is judged again at the moment of writing, so it is
//! atomic with all other writes of the row.

use crate::cells::aggregate::Aggregate;
use crate::cells::filter::{self, Cell, Filter};
use crate::cells::row_key;
use crate::cells::subset::{self, Subset};
use crate::net::budget::{self, Budget, Lease};
use crate::net::wire::MUTATIONS_MAX;
use crate::net::work::{Caller, Work};
use crate::proto::data::mutation::Mutation as Change;
use crate::proto::data::read_modify_write_rule::Rule;
use crate::proto::data::{self, Mutation, ReadModifyWriteRule, TimestampRange, value};
use crate::rows::pieces::{Next, Pieces};
use crate::rows::row_cursor::{RowCursor, View};
use crate::status::status;
use crate::tables::layout::{Layout, Stores, Table};
use crate::tables::registry::Tables;
use crate::tables::schema::Granularity;
use crate::tables::views::Target;
use bytes::Bytes;
use prost::Message;
use siltstone::{Batch, Condition, Durability, ErrorKind, Timestamp};
use std::collections::BTreeSet;
use std::sync::Arc;
use tonic::Status;

/// The most rules of a read-modify-write: each searches all for its column.
const RULES_MAX: usize = 1_000;
/// Bytes of the cells that a read-modify-write reads, at most.
const READ_MAX: usize = 256 << 20;
/// Mutations that are written where the call came in, and their bytes, at most.
pub(crate) const FEW_MUTATIONS: usize = 256;
const FEW_BYTES: usize = 64 << 10;
/// Tries of a conditional write that others come in between of.
const TRIES: usize = 100;
/// The maker of a timestamp, in `Mutation.timestamp_origin`: unspecified, the user, or the client by itself.
const CLIENT_AUTO_GENERATED: i32 = 2;
const ORIGINS: std::ops::RangeInclusive<i32> = 0..=CLIENT_AUTO_GENERATED;

/// Now, as the server gives timestamps.
fn server_time(granularity: Granularity) -> Timestamp {
    let now = crate::time::now_us();
    Timestamp(now - now % granularity.us())
}

/// How the timestamps of a mutation are read: by the table's granularity, and their maker.
#[derive(Clone, Copy)]
struct Times {
    granularity: Granularity,
    by_client: bool,
}

impl Times {
    fn new(layout: &Layout, mutation: &Mutation) -> Result<Self, Status> {
        let origin = mutation.timestamp_origin;
        if !ORIGINS.contains(&origin) {
            return Err(Status::invalid_argument(format!("timestamp_origin {origin} is not known here")));
        }
        let granularity = layout.schema.granularity;
        Ok(Self { granularity, by_client: origin == CLIENT_AUTO_GENERATED })
    }

    fn of(self, us: i64) -> Result<Timestamp, Status> {
        let step = self.granularity.us();
        match u64::try_from(us) {
            _ if us == -1 => Ok(server_time(self.granularity)),
            // A client does not know how fine the table's are.
            Ok(at) if self.by_client => Ok(Timestamp(at - at % step)),
            Ok(at) => self.check(at).map(|()| Timestamp(at)),
            Err(_) => Err(Status::invalid_argument(format!("timestamp {us} is negative"))),
        }
    }

    fn raw(self, value: Option<&data::Value>) -> Result<Timestamp, Status> {
        match value.and_then(|value| value.kind.as_ref()) {
            Some(value::Kind::RawTimestampMicros(us)) => self.of(*us),
            _ => Err(Status::invalid_argument("a raw_timestamp_micros is expected")),
        }
    }

    fn check(self, at: u64) -> Result<(), Status> {
        let step = self.granularity.us();
        match at % step {
            0 => Ok(()),
            _ => Err(Status::invalid_argument(format!(
                "Timestamp granularity mismatch: {at} is no multiple of {step} (microseconds)"
            ))),
        }
    }
}

/// The error of a call that would write nothing.
pub(crate) fn no_mutations() -> Status {
    Status::invalid_argument("No mutations provided")
}

fn check_qualifier(qualifier: &[u8]) -> Result<(), Status> {
    match qualifier.len() {
        len if len > row_key::QUALIFIER_MAX => Err(Status::invalid_argument(format!(
            "qualifier has {len} bytes, the limit is {}",
            row_key::QUALIFIER_MAX
        ))),
        _ => Ok(()),
    }
}

fn check_value(value: &[u8]) -> Result<(), Status> {
    match value.len() {
        len if len > row_key::VALUE_MAX => Err(Status::invalid_argument(format!(
            "value has {len} bytes, the limit is {}",
            row_key::VALUE_MAX
        ))),
        _ => Ok(()),
    }
}

/// Whether a view, if a call names one, has all that mutations of a row write. A delete of a whole row is
/// never within one: it is of all families, and who has a view does not learn which there are.
///
/// # Errors
/// `PERMISSION_DENIED`.
pub(crate) fn check_within(view: Option<&Subset>, row: &[u8], mutations: &[Mutation]) -> Result<(), Status> {
    let Some(view) = view else { return Ok(()) };
    view.check_row(row)?;
    mutations.iter().try_for_each(|mutation| match &mutation.mutation {
        // What is no mutation is refused where it is to be added.
        None => Ok(()),
        Some(Change::SetCell(set)) => view.check_column(&set.family_name, &set.column_qualifier),
        Some(Change::AddToCell(add)) => {
            view.check_column(&add.family_name, raw(add.column_qualifier.as_ref())?)
        }
        Some(Change::MergeToCell(merge)) => {
            view.check_column(&merge.family_name, raw(merge.column_qualifier.as_ref())?)
        }
        Some(Change::DeleteFromColumn(delete)) => {
            view.check_column(&delete.family_name, &delete.column_qualifier)
        }
        Some(Change::DeleteFromFamily(delete)) => view.check_family(&delete.family_name),
        Some(Change::DeleteFromRow(_)) => Err(subset::outside("a whole row")),
    })
}

/// Adds a row's mutations to a batch; with an error the batch is as it was.
pub(crate) fn add(
    batch: &mut Batch,
    layout: &Layout,
    row: &[u8],
    mutations: &[Mutation],
) -> Result<(), Status> {
    row_key::check_row(row)?;
    match mutations.len() {
        0 => return Err(no_mutations()),
        len if len > MUTATIONS_MAX => {
            let message = format!("{len} mutations of a row, the limit is {MUTATIONS_MAX}");
            return Err(Status::invalid_argument(message));
        }
        _ => {}
    }
    let before = batch.len();
    let added = mutations.iter().try_for_each(|mutation| add_one(batch, layout, row, mutation));
    if added.is_err() {
        batch.truncate(before);
    }
    added
}

fn add_one(batch: &mut Batch, layout: &Layout, row: &[u8], mutation: &Mutation) -> Result<(), Status> {
    let Some(change) = &mutation.mutation else {
        return Err(Status::invalid_argument("a mutation that says nothing"));
    };
    let times = Times::new(layout, mutation)?;
    match change {
        Change::SetCell(set) => {
            check_qualifier(&set.column_qualifier)?;
            check_value(&set.value)?;
            let family = layout.family(&set.family_name)?;
            if family.aggregate.is_some() {
                let message =
                    format!("family \"{}\" is an aggregate: cells are added to, not set", family.name);
                return Err(Status::invalid_argument(message));
            }
            let (key, at) = (row_key::cell_key(row, &set.column_qualifier), times.of(set.timestamp_micros)?);
            batch.put_at(family.written(&key), &key, at, &set.value);
        }
        Change::AddToCell(add) => {
            let (qualifier, at) = (raw(add.column_qualifier.as_ref())?, times.raw(add.timestamp.as_ref())?);
            let family = layout.family(&add.family_name)?;
            let input =
                aggregate_of(family)?.state_of(add.input.as_ref().and_then(|input| input.kind.as_ref()))?;
            add_operand(batch, family, row, qualifier, at, &input)?;
        }
        Change::MergeToCell(merge) => {
            let (qualifier, at) =
                (raw(merge.column_qualifier.as_ref())?, times.raw(merge.timestamp.as_ref())?);
            let (state, family) = (raw(merge.input.as_ref())?, layout.family(&merge.family_name)?);
            aggregate_of(family)?.check_state(state)?;
            add_operand(batch, family, row, qualifier, at, state)?;
        }
        Change::DeleteFromColumn(delete) => {
            check_qualifier(&delete.column_qualifier)?;
            let family = layout.family(&delete.family_name)?;
            let key = row_key::cell_key(row, &delete.column_qualifier);
            let range = delete.time_range.unwrap_or(TimestampRange::default());
            let (from, to) = filter::times(&range)?;
            let (from, to) = (from.unsigned_abs(), to.map(i64::unsigned_abs));
            times.check(from).and_then(|()| times.check(to.unwrap_or(0)))?;
            match (from, to) {
                (0, None) => drop(batch.delete(family.written(&key), &key)),
                (from, Some(to)) if to <= from => {
                    let message = format!("the time_range of a delete is empty: from {from} to {to}");
                    return Err(Status::invalid_argument(message));
                }
                (from, to) => {
                    let last = to.map_or(Timestamp::MAX, |to| Timestamp(to - 1));
                    let behind = [&key[..], b"\0"].concat();
                    let store = family.written(&key);
                    batch.delete_range_at(store, key..behind, Timestamp(from), last);
                }
            }
        }
        Change::DeleteFromFamily(delete) => delete_row(batch, layout.family(&delete.family_name)?, row),
        Change::DeleteFromRow(_) => layout.families.iter().for_each(|family| delete_row(batch, family, row)),
    }
    Ok(())
}

fn delete_row(batch: &mut Batch, family: &Stores, row: &[u8]) {
    let (start, end) = (row_key::row_start(row), row_key::row_end(row));
    batch.delete_range(family.written(&start), start.clone()..end);
}

fn raw(value: Option<&data::Value>) -> Result<&[u8], Status> {
    match value.and_then(|value| value.kind.as_ref()) {
        Some(value::Kind::RawValue(bytes) | value::Kind::BytesValue(bytes)) => Ok(bytes),
        _ => Err(Status::invalid_argument("a raw_value is expected")),
    }
}

fn aggregate_of(family: &Stores) -> Result<Aggregate, Status> {
    let none = || Status::invalid_argument(format!("family \"{}\" is no aggregate", family.name));
    family.aggregate.ok_or_else(none)
}

fn add_operand(
    batch: &mut Batch,
    family: &Stores,
    row: &[u8],
    qualifier: &[u8],
    at: Timestamp,
    operand: &[u8],
) -> Result<(), Status> {
    check_qualifier(qualifier)?;
    let key = row_key::cell_key(row, qualifier);
    batch.merge_at(family.written(&key), &key, at, operand);
    Ok(())
}

/// Whether it takes little to write mutations of a call.
pub(crate) fn are_few<'a>(mutations: impl IntoIterator<Item = &'a Mutation>) -> bool {
    let (mut weight, mut bytes) = (0, 0);
    mutations.into_iter().all(|mutation| {
        weight += match &mutation.mutation {
            // These take a sketch, or touch all families.
            Some(Change::AddToCell(_) | Change::MergeToCell(_) | Change::DeleteFromRow(_)) => 8,
            _ => 1,
        };
        bytes += mutation.encoded_len();
        weight <= FEW_MUTATIONS && bytes <= FEW_BYTES
    })
}

/// Reads a row as it is now, of what a call names, whose table the caller holds, and gives what each of the
/// filters lets through to `take`, until that wants no more.
fn read_now(
    tables: &Tables,
    target: &Target,
    row: &[u8],
    filters: &[Filter],
    caller: &Caller,
    mut take: impl FnMut(Cell) -> Result<bool, Status>,
) -> Result<(), Status> {
    let view = Arc::new(View {
        table: target.table.clone(),
        snapshot: tables.db.snapshot(),
        now_us: crate::time::now_us(),
        reversed: false,
        held: true,
    });
    let mut work = Work::unbounded(caller.clone());
    for filter in filters {
        let needs = target.needs(filter);
        let mut rows = RowCursor::new(view.clone(), &needs, &row_key::row_span(row));
        let mut pieces = Pieces::new(filter.clone());
        while let Next::Cell(cell) = pieces.next(&mut rows, &needs, &mut work)? {
            if !take(cell)? {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Writes what `plan` makes of what `read` finds in a row, if that is still the same at the moment of
/// writing; else it is asked again.
fn write_after_reading<S, T>(
    (tables, table, row): (&Arc<Tables>, &Arc<Table>, &[u8]),
    durability: Durability,
    read: impl Fn() -> Result<S, Status> + Send + Sync + 'static,
    mut plan: impl FnMut(&Layout, S) -> Result<(Batch, T), Status>,
) -> Result<T, Status>
where
    S: Clone + PartialEq + Send + Sync + 'static,
{
    let read = Arc::new(read);
    // So those who do the same wait for their turn; only plain writes come in between.
    let _turn = tables.row_locks.lock(row);
    for _ in 0..TRIES {
        let _hold = table.hold();
        let layout = table.now();
        let seen = read()?;
        let (batch, result) = plan(&layout, seen.clone())?;
        if batch.is_empty() {
            return Ok(result);
        }
        let again = {
            let read = read.clone();
            move || {
                let now = read();
                now.map(|now| now == seen)
                    .map_err(|e| siltstone::Error::new(ErrorKind::Io, e.message().to_string()))
            }
        };
        let mut condition = Condition::when(again);
        for family in &layout.families {
            let (start, end) = (row_key::row_start(row), row_key::row_end(row));
            condition = condition.rests_on(family.of(&start), start.clone()..end);
        }
        match tables.db.write_if(&[condition], &batch, durability) {
            Ok(_) => return Ok(result),
            Err(e) if e.kind() == ErrorKind::Conflict => {}
            Err(e) => return Err(status(e)),
        }
    }
    Err(Status::aborted(format!("the row \"{}\" is written too often by others", row.escape_ascii())))
}

/// CheckAndMutateRow: returns whether the predicate let anything through.
pub(crate) fn check_and_mutate(
    tables: &Arc<Tables>,
    request: &data::CheckAndMutateRowRequest,
    durability: Durability,
    caller: &Caller,
) -> Result<bool, Status> {
    let target = tables.target(&request.table_name, &request.authorized_view_name)?;
    let table = target.table.clone();
    let (row, then, otherwise) = (&request.row_key, &request.true_mutations, &request.false_mutations);
    row_key::check_row(row)?;
    // Whatever the predicate finds: by what is refused nothing is learned of the row.
    [then, otherwise].into_iter().try_for_each(|some| check_within(target.view.as_deref(), row, some))?;
    if then.is_empty() && otherwise.is_empty() {
        return Err(Status::invalid_argument("neither true_mutations nor false_mutations"));
    }
    // Whether there is a cell is all that counts.
    let compiled = Filter::compile(request.predicate_filter.as_ref(), &mut Work::unbounded(caller.clone()))?;
    let predicate = match compiled {
        Filter::Chain(mut all) => {
            all.push(Filter::row_limit(1));
            Filter::Chain(all)
        }
        one => Filter::Chain(vec![one, Filter::row_limit(1)]),
    };
    let matches = {
        let (tables, row, caller) = (tables.clone(), row.clone(), caller.clone());
        move || {
            let mut matches = false;
            let take = |_| {
                matches = true;
                Ok(false)
            };
            read_now(&tables, &target, &row, std::slice::from_ref(&predicate), &caller, take)?;
            Ok(matches)
        }
    };
    write_after_reading((tables, &table, &row[..]), durability, matches, |layout, matched| {
        // The others are not judged.
        let mutations = if matched { then } else { otherwise };
        let mut batch = Batch::new();
        if !mutations.is_empty() {
            add(&mut batch, layout, row, mutations)?;
        }
        Ok((batch, matched))
    })
}

/// The cells that a read-modify-write found, and their memory.
#[derive(Clone)]
struct Found {
    cells: Vec<Cell>,
    _lease: Arc<Lease>,
}

impl PartialEq for Found {
    fn eq(&self, other: &Self) -> bool {
        self.cells == other.cells
    }
}

/// Reads the newest cells of columns, as far as there is memory for them.
fn find_newest(
    tables: &Tables,
    target: &Target,
    row: &[u8],
    columns: &[Filter],
    (caller, memory): (&Caller, &Arc<Budget>),
) -> Result<Found, Status> {
    let (mut cells, mut bytes, lease) = (Vec::new(), 0, memory.count(0));
    read_now(tables, target, row, columns, caller, |cell| {
        bytes += cell.value.len();
        if bytes > READ_MAX {
            let message = format!("the cells to be modified have over {READ_MAX} bytes");
            return Err(Status::failed_precondition(message));
        }
        if !lease.grow(cell.value.len()) {
            return Err(budget::no_memory());
        }
        cells.push(cell);
        Ok(true)
    })?;
    Ok(Found { cells, _lease: lease })
}

/// ReadModifyWriteRow: returns the cells as they are now.
pub(crate) fn read_modify_write(
    tables: &Arc<Tables>,
    request: &data::ReadModifyWriteRowRequest,
    durability: Durability,
    (caller, memory): (Caller, Arc<Budget>),
) -> Result<data::Row, Status> {
    let target = tables.target(&request.table_name, &request.authorized_view_name)?;
    let table = target.table.clone();
    let row = &request.row_key;
    row_key::check_row(row)?;
    if let Some(view) = &target.view {
        view.check_row(row)?;
        let within =
            |rule: &ReadModifyWriteRule| view.check_column(&rule.family_name, &rule.column_qualifier);
        request.rules.iter().try_for_each(within)?;
    }
    match request.rules.len() {
        1..=RULES_MAX => {}
        len => return Err(Status::invalid_argument(format!("{len} rules; a call takes 1 to {RULES_MAX}"))),
    }
    let columns = newest_of(&request.rules)?;
    let find = {
        let (tables, row) = (tables.clone(), row.clone());
        move || find_newest(&tables, &target, &row, &columns, (&caller, &memory))
    };
    let cells = write_after_reading((tables, &table, &row[..]), durability, find, |layout, found| {
        let mut cells: Vec<(Cell, bool)> = found.cells.into_iter().map(|cell| (cell, false)).collect();
        let now = i64::try_from(server_time(layout.schema.granularity).0).unwrap_or(i64::MAX);
        for rule in &request.rules {
            modify(&mut cells, layout, rule, now)?;
        }
        let mut batch = Batch::new();
        let changed: Vec<Cell> =
            cells.into_iter().filter_map(|(cell, changed)| changed.then_some(cell)).collect();
        for cell in &changed {
            check_value(&cell.value)?;
            let key = row_key::cell_key(row, &cell.qualifier);
            let at = Timestamp(cell.timestamp.unsigned_abs());
            batch.put_at(layout.family(&cell.family)?.written(&key), &key, at, &cell.value);
        }
        Ok((batch, changed))
    })?;
    Ok(as_row(row, cells))
}

/// Lets through the newest cell of a column, for each column that the rules name.
fn newest_of(rules: &[ReadModifyWriteRule]) -> Result<Vec<Filter>, Status> {
    let mut named = BTreeSet::new();
    let mut columns = Vec::new();
    for rule in rules {
        check_qualifier(&rule.column_qualifier)?;
        if named.insert((&rule.family_name, &rule.column_qualifier)) {
            let at = std::ops::Bound::Included(rule.column_qualifier.clone());
            columns.push(Filter::Chain(vec![
                Filter::Columns { family: rule.family_name.clone(), range: (at.clone(), at) },
                Filter::column_limit(1),
            ]));
        }
    }
    Ok(columns)
}

/// Applies a rule to the newest cell of its column, or makes one.
fn modify(
    cells: &mut Vec<(Cell, bool)>,
    layout: &Layout,
    rule: &ReadModifyWriteRule,
    now: i64,
) -> Result<(), Status> {
    let family = layout.family(&rule.family_name)?;
    if family.aggregate.is_some() {
        let message = format!("family \"{}\" is an aggregate: use add_to_cell", family.name);
        return Err(Status::invalid_argument(message));
    }
    let at = cells
        .iter()
        .position(|(cell, _)| *cell.family == *rule.family_name && cell.qualifier == rule.column_qualifier);
    let old = at.map(|at| &cells[at].0);
    let value = match &rule.rule {
        None => return Err(Status::invalid_argument("a rule that says nothing")),
        Some(Rule::AppendValue(more)) => {
            Bytes::from([old.map_or(&[][..], |cell| &cell.value[..]), &more[..]].concat())
        }
        Some(Rule::IncrementAmount(amount)) => {
            let old = match old.map(|cell| &cell.value[..]) {
                None => 0,
                Some(bytes) => i64::from_be_bytes(bytes.try_into().map_err(|_| {
                    let len = bytes.len();
                    Status::failed_precondition(format!("the value to increment has {len} bytes, not 8"))
                })?),
            };
            Bytes::copy_from_slice(&old.wrapping_add(*amount).to_be_bytes())
        }
    };
    match at {
        Some(at) => {
            let (cell, changed) = &mut cells[at];
            (cell.value, cell.timestamp, *changed) = (value, cell.timestamp.max(now), true);
        }
        None => {
            let (family, qualifier) = (family.name.clone(), rule.column_qualifier.clone());
            cells.push((Cell { family, qualifier, timestamp: now, value, labels: Vec::new() }, true));
        }
    }
    Ok(())
}

/// Cells as a message of a row.
fn as_row(key: &Bytes, mut cells: Vec<Cell>) -> data::Row {
    cells.sort_by(|a, b| (&a.family, &a.qualifier).cmp(&(&b.family, &b.qualifier)));
    let mut row = data::Row { key: key.clone(), families: Vec::new() };
    for cell in cells {
        if row.families.last().is_none_or(|family| family.name != *cell.family) {
            row.families.push(data::Family { name: cell.family.to_string(), columns: Vec::new() });
        }
        let columns = &mut row.families.last_mut().expect("one was pushed").columns;
        let made = data::Cell { timestamp_micros: cell.timestamp, value: cell.value, labels: cell.labels };
        columns.push(data::Column { qualifier: cell.qualifier, cells: vec![made] });
    }
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(bytes: usize) -> Mutation {
        let set = data::mutation::SetCell { value: vec![0; bytes].into(), ..Default::default() };
        Mutation { mutation: Some(Change::SetCell(set)), ..Default::default() }
    }

    #[test]
    fn few_mutations_are_so_by_their_number_their_bytes_and_what_they_take() {
        assert!(are_few(&[]) && are_few(&[set(60_000)]) && !are_few(&[set(70_000)]));
        assert!(are_few(&vec![set(10); FEW_MUTATIONS]) && !are_few(&vec![set(10); FEW_MUTATIONS + 1]));
        let add = Change::AddToCell(data::mutation::AddToCell::default());
        let add = Mutation { mutation: Some(add), ..Default::default() };
        assert!(
            are_few(&vec![add.clone(); FEW_MUTATIONS / 8]) && !are_few(&vec![add; FEW_MUTATIONS / 8 + 1])
        );
    }

    #[test]
    fn of_a_column_that_several_rules_name_one_cell_is_read() {
        let rule = |qualifier: &'static str| ReadModifyWriteRule {
            family_name: "f".into(),
            column_qualifier: qualifier.into(),
            rule: None,
        };
        assert_eq!(newest_of(&[rule("a"), rule("b"), rule("a")]).unwrap().len(), 2);
        let long =
            ReadModifyWriteRule { column_qualifier: vec![0; row_key::QUALIFIER_MAX + 1].into(), ..rule("a") };
        assert!(newest_of(&[long]).is_err());
    }
}
