//! The tables of the server: which there are, which engine families hold their cells, and how these change.
//!
//! A table is cut into regions by row. Each column family of each region is an engine family, a *store*, named
//! `t<table>.<family>` or, for what was split off, `t<table>.<family>.<number>`. All stores share one database and one log, so a
//! write of a row over its families is one batch. Where regions begin is not kept twice: each store knows its keys.
//!
//! The engine family `tables` has a record ([`Schema`]) for each table. A table is there from the moment its record is
//! written, and gone from the moment that is deleted; what is kept of it then, other records name ([`crate::tables::undelete`]).
//! Stores that no record names come from a change that did not come to its end; they are dropped at the next start.
//!
//! Who reads or writes takes [`Table::now`], an immutable picture, under [`Table::hold`]. A split or join changes which store has
//! a key, so it waits until nobody holds the table, and nobody begins meanwhile; that takes milliseconds, whatever the size.

use crate::cells::aggregate::Aggregate;
use crate::cells::filter::{Filter, Need};
use crate::cells::gc::Gc;
use crate::cells::row_key;
use crate::config::{Directories, StoreSettings};
use crate::status::status;
use crate::tables::backup_places::BackupPlaces;
use crate::tables::backup_records::BackupIndex;
use crate::tables::schema::{FamilySchema, Schema};
use crate::tables::traffic::Traffic;
use crate::tables::undelete::{self, DeletedTables};
use crate::tables::views::{Subset, ViewSchema};
use arc_swap::ArcSwap;
use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use siltstone::{Batch, Db, Durability, ErrorKind, Family, FamilyOptions, SeqNo};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tonic::Status;

/// The engine family of the records.
const RECORDS: &str = "tables";
/// The record of the next table's id.
const NEXT_ID: &[u8] = b"next-id";
/// What the names of tables begin with among the records.
const TABLE: &[u8] = b"table/";

/// What the notes of attached stores begin with.
const ATTACHED: &[u8] = b"attached/";

/// How long a split or join waits for calls under way, and keeps others waiting.
const MOVE_WAIT: Duration = Duration::from_millis(100);
/// Families of a table, and stores that it is made with, at most.
const FAMILIES_MAX: usize = 1_000;
pub(crate) const STORES_MAX: usize = 10_000;
/// Moments that are noted, one a second: a day.
const MOMENTS_MAX: usize = 86_400;
/// Locks of rows that are read before they are written.
const ROW_LOCKS: usize = 256;

/// All tables.
pub(crate) struct Tables {
    pub(crate) db: Db,
    pub(crate) records: Family,
    pub(crate) backup_places: BackupPlaces,
    /// Where databases are made that are being restored.
    pub(crate) restoring: PathBuf,
    /// What engine families are made with, besides what their rules say.
    base: StoreSettings,
    by_name: ArcSwap<BTreeMap<String, Arc<Table>>>,
    /// Tables that were deleted and can come back.
    pub(crate) kept: DeletedTables,
    /// Moments, and the sequence numbers up to which had been written by then.
    moments: Mutex<VecDeque<(u64, SeqNo)>>,
    /// One change of the set of tables at a time.
    changing: Mutex<()>,
    /// One change of the set of backups at a time.
    pub(crate) backing_up: Mutex<()>,
    /// The backups of this server, without what their tables were like.
    pub(crate) known_backups: BackupIndex,
    /// Changes of backups may have left something to be removed.
    pub(crate) backups_left: AtomicBool,
    row_locks: Vec<Mutex<()>>,
}

/// One table.
pub(crate) struct Table {
    now: ArcSwap<Layout>,
    /// Held for writing while stores change hands.
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

    /// The same for a write, which counts.
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
    fn go_on_counting(&mut self, before: &Layout) {
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
    /// What must be read of each family for a filter, of what a view has if there is one; families of which nothing is needed are
    /// left out.
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
    fn new(layout: Layout) -> Self {
        Self { now: ArcSwap::from_pointee(layout), moves: RwLock::default(), is_given: AtomicBool::new(true) }
    }

    /// The table as it is.
    pub(crate) fn now(&self) -> Arc<Layout> {
        self.now.load_full()
    }

    /// Its stores may not have the options that they are to have.
    pub(crate) fn lacks_options(&self) {
        self.is_given.store(false, Ordering::Relaxed);
    }

    /// The table is like that from now on. The caller moves its keys.
    pub(crate) fn become_like(&self, layout: Layout) {
        self.now.store(Arc::new(layout));
    }

    /// While this is held, no key changes its store.
    pub(crate) fn hold(&self) -> RwLockReadGuard<'_, ()> {
        self.moves.read()
    }

    /// While this is held, keys may change their stores. `UNAVAILABLE` if writers that are held up hold the table: who waits
    /// here keeps readers waiting, too.
    pub(crate) fn move_keys(&self) -> Result<RwLockWriteGuard<'_, ()>, Status> {
        let moved = self.moves.try_write_for(MOVE_WAIT);
        moved.ok_or_else(|| Status::unavailable("writers of the table are held up: try again"))
    }
}

/// The name of a store of a table's family.
fn store_name(table: u64, family: u32, number: Option<u64>) -> String {
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

/// The key of a table's record.
pub(crate) fn record_key(name: &str) -> Vec<u8> {
    [TABLE, name.as_bytes()].concat()
}

impl Tables {
    /// The tables of a database, after what was left of changes that did not come to their end has been put right.
    pub(crate) fn open(db: Db, base: StoreSettings, directories: Directories) -> Result<Self, Status> {
        let records = match db.family(RECORDS) {
            Err(e) if e.kind() == ErrorKind::NotFound => db.create_family(RECORDS, FamilyOptions::default()),
            found => found,
        };
        let records = records.map_err(status)?;
        let mut schemas = BTreeMap::new();
        for record in records.scan_prefix(TABLE) {
            let record = record.map_err(status)?;
            let name = String::from_utf8_lossy(&record.key[TABLE.len()..]).into_owned();
            let schema: Schema = serde_json::from_slice(&record.value)
                .map_err(|e| Status::data_loss(format!("the record of table {name}: {e}")))?;
            schemas.insert(name, schema);
        }
        let deleted = undelete::records(&records)?;
        let all = schemas.values().chain(deleted.iter().map(|record| &record.schema));
        let named: BTreeSet<(u64, u32)> =
            all.flat_map(|s| s.families.values().map(|f| (s.id, f.id))).collect();
        let row_locks = (0..ROW_LOCKS).map(|_| Mutex::default()).collect();
        let (by_name, kept, changing, backing_up, moments) = Default::default();
        let tables = Self {
            db,
            known_backups: BackupIndex::new(records.clone()),
            records,
            backup_places: BackupPlaces::new(directories.backups),
            restoring: directories.restoring,
            base,
            by_name,
            kept,
            moments,
            changing,
            backing_up,
            backups_left: AtomicBool::new(true),
            row_locks,
        };
        tables.note_moment();
        for store in tables.db.all_families() {
            if owner_of(store.name()).is_some_and(|owner| !named.contains(&owner)) {
                tables.note_attached(&store)?;
                tables.db.drop_family(store.name()).map_err(status)?;
            }
        }
        tables.open_backups()?;
        let mut stores = tables.all_stores();
        let mut by_name = BTreeMap::new();
        let mut altered = Vec::new();
        for (name, schema) in schemas {
            let layout = tables.layout(schema, &mut stores, None)?;
            altered.extend(tables.options_to_give(&name, &layout)?);
            // How calm they were nobody knows: what traffic has split stays so for a while.
            let regions = layout.families.iter().flat_map(|family| &family.regions);
            regions.for_each(|region| region.traffic.call_busy());
            by_name.insert(name, Arc::new(Table::new(layout)));
        }
        for record in deleted {
            let layout = tables.layout(record.schema.clone(), &mut stores, None)?;
            tables.kept.add(record, Table::new(layout));
        }
        tables.db.alter_families(altered).map_err(status)?;
        tables.by_name.store(Arc::new(by_name));
        Ok(tables)
    }

    /// All stores by what they belong to.
    fn all_stores(&self) -> BTreeMap<(u64, u32), Vec<Family>> {
        let mut stores: BTreeMap<_, Vec<Family>> = BTreeMap::new();
        for store in self.db.all_families() {
            if let Some(owner) = owner_of(store.name()) {
                stores.entry(owner).or_default().push(store);
            }
        }
        stores
    }

    /// What the stores of a family are to have.
    pub(crate) fn options(
        &self,
        table: &str,
        family: &str,
        of: &FamilySchema,
    ) -> Result<FamilyOptions, Status> {
        of.options(self.base.of(table, family)?)
    }

    /// Gives the engine the rules and settings that stores do not have yet.
    fn give_options(&self, table: &str, layout: &Layout) -> Result<(), Status> {
        self.db.alter_families(self.options_to_give(table, layout)?).map_err(status)
    }

    /// The stores of a table that do not have the options they are to have, with these.
    fn options_to_give(&self, table: &str, layout: &Layout) -> Result<Vec<(Family, FamilyOptions)>, Status> {
        let mut altered = Vec::new();
        for family in &layout.families {
            let Some(schema) = layout.schema.families.get(&*family.name) else { continue };
            let options = self.options(table, &family.name, schema)?;
            for Region { store, .. } in &family.regions {
                if store.options() != options {
                    altered.push((store.clone(), options.clone()));
                }
            }
        }
        Ok(altered)
    }

    /// Gives a table's stores their options, if a change came to no end in that.
    pub(crate) fn give_rest(&self, name: &str, table: &Table) -> Result<(), Status> {
        if !table.is_given.load(Ordering::Relaxed) {
            let _changing = self.changing.lock();
            self.give_options(name, &table.now())?;
            table.is_given.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Notes that a store was attached, so that the sequence numbers that this took, which no write has, are not taken for a loss
    /// by who streams changes: under the last of them, the first. They are many where another server's database is ahead.
    fn note_attached(&self, store: &Family) -> Result<(), Status> {
        let Some((first, last)) = store.attached_from().zip(store.attached_at()) else { return Ok(()) };
        let mut batch = Batch::new();
        batch.put(&self.records, [ATTACHED, &last.0.to_be_bytes()].concat(), first.0.to_be_bytes());
        self.db.write_with(&batch, Durability::Sync).map_err(status)?;
        Ok(())
    }

    /// Whether all of these sequence numbers were taken as stores were attached.
    pub(crate) fn were_attached(&self, first: SeqNo, last: SeqNo) -> Result<bool, Status> {
        let mut at = last.0;
        while first.0 <= at {
            let key = [ATTACHED, &at.to_be_bytes()].concat();
            let Some(note) = self.records.get(key).map_err(status)? else { return Ok(false) };
            // An empty one is of a single number.
            let begin = <[u8; 8]>::try_from(&note[..]).map_or(at, u64::from_be_bytes).min(at);
            match begin.checked_sub(1) {
                Some(before) => at = before,
                None => break,
            }
        }
        Ok(true)
    }

    /// Notes up to where has been written by now.
    pub(crate) fn note_moment(&self) {
        let mut moments = self.moments.lock();
        // In this order: what has that number was written before.
        let seq = self.db.snapshot().seq();
        let now = crate::time::now_us();
        if moments.back().is_some_and(|(at, _)| *at > now) {
            // The clock was set back: of earlier moments nothing is known.
            moments.clear();
        }
        moments.push_back((now, seq));
        if moments.len() > MOMENTS_MAX {
            moments.pop_front();
        }
    }

    /// A sequence number behind which everything is that was written at that time or later.
    pub(crate) fn seq_before(&self, us: u64) -> SeqNo {
        let moments = self.moments.lock();
        let behind = moments.partition_point(|(at, _)| *at < us);
        behind.checked_sub(1).map_or(SeqNo::ZERO, |at| moments[at].1)
    }

    /// One call at a time reads a row to write it.
    pub(crate) fn lock_row(&self, row: &[u8]) -> MutexGuard<'_, ()> {
        let hash = row.iter().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
        });
        self.row_locks[usize::try_from(hash % ROW_LOCKS as u64).unwrap_or(0)].lock()
    }

    /// The layout of a table with these stores. Views that are as before are not compiled again.
    fn layout(
        &self,
        schema: Schema,
        stores: &mut BTreeMap<(u64, u32), Vec<Family>>,
        before: Option<&Layout>,
    ) -> Result<Layout, Status> {
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
        Ok(Layout { schema: Arc::new(schema), families, views })
    }

    /// One change of the set of tables, or of their regions, at a time.
    pub(crate) fn change(&self) -> MutexGuard<'_, ()> {
        self.changing.lock()
    }

    /// The table of that name.
    pub(crate) fn get(&self, name: &str) -> Result<Arc<Table>, Status> {
        let found = self.by_name.load().get(name).cloned();
        found.ok_or_else(|| Status::not_found(format!("no table {name}")))
    }

    /// All tables, by name.
    pub(crate) fn all(&self) -> Arc<BTreeMap<String, Arc<Table>>> {
        self.by_name.load_full()
    }

    fn write_record(&self, name: &str, schema: &Schema) -> Result<(), Status> {
        let record = serde_json::to_vec(schema).map_err(|e| Status::internal(e.to_string()))?;
        let mut batch = Batch::new();
        batch.put(&self.records, record_key(name), record);
        self.db.write_with(&batch, Durability::Sync).map_err(status)?;
        Ok(())
    }

    fn next_id(&self) -> Result<u64, Status> {
        let last = self.records.get(NEXT_ID).map_err(status)?;
        let last = last.map_or(Ok(0), |bytes| bytes[..].try_into().map(u64::from_be_bytes));
        let id = last.map_err(|_| Status::data_loss("the record of the next table's id"))? + 1;
        let mut batch = Batch::new();
        batch.put(&self.records, NEXT_ID, id.to_be_bytes());
        self.db.write_with(&batch, Durability::Sync).map_err(status)?;
        Ok(id)
    }

    /// Creates a table, cut into regions at these rows.
    pub(crate) fn create(
        &self,
        name: &str,
        table: &crate::proto::admin::Table,
        splits: &[impl AsRef<[u8]>],
    ) -> Result<Arc<Table>, Status> {
        let _changing = self.changing.lock();
        self.refuse_table(name)?;
        let splits: BTreeSet<&[u8]> =
            splits.iter().map(AsRef::as_ref).filter(|row| !row.is_empty()).collect();
        splits.iter().try_for_each(|row| row_key::check_row(row))?;
        let mut schema = Schema::new(self.next_id()?, table)?;
        schema.cuts = splits.iter().map(|row| row_key::row_start(row)).collect();
        // Where there is no family yet, one will be cut there.
        let stores = schema.families.len().max(1) * (splits.len() + 1);
        if schema.families.len() > FAMILIES_MAX || stores > STORES_MAX {
            let (families, regions) = (schema.families.len(), splits.len() + 1);
            let message = format!(
                "{families} families in {regions} regions; the limits are {FAMILIES_MAX} and {STORES_MAX} together"
            );
            return Err(Status::invalid_argument(message));
        }
        let mut stores = BTreeMap::new();
        self.create_stores(name, &schema, &schema.cuts, &mut stores)?;
        if let Err(e) = self.write_record(name, &schema) {
            self.drop_all(stores.values().flatten());
            return Err(e);
        }
        self.publish(name, schema, &mut stores)
    }

    /// Lets a table whose record is written be seen.
    fn publish(
        &self,
        name: &str,
        schema: Schema,
        stores: &mut BTreeMap<(u64, u32), Vec<Family>>,
    ) -> Result<Arc<Table>, Status> {
        let layout = self.layout(schema, stores, None)?;
        self.give_options(name, &layout)?;
        let table = Arc::new(Table::new(layout));
        self.show(name, &table);
        Ok(table)
    }

    /// The table is there by that name from now on. The caller holds [`Tables::change`].
    pub(crate) fn show(&self, name: &str, table: &Arc<Table>) {
        let mut by_name = BTreeMap::clone(&self.by_name.load());
        by_name.insert(name.to_string(), table.clone());
        self.by_name.store(Arc::new(by_name));
    }

    /// There is no table of that name any more. The caller holds [`Tables::change`].
    pub(crate) fn hide(&self, name: &str) {
        let mut by_name = BTreeMap::clone(&self.by_name.load());
        by_name.remove(name);
        self.by_name.store(Arc::new(by_name));
    }

    /// Refuses a name that a table has.
    pub(crate) fn refuse_table(&self, name: &str) -> Result<(), Status> {
        match self.by_name.load().contains_key(name) {
            true => Err(Status::already_exists(format!("table {name} exists"))),
            false => Ok(()),
        }
    }

    /// Creates a table out of copies of stores of another database, which have names of a table's stores there.
    pub(crate) fn create_from(
        &self,
        name: &str,
        schema: Schema,
        from: &Db,
        theirs: &[String],
    ) -> Result<Arc<Table>, Status> {
        let _changing = self.changing.lock();
        self.refuse_table(name)?;
        let schema = Schema { id: self.next_id()?, ..schema };
        let mut stores: BTreeMap<(u64, u32), Vec<Family>> = BTreeMap::new();
        let made = self.copy_stores(&schema, from, theirs, &mut stores);
        let made = made
            .and_then(|()| self.create_stores(name, &schema, &[], &mut stores))
            .and_then(|()| self.write_record(name, &schema));
        if let Err(e) = made {
            self.drop_all(stores.values().flatten());
            return Err(e);
        }
        self.publish(name, schema, &mut stores)
    }

    /// Copies stores of another database for a table of ours, all or none.
    fn copy_stores(
        &self,
        schema: &Schema,
        from: &Db,
        theirs: &[String],
        stores: &mut BTreeMap<(u64, u32), Vec<Family>>,
    ) -> Result<(), Status> {
        let mut names = Vec::with_capacity(theirs.len());
        for store in theirs {
            let (_, family) = owner_of(store).ok_or_else(|| Status::internal(format!("store {store}")))?;
            let number = store.split('.').nth(2).and_then(|number| number.parse().ok());
            let new = store_name(schema.id, family, number);
            self.forget_store(&new)?;
            names.push((store, new, family));
        }
        let pairs: Vec<(&str, &str)> =
            names.iter().map(|(theirs, new, _)| (theirs.as_str(), new.as_str())).collect();
        let copied = self.db.copy_families(from, &pairs).map_err(status)?;
        for ((_, _, family), store) in names.iter().zip(copied) {
            stores.entry((schema.id, *family)).or_default().push(store);
        }
        // All came at one moment.
        stores.values().flatten().next().map_or(Ok(()), |store| self.note_attached(store))
    }

    /// Makes the stores of families that have none, cut at these keys; all or none.
    fn create_stores(
        &self,
        table: &str,
        schema: &Schema,
        cuts: &[Vec<u8>],
        stores: &mut BTreeMap<(u64, u32), Vec<Family>>,
    ) -> Result<(), Status> {
        let mut made: Vec<Family> = Vec::new();
        let is_new = |family: &FamilySchema| !stores.contains_key(&(schema.id, family.id));
        let new: Vec<_> = schema.families.iter().filter(|(_, family)| is_new(family)).collect();
        for (name, family) in new {
            let first = made.len();
            let options = self.options(table, name, family);
            let done =
                options.and_then(|options| self.create_store(schema, family, options)).and_then(|store| {
                    made.push(store.clone());
                    let mut last = store;
                    for (number, at) in (0..).zip(cuts) {
                        let name = store_name(schema.id, family.id, Some(number));
                        self.forget_store(&name)?;
                        last = last.split(at, &name).map_err(status)?.1;
                        made.push(last.clone());
                    }
                    Ok(())
                });
            if let Err(e) = done {
                self.drop_all(&made);
                return Err(e);
            }
            stores.insert((schema.id, family.id), made[first..].to_vec());
        }
        Ok(())
    }

    fn create_store(
        &self,
        schema: &Schema,
        family: &FamilySchema,
        options: FamilyOptions,
    ) -> Result<Family, Status> {
        let name = store_name(schema.id, family.id, None);
        self.forget_store(&name)?;
        self.db.create_family(&name, options).map_err(status)
    }

    /// Drops a store of that name, which a change that failed has left.
    fn forget_store(&self, name: &str) -> Result<(), Status> {
        match self.db.drop_family(name) {
            Err(e) if e.kind() != ErrorKind::NotFound => Err(status(e)),
            _ => Ok(()),
        }
    }

    /// Drops stores of a change that failed; what cannot be dropped now is at the next start.
    fn drop_all<'a>(&self, stores: impl IntoIterator<Item = &'a Family>) {
        for store in stores {
            if let Err(e) = self.db.drop_family(store.name()) {
                tracing::warn!(store = store.name(), error = %e, "a store is left until the next start");
            }
        }
    }

    fn drop_stores(&self, family: &Stores) -> Result<(), Status> {
        let mut stores = family.regions.iter().map(|region| region.store.name());
        stores.try_for_each(|store| self.db.drop_family(store)).map_err(status)
    }

    /// Changes a table's schema: families that are new are made, those that are left out are dropped, all or none.
    pub(crate) fn alter(
        &self,
        name: &str,
        change: impl FnOnce(&mut Schema) -> Result<(), Status>,
    ) -> Result<Arc<Table>, Status> {
        let _changing = self.changing.lock();
        let table = self.get(name)?;
        let before = table.now();
        let mut schema = Schema::clone(&before.schema);
        change(&mut schema)?;
        // Settings that cannot be must not be written down.
        schema.families.iter().try_for_each(|(family, of)| self.options(name, family, of).map(drop))?;
        let mut stores: BTreeMap<(u64, u32), Vec<Family>> = BTreeMap::new();
        for family in &before.families {
            let all = family.regions.iter().map(|region| region.store.clone()).collect();
            stores.insert((schema.id, family.id), all);
        }
        // As the others are cut, or, where there are none, as its maker wanted.
        let cuts: Vec<Vec<u8>> = match before.families.first() {
            Some(family) => family.regions.iter().skip(1).map(|region| region.start.to_vec()).collect(),
            None => schema.cuts.clone(),
        };
        if schema.families.len() > FAMILIES_MAX {
            let message = format!("{} families, the limit is {FAMILIES_MAX}", schema.families.len());
            return Err(Status::invalid_argument(message));
        }
        let new =
            schema.families.values().filter(|family| !stores.contains_key(&(schema.id, family.id))).count();
        if new * (cuts.len() + 1) > STORES_MAX {
            let regions = cuts.len() + 1;
            let message =
                format!("{new} new families in {regions} regions, the limit is {STORES_MAX} together");
            return Err(Status::invalid_argument(message));
        }
        self.create_stores(name, &schema, &cuts, &mut stores)?;
        if let Err(e) = self.write_record(name, &schema) {
            let old: BTreeSet<u32> = before.families.iter().map(|family| family.id).collect();
            self.drop_all(
                stores.iter().filter(|((_, family), _)| !old.contains(family)).flat_map(|(_, all)| all),
            );
            return Err(e);
        }
        let mut layout = self.layout(schema, &mut stores, Some(&before))?;
        layout.families.iter_mut().for_each(|family| family.go_on_counting(&before));
        let layout = Arc::new(layout);
        table.now.store(layout.clone());
        // What fails from here on is tried again at the next look, or start.
        table.is_given.store(false, Ordering::Relaxed);
        self.give_options(name, &layout)?;
        table.is_given.store(true, Ordering::Relaxed);
        let left = stores.keys().map(|(_, family)| *family).collect::<BTreeSet<_>>();
        before
            .families
            .iter()
            .filter(|family| left.contains(&family.id))
            .try_for_each(|f| self.drop_stores(f))?;
        Ok(table)
    }
}
