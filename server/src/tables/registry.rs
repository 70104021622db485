//! The tables of the server: which there are, which engine families hold their cells, and how these change.
//!
//! A table is cut into regions by row. Each column family of each region is an engine family, a *store*,
//! named `t<table>.<family>` or, for what was split off, `t<table>.<family>.<number>`. All stores share one
//! database and one WAL, so a write of a row over its families is one batch. The bounds of regions are stored
//! nowhere else: each store knows its keys.
//!
//! The engine family `tables` has a record ([`Schema`]) for each table. A table is there from the moment its
//! record is written, and gone from the moment that is deleted; other records name what is left of it then
//! ([`crate::tables::deleted`]). Stores that no record names are left of unfinished changes; they are dropped
//! at the next start ([`crate::tables::open`]).

use crate::cells::row_key;
use crate::config::{Directories, StoreSettings};
use crate::proto::admin;
use crate::status::status;
use crate::tables::backup_places::BackupPlaces;
use crate::tables::backup_records::BackupIndex;
use crate::tables::deleted::DeletedTables;
use crate::tables::layout::{Layout, Region, Stores, StoresByFamily, Table, owner_of, store_name};
use crate::tables::moments::Moments;
use crate::tables::schema::{FamilySchema, Schema};
use crate::tables::{attached, records};
use arc_swap::ArcSwap;
use parking_lot::{Mutex, MutexGuard};
use siltstone::{Db, ErrorKind, Family, FamilyOptions};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use tonic::Status;

/// How long a change of the set of backups waits for another.
const ALONE_WAIT: Duration = Duration::from_secs(5);
/// Families of a table, and stores that it is made with, at most.
const FAMILIES_MAX: usize = 1_000;
pub(super) const STORES_MAX: usize = 10_000;

/// All tables.
pub(crate) struct Tables {
    pub(crate) db: Db,
    pub(crate) records: Family,
    pub(super) backup_places: BackupPlaces,
    /// The directory of databases that are being restored.
    pub(super) restoring: PathBuf,
    /// The options of engine families, beside those from their rules.
    base: StoreSettings,
    by_name: ArcSwap<BTreeMap<String, Arc<Table>>>,
    /// Tables that were deleted and can come back.
    pub(crate) kept: DeletedTables,
    /// Up to where had been written, and when.
    pub(crate) moments: Moments,
    /// One change of the set of tables at a time.
    changing: Mutex<()>,
    /// One change of the set of backups at a time.
    pub(super) backing_up: Mutex<()>,
    /// The backups of this server, without what their tables were like.
    pub(super) known_backups: BackupIndex,
    /// Changes of backups may have left something to be removed.
    pub(super) backups_left: AtomicBool,
}

impl Tables {
    /// The registry of a database, without tables.
    pub(super) fn new(db: Db, records: Family, base: StoreSettings, directories: Directories) -> Self {
        let (by_name, kept, moments, changing, backing_up) = Default::default();
        let Directories { backups, restoring } = directories;
        Self {
            db,
            known_backups: BackupIndex::new(records.clone()),
            records,
            backup_places: BackupPlaces::new(backups),
            restoring,
            base,
            by_name,
            kept,
            moments,
            changing,
            backing_up,
            backups_left: AtomicBool::new(true),
        }
    }

    /// The options that the stores of a family should have.
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
    pub(super) fn options_to_give(
        &self,
        table: &str,
        layout: &Layout,
    ) -> Result<Vec<(Family, FamilyOptions)>, Status> {
        let mut altered = Vec::new();
        for family in &layout.families {
            let Some(schema) = layout.schema.families.get(&*family.name) else { continue };
            let options = self.options(table, &family.name, schema)?;
            for Region { store, .. } in &family.regions {
                if store.missing_options().is_some() || store.options() != options {
                    altered.push((store.clone(), options.clone()));
                }
            }
        }
        Ok(altered)
    }

    /// Gives a table's stores their options, if a change came to no end in that.
    pub(crate) fn give_rest(&self, name: &str, table: &Table) -> Result<(), Status> {
        if !table.has_options() {
            let _changing = self.changing.lock();
            self.give_options(name, &table.now())?;
            table.options_are_given();
        }
        Ok(())
    }

    /// One change of the set of tables, or of their regions, at a time.
    pub(crate) fn change(&self) -> MutexGuard<'_, ()> {
        self.changing.lock()
    }

    /// One change of the set of backups at a time; a call that has waited for long gets a retryable error.
    pub(crate) fn alone(&self) -> Result<MutexGuard<'_, ()>, Status> {
        let alone = self.backing_up.try_lock_for(ALONE_WAIT);
        alone.ok_or_else(|| Status::unavailable("another backup or restore is under way: try again"))
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

    /// Creates a table, cut into regions at these rows.
    pub(crate) fn create(
        &self,
        name: &str,
        table: &admin::Table,
        splits: &[impl AsRef<[u8]>],
    ) -> Result<Arc<Table>, Status> {
        let _changing = self.changing.lock();
        self.refuse_table(name)?;
        let splits: BTreeSet<&[u8]> =
            splits.iter().map(AsRef::as_ref).filter(|row| !row.is_empty()).collect();
        splits.iter().try_for_each(|row| row_key::check_row(row))?;
        let mut schema = Schema::new(records::next_id(&self.db, &self.records)?, table)?;
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
        if let Err(e) = records::write(&self.db, &self.records, name, &schema) {
            self.drop_all(stores.values().flatten());
            return Err(e);
        }
        self.publish(name, schema, &mut stores)
    }

    /// Lets a table whose record is written be seen.
    fn publish(&self, name: &str, schema: Schema, stores: &mut StoresByFamily) -> Result<Arc<Table>, Status> {
        let layout = Layout::new(schema, stores, None)?;
        self.give_options(name, &layout)?;
        let table = Arc::new(Table::new(layout));
        self.show(name, &table);
        Ok(table)
    }

    /// Sets the tables that exist from now on.
    pub(super) fn show_all(&self, by_name: BTreeMap<String, Arc<Table>>) {
        self.by_name.store(Arc::new(by_name));
    }

    /// Adds the table under that name. The caller holds [`Tables::change`].
    pub(crate) fn show(&self, name: &str, table: &Arc<Table>) {
        let mut by_name = BTreeMap::clone(&self.by_name.load());
        by_name.insert(name.to_string(), table.clone());
        self.by_name.store(Arc::new(by_name));
    }

    /// Removes the table of that name. The caller holds [`Tables::change`].
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

    /// Creates a table out of copies of stores of another database, which have names of a table's stores
    /// there.
    pub(crate) fn create_from(
        &self,
        name: &str,
        schema: Schema,
        from: &Db,
        theirs: &[String],
    ) -> Result<Arc<Table>, Status> {
        let _changing = self.changing.lock();
        self.refuse_table(name)?;
        let schema = Schema { id: records::next_id(&self.db, &self.records)?, ..schema };
        let mut stores: StoresByFamily = BTreeMap::new();
        let made = self.copy_stores(&schema, from, theirs, &mut stores);
        let made = made
            .and_then(|()| self.create_stores(name, &schema, &[], &mut stores))
            .and_then(|()| records::write(&self.db, &self.records, name, &schema));
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
        stores: &mut StoresByFamily,
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
        stores
            .values()
            .flatten()
            .next()
            .map_or(Ok(()), |store| attached::note(&self.db, &self.records, store))
    }

    /// Makes the stores of families that have none, cut at these keys; all or none.
    fn create_stores(
        &self,
        table: &str,
        schema: &Schema,
        cuts: &[Vec<u8>],
        stores: &mut StoresByFamily,
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

    /// Changes a table's schema: families that are new are made, those that are left out are dropped, all or
    /// none.
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
        let mut stores: StoresByFamily = BTreeMap::new();
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
        if let Err(e) = records::write(&self.db, &self.records, name, &schema) {
            let old: BTreeSet<u32> = before.families.iter().map(|family| family.id).collect();
            self.drop_all(
                stores.iter().filter(|((_, family), _)| !old.contains(family)).flat_map(|(_, all)| all),
            );
            return Err(e);
        }
        let mut layout = Layout::new(schema, &mut stores, Some(&before))?;
        layout.families.iter_mut().for_each(|family| family.go_on_counting(&before));
        let layout = Arc::new(layout);
        table.become_like(layout.clone());
        // What fails from here on is tried again at the next check, or start.
        table.lacks_options();
        self.give_options(name, &layout)?;
        table.options_are_given();
        let left = stores.keys().map(|(_, family)| *family).collect::<BTreeSet<_>>();
        before
            .families
            .iter()
            .filter(|family| left.contains(&family.id))
            .try_for_each(|f| self.drop_stores(f))?;
        Ok(table)
    }
}
