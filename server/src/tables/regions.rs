//! Regions: a table is cut where it grows or is too busy, and put together where it shrank, while it is read
//! and written.
//!
//! Both are edits of the engine, a store after the other, and take milliseconds whatever the size; readers
//! and writers of the table wait for that long ([`Table::hold`](crate::tables::layout::Table::hold)). If the
//! process ends between two stores, their families are cut in different places. That is correct, as every
//! family is asked for its own store by key; the next check ([`Tables::look`]) puts it right.
//!
//! A check, once a second, adds up every region's traffic, which is an addition and a lock for each, and asks
//! the engine only about those that were read or written since. Every tenth is of all regions, also for
//! neighbours to be joined.

use crate::cells::row_key;
use crate::config::RegionLimits;
use crate::tables::layout::{Layout, Stores, Table};
use crate::tables::registry::{STORES_MAX, Tables};
use crate::tables::schema::Schema;
use crate::tables::traffic::Seen;
use std::collections::BTreeSet;
use std::sync::Arc;
use tonic::Status;

/// One check of the regions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RegionCheck {
    /// Since the last one.
    pub(crate) seconds: f64,
    /// At all regions, not only at those that were used since.
    pub(crate) whole: bool,
}

/// The changes that a check made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RegionChanges {
    pub(crate) splits: u64,
    pub(crate) joins: u64,
    /// Stores about which the engine was asked.
    pub(crate) asked: u64,
}

/// The starts of all regions of a table but the first: wherever a family is cut.
pub(crate) fn cuts(layout: &Layout) -> BTreeSet<Vec<u8>> {
    let starts = layout
        .families
        .iter()
        .flat_map(|family| family.regions.iter().skip(1).map(|region| region.start.to_vec()));
    starts.collect()
}

/// Whether all families are cut in the same places.
fn is_aligned(families: &[Stores]) -> bool {
    families.windows(2).all(|pair| {
        let (a, b) = (&pair[0].regions, &pair[1].regions);
        a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.start == b.start)
    })
}

/// The bytes of a region in tables and memory, family by family.
fn bytes_of(layout: &Layout, region: usize) -> Vec<u64> {
    let bytes = |family: &Stores| {
        let statistics = family.regions[region].store.statistics();
        statistics.sstable_bytes + statistics.memory_bytes
    };
    layout.families.iter().map(bytes).collect()
}

/// The row in the middle of a store, by the sizes of the tables in its largest level.
fn middle(store: &siltstone::Family) -> Option<Vec<u8>> {
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
    row_within(&at.range.start, &range)
}

/// The row of a key, if a store of these keys can be cut before it.
fn row_within(key: &[u8], range: &siltstone::KeyRange) -> Option<Vec<u8>> {
    let row = &key[..row_key::row_len(key)?];
    let is_inside = row > &range.start[..] && range.end.as_deref().is_none_or(|end| row < end);
    is_inside.then(|| row_key::row_of(row).into_owned())
}

/// The key at which to cut a region that is too busy: it halves the traffic of its busiest family.
fn busy_middle(layout: &Layout, region: usize) -> Option<Vec<u8>> {
    let regions = layout.families.iter().map(|family| &family.regions[region]);
    let busiest = regions.max_by(|a, b| a.traffic.rate().total_cmp(&b.traffic.rate()))?;
    row_within(&busiest.traffic.take_middle()?, &busiest.store.range())
}

impl Tables {
    /// Cuts a table before a row, where it is not cut yet.
    pub(crate) fn split(&self, table: &Arc<Table>, row: &[u8]) -> Result<(), Status> {
        row_key::check_row(row)?;
        self.cut(table, &row_key::row_start(row))
    }

    fn cut(&self, table: &Arc<Table>, at: &[u8]) -> Result<(), Status> {
        self.change_regions(table, |schema, family| family.cut(schema.id, at))
    }

    /// Puts together what is cut before this key.
    pub(crate) fn join(&self, table: &Arc<Table>, at: &[u8]) -> Result<(), Status> {
        self.change_regions(table, |schema, family| match schema.change_retention_us {
            None => family.join(at),
            Some(_) => Err(Status::failed_precondition(
                "the table's changes are streamed: its regions are not joined",
            )),
        })
    }

    /// Changes the regions of each family, which is given with the table's schema: that stays as it is
    /// meanwhile.
    fn change_regions(
        &self,
        table: &Arc<Table>,
        change: impl Fn(&Schema, &mut Stores) -> Result<(), Status>,
    ) -> Result<(), Status> {
        let _changing = self.change();
        let _moves = table.move_keys()?;
        let before = table.now();
        let mut families = before.families.clone();
        let changed = families.iter_mut().try_for_each(|family| change(&before.schema, family));
        // Also what was done before an error must be known, as the stores answer for other keys now.
        let (schema, views) = (before.schema.clone(), before.views.clone());
        table.become_like(Arc::new(Layout { schema, families, views }));
        changed
    }

    /// Checks all tables: splits regions that have grown or are too busy, and cuts families alike that are
    /// cut in different places; a check of all regions joins small neighbours. O(regions) additions, and one
    /// question to the engine for each store that was used since the last check.
    pub(crate) fn look(&self, limits: RegionLimits, look: RegionCheck) -> Result<RegionChanges, Status> {
        let mut looked = RegionChanges::default();
        let mut failed = None;
        for (name, table) in self.all().iter() {
            // Of one table that cannot be changed now the others are not to suffer.
            let given = self.give_rest(name, table);
            if let Err(e) = given.and_then(|()| self.look_at(table, limits, look, &mut looked)) {
                failed = Some(e);
            }
        }
        failed.map_or(Ok(looked), Err)
    }

    fn look_at(
        &self,
        table: &Arc<Table>,
        limits: RegionLimits,
        look: RegionCheck,
        looked: &mut RegionChanges,
    ) -> Result<(), Status> {
        if !is_aligned(&table.now().families) {
            for at in cuts(&table.now()) {
                self.cut(table, &at)?;
            }
        }
        let layout = table.now();
        let count = layout.families.first().map_or(0, |family| family.regions.len());
        // Of all, before anything may fail.
        let seen: Vec<Seen> = (0..count).map(|region| traffic_of(&layout, region, limits, look)).collect();
        let is_streamed = layout.schema.change_retention_us.is_some();
        let mut failed = Ok(());
        // From the right, so that what is split moves none that is still to be looked at. The region behind,
        // while it may be joined: its bytes.
        let mut behind: Option<u64> = None;
        for (region, seen) in seen.iter().enumerate().rev() {
            let of_behind = behind.take();
            if !look.whole && !seen.is_changed {
                continue;
            }
            looked.asked += layout.families.len() as u64;
            let bytes = bytes_of(&layout, region);
            let all: u64 = bytes.iter().sum();
            // What traffic has split where changes are streamed would never be joined.
            let is_busy = seen.busy >= limits.busy && !is_streamed && count < STORES_MAX;
            if let Some(row) = split_of(&layout, region, &bytes, is_busy, limits) {
                match self.split(table, &row) {
                    Ok(()) => looked.splits += 1,
                    Err(e) => failed = Err(e),
                }
                if is_busy {
                    call_busy(
                        &table.now(),
                        &[&layout.families[0].regions[region].start, &row_key::row_start(&row)],
                    );
                }
                continue;
            }
            let may_join = look.whole && !is_streamed && seen.calm >= limits.calm;
            behind = may_join.then_some(all);
            if let Some((mine, of_behind)) = behind.zip(of_behind)
                && mine + of_behind <= limits.join_bytes
                && let at = &layout.families[0].regions[region + 1].start
                && layout.schema.cuts.binary_search_by(|cut| cut[..].cmp(at)).is_err()
            {
                match self.join(table, at) {
                    Ok(()) => looked.joins += 1,
                    Err(e) => failed = Err(e),
                }
                // What was joined is not joined again at once.
                behind = None;
            }
        }
        failed
    }
}

/// The traffic of a region: that of its busiest family.
fn traffic_of(layout: &Layout, region: usize, limits: RegionLimits, look: RegionCheck) -> Seen {
    let mut all = Seen { is_changed: false, busy: 0, calm: u32::MAX };
    for family in &layout.families {
        let seen = family.regions[region].traffic.look(look.seconds, limits.split_rate);
        all.is_changed |= seen.is_changed;
        all.busy = all.busy.max(seen.busy);
        all.calm = all.calm.min(seen.calm);
    }
    all
}

/// The row before which a region of these bytes, family by family, is to be split, if it is.
fn split_of(
    layout: &Layout,
    region: usize,
    bytes: &[u64],
    is_busy: bool,
    limits: RegionLimits,
) -> Option<Vec<u8>> {
    let largest = bytes.iter().zip(&layout.families).max_by_key(|(bytes, _)| **bytes)?.1;
    let is_large = bytes.iter().sum::<u64>() >= limits.split_bytes;
    let by_size = is_large.then(|| middle(&largest.regions[region].store)).flatten();
    by_size.or_else(|| is_busy.then(|| busy_middle(layout, region)).flatten())
}

/// Regions that begin there are not calm for a while.
fn call_busy(layout: &Layout, starts: &[&[u8]]) {
    for family in &layout.families {
        let found = starts.iter().filter_map(|start| family.find(start).ok());
        found.for_each(|at| family.regions[at].traffic.call_busy());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::proto::admin;
    use crate::tables::schema;
    use siltstone::Batch;

    const NAME: &str = "projects/p/instances/i/tables/t";
    const LIMITS: RegionLimits =
        RegionLimits { split_bytes: 1 << 30, join_bytes: 1 << 28, split_rate: 1_000.0, busy: 6, calm: 20 };
    const PART: RegionCheck = RegionCheck { seconds: 1.0, whole: false };
    const WHOLE: RegionCheck = RegionCheck { seconds: 1.0, whole: true };

    fn table(dir: &std::path::Path, cuts: &[String]) -> (Tables, Arc<Table>) {
        let config = Config { dir: dir.join("data"), ..Config::default() };
        let db = schema::builder(config.options()).open(&config.dir).unwrap();
        let tables = Tables::open(db, config.store_settings(), config.directories()).unwrap();
        let families = ["f", "g"].map(|name| (name.to_string(), admin::ColumnFamily::default()));
        let message = admin::Table { column_families: families.into(), ..Default::default() };
        let table = tables.create(NAME, &message, cuts).unwrap();
        (tables, table)
    }

    fn write(tables: &Tables, table: &Table, row: &str) {
        let (key, mut batch) = (row_key::cell_key(row.as_bytes(), b"q"), Batch::new());
        batch.put_at(table.now().family("f").unwrap().written(&key), &key, siltstone::Timestamp(1), b"v");
        tables.db.write_with(&batch, siltstone::Durability::Buffered).unwrap();
    }

    fn starts(table: &Table) -> Vec<String> {
        let row =
            |at: Vec<u8>| String::from_utf8(row_key::row_of(&at[..row_key::row_len(&at)?]).into_owned()).ok();
        cuts(&table.now()).into_iter().filter_map(row).collect()
    }

    #[test]
    fn a_look_asks_only_about_the_regions_that_were_used() {
        let dir = tempfile::tempdir().unwrap();
        let cuts: Vec<String> = (0..1_000).map(|n| format!("r{n:04}")).collect();
        let (tables, table) = table(dir.path(), &cuts);
        assert_eq!(tables.look(LIMITS, PART).unwrap().asked, 0);
        write(&tables, &table, "r0500x");
        write(&tables, &table, "r0700x");
        assert_eq!(tables.look(LIMITS, PART).unwrap().asked, 4, "two regions of two families");
        assert_eq!(tables.look(LIMITS, PART).unwrap().asked, 0);
        assert_eq!(
            tables.look(LIMITS, WHOLE).unwrap(),
            RegionChanges { asked: 2_002, ..RegionChanges::default() }
        );
    }

    #[test]
    fn a_busy_region_is_split_where_its_traffic_is_halved_and_joined_when_it_was_calm_for_a_while() {
        let dir = tempfile::tempdir().unwrap();
        let (tables, table) = table(dir.path(), &[]);
        let mut seconds = 0;
        while starts(&table).is_empty() {
            (0..2_000).for_each(|n| write(&tables, &table, &format!("r{:03}", n * 7 % 1_000)));
            tables.look(LIMITS, PART).unwrap();
            seconds += 1;
        }
        assert_eq!(seconds, 6, "not by one busy second");
        let at = starts(&table);
        assert!(at.len() == 1 && ("r400".."r600").contains(&at[0].as_str()), "{at:?}");
        for _ in 0..30 {
            (0..1_600).for_each(|n| write(&tables, &table, &format!("r{:03}", n * 7 % 1_000)));
            tables.look(LIMITS, WHOLE).unwrap();
        }
        assert_eq!(starts(&table), at, "each has half of the traffic");
        for second in 0..60 {
            let looked = tables.look(LIMITS, WHOLE).unwrap();
            if looked.joins > 0 {
                assert!(second >= 19, "it was calm for {second} s only");
                break;
            }
        }
        assert!(starts(&table).is_empty());
        // One row that is as busy cannot be halved.
        for _ in 0..10 {
            (0..2_000).for_each(|_| write(&tables, &table, "r"));
            tables.look(LIMITS, WHOLE).unwrap();
        }
        assert!(starts(&table).is_empty());
    }
}
