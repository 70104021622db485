use super::Place;
use super::scan::{check_times, is_explicit};
use crate::escape::{Bytes, printable, unicode};
use crate::failure::{Failure, Outcome};
use crate::format::{Format, Row};
use crate::open;
use clap::Args;
use siltstone::Timestamp;
use std::io::Write;

/// Print the value of a key
///
/// The value is printed with backslash escapes and a newline. Without such a key nothing is printed and the
/// exit code is 1.
#[derive(Args)]
#[command(after_help = "\
Example: siltstone get /tmp/db river
         siltstone get /tmp/db sensor --family history --versions 3")]
pub(crate) struct Get {
    #[command(flatten)]
    place: Place,
    /// The key; may hold backslash escapes
    key: Bytes,
    /// Print the newest N versions, newest first, one row of key, value and timestamp each
    #[arg(long, value_name = "N", conflicts_with = "raw")]
    versions: Option<usize>,
    /// The version with this timestamp, or the newest before it (families with explicit timestamps)
    #[arg(long)]
    timestamp: Option<u64>,
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
        check_times(&family, self.timestamp.is_some())?;
        let mut out = std::io::stdout().lock();
        let upto = ..=Timestamp(self.timestamp.unwrap_or(u64::MAX));
        if let Some(count) = self.versions {
            let versions = family.get_versions_in(&self.key.0, upto, count)?;
            let explicit = is_explicit(&family);
            let mut writer = if self.json { Format::Jsonl } else { Format::Tsv }.writer(out);
            for (timestamp, value) in &versions {
                let timestamp = explicit.then_some(timestamp.0);
                writer.write(&Row { key: self.key.0.clone(), value: value.to_vec(), timestamp })?;
            }
            writer.finish()?;
            return if versions.is_empty() { Err(Failure::Silent) } else { Ok(()) };
        }
        let found = match self.timestamp {
            None => family.get(&self.key.0)?,
            Some(_) => family.get_versions_in(&self.key.0, upto, 1)?.pop().map(|(_, value)| value),
        };
        let Some(value) = found else { return Err(Failure::Silent) };
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
