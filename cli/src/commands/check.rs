use crate::failure::{Failure, Outcome};
use crate::text::{count, grouped};
use crate::{open, progress};
use clap::Args;
use siltstone::storage::Env;
use siltstone::{CheckReport, check_with_objects, size_text};
use std::path::PathBuf;

/// Verify every checksum and invariant
///
/// Changes nothing; the database must not be open for writing. Exit code 1 if anything is damaged.
#[derive(Args)]
#[command(after_help = "Example: siltstone check /tmp/db")]
pub(crate) struct Check {
    /// Directory of the database
    db: PathBuf,
    /// Report as JSON
    #[arg(long)]
    json: bool,
}

impl Check {
    pub(crate) fn run(self) -> Outcome {
        let db = open::directory(&self.db)?;
        let report = progress::over_files(|progress| {
            check_with_objects(&Env::local(), db, &open::object_stores(), progress)
        })?;
        if self.json {
            println!("{}", serde_json::to_string_pretty(&report)?);
        } else {
            print!("{}", text(&report));
        }
        match report.damages.len() as u64 {
            0 => Ok(()),
            n => {
                let (found, db) = (count(n, "damage"), db.display());
                Err(Failure::Failed(format!(
                    "{found} found; `siltstone repair {db}` rescues what is readable"
                )))
            }
        }
    }
}

fn text(report: &CheckReport) -> String {
    let mut text = String::new();
    for damage in &report.damages {
        let at = damage.offset.map_or(String::new(), |offset| format!(" at byte {offset}"));
        text += &format!("damage in {}{at}: {}\n", damage.file, damage.message);
    }
    for name in &report.leftovers {
        text += &format!("left over: {name} (the next writer removes it)\n");
    }
    let (tables, blocks) = (count(report.tables, "table"), count(report.blocks, "block"));
    let (files, frames) = (count(report.log_files, "WAL file"), count(report.log_frames, "frame"));
    let families = match report.families {
        1 => "1 family".to_string(),
        n => format!("{} families", grouped(n)),
    };
    let (cells, bytes) = (count(report.cells, "cell"), size_text(report.bytes));
    text += &format!("{families}, {tables} with {blocks} and {cells}, {files} with {frames}\n");
    text += &match report.is_clean() {
        true => format!("all {bytes} are as they were written\n"),
        false => format!("{bytes} are as they were written\n"),
    };
    text
}
