//! Cells of a server's table in a file and back: one JSON object a line.
//!
//! `{"row": "..", "family": "..", "qualifier": "..", "timestamp": 1000, "value":
//! ".."}`, with `\\` for a backslash and `\xNN` for bytes that are not UTF-8 in the strings. Rows are written
//! whole, many to a call; a call that fails with a retryable error is sent again.

use crate::escape::{unescape, unicode};
use crate::failure::{Failure, Outcome};
use crate::interrupt;
use crate::remote::{Remote, failed};
use data::bigtable_client::BigtableClient;
use data::mutate_rows_request::Entry;
use data::{Mutation, mutation};
use googleapis_tonic_google_bigtable_v2::google::bigtable::v2 as data;
use indicatif::ProgressBar;
use serde::{Deserialize, Serialize};
use std::io::{BufRead, Write};
use std::time::Duration;
use tonic::Code;

/// A call is sent when it holds this much, or so many cells.
const CALL_BYTES: usize = 1 << 20;
const CALL_CELLS: usize = 10_000;
/// How often a call is sent again where the server says that this may help, and after how long.
const TRIES: u32 = 20;
const TRY_AGAIN: Duration = Duration::from_millis(100);

/// One line.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    row: String,
    family: String,
    qualifier: String,
    timestamp: i64,
    value: String,
}

/// Reads lines and writes their cells. Returns how many; a line that is none ends it, and what stood before
/// it stays.
pub(super) fn load(remote: &Remote, table: &str, input: impl BufRead, bar: &ProgressBar) -> Outcome<u64> {
    let mut loader =
        Loader { remote, table: remote.table(table), entries: Vec::new(), cells: 0, bytes: 0, stored: 0 };
    for (number, line) in (1u64..).zip(input.lines()) {
        let line = line.map_err(|e| loader.stopped(number, &e))?;
        if line.trim().is_empty() {
            continue;
        }
        if let Err(e) = loader.add(&line) {
            loader.send()?;
            return Err(loader.stopped(number, &e));
        }
        bar.set_message(format!("{} cells", loader.stored));
        interrupt::check(|| format!("{} cells were stored", loader.stored))?;
    }
    loader.send()?;
    Ok(loader.stored)
}

struct Loader<'a> {
    remote: &'a Remote,
    table: String,
    entries: Vec<Entry>,
    cells: usize,
    bytes: usize,
    stored: u64,
}

impl Loader<'_> {
    fn stopped(&self, number: u64, what: &dyn std::fmt::Display) -> Failure {
        Failure::Failed(format!("line {number}: {what}; {} cells before it were stored", self.stored))
    }

    fn add(&mut self, text: &str) -> Result<(), String> {
        let line: Line = serde_json::from_str(text).map_err(|e| e.to_string())?;
        let bytes = |name: &str, text: &str| unescape(text.as_bytes()).map_err(|e| format!("{name}: {e}"));
        let row = bytes("row", &line.row)?;
        let set = mutation::SetCell {
            family_name: line.family,
            column_qualifier: bytes("qualifier", &line.qualifier)?.into(),
            timestamp_micros: line.timestamp,
            value: bytes("value", &line.value)?.into(),
        };
        let is_of = |entry: &Entry| entry.row_key == row && entry.mutations.len() < CALL_CELLS;
        let is_same = self.entries.last().is_some_and(is_of);
        if !is_same && (self.bytes >= CALL_BYTES || self.cells >= CALL_CELLS) {
            self.send().map_err(|e| match e {
                Failure::Failed(text) | Failure::Usage(text) => text,
                _ => "stopped".into(),
            })?;
        }
        self.cells += 1;
        self.bytes += set.value.len() + set.column_qualifier.len() + row.len();
        let mutation = Mutation { mutation: Some(mutation::Mutation::SetCell(set)) };
        match self.entries.last_mut().filter(|_| is_same) {
            Some(entry) => entry.mutations.push(mutation),
            None => self.entries.push(Entry {
                row_key: row.into(),
                mutations: vec![mutation],
                ..Default::default()
            }),
        }
        Ok(())
    }

    /// Sends what waits, those again that the server could not take now.
    fn send(&mut self) -> Outcome {
        let mut entries = std::mem::take(&mut self.entries);
        (self.cells, self.bytes) = (0, 0);
        for left in (0..TRIES).rev() {
            if entries.is_empty() {
                return Ok(());
            }
            let request = data::MutateRowsRequest {
                table_name: self.table.clone(),
                entries: entries.clone(),
                ..Default::default()
            };
            let mut client = BigtableClient::new(self.remote.service());
            let answered = self.remote.wait(async move {
                let mut stream = match client.mutate_rows(request).await {
                    Err(e) if is_worth_a_try(e.code() as i32) && left > 0 => return Ok(None),
                    stream => stream?.into_inner(),
                };
                let mut statuses = Vec::new();
                while let Some(message) = stream.message().await? {
                    statuses.extend(message.entries);
                }
                Ok(Some(statuses))
            })?;
            if let Some(statuses) = answered {
                let mut again = Vec::new();
                for status in statuses {
                    let at = usize::try_from(status.index).unwrap_or(usize::MAX);
                    let Some(entry) = entries.get(at) else { continue };
                    match status.status.unwrap_or_default() {
                        ok if ok.code == 0 => self.stored += entry.mutations.len() as u64,
                        busy if is_worth_a_try(busy.code) && left > 0 => again.push(entry.clone()),
                        refused => {
                            let status = tonic::Status::new(Code::from(refused.code), refused.message);
                            return Err(failed(&status));
                        }
                    }
                }
                entries = again;
            }
            if !entries.is_empty() {
                std::thread::sleep(TRY_AGAIN);
            }
        }
        Ok(())
    }
}

fn is_worth_a_try(code: i32) -> bool {
    [Code::Unavailable as i32, Code::Aborted as i32].contains(&code)
}

/// Writes all cells of a table as lines. Returns how many.
pub(super) fn dump(remote: &Remote, table: &str, mut out: impl Write) -> Outcome<u64> {
    let mut client = BigtableClient::new(remote.service());
    let request = data::ReadRowsRequest { table_name: remote.table(table), ..Default::default() };
    let mut stream = remote.wait(client.read_rows(request))?.into_inner();
    let (mut row, mut family, mut qualifier) = (String::new(), String::new(), String::new());
    let (mut timestamp, mut value, mut cells) = (0, Vec::new(), 0);
    while let Some(message) = remote.wait(stream.message())? {
        for chunk in message.chunks {
            if !chunk.row_key.is_empty() {
                row = unicode(&chunk.row_key);
            }
            if let Some(name) = chunk.family_name {
                family = name;
            }
            if let Some(name) = chunk.qualifier {
                qualifier = unicode(&name);
            }
            if value.is_empty() {
                timestamp = chunk.timestamp_micros;
            }
            value.extend_from_slice(&chunk.value);
            // More of the value comes.
            if chunk.value_size > 0 {
                continue;
            }
            let value = unicode(&std::mem::take(&mut value));
            let (row, family, qualifier) = (row.clone(), family.clone(), qualifier.clone());
            serde_json::to_writer(&mut out, &Line { row, family, qualifier, timestamp, value })?;
            out.write_all(b"\n")?;
            cells += 1;
        }
        interrupt::check(|| "the dump is not complete, and is removed".into())?;
    }
    out.flush()?;
    Ok(cells)
}
