//! Mutations of rows as batches of the engine.
//!
//! All mutations of a row, over all families, are one batch: one record of the WAL, whole or not at all.

use crate::cells::aggregate::Aggregate;
use crate::cells::filter;
use crate::cells::row_key;
use crate::cells::subset::{self, Subset};
use crate::net::wire::MUTATIONS_MAX;
use crate::proto::data::mutation::Mutation as Change;
use crate::proto::data::{self, Mutation, TimestampRange, value};
use crate::tables::layout::{Layout, Stores};
use crate::tables::schema::Granularity;
use prost::Message;
use siltstone::{Batch, Timestamp};
use tonic::Status;

/// Mutations that are written where the call came in, and their bytes, at most.
pub(crate) const FEW_MUTATIONS: usize = 256;
const FEW_BYTES: usize = 64 << 10;
/// The maker of a timestamp, in `Mutation.timestamp_origin`: unspecified, the user, or the client by itself.
const CLIENT_AUTO_GENERATED: i32 = 2;
const ORIGINS: std::ops::RangeInclusive<i32> = 0..=CLIENT_AUTO_GENERATED;

/// Now, as the server gives timestamps.
pub(crate) fn server_time(granularity: Granularity) -> Timestamp {
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

/// Refuses a qualifier that is too long.
pub(crate) fn check_qualifier(qualifier: &[u8]) -> Result<(), Status> {
    match qualifier.len() {
        len if len > row_key::QUALIFIER_MAX => Err(Status::invalid_argument(format!(
            "qualifier has {len} bytes, the limit is {}",
            row_key::QUALIFIER_MAX
        ))),
        _ => Ok(()),
    }
}

/// Refuses a value that is too long.
pub(crate) fn check_value(value: &[u8]) -> Result<(), Status> {
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
}
