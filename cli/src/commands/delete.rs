use super::Place;
use crate::escape::Bytes;
use crate::failure::Outcome;
use crate::open;
use clap::Args;

/// Delete a key, or all keys with a prefix
///
/// It is no error if there is no such key.
#[derive(Args)]
#[command(after_help = "Example: siltstone delete /tmp/db river")]
pub(crate) struct Delete {
    #[command(flatten)]
    place: Place,
    /// The key; may hold backslash escapes
    #[arg(required_unless_present = "prefix")]
    key: Option<Bytes>,
    /// Delete all keys that begin with this
    #[arg(long, conflicts_with = "key")]
    prefix: Option<Bytes>,
}

impl Delete {
    pub(crate) fn run(self) -> Outcome {
        let db = open::to_write(&self.place.db)?;
        let family = open::family(&db, &self.place.family, false)?;
        if let Some(Bytes(key)) = &self.key {
            family.delete(key)?;
        }
        if let Some(Bytes(prefix)) = &self.prefix {
            let range = siltstone::KeyRange::prefix(prefix);
            match range.end {
                Some(end) => family.delete_range(range.start..end)?,
                None => family.delete_range(range.start..)?,
            };
        }
        db.sync()?;
        Ok(db.close()?)
    }
}
