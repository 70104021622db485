//! The tables on a server, each with one family and one column, reached as any client would: by calls of
//! single rows.
//!
//! There are no transactions. A row is changed by reading it and, if it is still what was read, replacing it;
//! otherwise once more. What is read of two rows may be of two moments. As each row is changed as a whole,
//! and nothing is written that must be taken back, the tables are consistent when nobody writes; only a
//! delivery may have overtaken an order of its district whose rows were still being put.

use super::access::{Access, Outcome, Put, Tables};
use super::schema::{Row, Table};
use crate::failure::Result;
use crate::server::{Client, Given, Peer, table_name};
use googleapis_tonic_google_bigtable_v2::google::bigtable::v2 as data;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Mutex;

/// Rows of a call while the tables are loaded.
const LOADED: usize = 500;

/// A server that runs as long as this.
pub(crate) struct Served {
    runtime: tokio::runtime::Runtime,
    client: Client,
    peer: Mutex<Peer>,
}

impl Served {
    /// Starts it, and creates the tables.
    pub(crate) fn start(dir: &Path, given: &Given) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let peer = Peer::start(dir, given)?;
        let client = runtime.block_on(async {
            for table in Table::ALL {
                peer.create_table(table.name(), std::iter::empty()).await?;
            }
            peer.client().await
        })?;
        Ok(Self { runtime, client, peer: Mutex::new(peer) })
    }

    /// Stops it as a signal would.
    pub(crate) fn stop(self) -> Result<()> {
        Ok(self.peer.into_inner().map_err(|_| "a thread ended by a panic")?.stop()?)
    }

    /// Has it do something that no client may ask for.
    fn ask(&self, line: &str) -> Result<()> {
        self.peer.lock().map_err(|_| "a thread ended by a panic")?.ask(line)?;
        Ok(())
    }
}

async fn put_all(mut client: Client, request: data::MutateRowsRequest) -> Result<()> {
    let mut answers = client.mutate_rows(request).await?.into_inner();
    while let Some(answer) = answers.message().await? {
        let failed =
            answer.entries.into_iter().filter_map(|entry| entry.status).find(|status| status.code != 0);
        if let Some(status) = failed {
            return Err(status.message.into());
        }
    }
    Ok(())
}

impl Tables for Served {
    fn run(&self, transaction: &mut dyn FnMut(&mut dyn Access) -> Result<Outcome>) -> Result<(Outcome, u64)> {
        let mut calls = Calls { of: self, client: self.client.clone(), conflicts: 0 };
        let outcome = transaction(&mut calls)?;
        Ok((outcome, calls.conflicts))
    }

    fn load(&self, part: &mut dyn FnMut(&mut dyn Put) -> Result<()>) -> Result<()> {
        let mut loading = Loading::default();
        part(&mut loading)?;
        for (table, entries) in loading.rows {
            for entries in entries.chunks(LOADED) {
                let table_name = table_name(table.name());
                let request =
                    data::MutateRowsRequest { table_name, entries: entries.to_vec(), ..Default::default() };
                self.runtime.block_on(put_all(self.client.clone(), request))?;
            }
        }
        Ok(())
    }

    fn is_atomic(&self) -> bool {
        false
    }

    fn settle(&self) -> Result<()> {
        self.ask("settle")
    }

    fn merge(&self, table: Table) -> Result<()> {
        self.ask(&format!("compact {}", table.name()))
    }
}

/// Calls of single rows.
struct Calls<'a> {
    of: &'a Served,
    client: Client,
    /// Rows that had changed between reading and replacing them.
    conflicts: u64,
}

fn set(row: &Row) -> data::Mutation {
    // One moment for all, so that the newest replaces what was there.
    let set = data::mutation::SetCell {
        family_name: "f".into(),
        column_qualifier: "r".into(),
        timestamp_micros: 1_000,
        value: row.encode().into(),
    };
    data::Mutation { mutation: Some(data::mutation::Mutation::SetCell(set)) }
}

impl Calls<'_> {
    fn read(&mut self, table: Table, rows: data::RowSet, most: i64) -> Result<Vec<(Vec<u8>, Row)>> {
        let request = data::ReadRowsRequest {
            table_name: table_name(table.name()),
            rows: Some(rows),
            rows_limit: most,
            ..Default::default()
        };
        let Self { of, client, .. } = self;
        of.runtime.block_on(async {
            let mut found = Vec::new();
            let mut answers = client.read_rows(request).await?.into_inner();
            while let Some(answer) = answers.message().await? {
                for cell in answer.chunks {
                    // A row is one cell, and far too small to come in parts.
                    found.push((cell.row_key.to_vec(), Row::decode(&cell.value)?));
                }
            }
            Ok(found)
        })
    }

    /// Whether the row had a cell that passes the filter, and so was changed.
    fn check_and_mutate(
        &mut self,
        table: Table,
        key: &[u8],
        filter: Option<data::row_filter::Filter>,
        mutation: data::Mutation,
    ) -> Result<bool> {
        let request = data::CheckAndMutateRowRequest {
            table_name: table_name(table.name()),
            row_key: key.to_vec().into(),
            predicate_filter: filter.map(|filter| data::RowFilter { filter: Some(filter) }),
            true_mutations: vec![mutation],
            ..Default::default()
        };
        let answer = self.of.runtime.block_on(self.client.check_and_mutate_row(request))?;
        Ok(answer.into_inner().predicate_matched)
    }
}

impl Put for Calls<'_> {
    fn put(&mut self, table: Table, key: &[u8], row: &Row) -> Result<()> {
        let request = data::MutateRowRequest {
            table_name: table_name(table.name()),
            row_key: key.to_vec().into(),
            mutations: vec![set(row)],
            ..Default::default()
        };
        self.of.runtime.block_on(self.client.mutate_row(request))?;
        Ok(())
    }
}

impl Access for Calls<'_> {
    fn get(&mut self, table: Table, key: &[u8]) -> Result<Option<Row>> {
        let one = data::RowSet { row_keys: vec![key.to_vec().into()], ..Default::default() };
        Ok(self.read(table, one, 1)?.pop().map(|(_, row)| row))
    }

    fn change(&mut self, table: Table, key: &[u8], by: &mut dyn FnMut(&mut Row)) -> Result<Row> {
        loop {
            let mut row = self.row(table, key)?;
            let before = bytes::Bytes::from(row.encode());
            by(&mut row);
            let same = data::ValueRange {
                start_value: Some(data::value_range::StartValue::StartValueClosed(before.clone())),
                end_value: Some(data::value_range::EndValue::EndValueClosed(before)),
            };
            let same = data::row_filter::Filter::ValueRangeFilter(same);
            if self.check_and_mutate(table, key, Some(same), set(&row))? {
                return Ok(row);
            }
            self.conflicts += 1;
        }
    }

    fn take(&mut self, table: Table, key: &[u8]) -> Result<bool> {
        let all = data::mutation::Mutation::DeleteFromRow(data::mutation::DeleteFromRow {});
        self.check_and_mutate(table, key, None, data::Mutation { mutation: Some(all) })
    }

    fn scan(&mut self, table: Table, keys: Range<Vec<u8>>, most: usize) -> Result<Vec<(Vec<u8>, Row)>> {
        let range = data::RowRange {
            start_key: Some(data::row_range::StartKey::StartKeyClosed(keys.start.into())),
            end_key: Some(data::row_range::EndKey::EndKeyOpen(keys.end.into())),
        };
        let rows = data::RowSet { row_ranges: vec![range], ..Default::default() };
        // 0 is all of them.
        self.read(table, rows, if most == usize::MAX { 0 } else { most as i64 })
    }
}

/// Rows that are to be put, by table.
#[derive(Default)]
struct Loading {
    rows: BTreeMap<Table, Vec<data::mutate_rows_request::Entry>>,
}

impl Put for Loading {
    fn put(&mut self, table: Table, key: &[u8], row: &Row) -> Result<()> {
        let mutations = vec![set(row)];
        let row_key = key.to_vec().into();
        let entry = data::mutate_rows_request::Entry { row_key, mutations, ..Default::default() };
        self.rows.entry(table).or_default().push(entry);
        Ok(())
    }
}
