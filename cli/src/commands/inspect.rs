//! Listings of a database, or of one SSTable: as text, or the same as JSON.

use crate::escape::{printable, unicode};
use crate::failure::{Failure, Outcome};
use crate::open::{self, Database};
use crate::text::{count, grouped, moment};
use clap::Args;
use serde_json::{Value, json};
use siltstone::shape::Shape;
use siltstone::storage::Env;
use siltstone::{Db, Event, Family, Statistics, TableListing, WalListing, size_text};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// Show shape, memory, WAL, statistics, events, or an SSTable's blocks
///
/// Nothing is changed, and a database in use may be inspected. Statistics count what was done since the
/// database was opened, which here is now; events outlive the process.
#[derive(Args)]
#[command(after_help = "\
Each line is a run of tables: level, run, then each table with its keys, its size and what is special about it.

Example: siltstone inspect /tmp/db --events
         siltstone inspect /tmp/db 000001-000001-000001-0000.table")]
pub(crate) struct Inspect {
    #[command(flatten)]
    db: Database,
    /// An SSTable file: its name in the directory, or a path
    #[arg(conflicts_with = "shared")]
    file: Option<PathBuf>,
    /// Recent events, with their reasons
    #[arg(long, conflicts_with = "file")]
    events: bool,
    /// The WAL's files
    #[arg(long, conflicts_with = "file")]
    log: bool,
    /// Number of events to print
    #[arg(long, default_value_t = 50, requires = "events")]
    limit: usize,
    /// Report as JSON
    #[arg(long)]
    json: bool,
}

impl Inspect {
    pub(crate) fn run(self) -> Outcome {
        let report = match &self.file {
            Some(file) => self.table(file)?,
            None => self.database(&open::to_read(&self.db)?)?,
        };
        let mut out = std::io::stdout().lock();
        out.write_all(report.as_bytes())?;
        Ok(out.flush()?)
    }

    fn table(&self, file: &Path) -> Outcome<String> {
        let inside = self.db.dir.join(file);
        let path = if inside.exists() { inside } else { file.to_path_buf() };
        if !path.is_file() {
            return Err(Failure::Failed(format!("there is no table file {}", file.display())));
        }
        let listing = TableListing::read(&Env::local(), &path)?;
        if self.json { pretty(&table_json(&listing)) } else { Ok(table_text(&listing)) }
    }

    fn database(&self, db: &Db) -> Outcome<String> {
        let mut events = db.events();
        events.drain(..events.len().saturating_sub(self.limit));
        let (log, statistics) = (db.wal_files(), db.statistics());
        let families: Vec<Family> =
            db.families().iter().map(|name| db.family(name)).collect::<Result<_, _>>()?;
        if self.json {
            let families: Vec<Value> = families.iter().map(family_json).collect();
            let mut report = json!({ "path": db.path().display().to_string(), "families": families });
            report["wal"] = json!(log);
            report["statistics"] = json!(statistics);
            if self.events {
                report["events"] = json!(events);
            }
            return pretty(&report);
        }
        let mut text = format!("database {}\n", db.path().display());
        families.iter().for_each(|family| text += &family_text(family));
        text += &log_text(&log, self.log);
        text += &statistics_text(&statistics);
        if self.events {
            text += &events_text(&events);
        }
        Ok(text)
    }
}

fn pretty(report: &Value) -> Outcome<String> {
    Ok(serde_json::to_string_pretty(report)? + "\n")
}

fn family_text(family: &Family) -> String {
    let (shape, options) = (family.shape(), family.options());
    let tables = shape.tables().count() as u64;
    let mut text = format!(
        "\nfamily {}: {}, {}; strategy {}, compression {}\n",
        family.name(),
        count(tables, "SSTable"),
        size_text(shape.live_bytes()),
        options.strategy,
        options.compression
    );
    for (level, l) in shape.levels.iter().enumerate().filter(|(_, l)| !l.runs.is_empty()) {
        let tables = l.runs.iter().map(|run| run.tables().len()).sum::<usize>() as u64;
        let (runs, bytes) = (count(l.runs.len() as u64, "run"), size_text(l.live_bytes()));
        let _ = writeln!(text, "  L{level}: {runs}, {}, {bytes}", count(tables, "SSTable"));
    }
    shape.to_string().lines().for_each(|line| {
        let _ = writeln!(text, "    {line}");
    });
    for memtable in family.memtables() {
        let (cells, bytes) = (count(memtable.cells, "cell"), size_text(memtable.bytes));
        let _ =
            write!(text, "  memory: {} memtable {}, {cells}, {bytes}", memtable.state, memtable.generation);
        let _ = match memtable.log_front {
            Some(front) => writeln!(text, ", needs the WAL from file {front}"),
            None => writeln!(text),
        };
    }
    text
}

fn family_json(family: &Family) -> Value {
    json!({
        "name": family.name(), "options": family.options(), "levels": levels_json(&family.shape()),
        "memtables": family.memtables(),
    })
}

fn levels_json(shape: &Shape) -> Value {
    let key = |bytes: &[u8]| unicode(bytes);
    let table = |t: &siltstone::shape::TableInfo| {
        json!({
            "file": t.id.file_name(), "bytes": t.bytes, "live_bytes": t.live_bytes(), "cells": t.cells,
            "tombstones": t.tombstones, "range_tombstones": t.range_tombstones, "distinct": t.distinct,
            "start": key(&t.range.start), "end": t.range.end.as_deref().map(key),
            "seqs": [t.seqs.0, t.seqs.1], "created_us": t.created,
            "wal_bytes": t.log_bytes, "logs": t.logs.iter().map(|file| file.0).collect::<Vec<_>>(),
            "clip": t.clip.as_ref().map(|c| json!({ "key": key(&c.key), "bytes_below": c.bytes_below })),
        })
    };
    let run = |run: &siltstone::shape::Run| json!({ "id": run.id, "tables": run.tables().iter().map(|t| table(t)).collect::<Vec<_>>() });
    shape.levels.iter().map(|level| level.runs.iter().map(run).collect::<Vec<_>>()).collect()
}

fn log_text(log: &[WalListing], each: bool) -> String {
    let used = size_text(log.iter().map(|file| file.used).sum());
    let reserved = size_text(log.iter().map(|file| file.reserved).sum());
    let mut text = format!("\nWAL: {}, {used} of history in {reserved}\n", count(log.len() as u64, "file"));
    for file in log.iter().filter(|_| each) {
        let (used, reserved) = (grouped(file.used), grouped(file.reserved));
        let _ = writeln!(text, "  file {}: {used} bytes used of {reserved}", file.file);
    }
    text
}

fn statistics_text(statistics: &Statistics) -> String {
    let mut text = "\nstatistics (of this process)\n".to_string();
    let Ok(Value::Object(numbers)) = serde_json::to_value(statistics) else { return text };
    for (name, n) in numbers.iter().filter_map(|(name, n)| Some((name, n.as_u64()?))).filter(|(_, n)| *n > 0)
    {
        let _ = writeln!(text, "  {:<28} {:>15}", name.replace('_', " "), grouped(n));
    }
    text
}

fn events_text(events: &[Event]) -> String {
    let mut text = format!("\nevents: the newest {}, oldest first\n", events.len());
    events.iter().for_each(|event| {
        let _ = writeln!(text, "  {} {event:#}", moment(event.at_us));
    });
    text
}

fn table_text(t: &TableListing) -> String {
    let mut text = String::new();
    let end = t.range.end.as_deref().map_or("..".to_string(), printable);
    let rows = [
        ("file", format!("{} bytes", grouped(t.bytes))),
        ("keys", format!("{} to before {end}", printable(&t.range.start))),
        ("cells", format!("{} of {} keys", grouped(t.cells), grouped(t.distinct))),
        ("tombstones", format!("{}, and {} of ranges", grouped(t.tombstones), grouped(t.range_tombstones))),
        ("merge operands", grouped(t.operands)),
        ("raw bytes", format!("{} of keys, {} of values", grouped(t.key_bytes), grouped(t.value_bytes))),
        ("values in the WAL", values_in_log(t)),
        ("sequence numbers", format!("{} to {}", t.seqs.0, t.seqs.1)),
        ("timestamps", format!("{} to {}", t.times.0, t.times.1)),
        ("created", moment(t.created)),
        (
            "layout",
            format!(
                "blocks of {} bytes, {}, {} filter bits a key",
                t.block_bytes, t.compression, t.bloom_bits
            ),
        ),
    ];
    for (name, value) in rows {
        let _ = writeln!(text, "{name:<18} {value}");
    }
    for (name, value) in &t.names {
        let _ = writeln!(text, "{name:<18} {value}");
    }
    let _ = writeln!(
        text,
        "\n{:>12} {:>9} {:>9} {:>6}  {:<6} first key",
        "offset", "bytes", "raw", "cells", "codec"
    );
    for b in &t.blocks {
        let (key, codec) = (printable(&b.first_key), &b.compression);
        let _ = writeln!(
            text,
            "{:>12} {:>9} {:>9} {:>6}  {codec:<6} {key}",
            b.offset, b.file_bytes, b.raw_bytes, b.cells
        );
    }
    text
}

fn values_in_log(t: &TableListing) -> String {
    if t.logs.is_empty() {
        return "none".into();
    }
    let files: Vec<String> = t.logs.iter().map(|file| format!("{file:010}.log")).collect();
    format!("{} bytes, in {}", grouped(t.log_bytes), files.join(", "))
}

fn table_json(t: &TableListing) -> Value {
    let block = |b: &siltstone::BlockListing| {
        json!({
            "offset": b.offset, "file_bytes": b.file_bytes, "raw_bytes": b.raw_bytes, "cells": b.cells,
            "compression": b.compression, "first_key": unicode(&b.first_key),
        })
    };
    json!({
        "bytes": t.bytes, "start": unicode(&t.range.start), "end": t.range.end.as_deref().map(unicode),
        "cells": t.cells, "distinct": t.distinct, "tombstones": t.tombstones, "operands": t.operands,
        "range_tombstones": t.range_tombstones, "key_bytes": t.key_bytes, "value_bytes": t.value_bytes,
        "wal_bytes": t.log_bytes, "logs": t.logs,
        "seqs": [t.seqs.0, t.seqs.1], "times": [t.times.0, t.times.1], "created_us": t.created,
        "block_bytes": t.block_bytes, "bloom_bits": t.bloom_bits, "compression": t.compression, "names": t.names,
        "blocks": t.blocks.iter().map(block).collect::<Vec<_>>(),
    })
}
