//! Manual compactions, with progress and cancelling.

use super::Place;
use super::scan::bounds;
use crate::escape::Bytes;
use crate::failure::Outcome;
use crate::text::count;
use crate::{interrupt, open, progress};
use clap::Args;
use siltstone::{CompactionControl, Db, ErrorKind, size_text};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Compact a family into its last level
///
/// Ctrl-C ends it at its next step; finished steps stay, and no data is lost.
#[derive(Args)]
#[command(after_help = "\
Example: siltstone compact /tmp/db
         siltstone compact /tmp/db --start a --end m
         siltstone compact /tmp/db --rewrite
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
    /// Also write anew what has nothing to drop, so that changed options (compression, block size, filter
    /// bits) hold for it
    #[arg(long)]
    rewrite: bool,
    /// Do only the compactions that the strategy asks for, in all families
    #[arg(long, conflicts_with_all = ["start", "end", "family", "rewrite"])]
    until_settled: bool,
    /// Report as JSON
    #[arg(long)]
    json: bool,
}

impl Compact {
    pub(crate) fn run(self) -> Outcome {
        let db = open::to_write(&self.place.db)?;
        let before = db.statistics().sstable_bytes;
        let begun = Instant::now();
        let done = if self.until_settled { settle(&db) } else { self.major(&db) };
        let seconds = begun.elapsed().as_secs_f64();
        let s = db.statistics();
        let closed = db.close();
        done?;
        closed?;
        if self.json {
            let report = serde_json::json!({
                "sstable_bytes_before": before, "sstable_bytes": s.sstable_bytes, "sstables": s.sstables,
                "compactions": s.compactions, "trivial_moves": s.trivial_moves,
                "compaction_written_bytes": s.compaction_written_bytes, "cells_dropped": s.cells_dropped,
                "seconds": seconds,
            });
            println!("{report}");
        } else {
            let (from, to, written) =
                (size_text(before), size_text(s.sstable_bytes), size_text(s.compaction_written_bytes));
            let tables = count(s.sstables, "SSTable");
            println!("SSTables held {from}, now {to} in {tables}; {written} written in {seconds:.2} s");
        }
        Ok(())
    }

    fn major(&self, db: &Db) -> Outcome {
        let family = open::family(db, &self.place.family, false)?;
        let control = match self.rewrite {
            true => CompactionControl::rewriting(),
            false => CompactionControl::default(),
        };
        let on_interrupt = control.clone();
        interrupt::on_signal(move || {
            on_interrupt.cancel();
            None
        });
        let range = bounds(self.start.as_ref(), self.end.as_ref());
        let ended = AtomicBool::new(false);
        let result = std::thread::scope(|scope| {
            scope.spawn(|| {
                // The amount of work is known when memory is flushed and the compaction begins.
                let mut bar = progress::waiting("flushing memory");
                let mut is_begun = false;
                while !ended.load(Ordering::Relaxed) {
                    let (written, total) = control.progress();
                    if total > 0 && !std::mem::replace(&mut is_begun, true) {
                        bar.finish_and_clear();
                        bar = progress::bytes(Some(total));
                    }
                    if is_begun {
                        bar.set_length(total.max(written));
                        bar.set_position(written);
                    }
                    std::thread::sleep(Duration::from_millis(50));
                }
                bar.finish_and_clear();
            });
            let result = family.compact_with::<&[u8]>(range, &control);
            ended.store(true, Ordering::Relaxed);
            result
        });
        match result {
            Err(e) if e.kind() == ErrorKind::Canceled => {
                let (written, _) = control.progress();
                interrupt::check(|| {
                    format!("{} were merged; the steps that were finished stay", size_text(written))
                })?;
                Err(e.into())
            }
            result => Ok(result?),
        }
    }
}

fn settle(db: &Db) -> Outcome {
    interrupt::leaves("the compactions that were finished stay");
    let bar = progress::waiting("merging until the strategy is satisfied");
    let settled = db.wait_idle();
    bar.finish_and_clear();
    Ok(settled?)
}
