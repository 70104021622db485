use crate::escape::{printable, unicode};
use crate::failure::{Failure, Outcome};
use crate::text::count;
use crate::{interrupt, open, progress};
use clap::Args;
use serde_json::{Value, json};
use siltstone::storage::Env;
use siltstone::{Loss, RepairReport, repair};
use std::path::PathBuf;

/// Rescue what is readable of a damaged database, and say what was lost
///
/// Unreadable files move into the directory `lost` inside the database; nothing is removed. A sound database
/// is left as it is. Exit code 1 if anything was lost.
#[derive(Args)]
#[command(after_help = "Example: siltstone repair /tmp/db && siltstone check /tmp/db")]
pub(crate) struct Repair {
    /// Directory of the database
    db: PathBuf,
    /// Report as JSON
    #[arg(long)]
    json: bool,
}

impl Repair {
    pub(crate) fn run(self) -> Outcome {
        let db = open::directory(&self.db)?;
        interrupt::leaves("the repair is not done; run it again");
        let report = progress::over_files(|progress| repair(&Env::local(), db, progress))?;
        if self.json {
            println!("{}", serde_json::to_string_pretty(&json(&report))?);
        } else {
            print!("{}", text(&report));
        }
        match report.lost.len() as u64 {
            0 => Ok(()),
            1 => Err(Failure::Failed("1 loss; the rest is rescued".to_string())),
            n => Err(Failure::Failed(format!("{n} losses; the rest is rescued"))),
        }
    }
}

fn text(report: &RepairReport) -> String {
    let mut text = String::new();
    if report.rebuilt {
        text += "the list of tables was lost: every table found was merged into one run a family\n";
    }
    for loss in &report.lost {
        text += &format!("lost: {}\n", loss_text(loss));
    }
    for name in &report.moved {
        text += &format!("moved to lost: {name}\n");
    }
    let (kept, written) = (count(report.tables_kept, "table"), count(report.tables_written, "table"));
    let (cells, frames) = (count(report.cells_written, "cell"), count(report.log_frames, "frame"));
    text += &format!(
        "{kept} left as they were, {written} written with {cells}, {frames} brought in from the WAL\n"
    );
    text + &match report.is_complete() {
        true => "nothing was lost\n".to_string(),
        false => "outside these losses everything is as it was\n".to_string(),
    }
}

fn loss_text(loss: &Loss) -> String {
    let mut text = format!("{}: {}", loss.file, loss.message);
    if let Some(bytes) = &loss.bytes {
        text += &format!("; bytes {} to {}", bytes.start, bytes.end);
    }
    text += &loss.family.as_ref().map_or("; any family".to_string(), |family| format!("; family {family}"));
    text += &match &loss.keys {
        None => "; any key".to_string(),
        Some(keys) => {
            let end =
                keys.end.as_deref().map_or("the end".to_string(), |end| format!("before {}", printable(end)));
            format!("; keys from {} to {end}", printable(&keys.start))
        }
    };
    match loss.seqs {
        None => text,
        Some((first, last)) => text + &format!("; writes {first} to {last}"),
    }
}

fn json(report: &RepairReport) -> Value {
    let loss = |loss: &Loss| {
        let keys = loss.keys.as_ref();
        json!({
            "file": loss.file, "message": loss.message, "family": loss.family,
            "bytes": loss.bytes.as_ref().map(|bytes| [bytes.start, bytes.end]),
            "start": keys.map(|keys| unicode(&keys.start)),
            "end": keys.and_then(|keys| keys.end.as_deref().map(unicode)),
            "seqs": loss.seqs.map(|(first, last)| [first, last]),
        })
    };
    json!({
        "rebuilt": report.rebuilt, "families": report.families, "tables_kept": report.tables_kept,
        "tables_written": report.tables_written, "cells_written": report.cells_written,
        "log_frames": report.log_frames, "moved": report.moved, "complete": report.is_complete(),
        "lost": report.lost.iter().map(loss).collect::<Vec<_>>(),
    })
}
