//! Import. Rows are written in batches; a malformed line ends the load with its number, and the rows before
//! it stay.

use super::scan::is_explicit;
use crate::failure::{Failure, Outcome};
use crate::format::{Format, Malformed, Row};
use crate::open::Database;
use crate::remote::Access;
use crate::text::count;
use crate::{interrupt, open, progress};
use clap::Args;
use indicatif::ProgressBar;
use siltstone::{Batch, Db, Error, Family, KEY_BYTES_MAX, Timestamp, VALUE_BYTES_MAX, size_text};
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Import rows from a file
///
/// The database is made if the directory is missing or empty. Everything loaded survives a power loss once
/// the command has ended.
#[derive(Args)]
#[command(after_help = "\
Formats: tsv is key, tab, value a line, with \\t, \\n, \\\\ and \\xNN for bytes that would not print; csv is key,
comma, value without a heading; jsonl is {\"key\": .., \"value\": ..} a line, with \\\\ for a backslash and \\xNN for
bytes that are not UTF-8 inside the strings. A third field is a timestamp, for families that keep them. Empty lines and a
byte order mark at the beginning are skipped.

Example: siltstone load /tmp/db rows.tsv
         gunzip < rows.csv.gz | siltstone load /tmp/db - --format csv
         siltstone load --server 127.0.0.1:8086 packages cells.jsonl")]
pub(crate) struct Load {
    #[command(flatten)]
    db: Database,
    /// The file; - for standard input
    file: PathBuf,
    /// Column family
    #[arg(long, default_value = siltstone::DEFAULT_FAMILY)]
    family: String,
    /// Make the family if there is none, with default options; `siltstone family create` takes options
    #[arg(long)]
    create_family: bool,
    /// Format of the rows [default: by the end of the file's name]
    #[arg(long)]
    format: Option<Format>,
    /// Load cells into a table of a running server, which is named instead of the directory, as
    /// `siltstone dump --server` writes them; https://HOST:PORT for TLS
    #[arg(long, conflicts_with_all = ["format", "family", "create_family", "shared"])]
    server: Option<String>,
    #[command(flatten)]
    access: Access,
    /// Report as JSON
    #[arg(long)]
    json: bool,
}

/// A batch is written when it holds this much or this many rows.
const BATCH_BYTES: usize = 256 << 10;
const BATCH_ROWS: usize = 1_000;

impl Load {
    pub(crate) fn run(self) -> Outcome {
        if let Some(server) = &self.server {
            return self.to_server(server);
        }
        let format = Format::choose(self.format, &self.file)?;
        // A missing file must not leave a fresh database behind.
        let (input, total) = input(&self.file)?;
        let db = Arc::new(open::to_write_or_create(&self.db)?);
        let family = open::family(&db, &self.family, self.create_family)?;
        let bar = progress::bytes(total);
        let begun = Instant::now();
        let rows = format.rows(BufReader::with_capacity(1 << 20, bar.wrap_read(input)));
        let mut loader = Loader::new(&db, &family, &bar);
        // What waits for a pipe cannot look whether a signal came.
        on_signal(&db, &loader.stored, total.is_none());
        let ended = loader.load(rows);
        // Rows stored before a malformed line must last, too.
        let synced = db.sync();
        let closed = db.close();
        bar.finish_and_clear();
        let Loader { stored, bytes, .. } = loader;
        let stored = stored.load(Ordering::Relaxed);
        let so_far = |before: &str| kept(stored, before, synced.as_ref().err());
        match ended {
            Ok(()) => {}
            Err(Stop::Signal) => interrupt::check(|| so_far(""))?,
            Err(Stop::At(Malformed { line, what })) => {
                let file = match is_stream(&self.file) {
                    true => "standard input".to_string(),
                    false => self.file.display().to_string(),
                };
                return Err(Failure::Failed(format!("{file} line {line}: {what}; {}", so_far(" before it"))));
            }
        }
        if let Err(e) = synced.and(closed) {
            return Err(Failure::Failed(kept(stored, "", Some(&e))));
        }
        let seconds = begun.elapsed().as_secs_f64();
        if self.json {
            println!("{}", serde_json::json!({ "rows": stored, "bytes": bytes, "seconds": seconds }));
        } else {
            let rate = count((stored as f64 / seconds.max(1e-9)) as u64, "row");
            let rows = count(stored, "row");
            println!("loaded {rows}, {}, in {seconds:.2} s ({rate} a second)", size_text(bytes));
        }
        Ok(())
    }
}

impl Load {
    fn to_server(&self, server: &str) -> Outcome {
        let (input, total) = input(&self.file)?;
        let remote = self.access.connect(server)?;
        let table = self.db.dir.to_string_lossy();
        let bar = progress::bytes(total);
        let begun = Instant::now();
        // What waits for a pipe cannot look whether a signal came.
        match total {
            Some(_) => interrupt::on_signal(|| None),
            None => interrupt::leaves("not all cells are stored"),
        }
        let lines = BufReader::with_capacity(1 << 20, bar.wrap_read(input));
        let cells = super::cells::load(&remote, &table, lines, &bar)?;
        bar.finish_and_clear();
        let seconds = begun.elapsed().as_secs_f64();
        match self.json {
            true => println!("{}", serde_json::json!({ "cells": cells, "seconds": seconds })),
            false => println!("loaded {} into {table} in {seconds:.2} s", count(cells, "cell")),
        }
        Ok(())
    }
}

pub(super) fn is_stream(file: &Path) -> bool {
    file.as_os_str() == "-"
}

/// The file, and how long it is where that is known.
fn input(file: &Path) -> Outcome<(Box<dyn Read>, Option<u64>)> {
    if is_stream(file) {
        return Ok((Box::new(std::io::stdin().lock()), None));
    }
    let failed = |e| Failure::Failed(format!("open {}: {e}", file.display()));
    let opened = std::fs::File::open(file).map_err(failed)?;
    let metadata = opened.metadata().map_err(failed)?;
    if metadata.is_dir() {
        return Err(Failure::Failed(format!("{} is a directory, not a file of rows", file.display())));
    }
    Ok((Box::new(opened), metadata.is_file().then_some(metadata.len())))
}

/// What is there of a load, and why that may not be for good.
fn kept(rows: u64, before: &str, unsynced: Option<&Error>) -> String {
    let may_go = unsynced.map_or(String::new(), |e| format!(", which a power loss may take: {e}"));
    format!("{}{before} stored{may_go}", count(rows, "row"))
}

/// At a signal the load ends behind the row that it is at; one that waits for a stream cannot, and ends at
/// once.
fn on_signal(db: &Arc<Db>, stored: &Arc<AtomicU64>, is_stream: bool) {
    let (db, stored) = (db.clone(), stored.clone());
    interrupt::on_signal(move || {
        is_stream.then(|| {
            format!("at least {}", kept(stored.load(Ordering::Relaxed), "", db.sync().as_ref().err()))
        })
    });
}

/// Why a load ended before its last row.
enum Stop {
    At(Malformed),
    Signal,
}

impl From<Malformed> for Stop {
    fn from(malformed: Malformed) -> Self {
        Stop::At(malformed)
    }
}

struct Loader<'a> {
    db: &'a Db,
    family: &'a Family,
    explicit: bool,
    bar: &'a ProgressBar,
    batch: Batch,
    stored: Arc<AtomicU64>,
    bytes: u64,
}

impl<'a> Loader<'a> {
    fn new(db: &'a Db, family: &'a Family, bar: &'a ProgressBar) -> Self {
        let explicit = is_explicit(family);
        Self { db, family, explicit, bar, batch: Batch::new(), stored: Arc::default(), bytes: 0 }
    }

    fn load(&mut self, rows: impl Iterator<Item = Result<(u64, Row), Malformed>>) -> Result<(), Stop> {
        let mut last_line = 0;
        for item in rows {
            let (line, row) = match item {
                Ok((line, row)) if let Err(what) = self.check(&row) => {
                    return self.refuse(Malformed { line, what });
                }
                Ok(item) => item,
                Err(malformed) => return self.refuse(malformed),
            };
            last_line = line;
            match row.timestamp {
                None => self.batch.put(self.family, &row.key, &row.value),
                Some(timestamp) => self.batch.put_at(self.family, &row.key, Timestamp(timestamp), &row.value),
            };
            if self.batch.user_bytes() >= BATCH_BYTES || self.batch.len() >= BATCH_ROWS {
                self.write(line)?;
                if interrupt::came() {
                    return Err(Stop::Signal);
                }
            }
        }
        Ok(self.write(last_line)?)
    }

    /// Stores the rows before the malformed one.
    fn refuse(&mut self, malformed: Malformed) -> Result<(), Stop> {
        self.write(malformed.line)?;
        Err(malformed.into())
    }

    fn check(&self, row: &Row) -> Result<(), String> {
        for (what, bytes, most) in [("key", &row.key, KEY_BYTES_MAX), ("value", &row.value, VALUE_BYTES_MAX)]
        {
            if bytes.len() > most {
                return Err(format!("the {what} has {} bytes, more than {most}", bytes.len()));
            }
        }
        if row.timestamp.is_some() && !self.explicit {
            return Err(format!("the row has a timestamp, but family {} keeps none", self.family.name()));
        }
        Ok(())
    }

    fn write(&mut self, line: u64) -> Result<(), Malformed> {
        self.db.write(&self.batch).map_err(|e| Malformed {
            line,
            what: format!("the rows up to here could not be written: {e}"),
        })?;
        let rows = self.batch.len() as u64;
        let stored = self.stored.fetch_add(rows, Ordering::Relaxed) + rows;
        self.bytes += self.batch.user_bytes() as u64;
        self.batch.clear();
        self.bar.set_message(count(stored, "row"));
        Ok(())
    }
}
