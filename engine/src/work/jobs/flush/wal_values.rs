//! SSTables with values in the WAL (CL-SSTables, TRI-4): flushes that leave values there, and the WAL files
//! that stay for them.
//!
//! A flush of a family with `wal_values` asks `strategy::leave_in_wal`. If that says yes, a WAL file is
//! begun, so that the memory to be flushed lies in complete files, and once the flush set is taken these
//! files are read through, once and in order, for the places of its cells (`wal/value_positions.rs`, with the
//! reasons). The SSTables are then written with references for values; before the edit that names them the
//! WAL is synced as for any flush (invariant I2).
//!
//! A file that is referred to stays on disk for it, so most of it should be this store's: three quarters, or
//! two fifths where no other store's memory needs the file any more, its own flush apart. (So of two families
//! that write the same, each leaves its values in the files from before the other's last flush.) Whatever
//! stands in the way (no room to begin a file, a file that does not read back) makes a plain flush, never an
//! error: memory has all values.
//!
//! Which WAL files stay for SSTables is counted in `version/wal_refs.rs`.

use super::take::FlushPolicy;
use crate::catalog::Catalog;
use crate::commit::Store;
use crate::compaction::{CompactionRun, LeftInWal};
use crate::event::EventKind;
use crate::shape::TableInfo;
use crate::sstable::{Reference, VALUE_BYTES_MIN};
use crate::strategy::{WalValuesChoice, WalValuesFacts, leave_in_wal};
use crate::types::{CellRef, Kind, LogFileId, LogPosition};
use crate::version::{FlushSet, OpenTable, Version};
use crate::wal::{PlaceScan, ValuePositions};
use crate::work::jobs::memory::{bytes_per_user_byte, surviving_share};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The time that an advance looks for places.
const ADVANCE_NS: u64 = 2_000_000;

/// Frames between two looks at the clock.
const FRAMES_PER_LOOK: u32 = 32;

/// The length of keys until an SSTable tells.
const KEY_BYTES: f64 = 24.0;

/// The part of a flush that leaves its values in the WAL.
pub(super) struct WalValuesJob {
    choice: WalValuesChoice,
    /// The search for places, until they are known.
    scan: Option<PlaceScan>,
    files: usize,
    left_bytes: u64,
}

/// Bytes of the WAL files that SSTables refer to, each file up to the last entry needed. An SSTable that
/// cannot be opened does not count.
fn referred_bytes(version: &Version) -> u64 {
    let mut files: BTreeMap<LogFileId, u64> = BTreeMap::new();
    let referring = version.tables().filter(|open| open.info.has_wal_values());
    let tables = referring.filter_map(|open| open.table().ok());
    for (file, end) in tables.flat_map(|table| &table.properties().logs) {
        let upto = files.entry(*file).or_default();
        *upto = (*upto).max(*end);
    }
    files.values().sum()
}

impl WalValuesJob {
    /// The part of a flush whose set was just taken, all of which was logged before `logged_to`.
    pub(super) fn new(
        catalog: &Catalog,
        store: &Store,
        choice: WalValuesChoice,
        flush: &FlushSet,
        logged_to: LogPosition,
    ) -> Self {
        let front = flush.all().filter_map(|memtable| memtable.log_front()).min();
        let scan = front.filter(|_| choice.leave).zip(catalog.commit.wal().ok()).map(|(front, wal)| {
            let mut files = wal.complete_files();
            files.retain(|f| f.file >= front && f.file <= logged_to.file);
            PlaceScan::new(&catalog.cx.env, &catalog.dir, wal.database(), store.id, files)
        });
        Self { choice, scan, files: 0, left_bytes: 0 }
    }

    /// Looks for places a little; when done, tells the run. Whether there is more to do.
    pub(super) fn advance(&mut self, catalog: &Catalog, store: &Store, run: &mut dyn CompactionRun) -> bool {
        let Some(mut scan) = self.scan.take() else { return false };
        let began = catalog.cx.env.clock.monotonic_ns();
        let mut looks = 0u32;
        loop {
            match scan.advance() {
                Ok(true) => {}
                Ok(false) => {
                    self.set_positions(scan.finish(), catalog.front_of_others(store), run);
                    return false;
                }
                Err(_) => {
                    self.choice.reason = "the WAL could not be read back".into();
                    return false;
                }
            }
            looks += 1;
            if looks.is_multiple_of(FRAMES_PER_LOOK)
                && catalog.cx.env.clock.monotonic_ns() - began >= ADVANCE_NS
            {
                self.scan = Some(scan);
                return true;
            }
        }
    }

    /// Tells the run which places are found, but for files with too little of this store. Other stores
    /// still need the WAL from `others` on.
    fn set_positions(&mut self, mut places: ValuePositions, others: LogFileId, run: &mut dyn CompactionRun) {
        places.retain(|file| {
            let is_alone = file.file < others;
            4 * file.owned >= 3 * file.entries || is_alone && 5 * file.owned >= 2 * file.entries
        });
        self.files = places.files();
        kill_point!("flush-places-found");
        if self.files > 0 {
            let database = places.database;
            let find = Box::new(move |cell: &CellRef<'_>| reference(&places, cell));
            run.leave_in_wal(LeftInWal { database, find });
        }
    }

    /// Counts what an installed step left in the WAL.
    pub(super) fn note(&mut self, catalog: &Catalog, outputs: &[Arc<TableInfo>]) {
        let tables = outputs.iter().filter(|table| table.has_wal_values()).count() as u64;
        let bytes = outputs.iter().map(|table| table.log_bytes).sum();
        self.left_bytes += bytes;
        catalog.cx.metrics.wal_value_sstables.add(tables);
        catalog.cx.metrics.wal_value_bytes_saved.add(bytes);
    }

    /// Records what was decided, on which numbers, and what it gave.
    pub(super) fn finish(&self, catalog: &Catalog, store: &Store) {
        let WalValuesFacts { cells, user_bytes, survive, compressed, .. } = self.choice.facts;
        store
            .work
            .lock()
            .compactions
            .rewritten
            .came(self.left_bytes as f64 * compressed, catalog.cx.settings.write_memory());
        let percent = |share: f64| (share * 100.0) as u64;
        let numbers = [
            ("cells", cells),
            ("user_bytes", user_bytes),
            ("survive_percent", percent(survive)),
            ("compressed_percent", percent(compressed)),
            ("saved_percent", self.choice.saved_percent),
            ("live_percent", self.choice.live_percent),
            ("wal_bytes", self.choice.facts.wal_bytes),
            ("referred_bytes", self.choice.facts.referred_bytes),
            ("compaction_memory", self.choice.facts.compaction_memory),
            ("rewritten_percent", percent(self.choice.facts.rewritten)),
            ("wal_files", self.files as u64),
            ("left_bytes", self.left_bytes),
        ];
        catalog.cx.events.record(EventKind::WalValues, &store.name, self.choice.reason.clone(), &numbers);
    }
}

/// The place of the cell's value, if it is worth leaving there.
fn reference(places: &ValuePositions, cell: &CellRef<'_>) -> Option<Reference> {
    if cell.kind != Kind::Value || cell.value.len() < VALUE_BYTES_MIN {
        return None;
    }
    let place = places.find(cell)?;
    Some(Reference { file: place.at.file, offset: place.at.offset, length: place.length })
}

/// Decides for the flush that is about to take the store's memory; begins a WAL file if its values are to be
/// left.
pub(super) fn prepare_wal_values(
    catalog: &Catalog,
    store: &Store,
    policy: FlushPolicy,
) -> Option<WalValuesChoice> {
    // What leaves this database must not leave values behind. A cleaning under way may let go of a file
    // before any table that refers to it is known. (One that comes later sees the flush set, and leaves the
    // files it came from.)
    let settings = store.settings();
    if !settings.options.wal_values || settings.by_range().is_some() || store.is_leaving() {
        return None;
    }
    // The WAL files of a shared database are copies of what its stream has for a while.
    if catalog.commit.wal().is_ok_and(|wal| wal.is_shared()) {
        return None;
    }
    let mut choice = leave_in_wal(&wal_values_facts(catalog, store)?);
    if choice.leave && !policy.leave_in_wal {
        choice = WalValuesChoice { leave: false, reason: "the WAL is being cleaned".into(), ..choice };
    }
    if choice.leave {
        // Reserved and synced ahead here, so that writers hardly wait for the change of files.
        let begun =
            catalog.commit.wal().and_then(|wal| wal.prepare()).and_then(|_| catalog.commit.begin_wal_file());
        kill_point!("flush-wal-file-begun");
        if begun.is_err() {
            choice = WalValuesChoice { leave: false, reason: "no WAL file could be begun".into(), ..choice };
        }
    }
    Some(choice)
}

/// The facts that this decision rests on; `None` where nothing in memory is in the WAL.
fn wal_values_facts(catalog: &Catalog, store: &Store) -> Option<WalValuesFacts> {
    let version = store.version();
    let front = version.memory.log_front()?;
    let memtables = || version.memory.unflushed().chain(std::iter::once(&version.memory.active));
    let survived = store.work.lock().flush.survived;
    let mut facts = WalValuesFacts {
        cells: memtables().map(|memtable| memtable.cells() as u64).sum(),
        user_bytes: memtables().map(|memtable| memtable.user_bytes() as u64).sum(),
        survive: surviving_share(&version, &store.settings(), survived),
        wal_bytes: catalog
            .commit
            .wal()
            .ok()?
            .files()
            .iter()
            .filter(|f| f.file >= front)
            .map(|f| f.used)
            .sum(),
        wal_file_bytes: catalog.cx.settings.options.tuning().wal_file_bytes,
        key_bytes: KEY_BYTES,
        compressed: bytes_per_user_byte(&version).min(1.0),
        value_bytes_min: VALUE_BYTES_MIN as u64,
        referred_bytes: referred_bytes(&version),
        compaction_memory: catalog.cache.may_keep_at_most().saturating_sub(catalog.cache.table_memory()),
        rewritten: store.work.lock().compactions.rewritten.times(),
        write_amp_max: store.settings().options.write_amp_max(),
    };
    let mut with_cells = version.tables().filter(|open| open.info.cells > 0);
    if let Some(table) = with_cells.find_map(OpenTable::opened) {
        let p = table.properties();
        facts.key_bytes = p.key_bytes as f64 / p.cells as f64;
    }
    Some(facts)
}
