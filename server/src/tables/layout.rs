//! A table: its schema, the stores of its column families region by region, and its views, as they are at a
//! moment.
//!
//! Reads and writes take [`Table::now`], an immutable snapshot of the layout, under [`Table::hold`]. A split
//! or join changes which store has a key, so it waits until nobody holds the table, and nobody begins
//! meanwhile; that takes milliseconds, whatever the size.

use crate::cells::aggregate::Aggregate;
use crate::cells::filter::{Filter, Need};
use crate::cells::gc::Gc;
use crate::cells::subset::Subset;
use crate::status::status;
use crate::tables::schema::Schema;
use crate::tables::traffic::Traffic;
use crate::tables::view_schema::ViewSchema;
use arc_swap::ArcSwap;
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use siltstone::Family;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tonic::Status;

/// The stores of families, by the numbers of their table and family.
pub(super) type StoresByFamily = BTreeMap<(u64, u32), Vec<Family>>;

/// How long a split or join waits for calls under way, and keeps others waiting.
const MOVE_WAIT: Duration = Duration::from_millis(100);

/// One table.
pub(crate) struct Table {
    now: ArcSwap<Layout>,
    /// Locked for writing while keys change their stores.
    moves: RwLock<()>,
    /// Its stores have the options that they are to have.
    is_given: AtomicBool,
}

/// A table as it is at a moment.
pub(crate) struct Layout {
    pub(crate) schema: Arc<Schema>,
    /// In the order of their names.
    pub(crate) families: Vec<Stores>,
    /// Its authorized views, compiled.
    pub(crate) views: Arc<BTreeMap<String, Arc<Subset>>>,
}

/// A column family and the stores of its regions.
#[derive(Clone)]
pub(crate) struct Stores {
    pub(crate) name: Arc<str>,
    pub(crate) id: u32,
    pub(crate) gc: Gc,
    pub(crate) aggregate: Option<Aggregate>,
    /// In the order of keys.
    pub(crate) regions: Vec<Region>,
    /// The number of the next store that is split off.
    next: u64,
}

/// A region's store of a family.
#[derive(Clone)]
pub(crate) struct Region {
    /// The first key that it has.
    pub(crate) start: Arc<[u8]>,
    pub(crate) store: Family,
    pub(crate) traffic: Arc<Traffic>,
}

impl Region {
    fn new(store: Family) -> Self {
        Self { start: store.range().start.into(), store, traffic: Arc::default() }
    }
}

impl Stores {
    /// O(log regions).
    fn region(&self, key: &[u8]) -> &Region {
        let at = self.regions.partition_point(|region| *region.start <= *key);
        &self.regions[at.saturating_sub(1)]
    }

    /// The store that has a key.
    pub(crate) fn of(&self, key: &[u8]) -> &Family {
        &self.region(key).store
    }

    /// The store that has a key, for a write, which counts.
    pub(crate) fn written(&self, key: &[u8]) -> &Family {
        let region = self.region(key);
        region.traffic.note(key);
        &region.store
    }

    /// Where a region begins with this key, its place; else where it would be put.
    pub(crate) fn find(&self, start: &[u8]) -> Result<usize, usize> {
        self.regions.binary_search_by(|region| (*region.start).cmp(start))
    }

    /// Cuts the store of a key before it, unless it begins there.
    pub(crate) fn cut(&mut self, table: u64, at: &[u8]) -> Result<(), Status> {
        let Err(place) = self.find(at) else { return Ok(()) };
        let before = &self.regions[place.saturating_sub(1)].store;
        let (_, right) = before.split(at, &store_name(table, self.id, Some(self.next))).map_err(status)?;
        self.next += 1;
        self.regions.insert(place, Region::new(right));
        Ok(())
    }

    /// Puts the regions before and behind this key together.
    pub(crate) fn join(&mut self, at: &[u8]) -> Result<(), Status> {
        let Ok(right @ 1..) = self.find(at) else { return Ok(()) };
        self.regions[right - 1].store.join(&self.regions[right].store).map_err(status)?;
        self.regions.remove(right);
        Ok(())
    }

    /// The traffic of its regions is counted on where it was counted before.
    pub(super) fn go_on_counting(&mut self, before: &Layout) {
        let Some(before) = before.families.iter().find(|family| family.id == self.id) else { return };
        for region in &mut self.regions {
            if let Ok(at) = before.find(&region.start) {
                region.traffic = before.regions[at].traffic.clone();
            }
        }
    }

    /// The regions that may have keys from `start` to `end`.
    pub(crate) fn within(&self, start: &[u8], end: Option<&[u8]>) -> &[Region] {
        let first = self.regions.partition_point(|region| *region.start <= *start).saturating_sub(1);
        let last =
            end.map_or(self.regions.len(), |end| self.regions.partition_point(|region| *region.start < *end));
        &self.regions[first..last.max(first)]
    }
}

impl Layout {
    /// A table with these stores. Views that are as before are not compiled again.
    pub(super) fn new(
        schema: Schema,
        stores: &mut StoresByFamily,
        before: Option<&Self>,
    ) -> Result<Self, Status> {
        let mut families = Vec::new();
        for (name, family) in &schema.families {
            let own = stores.remove(&(schema.id, family.id)).unwrap_or_default();
            if own.is_empty() {
                return Err(Status::data_loss(format!("the store of family \"{name}\" is missing")));
            }
            let number = |store: &Family| store.name().split('.').nth(2)?.parse::<u64>().ok();
            let next = own.iter().filter_map(number).max().map_or(0, |last| last + 1);
            let mut regions: Vec<_> = own.into_iter().map(Region::new).collect();
            regions.sort_by(|a, b| a.start.cmp(&b.start));
            let (id, gc, aggregate) = (family.id, family.gc.clone(), family.aggregate);
            families.push(Stores { name: name.as_str().into(), id, gc, aggregate, regions, next });
        }
        let compiled = |(id, view): (&String, &ViewSchema)| {
            let same = before.filter(|before| before.schema.views.get(id) == Some(view));
            let kept = same.and_then(|before| before.views.get(id).cloned());
            (id.clone(), kept.unwrap_or_else(|| Arc::new(view.compiled())))
        };
        let views = schema.views.iter().map(compiled);
        let views = Arc::new(views.collect());
        Ok(Self { schema: Arc::new(schema), families, views })
    }

    /// The part of each family that must be read for a filter, within a view if there is one; families of
    /// which nothing is needed are left out.
    pub(crate) fn needs(&self, filter: &Filter, view: Option<&Subset>) -> Vec<(Arc<str>, Need)> {
        let need = |family: &Stores| {
            let need = filter.need(&family.name)?;
            let need = match view {
                None => need,
                Some(view) => need.within(view.columns(&family.name)?),
            };
            Some((family.name.clone(), need))
        };
        self.families.iter().filter_map(need).collect()
    }

    pub(crate) fn family(&self, name: &str) -> Result<&Stores, Status> {
        let at = self.families.binary_search_by(|family| (*family.name).cmp(name));
        at.map(|at| &self.families[at])
            .map_err(|_| Status::not_found(format!("no family \"{name}\" in the table")))
    }
}

impl Table {
    pub(super) fn new(layout: Layout) -> Self {
        Self { now: ArcSwap::from_pointee(layout), moves: RwLock::default(), is_given: AtomicBool::new(true) }
    }

    /// The table as it is.
    pub(crate) fn now(&self) -> Arc<Layout> {
        self.now.load_full()
    }

    /// Its stores may not have the options that they are to have.
    pub(super) fn lacks_options(&self) {
        self.is_given.store(false, Ordering::Relaxed);
    }

    /// Its stores have the options that they are to have.
    pub(super) fn has_options(&self) -> bool {
        self.is_given.load(Ordering::Relaxed)
    }

    /// Says that they have.
    pub(super) fn options_are_given(&self) {
        self.is_given.store(true, Ordering::Relaxed);
    }

    /// The table is like that from now on. The caller moves its keys.
    pub(super) fn become_like(&self, layout: Arc<Layout>) {
        self.now.store(layout);
    }

    /// While this is held, no key changes its store.
    pub(crate) fn hold(&self) -> RwLockReadGuard<'_, ()> {
        self.moves.read()
    }

    /// While this is held, keys may change their stores. `UNAVAILABLE` if stalled writers hold the table, as
    /// a wait here would make readers wait, too.
    pub(crate) fn move_keys(&self) -> Result<RwLockWriteGuard<'_, ()>, Status> {
        let moved = self.moves.try_write_for(MOVE_WAIT);
        moved.ok_or_else(|| Status::unavailable("writers of the table are held up: try again"))
    }
}

/// The name of a store of a table's family.
pub(super) fn store_name(table: u64, family: u32, number: Option<u64>) -> String {
    match number {
        None => format!("t{table}.{family}"),
        Some(number) => format!("t{table}.{family}.{number}"),
    }
}

/// (table, family) of a store's name.
pub(crate) fn owner_of(store: &str) -> Option<(u64, u32)> {
    let mut parts = store.strip_prefix('t')?.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}
