use super::Place;
use super::scan::check_times;
use crate::escape::Bytes;
use crate::failure::Outcome;
use crate::{interrupt, open};
use clap::Args;
use siltstone::Timestamp;

/// Set the value of a key
///
/// The database is made if the directory is missing or empty. What was put survives a power loss once the
/// command has ended.
#[derive(Args)]
#[command(after_help = "\
Example: siltstone put /tmp/db river 'silt\\tand sand'
         siltstone put /tmp/db sensor 21.5 --family history --timestamp 1700000000000000")]
pub(crate) struct Put {
    #[command(flatten)]
    place: Place,
    /// The key; may hold backslash escapes
    key: Bytes,
    /// The value; may hold backslash escapes
    value: Bytes,
    /// The version's timestamp (families with explicit timestamps); without it, now in microseconds since
    /// 1970
    #[arg(long)]
    timestamp: Option<u64>,
    /// Make the family if there is none, with default options; `siltstone family create` takes options
    #[arg(long)]
    create_family: bool,
}

impl Put {
    pub(crate) fn run(self) -> Outcome {
        let db = open::to_write_or_create(&self.place.db)?;
        let family = open::family(&db, &self.place.family, self.create_family)?;
        check_times(&family, self.timestamp.is_some())?;
        interrupt::leaves("the value is stored or not, and may be lost by a power loss");
        match self.timestamp {
            None => family.put(&self.key.0, &self.value.0)?,
            Some(timestamp) => family.put_at(&self.key.0, Timestamp(timestamp), &self.value.0)?,
        };
        db.sync()?;
        Ok(db.close()?)
    }
}
