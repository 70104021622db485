//! The repair of a database: makes one that opens out of what is readable.
//!
//! Three cases, by what [`plan`] found:
//! - The list of SSTables is sure and the WAL sound: damaged SSTables are rewritten in their places, missing
//!   ones leave the list; the WAL stays.
//! - The list is sure, the WAL damaged: besides, the readable part of the WAL becomes the newest run of L0 of
//!   each family, as by a flush, and the WAL files go.
//! - The list is not sure: every SSTable found, and the WAL, are merged into one run for each family. No
//!   order of whole SSTables is right at every key then (a deeper SSTable may hold newer cells than a higher
//!   one elsewhere), but each cell carries its sequence number. SSTables say in their properties which family
//!   they were written for, and its name and options.
//!
//! What cannot be known: the newest cell of a key always wins, but a key whose deletion lay in lost bytes
//! shows its older value again; so may, without a sure list, a key of which the deletion was compacted away
//! while an SSTable with an older value of it was still on disk. Both are among the reported losses. Nor is
//! it known which families were dropped: one of which the WAL still holds writes comes back, which is
//! reported too.
//!
//! Nothing is removed. New SSTables are written under a new epoch first, then copies of a damaged `CURRENT`
//! and manifest are put into `lost/`, then the new manifest comes into force, then what it no longer names
//! moves into `lost/`. A repair that is cut short before the manifest can be run again; after it, only the
//! tidying is missing.

use super::check::{open_named, open_unknown};
use super::logged::{self, Part};
use super::plan::{Plan, plan};
use super::tables::{Input, Style, Writer};
use super::{CheckProgress, Loss, Meter, RepairReport, list};
use crate::catalog::needed_wal_files;
use crate::commit::{FAMILY, OPTIONS, STORE, table_names};
use crate::error::{Error, ErrorKind, Result};
use crate::options::{FamilyOptions, Timestamps, stored_options};
use crate::shape::{Level, Run, Shape, ShapeChange, TableInfo, TablePlace};
use crate::sstable::{ScanReport, Sstable, ends_as_table, is_own_file};
use crate::storage::{Env, NOTE, TableStore, absolute, copy_file, is_blank, lock_dir};
use crate::types::{Generation, KeyRange, LogFileId, LogPosition, SeqNo, StoreId, TableId, Timestamp};
use crate::version::edit::StoreState;
use crate::version::manifest::Manifest;
use crate::wal::{self, SalvagedWal};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

const LOST: &str = "lost";
/// A longer one was not written by a database; its beginning is enough to judge it.
const ASIDE_BYTES_MAX: u64 = 2 << 30;
const CURRENT: &str = "CURRENT";

/// Rescues what is readable of a damaged database, so that it opens and a check finds nothing wrong; says
/// what was lost. Unreadable files move into the directory `lost` beside, nothing is removed. A sound
/// database is left as it is.
///
/// `Busy` when the database is open for writing, `NotFound` when there is none.
pub fn repair(env: &Env, dir: &Path, progress: &mut dyn FnMut(CheckProgress)) -> Result<RepairReport> {
    let dir = &absolute(env, dir)?;
    let env = &env.bound_if_there(dir)?;
    // Before anything is written: there may be no database, or one that cannot be repaired.
    refuse_elsewhere(env, dir, &plan(env, dir)?)?;
    let _lock = lock_dir(&*env.storage, dir, true)?;
    let plan = plan(env, dir)?;
    refuse_elsewhere(env, dir, &plan)?;
    let tables = plan.state.stores.values().flat_map(|store| store.shape.tables());
    let named: BTreeSet<TableId> = tables.map(|(_, _, info)| info.id).collect();
    let mut files = list(env, dir)?;
    let on_disk: Vec<TableId> = files.iter().filter_map(|(name, _)| TableId::parse_file_name(name)).collect();
    // A file that has the name of an SSTable, but is none by its first bytes, its last ones, nor the
    // manifest, is somebody else's.
    files.retain(|(name, _)| {
        let is_table = TableId::parse_file_name(name).is_some_and(|id| !named.contains(&id));
        let (storage, path) = (&*env.storage, dir.join(name));
        let begins =
            || is_own_file(storage, &path).unwrap_or(false) && !is_blank(storage, &path).unwrap_or(true);
        !is_table || begins() || ends_as_table(storage, &path).unwrap_or(false)
    });
    let total = files.iter().map(|(_, bytes)| bytes).sum();
    let epoch = on_disk.into_iter().chain(named).map(|id| id.epoch).fold(plan.state.epoch, u32::max) + 1;
    let writer = Writer { env, dir, database: plan.state.database, epoch, job: 0, tables: 0, cells: 0 };
    let meter = Meter::new(progress, total);
    let report = RepairReport { rebuilt: !plan.sure, ..RepairReport::default() };
    let (unknown, aside) = (Vec::new(), Vec::new());
    Rescue { env, dir, plan, files, writer, meter, report, unknown, aside, changed: false }.run()
}

struct Rescue<'a> {
    env: &'a Env,
    dir: &'a Path,
    plan: Plan,
    files: Vec<(String, u64)>,
    writer: Writer<'a>,
    meter: Meter<'a>,
    report: RepairReport,
    /// File and keys of the SSTables that do not say which family they belong to.
    unknown: Vec<(String, KeyRange)>,
    /// Files to move into `lost` once the new manifest is in force.
    aside: Vec<String>,
    changed: bool,
}

impl Rescue<'_> {
    fn run(mut self) -> Result<RepairReport> {
        self.changed = !self.plan.damaged.is_empty();
        let needed_before = needed_wal_files(&self.plan.state);
        // If it is sure which SSTables there are, nothing was lost with a damaged manifest.
        for damaged in self.plan.damaged.iter().filter(|_| !self.plan.sure) {
            let message = format!(
                "{}; the tables found were merged by sequence number, deleted keys may show again, and what \
                 only it knew would not be missed: a table that is gone, a WAL that ends too early",
                damaged.why
            );
            self.report.lost.push(loss(&damaged.file, message));
        }
        if self.plan.sure {
            self.mend()?;
        } else {
            self.rebuild()?;
        }
        // WAL files whose SSTables with values in the WAL were rewritten, because they are damaged or
        // together with them.
        let (state, needed) = (&self.plan.state, needed_wal_files(&self.plan.state));
        let freed = needed_before.difference(&needed).filter(|file| **file < state.wal_first);
        let freed: Vec<String> = freed.map(|file| wal::file_name(*file)).collect();
        self.aside.extend(freed.into_iter().filter(|name| !self.aside.contains(name)).collect::<Vec<_>>());
        self.report.tables_written = self.writer.tables;
        self.report.cells_written = self.writer.cells;
        self.report.families = self.plan.state.stores.values().map(|store| store.name.clone()).collect();
        if self.changed {
            self.commit()?;
        }
        self.meter.end();
        Ok(self.report)
    }

    // A sure list of SSTables

    fn mend(&mut self) -> Result<()> {
        let stores: Vec<(StoreId, Shape)> =
            self.plan.state.stores.iter().map(|(id, store)| (*id, store.shape.clone())).collect();
        for (id, shape) in &stores {
            for (level, run, info) in shape.tables() {
                self.mend_table(*id, TablePlace { level, run: run.id, table: info.id }, info)?;
            }
        }
        if self.plan.wal_sound {
            return Ok(());
        }
        let (parts, found) = logged::collect(self.env, self.dir, &self.plan.state)?;
        self.note_wal_losses(&found);
        for (id, part) in parts {
            // Writes of a family that was dropped.
            let Some(store) = self.plan.state.stores.get(&id) else { continue };
            let style = style_of(id, store);
            let run = Generation(part.generation.max(store.last_generation).0 + 1);
            self.plan.state.last_seq = self.plan.state.last_seq.max(part.max_seq);
            let written =
                self.writer.write(&style, part.cells.iter().map(|c| c.as_ref()), part.tombstones)?;
            let store = self.plan.state.stores.get_mut(&id).expect("found above");
            store.last_generation = run.next();
            if let Some(info) = written {
                let added = vec![(0, run.0, Arc::new(info))];
                apply(&mut store.shape, &ShapeChange { added, ..ShapeChange::default() })?;
            }
        }
        self.end_wal(&found);
        Ok(())
    }

    fn open(&self, info: &Arc<TableInfo>) -> Result<Arc<Sstable>> {
        open_named(self.env, self.dir, &TableStore::beside(&self.env.storage, self.dir), info)
    }

    fn mend_table(&mut self, id: StoreId, place: TablePlace, info: &Arc<TableInfo>) -> Result<()> {
        let file = info.id.file_name();
        self.meter.file(&file, info.bytes);
        let Err(why) = self.open(info).and_then(|table| table.verify()) else {
            self.report.tables_kept += 1;
            return Ok(());
        };
        self.changed = true;
        let store = &self.plan.state.stores[&id];
        let family = store.name.clone();
        let added = if self.files.iter().any(|(name, _)| *name == file) {
            self.aside.push(file.clone());
            let style = style_of(id, store);
            match self.writer.rewrite(&file, Some(info), |_| style) {
                Ok((written, report)) => {
                    self.table_losses(&file, Some(&family), Some(info), &report, &why);
                    written
                }
                // The file itself cannot be opened.
                Err(e) if self.env.storage.open(&self.dir.join(&file)).is_err() => {
                    self.report.lost.push(keys_lost(&file, &family, info, e.to_string()));
                    None
                }
                Err(e) => return Err(e),
            }
        } else {
            self.report.lost.push(keys_lost(&file, &family, info, why.to_string()));
            None
        };
        let added = added.map(|table| (place.level, place.run, Arc::new(table))).into_iter().collect();
        let change = ShapeChange { removed: vec![place], added, ..ShapeChange::default() };
        let store = self.plan.state.stores.get_mut(&id).expect("it is being mended");
        apply(&mut store.shape, &change)
    }

    // No sure list

    fn rebuild(&mut self) -> Result<()> {
        self.changed = true;
        let mut found: BTreeMap<StoreId, Found> = BTreeMap::new();
        for (file, bytes) in self.files.clone() {
            let Some(id) = TableId::parse_file_name(&file) else { continue };
            self.meter.file(&file, bytes);
            self.aside.push(file.clone());
            self.find_table(&file, id, &mut found)?;
        }
        self.missing_tables();
        let (parts, wal) = logged::collect(self.env, self.dir, &self.plan.state)?;
        self.note_wal_losses(&wal);
        for (id, part) in parts {
            if !self.is_dropped(id) {
                found.entry(id).or_default().part = part;
            }
        }
        for id in self.plan.state.stores.keys() {
            found.entry(*id).or_default();
        }
        self.place_unknown(&mut found);
        if let Some(homeless) = found.remove(&UNKNOWN_STORE) {
            let highest = found.keys().copied().max().unwrap_or_default().max(self.plan.state.last_store);
            found.insert(highest.next(), homeless);
        }
        // Names that families had in other databases are used last: another family may have had the name
        // here.
        let (own, foreign): (BTreeMap<_, _>, BTreeMap<_, _>) =
            found.into_iter().partition(|(_, found)| !found.is_named_elsewhere());
        for (id, found) in own.into_iter().chain(foreign) {
            self.rebuild_store(id, found)?;
        }
        self.end_wal(&wal);
        Ok(())
    }

    /// Whether the family is known to have been dropped.
    fn is_dropped(&self, id: StoreId) -> bool {
        let state = &self.plan.state;
        self.plan.all_families && id <= state.last_store && !state.stores.contains_key(&id)
    }

    /// Makes an SSTable on disk an input of its family's single run, rewritten if it is damaged.
    fn find_table(&mut self, file: &str, id: TableId, found: &mut BTreeMap<StoreId, Found>) -> Result<()> {
        let state = &self.plan.state;
        let named = state.stores.iter().find_map(|(store, s)| {
            s.shape.tables().find(|(_, _, info)| info.id == id).map(|(_, _, info)| (*store, info.clone()))
        });
        let known = named.as_ref().map(|(_, info)| info);
        let opened = match known {
            Some(info) => self.open(info),
            None => open_unknown(self.env, self.dir, file),
        };
        let (info, names, written_as) = match opened.and_then(|t| t.verify().map(|_| t.info().clone())) {
            Ok(info) => {
                let names = self.names(file)?;
                // An SSTable that the manifest does not know has its original name in its properties.
                let written_as = info.id;
                (Arc::new(TableInfo { id, ..(*info).clone() }), names, Some(written_as))
            }
            Err(why) => {
                let rewritten = self.writer.rewrite(file, known.map(|info| &**info), |report| {
                    let names = names_of(report);
                    let options = names.options.clone().unwrap_or_default();
                    let list = names.store.map(|id| table_names(id, &names.family, names.json.clone()));
                    Style::new(&options, list.unwrap_or_default())
                });
                let (written, report) = match rewritten {
                    Ok(done) => done,
                    Err(e) if self.env.storage.open(&self.dir.join(file)).is_err() => {
                        self.report.lost.push(loss(file, e.to_string()));
                        return Ok(());
                    }
                    Err(e) => return Err(e),
                };
                self.table_losses(file, None, known.map(|info| &**info), &report, &why);
                let Some(info) = written else { return Ok(()) };
                (Arc::new(info), names_of(&report), report.id.map(|(id, _)| id))
            }
        };
        // It was written for another family, maybe of another database, so the family's number in its
        // properties does not count: the file's name has the number of its present family.
        let attached = named.is_none() && names.store.is_some() && written_as.is_some_and(|was| was != id);
        let store = match attached {
            true => Some(id.store),
            false => named.as_ref().map(|(store, _)| *store).or(names.store),
        };
        if store.is_none() && info.seqs == (SeqNo::ZERO, SeqNo::ZERO) && info.ingested_at.is_none() {
            let message =
                "an ingested table of which nothing says when and into which family; ingest it again";
            self.report.lost.push(Loss { keys: Some(info.range.clone()), ..loss(file, message.into()) });
            return Ok(());
        }
        let store = store.unwrap_or_else(|| {
            self.unknown.push((file.to_string(), info.range.clone()));
            UNKNOWN_STORE
        });
        if self.is_dropped(store) {
            return Ok(());
        }
        let entry = found.entry(store).or_default();
        // The properties of SSTables written for the family count, those of the newest first.
        let rank = (!attached, info.seqs.1);
        if names.store.is_some() && entry.names.as_ref().is_none_or(|(before, _)| *before <= rank) {
            entry.names = Some((rank, names));
        }
        entry.infos.push(info);
        Ok(())
    }

    fn names(&self, file: &str) -> Result<Names> {
        Ok(Names::new(&open_unknown(self.env, self.dir, file)?.properties().names))
    }

    /// SSTables that do not say where they belong go to the only family there is, else into one of their own,
    /// so that their keys never mix with another family's; their own misses them then. Only if all families
    /// are known is it sure which is theirs; otherwise this is reported.
    fn place_unknown(&mut self, found: &mut BTreeMap<StoreId, Found>) {
        let Some(unknown) = found.remove(&UNKNOWN_STORE) else { return };
        let mut known = found.keys().copied();
        let (home, kept) = match (known.next(), known.next()) {
            (None, _) => (DEFAULT_STORE, "`default`"),
            (Some(only), None) => (only, "the only one known"),
            _ => (UNKNOWN_STORE, "one of its own"),
        };
        let is_sure = self.plan.all_families && home != UNKNOWN_STORE;
        for (file, keys) in std::mem::take(&mut self.unknown).into_iter().filter(|_| !is_sure) {
            let message =
                format!("a table of which nothing says into which family it belongs; it is kept in {kept}");
            self.report.lost.push(Loss { keys: Some(keys), ..loss(&file, message) });
        }
        found.entry(home).or_default().infos.extend(unknown.infos);
    }

    /// SSTables that the readable part of the manifest names and that are not there.
    fn missing_tables(&mut self) {
        for store in self.plan.state.stores.values() {
            for (_, _, info) in store.shape.tables() {
                let file = info.id.file_name();
                if !self.files.iter().any(|(name, _)| *name == file) {
                    let message = "the table is missing; it may have been merged away since".to_string();
                    self.report.lost.push(keys_lost(&file, &store.name, info, message));
                }
            }
        }
    }

    /// The options in what was found of the family; options that this build lacks are reported as lost.
    fn parse_options(&mut self, name: &str, json: Option<&str>) -> Option<FamilyOptions> {
        let (options, missing) = stored_options(name, json?).ok()?;
        if let Some(missing) = missing {
            let message = format!("{missing}; it has defaults in their place now");
            self.report.lost.push(Loss { family: Some(name.to_string()), ..loss(CURRENT, message) });
        }
        Some(options)
    }

    fn rebuild_store(&mut self, id: StoreId, found: Found) -> Result<()> {
        let before = self.plan.state.stores.remove(&id);
        let named_elsewhere = before.is_none() && found.is_named_elsewhere();
        let names = found.names.map(|(_, names)| names).unwrap_or_default();
        let (name, json) = match &before {
            Some(store) => (store.name.clone(), Some(store.options.clone())),
            None => (names.family, names.options.map(|_| names.json)),
        };
        let taken: Vec<&String> = self.plan.state.stores.values().map(|store| &store.name).collect();
        let name = match (name.is_empty() || taken.contains(&&name), id) {
            (false, _) => name,
            (true, DEFAULT_STORE) => crate::commit::DEFAULT_FAMILY.to_string(),
            (true, _) => format!("recovered-{id}"),
        };
        if named_elsewhere {
            self.tell_named_elsewhere(&name);
        }
        if before.is_none() && found.infos.is_empty() && id != DEFAULT_STORE {
            let message = "a family that only the WAL knows: it may have been dropped before the manifest was lost, as WAL \
                           files stay for as long as tables of any family have values in them";
            let seqs = found.part.cells.iter().map(|cell| cell.seq);
            let seqs = seqs.clone().min().zip(seqs.max());
            let family = Some(name.clone());
            self.report.lost.push(Loss { family, seqs, ..loss(CURRENT, message.into()) });
        }
        let options = self.parse_options(&name, json.as_deref());
        let options = options.unwrap_or_else(|| {
            let dated = found.part.cells.iter().any(|cell| cell.timestamp != Timestamp::ZERO);
            let mut options = FamilyOptions::default();
            if dated || found.infos.iter().any(|info| info.times.1 > Timestamp::ZERO) {
                (options.timestamps, options.versions) = (Timestamps::Explicit, 0);
            }
            options
        });
        let json = serde_json::to_string(&options).map_err(|e| Error::invalid(e.to_string()))?;
        let style = Style::new(&options, table_names(id, &name, json.clone()));
        let Part { cells, tombstones, generation, max_seq } = found.part;
        let mut infos = found.infos;
        let logged = self.writer.write(&style, cells.iter().map(|cell| cell.as_ref()), tombstones)?;
        infos.extend(logged.map(Arc::new));
        let temporary: Vec<TableId> =
            infos.iter().map(|info| info.id).filter(|id| id.epoch == self.writer.epoch).collect();
        let last = infos.iter().map(|info| info.seqs.1).fold(max_seq, SeqNo::max);
        let inputs: Vec<Input> =
            infos.iter().map(|info| Input::new(self.env, self.dir, info)).collect::<Result<_>>()?;
        let merged = self.writer.merge(&style, &inputs)?;
        drop(inputs);
        for id in temporary {
            // Its cells are in the new run: a leftover at worst.
            let _ = self.env.storage.remove(&self.dir.join(id.file_name()));
        }
        let mut store = StoreState { name, options: json, ..before.unwrap_or_default() };
        let runs = store.shape.runs().map(|(_, run)| Generation(run.id)).max().unwrap_or_default();
        let run = generation.max(store.last_generation).max(runs).next();
        store.last_generation = run.next();
        store.shape = Shape::default();
        if !merged.is_empty() {
            let tables = merged.into_iter().map(Arc::new).collect();
            store.shape.levels = vec![Level { runs: vec![Run::new(run.0, tables)] }];
        }
        let state = &mut self.plan.state;
        state.last_seq = state.last_seq.max(last);
        state.last_store = state.last_store.max(id);
        state.stores.insert(id, store);
        Ok(())
    }

    fn tell_named_elsewhere(&mut self, name: &str) {
        let message = "a family that was attached, or copied: none of its tables says how it was called here; name and \
                       options are those of where it came from, or it has a new name where another has that one";
        self.report.lost.push(Loss { family: Some(name.to_string()), ..loss(CURRENT, message.into()) });
    }

    // Both

    fn note_wal_losses(&mut self, found: &SalvagedWal) {
        self.changed = true;
        self.report.log_frames += found.frames;
        self.plan.state.last_seq = self.plan.state.last_seq.max(found.max_seq.unwrap_or_default());
        for lost in &found.lost {
            // A range of bytes in which no number was given out held no write.
            if lost.last.is_some_and(|last| last < lost.first) {
                continue;
            }
            self.report.lost.push(Loss {
                bytes: Some(lost.bytes.clone()),
                seqs: Some((lost.first, lost.last.unwrap_or(SeqNo::MAX))),
                ..loss(&wal::file_name(lost.file), format!("writes in {lost} are lost"))
            });
        }
    }

    /// The WAL has been read into SSTables: history goes on in a file above all there are.
    fn end_wal(&mut self, found: &SalvagedWal) {
        let highest = found.files.iter().copied().chain(found.lost.iter().map(|lost| lost.file));
        let state = &mut self.plan.state;
        let ends = state.wal_ends.iter().map(|end| end.next);
        let highest = highest.chain(ends).fold(state.wal_first.max(state.wal_synced.file), LogFileId::max);
        state.wal_first = highest.next();
        state.wal_synced = LogPosition { file: state.wal_first, offset: 0 };
        state.wal_ends.clear();
        state.wal_retained = Arc::default();
        let needed = needed_wal_files(state);
        let files = found.files.iter().filter(|file| !needed.contains(file));
        self.aside.extend(files.map(|file| wal::file_name(*file)));
    }

    fn table_losses(
        &mut self,
        file: &str,
        family: Option<&str>,
        known: Option<&TableInfo>,
        report: &ScanReport,
        why: &Error,
    ) {
        let family = family.map(str::to_string);
        let live = known.map_or(KeyRange::all(), TableInfo::live_range);
        let bytes = || match &report.lost[..] {
            [] => None,
            [first, .., last] => Some(first.start..last.end),
            [one] => Some(one.clone()),
        };
        for range in &report.lost_keys {
            let keys = range.intersect(&live);
            if !keys.is_empty() {
                let message = format!("cells in unreadable blocks are lost: {why}");
                let (family, bytes) = (family.clone(), bytes());
                self.report.lost.push(Loss { family, bytes, keys: Some(keys), ..loss(file, message) });
            }
        }
        if report.tombstones.is_none() && known.is_none_or(|info| info.range_tombstones > 0) {
            let message = format!("range deletes are lost, what they deleted may show again: {why}");
            self.report.lost.push(Loss { family, bytes: bytes(), keys: Some(live), ..loss(file, message) });
        }
    }

    /// Puts the new manifest into force and tidies up.
    fn commit(&mut self) -> Result<()> {
        let storage = &self.env.storage;
        let aside = self.dir.join(LOST);
        let failed = |e| Error::io("create the directory", &aside, e);
        storage.create_dir(&aside).map_err(failed)?;
        for damaged in &self.plan.damaged {
            if self.files.iter().any(|(name, _)| *name == damaged.file) {
                self.report.moved.extend(copy_aside(self.env, self.dir, &damaged.file)?);
            }
        }
        storage.sync_dir(&aside).map_err(|e| Error::io("sync the directory", &aside, e))?;
        storage.sync_dir(self.dir).map_err(|e| Error::io("sync the directory", self.dir, e))?;
        let mut state = self.plan.state.clone();
        state.epoch = self.writer.epoch;
        Manifest::start(self.env, self.dir, self.plan.highest_manifest + 1, state)?;
        let present: Vec<String> =
            self.aside.drain(..).filter(|file| self.files.iter().any(|(n, _)| n == file)).collect();
        for file in present {
            let (from, to) = (self.dir.join(&file), aside.join(free_name(self.env, &aside, &file)?));
            storage.rename(&from, &to).map_err(|e| Error::io("move aside", &from, e))?;
            self.report.moved.push(file);
        }
        for dir in [&*aside, self.dir] {
            storage.sync_dir(dir).map_err(|e| Error::io("sync the directory", dir, e))?;
        }
        Ok(())
    }
}

/// Refuses a database whose SSTables lie elsewhere. If the manifest is unreadable, the note of the database's
/// creation still shows that.
fn refuse_elsewhere(env: &Env, dir: &Path, plan: &Plan) -> Result<()> {
    let note = dir.join(NOTE);
    let noted = env.storage.exists(&note).map_err(|e| Error::io("look for", &note, e))?;
    if plan.state.tables.is_empty() && !noted {
        return Ok(());
    }
    let place = if noted { "another place, see the file DATABASE" } else { &plan.state.tables };
    let message = format!("tables of {} lie in {place}: such a database cannot be repaired", dir.display());
    Err(Error::new(ErrorKind::Unsupported, message))
}

/// The number that the first family of every database gets, and that is `default` with hardly an exception.
const DEFAULT_STORE: StoreId = StoreId(1);
/// The number of the family of SSTables that do not say where they belong, until all others are known.
const UNKNOWN_STORE: StoreId = StoreId::MAX;

#[derive(Default)]
struct Found {
    infos: Vec<Arc<TableInfo>>,
    part: Part,
    /// The names found, ranked by whether they are from an SSTable that was written for it, and by how new
    /// that is.
    names: Option<((bool, SeqNo), Names)>,
}

impl Found {
    /// Whether only SSTables that were written for another family say what it is.
    fn is_named_elsewhere(&self) -> bool {
        self.names.as_ref().is_some_and(|((own, _), _)| !own)
    }
}

/// The properties of an SSTable about its family: number, name and options.
#[derive(Default)]
struct Names {
    store: Option<StoreId>,
    family: String,
    json: String,
    options: Option<FamilyOptions>,
}

impl Names {
    fn new(names: &BTreeMap<String, String>) -> Self {
        let get = |name: &str| names.get(name).cloned().unwrap_or_default();
        let json = get(OPTIONS);
        let (store, family) = (get(STORE).parse().ok().map(StoreId), get(FAMILY));
        let options = stored_options(&family, &json).ok().map(|(options, _)| options);
        Self { store, family, json, options }
    }
}

fn names_of(report: &ScanReport) -> Names {
    report.properties.as_ref().map(|properties| Names::new(&properties.names)).unwrap_or_default()
}

fn style_of(id: StoreId, store: &StoreState) -> Style {
    let options = stored_options(&store.name, &store.options).map(|(options, _)| options).unwrap_or_default();
    Style::new(&options, table_names(id, &store.name, store.options.clone()))
}

fn apply(shape: &mut Shape, change: &ShapeChange) -> Result<()> {
    shape.change(change).map_err(|why| Error::invalid(format!("the shape refuses a rescued table: {why}")))
}

fn loss(file: &str, message: String) -> Loss {
    Loss { file: file.to_string(), bytes: None, family: None, keys: None, seqs: None, message }
}

fn keys_lost(file: &str, family: &str, info: &TableInfo, message: String) -> Loss {
    Loss { family: Some(family.to_string()), keys: Some(info.live_range()), ..loss(file, message) }
}

/// A name that nothing in the directory has.
fn free_name(env: &Env, dir: &Path, file: &str) -> Result<String> {
    for n in 0u32.. {
        let name = if n == 0 { file.to_string() } else { format!("{file}.{n}") };
        let path = dir.join(&name);
        if !env.storage.exists(&path).map_err(|e| Error::io("look for", &path, e))? {
            return Ok(name);
        }
    }
    Err(Error::invalid(format!("no free name for {file}")))
}

/// Copies a small file into `lost`; what cannot be read is left out.
fn copy_aside(env: &Env, dir: &Path, file: &str) -> Result<Option<String>> {
    let from = dir.join(file);
    let Ok(bytes) = env.storage.open(&from).and_then(|file| file.len()) else { return Ok(None) };
    let aside = dir.join(LOST);
    let to = aside.join(free_name(env, &aside, file)?);
    copy_file(&*env.storage, &from, &*env.storage, &to, bytes.min(ASIDE_BYTES_MAX), &mut |_| {})?;
    Ok(Some(file.to_string()))
}
