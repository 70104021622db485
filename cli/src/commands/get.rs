use super::Place;
use crate::escape::{Bytes, printable, unicode};
use crate::failure::{Failure, Outcome};
use crate::open;
use clap::Args;
use std::io::Write;

/// Print the value of a key
///
/// The value is printed with backslash escapes and a newline. Without such a key nothing is printed and the exit
/// code is 1.
#[derive(Args)]
#[command(after_help = "Example: siltstone get /tmp/db river")]
pub(crate) struct Get {
    #[command(flatten)]
    place: Place,
    /// The key; may hold backslash escapes
    key: Bytes,
    /// Print exactly the value's bytes
    #[arg(long, conflicts_with = "json")]
    raw: bool,
    /// Print {"key": .., "value": ..}
    #[arg(long)]
    json: bool,
}

impl Get {
    pub(crate) fn run(self) -> Outcome {
        let db = open::to_read(&self.place.db)?;
        let family = open::family(&db, &self.place.family, false)?;
        let Some(value) = family.get(&self.key.0)? else { return Err(Failure::Silent) };
        let mut out = std::io::stdout().lock();
        if self.raw {
            out.write_all(&value)?;
        } else if self.json {
            let json = serde_json::json!({ "key": unicode(&self.key.0), "value": unicode(&value) });
            writeln!(out, "{json}")?;
        } else {
            writeln!(out, "{}", printable(&value))?;
        }
        Ok(out.flush()?)
    }
}
