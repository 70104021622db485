use super::Place;
use super::scan::{bounds, check_times};
use crate::escape::Bytes;
use crate::failure::{Failure, Outcome};
use crate::{interrupt, open};
use clap::Args;
use siltstone::{KeyRange, Timestamp};
use std::ops::Bound;

/// Delete a key, a range of keys, or all keys
///
/// It is no error if there is no such key.
#[derive(Args)]
#[command(after_help = "Example: siltstone delete /tmp/db river
         siltstone delete /tmp/db --prefix user/
         siltstone delete /tmp/db --start a --end m
         siltstone delete /tmp/db --all --family history --to-time 1700000000000000")]
pub(crate) struct Delete {
    #[command(flatten)]
    place: Place,
    /// The key; may hold backslash escapes
    #[arg(required_unless_present_any = ["prefix", "all", "start", "end"])]
    key: Option<Bytes>,
    /// Delete all keys that begin with this
    #[arg(long, conflicts_with = "key")]
    prefix: Option<Bytes>,
    /// Delete the keys at or after this one
    #[arg(long, conflicts_with_all = ["key", "prefix"])]
    start: Option<Bytes>,
    /// Delete the keys before this one
    #[arg(long, conflicts_with_all = ["key", "prefix"])]
    end: Option<Bytes>,
    /// Delete every key of the family
    #[arg(long, conflicts_with_all = ["key", "prefix", "start", "end"])]
    all: bool,
    /// With one key: delete only versions with this timestamp or an earlier one (families with explicit
    /// timestamps)
    #[arg(long, requires = "key")]
    timestamp: Option<u64>,
    /// With a range: delete only versions with this timestamp or a later one (families with explicit
    /// timestamps)
    #[arg(long, value_name = "TIMESTAMP", conflicts_with = "key")]
    from_time: Option<u64>,
    /// With a range: delete only versions with a timestamp before this one (families with explicit
    /// timestamps)
    #[arg(long, value_name = "TIMESTAMP", conflicts_with = "key")]
    to_time: Option<u64>,
}

impl Delete {
    /// The timestamps deleted of a range, both included; `None` where that is none.
    fn times(&self) -> Option<(Timestamp, Timestamp)> {
        let to = match self.to_time {
            None => Timestamp::MAX,
            Some(time) => Timestamp(time.checked_sub(1)?),
        };
        let from = Timestamp(self.from_time.unwrap_or(0));
        (from <= to).then_some((from, to))
    }

    pub(crate) fn run(self) -> Outcome {
        if self.prefix.as_ref().is_some_and(|Bytes(prefix)| prefix.is_empty()) {
            let why = "an empty prefix is that of every key: say --all to delete them all";
            return Err(Failure::Usage(why.into()));
        }
        if let (Some(Bytes(start)), Some(Bytes(end))) = (&self.start, &self.end)
            && start >= end
        {
            return Err(Failure::Usage("there is no key between --start and --end".into()));
        }
        let Some((from, to)) = self.times() else {
            return Err(Failure::Usage("there is no time between --from-time and --to-time".into()));
        };
        let db = open::to_write(&self.place.db)?;
        let family = open::family(&db, &self.place.family, false)?;
        let times = [self.timestamp, self.from_time, self.to_time];
        check_times(&family, times.iter().any(Option::is_some))?;
        interrupt::leaves("what was asked for is deleted as a whole or not at all");
        if let Some(Bytes(key)) = &self.key {
            match self.timestamp {
                None => family.delete(key)?,
                Some(timestamp) => family.delete_at(key, Timestamp(timestamp))?,
            };
        } else {
            let range = match &self.prefix {
                Some(Bytes(prefix)) => KeyRange::prefix(prefix),
                None => KeyRange::from_bounds::<&[u8]>(&bounds(self.start.as_ref(), self.end.as_ref())),
            };
            let end = range.end.map_or(Bound::Unbounded, Bound::Excluded);
            family.delete_range_at((Bound::Included(range.start), end), from, to)?;
        }
        db.sync()?;
        Ok(db.close()?)
    }
}
