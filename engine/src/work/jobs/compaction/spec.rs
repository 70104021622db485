//! Descriptions of compactions: from a strategy's plan to plain data, which holds all that is needed to run
//! it in this process or in another one; and what is expected of it.
//!
//! A flush is described like a compaction; its memory goes beside the description.

use crate::catalog::Catalog;
use crate::commit::{FamilySettings, Store};
use crate::compaction::{CompactionSpec, OutputSpec, RULES_VERSION, RetentionSpec, TombstoneElision};
use crate::shape::TableInfo;
use crate::strategy::{CompactionPlan, InputRun};
use crate::types::TableId;
use crate::version::{OpenTable, Unions, Version};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Bytes of an input that are read at once.
const READ_AHEAD: usize = 512 << 10;

/// Bytes that are read at once beside readers, as a large read delays the small ones behind it.
const READ_AHEAD_RESTING: usize = 256 << 10;

/// Sketches that are read to say how much a compaction will write, at most; each is a read of a file.
const SKETCHES: usize = 32;

/// Index partitions that are looked at to say how much of a compaction's inputs is in the cache, about.
const PARTITIONS: usize = 64;

/// The part of the cache that the steps of all compactions beside each other may fill.
const FILL_STEPS: u64 = 32;

/// Bytes that a step may always fill, or every block of a small or absent cache would end one.
const FILL_STEP_MIN: u64 = 64 << 10;

/// The compaction that the plan asks for, as plain data, of those of its SSTables that are still there.
pub(super) fn compaction_spec(
    catalog: &Catalog,
    store: &Store,
    version: &Version,
    plan: &CompactionPlan,
    id: u32,
) -> CompactionSpec {
    let beside_readers = catalog.cx.rates.pace.begin(catalog.cache.blocks_asked_for());
    // A file in an object store is durable only when it is complete.
    let resting = beside_readers && catalog.commit.pacing() > 0.0 && !catalog.tables.store().is_far();
    let inputs: BTreeSet<TableId> = plan.tables().collect();
    let oldest = plan.inputs.last().map_or((0, 0), |input| (input.level, input.run));
    // Older than the oldest input: deeper levels, older runs of its level, and what its own run holds beside
    // it.
    let is_below = |level: usize, run: u64| level > oldest.0 || (level == oldest.0 && run <= oldest.1);
    let below = version
        .shape
        .tables()
        .filter(|(level, run, table)| !inputs.contains(&table.id) && is_below(*level, run.id))
        .map(|(_, _, table)| table.live_range());
    let last = plan.output.level + 1 >= version.shape.levels.len();
    let read_ahead = if resting { READ_AHEAD_RESTING } else { READ_AHEAD };
    CompactionSpec {
        read_ahead: read_ahead as u64,
        step_bytes: catalog.cx.settings.step_bytes(),
        ..described(catalog, store, version, plan, id, TombstoneElision::new(below.collect()), last)
    }
}

/// The flush that the plan asks for, as plain data: a compaction of memory, which is newer than everything,
/// with those SSTables that the plan reads. Its SSTables end at those keys too.
pub(crate) fn flush_spec(
    catalog: &Catalog,
    store: &Store,
    version: &Version,
    plan: &CompactionPlan,
    id: u32,
    cuts: Vec<Vec<u8>>,
) -> CompactionSpec {
    let inputs: BTreeSet<TableId> = plan.tables().collect();
    let others = version.shape.tables().filter(|(_, _, table)| !inputs.contains(&table.id));
    let below = TombstoneElision::new(others.map(|(_, _, table)| table.live_range()).collect());
    let last = plan.output.level > 0 && plan.output.level + 1 >= version.shape.levels.len();
    let mut spec = described(catalog, store, version, plan, id, below, last);
    spec.output.cuts = cuts;
    spec
}

fn described(
    catalog: &Catalog,
    store: &Store,
    version: &Version,
    plan: &CompactionPlan,
    id: u32,
    below: TombstoneElision,
    last: bool,
) -> CompactionSpec {
    let infos: BTreeMap<TableId, _> = version.tables().map(|open| (open.info.id, &open.info)).collect();
    let of_run = |input: &InputRun| {
        let there = input.tables.iter().filter_map(|id| infos.get(id));
        there.map(|info| TableInfo::clone(info)).collect()
    };
    CompactionSpec {
        rules_version: RULES_VERSION,
        database: catalog.database,
        place: catalog.tables.store().location(),
        log_dir: catalog.dir.clone(),
        inputs: plan.inputs.iter().map(of_run).collect(),
        range: plan.range.clone(),
        keep: keep_spec(catalog, &store.settings(), below),
        output: output_spec(catalog, store, plan, id, last),
        step_bytes: catalog.cx.settings.options.tuning().compaction_step_bytes,
        read_ahead: READ_AHEAD as u64,
    }
}

/// How the plan's outputs are written; `last` says whether they go to the last level.
fn output_spec(catalog: &Catalog, store: &Store, plan: &CompactionPlan, id: u32, last: bool) -> OutputSpec {
    let names = store.table_names().into_iter().map(|(name, value)| (name.to_string(), value));
    OutputSpec {
        table: store.settings().table_options(last),
        sstable_bytes: plan.sstable_bytes,
        cuts: Vec::new(),
        id: TableId { store: store.id, epoch: catalog.epoch, job: id, part: 0 },
        names: names.collect(),
    }
}

/// Which cells a compaction or flush of the family keeps that begins now.
fn keep_spec(catalog: &Catalog, settings: &FamilySettings, below: TombstoneElision) -> RetentionSpec {
    let options = &settings.options;
    RetentionSpec {
        read_points: catalog.commit.snapshots.read_points().to_vec(),
        explicit: settings.read.explicit,
        versions: settings.read.versions,
        ttl_us: settings.read.ttl_us,
        now_us: catalog.cx.env.clock.wall_us(),
        operator: options.merge_operator.clone(),
        filter: options.compaction_filter.clone(),
        strategy: options.strategy.to_string(),
        below,
    }
}

/// The compaction as another process runs it: in steps each of which brings about as much into the cache as a
/// step of one that runs here may, as who runs it knows nothing of the cache. SSTables end with the steps,
/// but not below an eighth of their size.
pub(super) fn in_small_steps(
    catalog: &Catalog,
    store: &Store,
    spec: &CompactionSpec,
    cached: &dyn Fn() -> u64,
) -> CompactionSpec {
    let mut spec = CompactionSpec { read_ahead: READ_AHEAD as u64, ..spec.clone() };
    if catalog.cx.settings.steps_end_by_fill() && store.settings().by_range().is_none() {
        let (input, cached) = (spec.input_bytes().max(1), cached().max(1));
        let bytes = u128::from(step_fill_bytes(catalog, 1)) * u128::from(input) / u128::from(cached);
        let least = spec.output.sstable_bytes / 8;
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX).max(least);
        spec.output.sstable_bytes = spec.output.sstable_bytes.min(bytes);
        spec.step_bytes = spec.step_bytes.min(bytes);
    }
    spec
}

/// About how many bytes a compaction will write, where `kept` versions of a key are kept.
pub(super) fn predicted(version: &Version, spec: &CompactionSpec, kept: u64) -> u64 {
    let tables: Vec<TableId> = spec.inputs().map(|table| table.id).collect();
    let left = match tables.len() {
        0..=SKETCHES => Unions::default().left(version, &[], &tables, kept),
        _ => 1.0,
    };
    (spec.input_bytes() as f64 * left) as u64
}

/// About how many of a compaction's input bytes are in the cache, by a sample of their indices.
pub(super) fn cached(version: &Version, spec: &CompactionSpec) -> u64 {
    let tables: BTreeSet<TableId> = spec.inputs().map(|table| table.id).collect();
    let inputs =
        || version.tables().filter(|open| tables.contains(&open.info.id)).filter_map(OpenTable::opened);
    let partitions = inputs().flat_map(|table| (0..table.partitions()).map(move |number| (table, number)));
    let all: usize = inputs().map(|table| table.partitions()).sum();
    let looked =
        partitions.step_by(all.div_ceil(PARTITIONS).max(1)).map(|(table, number)| table.cached_bytes(number));
    let (bytes, cached) = looked.fold((0u64, 0u64), |sum, of| (sum.0 + of.0, sum.1 + of.1));
    (u128::from(spec.input_bytes()) * u128::from(cached) / u128::from(bytes.max(1))) as u64
}

/// The bytes that a step may put into the cache. The compactions that do so, and `more` that are about to
/// begin, share what may be in the cache twice meanwhile. (The paper warms one region after another; here
/// regions are compacted beside each other.) Compactions of `rangemerge` do not, as their SSTables are not
/// cut.
pub(super) fn step_fill_bytes(catalog: &Catalog, more: u64) -> u64 {
    let compactions = Arc::strong_count(&catalog.cx.rates.filling) as u64 - 1 + more;
    (catalog.cache.capacity() / FILL_STEPS / compactions.max(1)).max(FILL_STEP_MIN)
}

/// The SSTables of these runs that the version has.
pub(super) fn open_runs<R: Iterator<Item = TableId>>(
    version: &Version,
    runs: impl Iterator<Item = R>,
) -> Vec<Vec<OpenTable>> {
    let open: BTreeMap<TableId, &OpenTable> = version.tables().map(|open| (open.info.id, open)).collect();
    runs.map(|run| run.filter_map(|id| open.get(&id).copied().cloned()).collect()).collect()
}
