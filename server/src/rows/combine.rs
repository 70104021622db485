//! Calls that read a row before they write it, those of one row combined.
//!
//! A write may take as long as a put to an object store, and the calls of a row cannot overlap. So those that
//! have waited for it are judged one after another, each with the writes of those before it, and all their
//! writes are one batch. It is written under a condition that all find in the row what they found, judged
//! again at the moment of writing: so each call is atomic with all other writes of the row.
//!
//! A call that fails when it is judged writes nothing, and the others go on. A batch that fails is the error
//! of all calls whose answers rest on it: those that wrote, and those that were judged after them.

use crate::cells::row_key;
use crate::net::blocking::panicked;
use crate::net::budget::Budget;
use crate::net::work::Caller;
use crate::proto::data::{self, CheckAndMutateRowRequest, ReadModifyWriteRowRequest};
use crate::rows::row_call::{Answer, Found, RowCall, as_row};
use crate::rows::row_queues::{RowId, RowQueues};
use crate::status::status;
use crate::tables::layout::Layout;
use crate::tables::registry::Tables;
use siltstone::{Batch, Condition, Db, Durability, ErrorKind, Isolation, Operation, Transaction};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use tonic::Status;

/// Tries of a batch that other writes come in between of.
const TRIES: usize = 100;
/// Bytes of several calls together, of what they found and write; less where write memory is smaller.
const BATCH_BYTES: usize = 256 << 10;
/// The cost of judging several calls together, in units of [`crate::net::work::Work`]: some milliseconds.
const BATCH_UNITS: u64 = 1 << 16;
/// Bytes that a write takes beside its key and value, as the engine counts.
const WRITE_BYTES: usize = 32;

/// The calls that read a row before they write it.
pub(crate) struct RowCalls {
    tables: Arc<Tables>,
    durability: Durability,
    queues: RowQueues<Arc<RowCall>, Result<Answer, Status>>,
}

impl RowCalls {
    pub(crate) fn new(tables: Arc<Tables>, durability: Durability) -> Self {
        Self { tables, durability, queues: RowQueues::default() }
    }

    /// CheckAndMutateRow: returns whether the predicate let anything through.
    pub(crate) fn check_and_mutate(
        &self,
        request: CheckAndMutateRowRequest,
        caller: Caller,
    ) -> Result<bool, Status> {
        Ok(self.run(RowCall::check(&self.tables, request, caller)?)?.matched)
    }

    /// ReadModifyWriteRow: returns the cells as they are now.
    pub(crate) fn read_modify_write(
        &self,
        request: ReadModifyWriteRowRequest,
        caller: Caller,
        memory: Arc<Budget>,
    ) -> Result<data::Row, Status> {
        let row = request.row_key.clone();
        let answer = self.run(RowCall::modify(&self.tables, request, caller, memory)?)?;
        Ok(as_row(&row, answer.changed))
    }

    fn run(&self, call: RowCall) -> Result<Answer, Status> {
        let row = id_of(&call);
        let answer = self.queues.run(&row, Arc::new(call), |calls| self.carry_out(calls));
        answer.unwrap_or_else(|| Err(panicked()))
    }

    /// Carries out calls of one row of a table, one at least, in their order: as many of the first as fit
    /// into a batch. Returns their answers.
    fn carry_out(&self, calls: &[Arc<RowCall>]) -> Vec<Result<Answer, Status>> {
        let mut tried = self.try_once(calls);
        for _ in 1..TRIES {
            if !tried.is_overtaken() {
                break;
            }
            tried = self.try_once(calls);
        }
        let failed = match tried.written {
            Ok(()) => return tried.answers.into_iter().map(|answered| answered.answer).collect(),
            Err(e) if e.kind() == ErrorKind::Conflict => {
                let row = calls.first().map_or(&[][..], |call| &call.row[..]).escape_ascii();
                Status::aborted(format!("the row \"{row}\" is written too often by others"))
            }
            Err(e) => status(e),
        };
        let of = |answered: Answered| if answered.rests { Err(failed.clone()) } else { answered.answer };
        tried.answers.into_iter().map(of).collect()
    }

    fn try_once(&self, calls: &[Arc<RowCall>]) -> Tried {
        let [first, ..] = calls else { return Tried { answers: Vec::new(), written: Ok(()) } };
        let _hold = first.target.table.hold();
        let layout = first.target.table.now();
        let mut judging = Judging::new(&self.tables.db);
        for call in calls {
            if !judging.judge(call, &layout) {
                break;
            }
        }
        if judging.judged.len() > 1 {
            judging.note_writes();
        }
        let Judging { transaction, judged, answers, .. } = judging;
        if judged.is_empty() {
            return Tried { answers, written: Ok(()) };
        }
        let judged = Arc::new(judged);
        let unchanged = {
            let (db, judged) = (self.tables.db.clone(), judged.clone());
            move || Ok(are_unchanged(&db, &judged))
        };
        let mut condition = Condition::when(unchanged);
        let (start, end) = (row_key::row_start(&first.row), row_key::row_end(&first.row));
        for family in &layout.families {
            condition = condition.rests_on(family.of(&start), start.clone()..end.clone());
        }
        let batch = match &judged[..] {
            [one] => &one.batch,
            _ => transaction.batch(),
        };
        let written = self.tables.db.write_if(&[condition], batch, self.durability).map(drop);
        Tried { answers, written }
    }
}

fn id_of(call: &RowCall) -> RowId {
    RowId { table: Arc::as_ptr(&call.target.table).addr(), row: call.row.clone() }
}

/// The result of judging calls and writing their batch.
struct Tried {
    answers: Vec<Answered>,
    written: siltstone::Result<()>,
}

impl Tried {
    /// Whether others changed what the calls found.
    fn is_overtaken(&self) -> bool {
        matches!(&self.written, Err(e) if e.kind() == ErrorKind::Conflict)
    }
}

/// The answer to a call.
struct Answered {
    answer: Result<Answer, Status>,
    /// It is true only if the batch is written.
    rests: bool,
}

/// A call that rests on the batch.
struct Judged {
    call: Arc<RowCall>,
    found: Found,
    batch: Batch,
}

/// Calls of a row that are judged one after another.
struct Judging {
    /// The row as the calls so far leave it, but for the writes of the last that was judged.
    transaction: Transaction,
    judged: Vec<Judged>,
    /// Calls whose writes are in the transaction.
    noted: usize,
    answers: Vec<Answered>,
    bytes: usize,
    bytes_max: usize,
    units: u64,
}

impl Judging {
    fn new(db: &Db) -> Self {
        let write_memory = usize::try_from(db.options().write_memory).unwrap_or(usize::MAX);
        Self {
            transaction: db.begin_with(Isolation::Snapshot),
            judged: Vec::new(),
            noted: 0,
            answers: Vec::new(),
            bytes: 0,
            bytes_max: BATCH_BYTES.min(write_memory),
            units: 0,
        }
    }

    /// Lets the transaction see the writes of all calls that were judged.
    fn note_writes(&mut self) {
        for judged in &self.judged[self.noted..] {
            self.transaction.append(&judged.batch);
        }
        self.noted = self.judged.len();
    }

    /// Judges a call, unless it is too much together with those before it: then `false`.
    fn judge(&mut self, call: &Arc<RowCall>, layout: &Layout) -> bool {
        if self.units > BATCH_UNITS {
            return false;
        }
        self.note_writes();
        let planned = unless_panicked(|| {
            call.caller.check()?;
            let found = call.find(&self.transaction)?;
            let plan = call.plan(layout, &found);
            Ok((found, plan))
        });
        let (found, plan) = match planned {
            Ok(planned) => planned,
            Err(e) => {
                self.answers.push(Answered { answer: Err(e), rests: false });
                return true;
            }
        };
        let (batch, answer) = match plan {
            Ok((batch, answer)) => (batch, Ok(answer)),
            Err(e) => (Batch::new(), Err(e)),
        };
        let bytes = found.bytes() + bytes_of(&batch);
        if !self.answers.is_empty() && self.bytes + bytes > self.bytes_max {
            return false;
        }
        self.bytes += bytes;
        self.units += found.units;
        // Also a refusal may be for what a call before it writes.
        let rests = !self.judged.is_empty() || !batch.is_empty();
        if rests {
            self.judged.push(Judged { call: call.clone(), found, batch });
        }
        self.answers.push(Answered { answer, rests });
        true
    }
}

/// Bytes that a batch takes.
fn bytes_of(batch: &Batch) -> usize {
    let bytes = |operation: Operation<'_>| match operation {
        Operation::Put { key, value, .. } => key.len() + value.len(),
        Operation::Merge { key, operand, .. } => key.len() + operand.len(),
        Operation::Delete { key, .. } => key.len(),
        Operation::DeleteRange { range, .. } => range.start.len() + range.end.as_ref().map_or(0, Vec::len),
        _ => 0,
    };
    batch.iter().map(|operation| WRITE_BYTES + bytes(operation)).sum()
}

/// Whether calls find in their row now, each with the writes of those before it, what they found when they
/// were judged. A call that cannot read any more is to be judged again, for its own error.
fn are_unchanged(db: &Db, judged: &[Judged]) -> bool {
    let mut transaction = db.begin_with(Isolation::Snapshot);
    let mut before: Option<&Batch> = None;
    judged.iter().all(|judged| {
        if let Some(batch) = before.replace(&judged.batch) {
            transaction.append(batch);
        }
        let again = unless_panicked(|| judged.call.finds_again(&transaction, &judged.found));
        again.unwrap_or(false)
    })
}

/// A panic while one call is judged is an error of that call.
fn unless_panicked<T>(work: impl FnOnce() -> Result<T, Status>) -> Result<T, Status> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        tracing::error!("judging a call panicked");
        Err(panicked())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cells::aggregate::Aggregate;
    use crate::config::Config;
    use crate::net::budget::Budgets;
    use crate::proto::admin::{self, GcRule, gc_rule};
    use crate::proto::data::mutation::{self, Mutation as Change};
    use crate::proto::data::read_modify_write_rule::Rule;
    use crate::proto::data::row_filter::{Chain, Filter};
    use crate::proto::data::{Mutation, ReadModifyWriteRule, RowFilter, TimestampRange, Value, value};
    use crate::tables::schema;
    use siltstone::Rng;
    use std::thread::{scope, yield_now};
    use tonic::Code;

    const TABLE: &str = "projects/p/instances/i/tables/t";
    /// One family of each kind: all versions, two of them, the newest and what is young, and a sum. `n` is
    /// for rules that read and modify, which make versions as time goes by.
    const FAMILIES: [&str; 5] = ["f", "g", "h", "n", "s"];

    fn opened(dir: &std::path::Path) -> RowCalls {
        let config = Config { dir: dir.join("data"), ..Config::default() };
        let db = schema::builder(config.options()).open(&config.dir).unwrap();
        let tables = Tables::open(db, config.store_settings(), config.directories()).unwrap();
        let rule = |rule| GcRule { rule: Some(rule) };
        let newest = |count| rule(gc_rule::Rule::MaxNumVersions(count));
        let age = rule(gc_rule::Rule::MaxAge(prost_types::Duration { seconds: 86_400, nanos: 0 }));
        let both = gc_rule::Intersection { rules: vec![newest(1), age] };
        let rules =
            [None, Some(newest(2)), Some(rule(gc_rule::Rule::Intersection(both))), Some(newest(1)), None];
        let families = FAMILIES.into_iter().zip(rules).map(|(name, gc_rule)| {
            let value_type = (name == "s").then(|| Aggregate::Sum.to_message());
            (name.to_string(), admin::ColumnFamily { gc_rule, value_type })
        });
        let message = admin::Table { column_families: families.collect(), ..Default::default() };
        tables.create(TABLE, &message, &[] as &[&[u8]]).unwrap();
        RowCalls::new(Arc::new(tables), Durability::Buffered)
    }

    fn memory() -> Arc<Budget> {
        Budgets::new(64 << 20).caller(None, [127, 0, 0, 1].into()).answers.clone()
    }

    fn modifies_of(row: &str, family: &str, qualifier: &str, rule: Rule) -> ReadModifyWriteRowRequest {
        let rule = ReadModifyWriteRule {
            family_name: family.into(),
            column_qualifier: qualifier.to_string().into(),
            rule: Some(rule),
        };
        let (table_name, row_key) = (TABLE.into(), row.to_string().into());
        ReadModifyWriteRowRequest { table_name, row_key, rules: vec![rule], ..Default::default() }
    }

    /// A read-modify-write of row `r`.
    fn modifies(calls: &RowCalls, qualifier: &str, rule: Rule) -> RowCall {
        let request = modifies_of("r", "n", qualifier, rule);
        RowCall::modify(&calls.tables, request, Caller::default(), memory()).unwrap()
    }

    fn append(calls: &RowCalls, qualifier: &str, value: &str) -> RowCall {
        modifies(calls, qualifier, Rule::AppendValue(value.to_string().into()))
    }

    fn checks_of(row: &str, filter: RowFilter, branches: [Vec<Change>; 2]) -> CheckAndMutateRowRequest {
        let mutations = |some: Vec<Change>| {
            some.into_iter().map(|change| Mutation { mutation: Some(change), ..Default::default() }).collect()
        };
        let [then, otherwise] = branches.map(mutations);
        CheckAndMutateRowRequest {
            table_name: TABLE.into(),
            row_key: row.to_string().into(),
            predicate_filter: Some(filter),
            true_mutations: then,
            false_mutations: otherwise,
            ..Default::default()
        }
    }

    /// A check of row `r`.
    fn checks(calls: &RowCalls, filter: RowFilter, branches: [Vec<Change>; 2]) -> RowCall {
        let request = checks_of("r", filter, branches);
        RowCall::check(&calls.tables, request, Caller::default()).unwrap()
    }

    fn of(filter: Filter) -> RowFilter {
        RowFilter { filter: Some(filter) }
    }

    fn all_of(filters: Vec<Filter>) -> RowFilter {
        of(Filter::Chain(Chain { filters: filters.into_iter().map(of).collect() }))
    }

    /// Lets the newest cell of a column through if it has that value.
    fn newest_is(qualifier: &str, value: &str) -> RowFilter {
        all_of(vec![
            Filter::ColumnQualifierRegexFilter(qualifier.to_string().into()),
            Filter::CellsPerColumnLimitFilter(1),
            Filter::ValueRegexFilter(value.to_string().into()),
        ])
    }

    fn set(family: &str, qualifier: &str, timestamp_micros: i64, value: &str) -> Change {
        Change::SetCell(mutation::SetCell {
            family_name: family.into(),
            column_qualifier: qualifier.to_string().into(),
            timestamp_micros,
            value: value.to_string().into(),
        })
    }

    fn value_of(answer: &Result<Answer, Status>) -> &[u8] {
        &answer.as_ref().unwrap().changed[0].value
    }

    /// The number of batches that were written since then.
    fn batches_since(calls: &RowCalls, before: siltstone::SeqNo) -> usize {
        calls.tables.db.changes_since(before).unwrap().map(Result::unwrap).count()
    }

    /// Holds an increment of row `r` up, lets others wait behind it, in their order, and lets all go on.
    /// Returns how many batches were written, and the answers of the others.
    fn behind_one(calls: &RowCalls, others: Vec<RowCall>) -> (usize, Vec<Result<Answer, Status>>) {
        let before = calls.tables.db.snapshot().seq();
        let table = calls.tables.get(TABLE).unwrap();
        let first = modifies(calls, "n", Rule::IncrementAmount(1));
        let row = id_of(&first);
        let answers = scope(|scope| {
            let moves = table.move_keys().unwrap();
            let first = scope.spawn(move || calls.run(first));
            while calls.queues.waiting(&row).is_none() {
                yield_now();
            }
            let mut threads = Vec::new();
            for call in others {
                threads.push(scope.spawn(move || calls.run(call)));
                while calls.queues.waiting(&row) != Some(threads.len()) {
                    yield_now();
                }
            }
            drop(moves);
            first.join().unwrap().unwrap();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        (batches_since(calls, before), answers)
    }

    #[test]
    fn increments_of_one_row_all_count_and_each_has_an_answer_of_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let calls = opened(dir.path());
        let (writers, each) = (64, 50);
        let increment = || {
            let answer = calls.run(modifies(&calls, "n", Rule::IncrementAmount(1)));
            i64::from_be_bytes(value_of(&answer).try_into().unwrap())
        };
        let mut all: Vec<i64> = scope(|scope| {
            let write = || (0..each).map(|_| increment()).collect::<Vec<_>>();
            let threads: Vec<_> = (0..writers).map(|_| scope.spawn(write)).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        all.sort_unstable();
        assert_eq!(all, (1..=writers * each).collect::<Vec<_>>());
    }

    #[test]
    fn calls_that_waited_are_written_together_each_after_what_those_before_it_wrote() {
        let dir = tempfile::tempdir().unwrap();
        let calls = opened(dir.path());
        let delete = Change::DeleteFromRow(mutation::DeleteFromRow {});
        let check = |value, then, otherwise| checks(&calls, newest_is("s", value), [then, otherwise]);
        let others = vec![
            check("0", Vec::new(), vec![set("f", "s", 1_000, "0")]),
            check("0", vec![set("f", "s", 2_000, "1")], Vec::new()),
            check("0", vec![set("f", "s", 3_000, "x")], Vec::new()),
            append(&calls, "n", "more"),
            check("1", vec![delete], Vec::new()),
            append(&calls, "s", "new"),
            modifies(&calls, "n", Rule::IncrementAmount(7)),
            check("new", vec![set("f", "t", 1_000, "done")], Vec::new()),
        ];
        let (batches, answers) = behind_one(&calls, others);
        assert_eq!(batches, 2, "the first call, and all others");
        let matched: Vec<bool> = [0, 1, 2, 4, 7].map(|n: usize| answers[n].as_ref().unwrap().matched).into();
        assert_eq!(matched, [false, true, false, true, true]);
        assert_eq!(value_of(&answers[3]), b"\0\0\0\0\0\0\0\x01more");
        assert_eq!(value_of(&answers[5]), b"new");
        assert_eq!(value_of(&answers[6]), 7i64.to_be_bytes());
    }

    #[test]
    fn a_call_that_fails_when_it_is_judged_fails_alone() {
        let dir = tempfile::tempdir().unwrap();
        let calls = opened(dir.path());
        let elsewhere = vec![set("none", "q", 1_000, "v")];
        let gone = modifies_of("r", "n", "n", Rule::IncrementAmount(100));
        let increment = |amount| modifies(&calls, "n", Rule::IncrementAmount(amount));
        let others = vec![
            append(&calls, "text", "abc"),
            increment(10),
            modifies(&calls, "text", Rule::IncrementAmount(1)),
            checks(&calls, of(Filter::PassAllFilter(true)), [elsewhere, Vec::new()]),
            RowCall::modify(&calls.tables, gone, Caller::gone(), memory()).unwrap(),
            increment(20),
        ];
        let (batches, answers) = behind_one(&calls, others);
        assert_eq!(batches, 2);
        let codes: Vec<_> =
            answers.iter().map(|answer| answer.as_ref().map_or_else(Status::code, |_| Code::Ok)).collect();
        let [ok, not_8_bytes] = [Code::Ok, Code::FailedPrecondition];
        assert_eq!(codes, [ok, ok, not_8_bytes, Code::NotFound, Code::Cancelled, ok]);
        assert_eq!(value_of(&answers[5]), 31i64.to_be_bytes());
        let panicked = unless_panicked::<()>(|| panic!("planted"));
        assert_eq!(panicked.unwrap_err().code(), Code::Internal);
    }

    #[test]
    fn answers_rest_on_the_batch_from_its_first_write_on_and_the_batch_on_what_they_found() {
        let dir = tempfile::tempdir().unwrap();
        let calls = opened(dir.path());
        let (db, table) = (&calls.tables.db, calls.tables.get(TABLE).unwrap());
        let (_hold, layout) = (table.hold(), table.now());
        let mut judging = Judging::new(db);
        let never = || vec![set("f", "never", 1_000, "v")];
        let all = [
            checks(&calls, newest_is("s", "0"), [never(), Vec::new()]),
            modifies(&calls, "n", Rule::IncrementAmount(1)),
            checks(&calls, newest_is("s", "0"), [never(), Vec::new()]),
            append(&calls, "n", &"x".repeat(BATCH_BYTES)),
        ];
        let judged = all.map(|call| judging.judge(&Arc::new(call), &layout));
        assert_eq!(judged, [true, true, true, false], "the last is too large to be written with others");
        let rests: Vec<bool> = judging.answers.iter().map(|answered| answered.rests).collect();
        assert_eq!(rests, [false, true, true]);
        let put = |family: &str, qualifier: &[u8], value: &[u8]| {
            let (key, mut batch) = (row_key::cell_key(b"r", qualifier), Batch::new());
            let store = layout.family(family).unwrap().of(&key);
            batch.put_at(store, &key, siltstone::Timestamp(1_000), value);
            db.write(&batch).unwrap();
        };
        assert!(are_unchanged(db, &judging.judged));
        put("f", b"other", b"v");
        assert!(are_unchanged(db, &judging.judged), "what nobody asked for");
        put("f", b"s", b"0");
        assert!(!are_unchanged(db, &judging.judged), "what the second check asked for");
    }

    /// Any change of a row.
    fn drawn_change(random: &mut Rng) -> Change {
        let qualifier = ["a", "b", "c"][random.index(3)];
        let family = FAMILIES[random.index(3)];
        let at = 1_000 * i64::try_from(random.range(1..6)).unwrap();
        let raw = |kind| Some(Value { kind: Some(kind), ..Default::default() });
        match random.index(12) {
            0..6 => set(family, qualifier, at, ["0", "1", "2"][random.index(3)]),
            6 | 7 => Change::AddToCell(mutation::AddToCell {
                family_name: "s".into(),
                column_qualifier: raw(value::Kind::RawValue(qualifier.into())),
                timestamp: raw(value::Kind::RawTimestampMicros(at)),
                input: raw(value::Kind::IntValue(1)),
            }),
            8 | 9 => {
                let range = TimestampRange { start_timestamp_micros: at, end_timestamp_micros: at + 2_000 };
                Change::DeleteFromColumn(mutation::DeleteFromColumn {
                    family_name: FAMILIES[random.index(5)].into(),
                    column_qualifier: qualifier.into(),
                    time_range: random.chance(50).then_some(range),
                })
            }
            10 => Change::DeleteFromFamily(mutation::DeleteFromFamily { family_name: family.into() }),
            _ => Change::DeleteFromRow(mutation::DeleteFromRow {}),
        }
    }

    /// Any call for a row.
    fn drawn(calls: &RowCalls, row: &str, random: &mut Rng) -> Arc<RowCall> {
        let qualifier = ["a", "b", "c"][random.index(3)];
        if random.chance(30) {
            let rule = match random.chance(50) {
                true => Rule::IncrementAmount(1),
                false => Rule::AppendValue("12345678".into()),
            };
            let request = modifies_of(row, "n", qualifier, rule);
            return Arc::new(RowCall::modify(&calls.tables, request, Caller::default(), memory()).unwrap());
        }
        let mut filters = vec![Filter::FamilyNameRegexFilter(FAMILIES[random.index(5)].into())];
        if random.chance(50) {
            filters.push(Filter::ColumnQualifierRegexFilter(qualifier.into()));
        }
        if random.chance(50) {
            filters.push(Filter::CellsPerColumnLimitFilter(1));
        }
        filters.push(match random.index(3) {
            0 => Filter::PassAllFilter(true),
            1 => Filter::ValueRegexFilter("1".into()),
            // A sum of two.
            _ => Filter::ValueRegexFilter(r"\C*\x02".into()),
        });
        let mut changes = || (0..random.index(3)).map(|_| drawn_change(random)).collect::<Vec<_>>();
        let branches = [changes(), [changes(), vec![set("f", "a", 1_000, "1")]].concat()];
        let request = checks_of(row, all_of(filters), branches);
        Arc::new(RowCall::check(&calls.tables, request, Caller::default()).unwrap())
    }

    /// All cells of a row, without the times of those that the server gave one.
    fn cells_of(calls: &RowCalls, row: &str) -> Vec<String> {
        let layout = calls.tables.get(TABLE).unwrap().now();
        let (start, end) = (row_key::row_start(row.as_bytes()), row_key::row_end(row.as_bytes()));
        let of_family = |name: &&str| {
            let scan = layout.family(name).unwrap().of(&start).scan(start.clone()..end.clone());
            let text = |entry: siltstone::Entry| {
                let qualifier = entry.key[start.len()..].escape_ascii();
                let at = if *name == "n" { 0 } else { entry.timestamp.0 };
                format!("{name}:{qualifier}@{at}={}", entry.value.escape_ascii())
            };
            scan.map(|entry| text(entry.unwrap())).collect::<Vec<_>>()
        };
        FAMILIES.iter().flat_map(of_family).collect()
    }

    #[test]
    fn calls_together_answer_and_write_the_same_as_one_after_another() {
        let dir = tempfile::tempdir().unwrap();
        let calls = opened(dir.path());
        let plain = |answer: Result<Answer, Status>| {
            let of = |answer: Answer| {
                let changed = answer.changed.into_iter().map(|cell| (cell.qualifier, cell.value));
                (answer.matched, changed.collect::<Vec<_>>())
            };
            answer.map(of).map_err(|e| (e.code(), e.message().to_string()))
        };
        for seed in 0..300 {
            let rows = [format!("alone {seed}"), format!("together {seed}")];
            let answers = rows.each_ref().map(|row| {
                let mut random = Rng::new(seed);
                let mut draw = || (0..8).map(|_| drawn(&calls, row, &mut random)).collect::<Vec<_>>();
                // Something is there already.
                draw().iter().for_each(|call| drop(calls.carry_out(std::slice::from_ref(call))));
                let all = draw();
                let answers: Vec<_> = match row.starts_with("alone") {
                    true => all.iter().flat_map(|call| calls.carry_out(std::slice::from_ref(call))).collect(),
                    false => calls.carry_out(&all),
                };
                answers.into_iter().map(plain).collect::<Vec<_>>()
            });
            assert_eq!(answers[0], answers[1], "seed {seed}");
            assert_eq!(cells_of(&calls, &rows[0]), cells_of(&calls, &rows[1]), "seed {seed}");
            if seed % 50 == 0 {
                calls.tables.db.flush().unwrap();
            }
        }
    }
}
