//! Merges on request, with progress and cancelling.

use super::Place;
use super::scan::bounds;
use crate::escape::Bytes;
use crate::failure::{Failure, Outcome};
use crate::text::count;
use crate::{open, progress};
use clap::Args;
use siltstone::{CompactionControl, Db, ErrorKind, size_text};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Merge a family's tables into its last level
///
/// Ctrl-C ends it at its next step; finished steps stay, and nothing is lost.
#[derive(Args)]
#[command(after_help = "\
Example: siltstone compact /tmp/db
         siltstone compact /tmp/db --start a --end m
         siltstone compact /tmp/db --until-settled")]
pub(crate) struct Compact {
    #[command(flatten)]
    place: Place,
    /// Only keys at or after this one
    #[arg(long)]
    start: Option<Bytes>,
    /// Only keys before this one
    #[arg(long)]
    end: Option<Bytes>,
    /// Only what the strategy asks for, in all families, instead of a major merge
    #[arg(long, conflicts_with_all = ["start", "end", "family"])]
    until_settled: bool,
    /// Report as JSON
    #[arg(long)]
    json: bool,
}

impl Compact {
    pub(crate) fn run(self) -> Outcome {
        let db = open::to_write(&self.place.db)?;
        let before = db.statistics().table_bytes;
        let begun = Instant::now();
        let done = if self.until_settled { settle(&db) } else { self.major(&db) };
        let seconds = begun.elapsed().as_secs_f64();
        let s = db.statistics();
        db.close()?;
        done?;
        if self.json {
            let report = serde_json::json!({
                "table_bytes_before": before, "table_bytes": s.table_bytes, "tables": s.tables, "merges": s.merges,
                "moves": s.moves, "merged_bytes": s.merged_bytes, "cells_dropped": s.cells_dropped, "seconds": seconds,
            });
            println!("{report}");
        } else {
            let (from, to, written) =
                (size_text(before), size_text(s.table_bytes), size_text(s.merged_bytes));
            let tables = count(s.tables, "table");
            println!("tables held {from}, now {to} in {tables}; {written} written in {seconds:.2} s");
        }
        Ok(())
    }

    fn major(&self, db: &Db) -> Outcome {
        let family = open::family(db, &self.place.family, false)?;
        let control = CompactionControl::default();
        let on_interrupt = control.clone();
        // Without a handler Ctrl-C ends the process, which is safe too.
        let _ = ctrlc::set_handler(move || on_interrupt.cancel());
        let range = bounds(self.start.as_ref(), self.end.as_ref());
        let ended = AtomicBool::new(false);
        let result = std::thread::scope(|scope| {
            scope.spawn(|| {
                let bar = progress::bytes(Some(0));
                while !ended.load(Ordering::Relaxed) {
                    let (written, total) = control.progress();
                    bar.set_length(total.max(written));
                    bar.set_position(written);
                    std::thread::sleep(Duration::from_millis(50));
                }
                bar.finish_and_clear();
            });
            let result = family.compact_with::<&[u8]>(range, &control);
            ended.store(true, Ordering::Relaxed);
            result
        });
        result.map_err(|e| match e.kind() {
            ErrorKind::Canceled => {
                Failure::Failed("cancelled; the steps that were finished stay".to_string())
            }
            _ => e.into(),
        })
    }
}

fn settle(db: &Db) -> Outcome {
    let bar = progress::waiting("merging until the strategy is satisfied");
    let settled = db.settle();
    bar.finish_and_clear();
    Ok(settled?)
}
