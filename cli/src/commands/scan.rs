use super::Place;
use crate::escape::{Bytes, printable};
use crate::failure::{Failure, Outcome};
use crate::format::{Format, Row};
use crate::open;
use clap::Args;
use siltstone::{Entry, Family, Timestamp, Timestamps};
use std::io::{BufWriter, Write};
use std::ops::Bound;

/// Print the rows of a range of keys, in order
///
/// A row is key, tab, value, with backslash escapes; of families with explicit timestamps each version is a
/// row with the timestamp behind.
#[derive(Args)]
#[command(after_help = "Example: siltstone scan /tmp/db --prefix r --limit 10")]
pub(crate) struct Scan {
    #[command(flatten)]
    place: Place,
    /// Only keys that begin with this
    #[arg(long, conflicts_with_all = ["start", "end"])]
    prefix: Option<Bytes>,
    /// Only keys at or after this one
    #[arg(long)]
    start: Option<Bytes>,
    /// Only keys before this one
    #[arg(long)]
    end: Option<Bytes>,
    /// Only versions with this timestamp or a later one (families with explicit timestamps)
    #[arg(long, value_name = "TIMESTAMP")]
    from_time: Option<u64>,
    /// Only versions with a timestamp before this one (families with explicit timestamps)
    #[arg(long, value_name = "TIMESTAMP")]
    to_time: Option<u64>,
    /// At most this many rows
    #[arg(long)]
    limit: Option<usize>,
    /// From the last key to the first
    #[arg(long)]
    reverse: bool,
    /// Only the keys
    #[arg(long, conflicts_with = "json")]
    keys: bool,
    /// One JSON object a line
    #[arg(long)]
    json: bool,
}

impl Scan {
    pub(crate) fn run(self) -> Outcome {
        let db = open::to_read(&self.place.db)?;
        let family = open::family(&db, &self.place.family, false)?;
        let scan = match &self.prefix {
            Some(Bytes(prefix)) => family.scan_prefix(prefix),
            None => family.scan::<&[u8]>(bounds(self.start.as_ref(), self.end.as_ref())),
        };
        let from = self.from_time.map_or(Bound::Unbounded, |time| Bound::Included(Timestamp(time)));
        let to = self.to_time.map_or(Bound::Unbounded, |time| Bound::Excluded(Timestamp(time)));
        let scan = match (from, to) {
            (Bound::Unbounded, Bound::Unbounded) => scan,
            times => scan.times(times),
        };
        let mut out = BufWriter::new(std::io::stdout().lock());
        let limit = self.limit.unwrap_or(usize::MAX);
        if self.keys {
            for key in either_way(scan.keys(), self.reverse).take(limit) {
                writeln!(out, "{}", printable(&key?))?;
            }
            return Ok(out.flush()?);
        }
        let entries = either_way(scan, self.reverse).take(limit);
        let mut writer = if self.json { Format::Jsonl } else { Format::Tsv }.writer(out);
        let explicit = is_explicit(&family);
        for entry in entries {
            writer.write(&row(entry?, explicit))?;
        }
        Ok(writer.finish()?)
    }
}

/// From the end to the start, if `reverse`.
fn either_way<'a, I: DoubleEndedIterator + 'a>(
    all: I,
    reverse: bool,
) -> Box<dyn Iterator<Item = I::Item> + 'a> {
    if reverse { Box::new(all.rev()) } else { Box::new(all) }
}

/// Refuses timestamps, where some are `given`, of a family that keeps none.
pub(super) fn check_times(family: &Family, given: bool) -> Outcome {
    match given && !is_explicit(family) {
        true => Err(Failure::Failed(format!("family {} keeps no timestamps", family.name()))),
        false => Ok(()),
    }
}

/// Whether the family's rows carry timestamps.
pub(super) fn is_explicit(family: &Family) -> bool {
    family.options().timestamps == Timestamps::Explicit
}

pub(super) fn row(entry: Entry, explicit: bool) -> Row {
    let timestamp = explicit.then_some(entry.timestamp.0);
    Row { key: entry.key, value: entry.value.to_vec(), timestamp }
}

/// From `start` to before `end`, where given.
pub(super) fn bounds<'a>(
    start: Option<&'a Bytes>,
    end: Option<&'a Bytes>,
) -> (Bound<&'a [u8]>, Bound<&'a [u8]>) {
    let start = start.map_or(Bound::Unbounded, |key| Bound::Included(key.0.as_slice()));
    let end = end.map_or(Bound::Unbounded, |key| Bound::Excluded(key.0.as_slice()));
    (start, end)
}
