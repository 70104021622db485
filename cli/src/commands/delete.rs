use super::Place;
use crate::escape::Bytes;
use crate::failure::{Failure, Outcome};
use crate::open;
use clap::Args;

/// Delete a key, all keys with a prefix, or all keys
///
/// It is no error if there is no such key.
#[derive(Args)]
#[command(after_help = "Example: siltstone delete /tmp/db river
         siltstone delete /tmp/db --prefix user/
         siltstone delete /tmp/db --all")]
pub(crate) struct Delete {
    #[command(flatten)]
    place: Place,
    /// The key; may hold backslash escapes
    #[arg(required_unless_present_any = ["prefix", "all"])]
    key: Option<Bytes>,
    /// Delete all keys that begin with this
    #[arg(long, conflicts_with = "key")]
    prefix: Option<Bytes>,
    /// Delete every key of the family
    #[arg(long, conflicts_with_all = ["key", "prefix"])]
    all: bool,
}

impl Delete {
    pub(crate) fn run(self) -> Outcome {
        if self.prefix.as_ref().is_some_and(|Bytes(prefix)| prefix.is_empty()) {
            let why = "an empty prefix is that of every key: say --all to delete them all";
            return Err(Failure::Usage(why.into()));
        }
        let db = open::to_write(&self.place.db)?;
        let family = open::family(&db, &self.place.family, false)?;
        if let Some(Bytes(key)) = &self.key {
            family.delete(key)?;
        }
        if self.all {
            family.delete_range::<&[u8]>(..)?;
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
