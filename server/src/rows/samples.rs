//! Sampled keys of rows: where a table, or what a view has of it, may be cut into parts of about the same
//! size.

use crate::cells::filter::Filter;
use crate::cells::row_key::{self, Span};
use crate::cells::subset::Subset;
use crate::net::work::{Caller, Work};
use crate::proto::data::SampleRowKeysResponse;
use crate::rows::row_cursor::{Cells, RowCursor, Step, View};
use crate::tables::layout::{Region, Table};
use crate::tables::registry::Tables;
use bytes::Bytes;
use siltstone::Pinned;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tonic::Status;

/// Bytes of a region for each sampled key, at least.
const SAMPLE_BYTES: u64 = 16 << 20;

/// Rows that cut a table into parts of about the same size: where its regions begin, and the end. For a small
/// table they include the last row, and the bytes are those of the values before each; for others, those of
/// files.
pub(crate) fn samples(
    tables: &Tables,
    table: &Arc<Table>,
    caller: Caller,
) -> Result<Vec<SampleRowKeysResponse>, Status> {
    let (cuts, all) = cuts(table);
    let sizes = match all < SAMPLE_BYTES {
        true => sizes(tables, table, &mut Work::at_once(caller))?,
        false => None,
    };
    let mut samples = Vec::new();
    match sizes {
        Some(sizes) => {
            let before = |row: &Bytes| sizes.range(..row.clone()).map(|(_, bytes)| bytes).sum::<u64>();
            let last = sizes.last_key_value().map(|(row, _)| row);
            let keys: BTreeSet<&Bytes> = cuts.keys().filter(|row| !row.is_empty()).chain(last).collect();
            for row in keys {
                samples.push(sample(row.clone(), before(row)));
            }
            samples.push(sample(Bytes::new(), sizes.values().sum()));
        }
        None => {
            let mut before = 0;
            for (row, bytes) in cuts {
                before += bytes;
                if !row.is_empty() {
                    samples.push(sample(row, before));
                }
            }
            samples.push(sample(Bytes::new(), all));
        }
    }
    Ok(samples)
}

/// The starts of regions and large files (no row for the first), with the bytes of the files there, and the
/// bytes of all files.
fn cuts(table: &Table) -> (BTreeMap<Bytes, u64>, u64) {
    let _hold = table.hold();
    let layout = table.now();
    let (mut cuts, mut all) = (BTreeMap::<Bytes, u64>::new(), 0);
    // A cut within a row is one before it.
    let row = |key: &[u8]| {
        row_key::row_len(key)
            .map_or(Bytes::new(), |len| Bytes::copy_from_slice(&row_key::row_of(&key[..len])))
    };
    if layout.families.is_empty() {
        cuts.extend(layout.schema.cuts.iter().map(|cut| (row(cut), 0)));
    }
    for family in &layout.families {
        for Region { start, store, .. } in &family.regions {
            cuts.entry(row(start)).or_default();
            let shape = store.shape();
            for (_, _, of) in shape.tables() {
                all += of.bytes;
                if of.bytes >= SAMPLE_BYTES {
                    *cuts.entry(row(&of.range.start)).or_default() += of.bytes;
                }
            }
        }
    }
    (cuts, all)
}

/// The bytes of the values of a row.
#[derive(Default)]
struct RowSize {
    row: Vec<u8>,
    bytes: u64,
}

impl Cells for RowSize {
    fn begin(&mut self, row: &[u8]) {
        self.row.clear();
        self.row.extend_from_slice(row);
        self.bytes = 0;
    }

    fn add(&mut self, _: &Arc<str>, _: &[u8], _: i64, value: &Pinned) -> bool {
        self.bytes += value.len() as u64;
        false
    }
}

/// The rows of a table and the bytes of their values; `None` where the work is over before all were read.
fn sizes(
    tables: &Tables,
    table: &Arc<Table>,
    work: &mut Work,
) -> Result<Option<BTreeMap<Bytes, u64>>, Status> {
    let needs = table.now().needs(&Filter::PassAll, None);
    let all = Span { start: Vec::new(), end: None };
    let mut rows = RowCursor::new(View::now(tables, table, false), &needs, &all);
    let (mut row, mut sizes) = (RowSize::default(), BTreeMap::new());
    loop {
        match rows.next(&mut row, work)? {
            Step::Row => _ = sizes.insert(Bytes::copy_from_slice(&row.row), row.bytes),
            Step::Paused => return Ok(None),
            Step::End => return Ok(Some(sizes)),
        }
    }
}

/// Rows that cut what a view has, however small the table: where its maker cut it, where large files begin of
/// families of which the view has all, and the ends of the view. Where regions or files begin else may be a
/// row that the view has not.
pub(crate) fn samples_within(table: &Arc<Table>, view: &Subset) -> Vec<SampleRowKeysResponse> {
    let _hold = table.hold();
    let layout = table.now();
    // The first key of each file, and behind its last.
    let mut files: Vec<(Vec<u8>, Option<Vec<u8>>, u64)> = Vec::new();
    for family in layout.families.iter().filter(|family| view.has_family(&family.name)) {
        for Region { start, store, .. } in &family.regions {
            let shape = store.shape();
            let tables = shape.tables().filter(|(_, _, of)| of.range.start != **start);
            files.extend(tables.map(|(_, _, of)| (of.range.start.clone(), of.range.end.clone(), of.bytes)));
        }
    }
    let mut samples: Vec<SampleRowKeysResponse> = Vec::new();
    let mut before = 0;
    for span in view.rows() {
        // Bytes from there on, and whether it is reported.
        let mut cuts = BTreeMap::<&[u8], (u64, bool)>::new();
        cuts.extend(layout.schema.cuts.iter().filter(|cut| span.has(cut)).map(|cut| (&cut[..], (0, true))));
        let ends = |end: &Vec<u8>| span.end.as_ref().is_none_or(|own| end <= own);
        for (start, end, bytes) in files.iter().filter(|(start, ..)| span.has(start)) {
            // Of one that is in the view in part nothing is known of that part.
            if end.as_ref().map_or(span.end.is_none(), ends) {
                let (all, is_told) = cuts.entry(&start[..]).or_default();
                *all += bytes;
                *is_told |= *bytes >= SAMPLE_BYTES;
            }
        }
        for (key, (bytes, is_told)) in cuts {
            before += bytes;
            let row = row_key::row_len(key).filter(|_| is_told).map(|len| row_key::row_of(&key[..len]));
            if let Some(row) = row
                && samples.last().is_none_or(|last| last.row_key[..] < row[..])
            {
                samples.push(sample(Bytes::copy_from_slice(&row), before));
            }
        }
        let end = span.end.as_ref().map_or(Bytes::new(), |end| {
            Bytes::copy_from_slice(&row_key::row_of(&[&end[..], b"\0\x01"].concat()))
        });
        samples.push(sample(end, before));
    }
    samples
}

fn sample(row_key: Bytes, offset: u64) -> SampleRowKeysResponse {
    SampleRowKeysResponse { row_key, offset_bytes: i64::try_from(offset).unwrap_or(i64::MAX) }
}
