use super::Place;
use crate::escape::Bytes;
use crate::failure::Outcome;
use crate::open;
use clap::Args;
use siltstone::Durability;

/// Set the value of a key
///
/// The database is made if the directory is missing or empty. What was put survives a power loss once the
/// command has ended.
#[derive(Args)]
#[command(after_help = "Example: siltstone put /tmp/db river 'silt\\tand sand'")]
pub(crate) struct Put {
    #[command(flatten)]
    place: Place,
    /// The key; may hold backslash escapes
    key: Bytes,
    /// The value; may hold backslash escapes
    value: Bytes,
    /// Make the family if there is none, with default options
    #[arg(long)]
    create_family: bool,
}

impl Put {
    pub(crate) fn run(self) -> Outcome {
        let db = open::to_write_or_create(&self.place.db)?;
        let family = open::family(&db, &self.place.family, self.create_family)?;
        family.put_with(&self.key.0, &self.value.0, Durability::Sync)?;
        Ok(db.close()?)
    }
}
