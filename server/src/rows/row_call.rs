//! A call that reads a row before it writes it: CheckAndMutateRow or ReadModifyWriteRow.

use crate::cells::filter::{Cell, Filter};
use crate::cells::row_key;
use crate::net::budget::{self, Budget, Lease};
use crate::net::work::{Caller, Work};
use crate::proto::data::read_modify_write_rule::Rule;
use crate::proto::data::{
    self, CheckAndMutateRowRequest, Mutation, ReadModifyWriteRowRequest, ReadModifyWriteRule,
};
use crate::rows::moment::Moment;
use crate::rows::mutate;
use crate::rows::pieces::{Next, Pieces};
use crate::rows::row_cursor::{RowCursor, View};
use crate::tables::layout::Layout;
use crate::tables::registry::Tables;
use crate::tables::views::Target;
use bytes::Bytes;
use siltstone::{Batch, Timestamp, Transaction};
use std::collections::BTreeSet;
use std::sync::Arc;
use tonic::Status;

/// The most rules of a read-modify-write: each searches all for its column.
const RULES_MAX: usize = 1_000;
/// Bytes of the cells that a read-modify-write reads, at most.
const READ_MAX: usize = 256 << 20;

/// A call, with all checked that does not depend on the row.
pub(crate) struct RowCall {
    pub(super) target: Target,
    pub(super) row: Bytes,
    pub(super) caller: Caller,
    /// The cells that count are those which one of these lets through.
    filters: Vec<Filter>,
    kind: Kind,
}

enum Kind {
    Check { then: Vec<Mutation>, otherwise: Vec<Mutation> },
    Modify { rules: Vec<ReadModifyWriteRule>, memory: Arc<Budget> },
}

/// The part of a row on which a call depends, as it was when it was read.
pub(super) struct Found {
    /// Whether any cell counts: all that a check asks for.
    is_any: bool,
    /// The cells that are to be modified.
    cells: Vec<Cell>,
    /// The cost of reading it, in units of [`Work`].
    pub(super) units: u64,
    /// The memory of the cells.
    _lease: Option<Arc<Lease>>,
}

impl Found {
    /// Bytes of the values.
    pub(super) fn bytes(&self) -> usize {
        self.cells.iter().map(|cell| cell.value.len()).sum()
    }
}

/// The answer to a call that was carried out.
#[derive(Debug)]
pub(crate) struct Answer {
    /// Whether the predicate of a check let anything through.
    pub(super) matched: bool,
    /// The cells that a read-modify-write has made.
    pub(super) changed: Vec<Cell>,
}

impl RowCall {
    /// A CheckAndMutateRow.
    pub(super) fn check(
        tables: &Tables,
        request: CheckAndMutateRowRequest,
        caller: Caller,
    ) -> Result<Self, Status> {
        let target = tables.target(&request.table_name, &request.authorized_view_name)?;
        let (row, then, otherwise) = (request.row_key, request.true_mutations, request.false_mutations);
        row_key::check_row(&row)?;
        // Whatever the predicate finds: by what is refused nothing is learned of the row.
        let view = target.view.as_deref();
        [&then, &otherwise].into_iter().try_for_each(|some| mutate::check_within(view, &row, some))?;
        if then.is_empty() && otherwise.is_empty() {
            return Err(Status::invalid_argument("neither true_mutations nor false_mutations"));
        }
        // Whether there is a cell is all that counts.
        let predicate = request.predicate_filter.as_ref();
        let predicate = match Filter::compile(predicate, &mut Work::unbounded(caller.clone()))? {
            Filter::Chain(mut all) => {
                all.push(Filter::row_limit(1));
                Filter::Chain(all)
            }
            one => Filter::Chain(vec![one, Filter::row_limit(1)]),
        };
        let (filters, kind) = (vec![predicate], Kind::Check { then, otherwise });
        Ok(Self { target, row, caller, filters, kind })
    }

    /// A ReadModifyWriteRow, which reads as far as there is memory.
    pub(super) fn modify(
        tables: &Tables,
        request: ReadModifyWriteRowRequest,
        caller: Caller,
        memory: Arc<Budget>,
    ) -> Result<Self, Status> {
        let target = tables.target(&request.table_name, &request.authorized_view_name)?;
        let (row, rules) = (request.row_key, request.rules);
        row_key::check_row(&row)?;
        if let Some(view) = &target.view {
            view.check_row(&row)?;
            let within =
                |rule: &ReadModifyWriteRule| view.check_column(&rule.family_name, &rule.column_qualifier);
            rules.iter().try_for_each(within)?;
        }
        match rules.len() {
            1..=RULES_MAX => {}
            len => {
                return Err(Status::invalid_argument(format!("{len} rules; a call takes 1 to {RULES_MAX}")));
            }
        }
        let (filters, kind) = (newest_of(&rules)?, Kind::Modify { rules, memory });
        Ok(Self { target, row, caller, filters, kind })
    }

    /// Reads what the call depends on in its row, under the writes of a transaction. The caller holds the
    /// table.
    pub(super) fn find(&self, transaction: &Transaction) -> Result<Found, Status> {
        match transaction.batch().is_empty() {
            // It costs less.
            true => self.find_at(transaction.snapshot().clone()),
            false => self.find_at(transaction),
        }
    }

    fn find_at(&self, moment: impl Moment) -> Result<Found, Status> {
        let (mut is_any, mut cells, mut bytes) = (false, Vec::new(), 0);
        let lease = match &self.kind {
            Kind::Check { .. } => None,
            Kind::Modify { memory, .. } => Some(memory.count(0)),
        };
        let units = self.read(moment, |cell| {
            is_any = true;
            let Some(lease) = &lease else { return Ok(false) };
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
        Ok(Found { is_any, cells, units, _lease: lease })
    }

    /// Whether the call finds in its row what it found before. The caller holds the table.
    pub(super) fn finds_again(&self, transaction: &Transaction, before: &Found) -> Result<bool, Status> {
        match transaction.batch().is_empty() {
            true => self.finds_again_at(transaction.snapshot().clone(), before),
            false => self.finds_again_at(transaction, before),
        }
    }

    fn finds_again_at(&self, moment: impl Moment, before: &Found) -> Result<bool, Status> {
        let (mut is_any, mut is_same, mut cells) = (false, true, before.cells.iter());
        let is_check = matches!(self.kind, Kind::Check { .. });
        self.read(moment, |cell| {
            is_any = true;
            is_same = is_check || cells.next() == Some(&cell);
            Ok(is_same && !is_check)
        })?;
        Ok(is_same && is_any == before.is_any && cells.next().is_none())
    }

    /// Gives what each of the filters lets through of the row to `take`, until that wants no more; the cost
    /// in units of [`Work`].
    fn read(
        &self,
        moment: impl Moment,
        mut take: impl FnMut(Cell) -> Result<bool, Status>,
    ) -> Result<u64, Status> {
        let (table, now_us) = (self.target.table.clone(), crate::time::now_us());
        let view = Arc::new(View { table, moment, now_us, reversed: false, held: true });
        let mut work = Work::unbounded(self.caller.clone());
        for filter in &self.filters {
            let needs = self.target.needs(filter);
            let mut rows = RowCursor::new(view.clone(), &needs, &row_key::row_span(&self.row));
            let mut pieces = Pieces::new(filter.clone());
            while let Next::Cell(cell) = pieces.next(&mut rows, &needs, &mut work)? {
                if !take(cell)? {
                    return Ok(work.done());
                }
            }
        }
        Ok(work.done())
    }

    /// The call's writes, and its answer once they are made.
    pub(super) fn plan(&self, layout: &Layout, found: &Found) -> Result<(Batch, Answer), Status> {
        let mut batch = Batch::new();
        match &self.kind {
            Kind::Check { then, otherwise } => {
                // The others are not judged.
                let mutations = if found.is_any { then } else { otherwise };
                if !mutations.is_empty() {
                    mutate::add(&mut batch, layout, &self.row, mutations)?;
                }
                Ok((batch, Answer { matched: found.is_any, changed: Vec::new() }))
            }
            Kind::Modify { rules, .. } => {
                let changed = modified(found.cells.clone(), layout, rules)?;
                for cell in &changed {
                    mutate::check_value(&cell.value)?;
                    let key = row_key::cell_key(&self.row, &cell.qualifier);
                    let at = Timestamp(cell.timestamp.unsigned_abs());
                    batch.put_at(layout.family(&cell.family)?.written(&key), &key, at, &cell.value);
                }
                Ok((batch, Answer { matched: false, changed }))
            }
        }
    }
}

/// Lets through the newest cell of a column, for each column that the rules name.
fn newest_of(rules: &[ReadModifyWriteRule]) -> Result<Vec<Filter>, Status> {
    let mut named = BTreeSet::new();
    let mut columns = Vec::new();
    for rule in rules {
        mutate::check_qualifier(&rule.column_qualifier)?;
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

/// The cells that rules make of the newest ones of their columns.
fn modified(newest: Vec<Cell>, layout: &Layout, rules: &[ReadModifyWriteRule]) -> Result<Vec<Cell>, Status> {
    let mut cells: Vec<(Cell, bool)> = newest.into_iter().map(|cell| (cell, false)).collect();
    let now = i64::try_from(mutate::server_time(layout.schema.granularity).0).unwrap_or(i64::MAX);
    for rule in rules {
        modify(&mut cells, layout, rule, now)?;
    }
    Ok(cells.into_iter().filter_map(|(cell, changed)| changed.then_some(cell)).collect())
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
pub(super) fn as_row(key: &Bytes, mut cells: Vec<Cell>) -> data::Row {
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
