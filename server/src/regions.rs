//! Regions: a table is cut where it grows and put together where it shrank, while it is read and written.
//!
//! Both are edits of the engine, a store after the other, and take milliseconds whatever the size; readers and writers of the table
//! wait for that long ([`Table::hold`](crate::tables::Table::hold)). If the process ends between two stores, their families
//! are cut in different places. That is correct, as every family is asked for its own store by key; the next look
//! ([`Tables::look`]) puts it right.

use crate::rows;
use crate::status::status;
use crate::tables::{Layout, Stores, Table, Tables};
use std::collections::BTreeSet;
use std::sync::Arc;
use tonic::Status;

/// When to split and when to join.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Bytes of a region at which it is split.
    pub(crate) split_bytes: u64,
    /// Bytes of two neighbours together below which they are joined.
    pub(crate) join_bytes: u64,
}

/// What a look did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Looked {
    pub(crate) splits: u64,
    pub(crate) joins: u64,
}

/// Where the regions of a table begin, the first aside: wherever a family is cut.
pub(crate) fn cuts(layout: &Layout) -> BTreeSet<Vec<u8>> {
    let starts = layout
        .families
        .iter()
        .flat_map(|family| family.regions.iter().skip(1).map(|(start, _)| start.clone()));
    starts.collect()
}

/// Bytes of a family in tables and memory from `start` on, within one store.
fn bytes_at(family: &Stores, start: &[u8]) -> u64 {
    let statistics = family.of(start).statistics();
    statistics.table_bytes + statistics.memory_bytes
}

/// The row in the middle of a store, by the sizes of the tables in its largest level.
fn middle(family: &Stores, start: &[u8]) -> Option<Vec<u8>> {
    let store = family.of(start);
    let (range, shape) = (store.range(), store.shape());
    let runs = shape.levels.iter().flat_map(|level| &level.runs);
    let run = runs.max_by_key(|run| run.tables().iter().map(|table| table.live_bytes()).sum::<u64>())?;
    let all: u64 = run.tables().iter().map(|table| table.live_bytes()).sum();
    let mut before = 0;
    let at = run.tables().iter().find(|table| {
        let is_behind = before >= all / 2;
        before += table.live_bytes();
        is_behind
    })?;
    let row = &at.range.start[..rows::row_len(&at.range.start)?];
    let is_inside = row > &range.start[..] && range.end.as_deref().is_none_or(|end| row < end);
    is_inside.then(|| rows::row_of(row).into_owned())
}

impl Tables {
    /// Cuts a table before a row, where it is not cut yet.
    pub(crate) fn split(&self, table: &Arc<Table>, row: &[u8]) -> Result<(), Status> {
        rows::check_row(row)?;
        self.cut(table, &rows::row_start(row))
    }

    fn cut(&self, table: &Arc<Table>, at: &[u8]) -> Result<(), Status> {
        let _changing = self.change();
        let _moves = table.move_keys()?;
        let layout = table.now();
        let cut = layout.families.iter().try_for_each(|family| {
            let store = family.of(at);
            match store.range().start == at {
                true => Ok(()),
                false => {
                    store.split(at, &family.next_store_name(layout.schema.id)).map(|_| ()).map_err(status)
                }
            }
        });
        // Also what was done before an error must be known, as the stores answer for other keys now.
        self.renew(table).and(cut)
    }

    /// Puts together what is cut before this key.
    pub(crate) fn join(&self, table: &Arc<Table>, at: &[u8]) -> Result<(), Status> {
        let _changing = self.change();
        if table.now().schema.change_retention_us.is_some() {
            return Err(Status::failed_precondition(
                "the table's changes are streamed: its regions are not joined",
            ));
        }
        let _moves = table.move_keys()?;
        let joined = table.now().families.iter().try_for_each(|family| {
            let right = family.regions.binary_search_by(|(start, _)| start.as_slice().cmp(at)).unwrap_or(0);
            match right.checked_sub(1) {
                None => Ok(()),
                Some(left) => family.regions[left].1.join(&family.regions[right].1).map_err(status),
            }
        });
        self.renew(table).and(joined)
    }

    /// Looks at all tables: regions that have grown are split, small neighbours are joined, and families that are cut in
    /// different places are cut alike. O(stores).
    pub(crate) fn look(&self, limits: Limits) -> Result<Looked, Status> {
        let mut looked = Looked::default();
        let mut failed = None;
        for (name, table) in self.all().iter() {
            // Of one table that cannot be changed now the others are not to suffer.
            let given = self.give_rest(name, table);
            if let Err(e) = given.and_then(|()| self.look_at(table, limits, &mut looked)) {
                failed = Some(e);
            }
        }
        failed.map_or(Ok(looked), Err)
    }

    fn look_at(&self, table: &Arc<Table>, limits: Limits, looked: &mut Looked) -> Result<(), Status> {
        let layout = table.now();
        let cuts = cuts(&layout);
        for at in &cuts {
            let is_cut =
                |family: &Stores| family.regions.binary_search_by(|(start, _)| start.cmp(at)).is_ok();
            if !layout.families.iter().all(is_cut) {
                self.cut(table, at)?;
            }
        }
        let layout = table.now();
        let starts: Vec<Vec<u8>> = std::iter::once(Vec::new()).chain(cuts).collect();
        let sizes: Vec<u64> = starts
            .iter()
            .map(|start| layout.families.iter().map(|family| bytes_at(family, start)).sum())
            .collect();
        for (start, bytes) in starts.iter().zip(&sizes) {
            let largest = layout.families.iter().max_by_key(|family| bytes_at(family, start));
            if *bytes >= limits.split_bytes
                && let Some(row) = largest.and_then(|family| middle(family, start))
            {
                self.split(table, &row)?;
                looked.splits += 1;
            }
        }
        if layout.schema.change_retention_us.is_some() {
            return Ok(());
        }
        // From the right, so that each is looked at once; a region that was joined is not joined again at once.
        let mut at = starts.len();
        while at > 1 {
            at -= 1;
            if sizes[at] + sizes[at - 1] <= limits.join_bytes && !layout.schema.cuts.contains(&starts[at]) {
                self.join(table, &starts[at])?;
                looked.joins += 1;
                at = at.saturating_sub(1);
            }
        }
        Ok(())
    }
}
