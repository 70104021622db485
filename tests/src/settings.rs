//! Every option with the values that runs of one list of calls are compared over: the columns of `pairs`.
//!
//! An option that is not here must say so in [`ELSEWHERE`]: a unit test compares both with the options that
//! exist.

use crate::strategies;
use siltstone::strategy::{
    Adaptive, HotFactor, HotKeys, HotTop, LeveledOptions, MemtableLimit, MemtablePolicy, StrategyOptions,
};
use siltstone::{CacheFill, Compression, FamilyOptions, Options, SstableReads};

/// Every way to fill the cache.
pub const FILLS: [CacheFill; 4] =
    [CacheFill::None, CacheFill::WriteThrough, CacheFill::Before, CacheFill::Step];

type Values<T> = &'static [(&'static str, &'static [fn(&mut T)])];

/// Values for the options of a database. Later options may build on earlier ones.
pub const DATABASE: Values<Options> = &[
    (
        "write_memory",
        &[|o| o.write_memory = 16 << 10, |o| o.write_memory = 24 << 10, |o| o.write_memory = 64 << 10],
    ),
    (
        "memory_budget",
        &[
            |o| o.memory_budget = o.write_memory,
            |o| o.memory_budget = o.write_memory + (16 << 10),
            |o| o.memory_budget = o.write_memory + (1 << 20),
        ],
    ),
    (
        "wal_file_bytes",
        &[
            |o| o.tuning.wal_file_bytes = 4 << 10,
            |o| o.tuning.wal_file_bytes = 8 << 10,
            |o| o.tuning.wal_file_bytes = 32 << 10,
        ],
    ),
    ("wal_bytes_max", &[|o| o.wal_bytes_max = 0, |o| o.wal_bytes_max = 6 * o.write_memory]),
    ("wal_clean_bytes", &[|o| o.tuning.wal_clean_bytes = 0, |o| o.tuning.wal_clean_bytes = 12 << 10]),
    (
        "wal_flush_threshold",
        &[
            |o| o.tuning.wal_flush_threshold = 0.0,
            |o| o.tuning.wal_flush_threshold = 0.25,
            |o| o.tuning.wal_flush_threshold = 1.0,
        ],
    ),
    (
        "offload_range_flushes",
        &[|o| o.tuning.offload_range_flushes = false, |o| o.tuning.offload_range_flushes = true],
    ),
    ("wal_prefill", &[|o| o.tuning.wal_prefill = false, |o| o.tuning.wal_prefill = true]),
    (
        "cache_fill",
        &[
            |o| o.cache_fill = CacheFill::None,
            |o| o.cache_fill = CacheFill::WriteThrough,
            |o| o.cache_fill = CacheFill::Before,
            |o| o.cache_fill = CacheFill::Step,
        ],
    ),
    ("cache_fill_rate", &[|o| o.tuning.cache_fill_rate = 0, |o| o.tuning.cache_fill_rate = 1 << 20]),
    (
        "sstable_reads",
        &[
            |o| o.sstable_reads = SstableReads::PageCache,
            |o| o.sstable_reads = SstableReads::Direct,
            |o| o.sstable_reads = SstableReads::Mapped,
        ],
    ),
    ("open_files_max", &[|o| o.open_files_max = 0, |o| o.open_files_max = 1, |o| o.open_files_max = 5]),
    ("workers", &[|o| o.workers = 1, |o| o.workers = 2, |o| o.workers = 3]),
    (
        "compaction_step_bytes",
        &[
            |o| o.tuning.compaction_step_bytes = 4 << 10,
            |o| o.tuning.compaction_step_bytes = 16 << 10,
            |o| o.tuning.compaction_step_bytes = 1 << 20,
        ],
    ),
    ("rate_limit", &[|o| o.rate_limit = 0, |o| o.rate_limit = 1 << 20]),
    ("scan_one_side", &[|o| o.tuning.scan_one_side = false, |o| o.tuning.scan_one_side = true]),
    ("slow_writers", &[|o| o.tuning.slow_writers = true, |o| o.tuning.slow_writers = false]),
    ("compaction_pacing", &[|o| o.tuning.compaction_pacing = 0, |o| o.tuning.compaction_pacing = 7]),
    ("rate_limit_auto", &[|o| o.rate_limit_auto = 0, |o| o.rate_limit_auto = 64 << 10]),
    (
        "change_log_bytes",
        &[|o| o.change_log_bytes = 0, |o| o.change_log_bytes = 20 << 10, |o| o.change_log_bytes = 1 << 30],
    ),
    (
        "change_log_open_bytes_max",
        &[|o| o.tuning.change_log_open_bytes_max = 0, |o| o.tuning.change_log_open_bytes_max = 64 << 10],
    ),
    ("latencies", &[|o| o.latencies = false, |o| o.latencies = true]),
    ("write_stop_ms_max", &[|o| o.write_stop_ms_max = 600_000]),
    ("events_max", &[|o| o.tuning.events_max = 0, |o| o.tuning.events_max = 10]),
];

/// Values for the options of a family, except its strategy.
pub const FAMILY: Values<FamilyOptions> = &[
    (
        "compression",
        &[
            |o| o.compression = Compression::None,
            |o| o.compression = Compression::Lz4,
            |o| o.compression = Compression::Zstd { level: 3 },
        ],
    ),
    (
        "compression_last",
        &[
            |o| o.compression_last = None,
            |o| o.compression_last = Some(Compression::None),
            |o| o.compression_last = Some(Compression::Lz4),
            |o| o.compression_last = Some(Compression::Zstd { level: 3 }),
        ],
    ),
    ("block_bytes", &[|o| o.block_bytes = 64, |o| o.block_bytes = 300, |o| o.block_bytes = 4096]),
    ("bloom_bits", &[|o| o.bloom_bits = 0, |o| o.bloom_bits = 4, |o| o.bloom_bits = 10]),
    (
        "memtable_policy",
        &[
            |o| o.memtable_policy = MemtablePolicy::None,
            |o| o.memtable_policy = MemtablePolicy::Basic(MemtableLimit { memtables: 2 }),
            |o| o.memtable_policy = MemtablePolicy::Eager(MemtableLimit { memtables: 3 }),
            |o| o.memtable_policy = MemtablePolicy::Adaptive(Adaptive { memtables: 1, r: 0.1 }),
            |o| o.memtable_policy = MemtablePolicy::Sketch(MemtableLimit { memtables: 2 }),
        ],
    ),
    (
        "hot_keys",
        &[
            |o| o.hot_keys = HotKeys::Off,
            |o| o.hot_keys = HotKeys::Factor(HotFactor { hot_factor: 0.0 }),
            |o| o.hot_keys = HotKeys::Factor(HotFactor { hot_factor: 1.0 }),
            |o| o.hot_keys = HotKeys::Factor(HotFactor { hot_factor: 2.0 }),
            |o| o.hot_keys = HotKeys::Top(HotTop { percent: 10.0 }),
        ],
    ),
    (
        "active_memtable_share",
        &[
            |o| o.active_memtable_share = 0.1,
            |o| o.active_memtable_share = 0.02,
            |o| o.active_memtable_share = 0.5,
        ],
    ),
    ("wal_values", &[|o| o.wal_values = false, |o| o.wal_values = true]),
    (
        "wal_values_write_amp_max",
        &[|o| o.wal_values_write_amp_max = 1e6, |o| o.wal_values_write_amp_max = 1.0],
    ),
    ("write_memory", &[|o| o.write_memory = 0, |o| o.write_memory = 8 << 10]),
];

/// Values for the options of the strategy `leveled`. Other strategies take its size of SSTables.
pub const LEVELED: Values<LeveledOptions> = &[
    ("l0_runs_trigger", &[|o| o.l0_runs_trigger = 1, |o| o.l0_runs_trigger = 2, |o| o.l0_runs_trigger = 4]),
    ("multiplier", &[|o| o.multiplier = 2, |o| o.multiplier = 10]),
    ("levels", &[|o| o.levels = 2, |o| o.levels = 7]),
    ("base_bytes", &[|o| o.base_bytes = 4096, |o| o.base_bytes = 16384]),
    (
        "sstable_bytes",
        &[|o| o.sstable_bytes = 4096, |o| o.sstable_bytes = 10_000, |o| o.sstable_bytes = 1 << 20],
    ),
    ("candidates", &[|o| o.candidates = 1, |o| o.candidates = 16]),
    ("tombstone_share", &[|o| o.tombstone_share = 0.1, |o| o.tombstone_share = 1.0]),
    (
        "defer_below",
        &[|o| o.defer_below = None, |o| o.defer_below = Some(0.4), |o| o.defer_below = Some(0.9)],
    ),
    ("defer_runs_max", &[|o| o.defer_runs_max = 1, |o| o.defer_runs_max = 8]),
];

/// Options that say what the answers are, or what opening refuses, and so cannot differ between runs that
/// must agree. What the first five are is drawn with each list of calls.
pub const ELSEWHERE: &[&str] = &[
    "timestamps",
    "versions",
    "ttl_us",
    "merge_operator",
    "compaction_filter",
    "strategy",
    "create_if_missing",
    "error_if_exists",
    // Which users of the machine may read the files.
    "file_access",
    // Drawn with what else can be said of where tables lie.
    "sstable_store",
    // Has a campaign of its own: another open of the same place ends the first one's writes.
    "shared",
];

/// Columns of a family: its options, its strategy, that of `leveled`.
const OF_FAMILY: usize = FAMILY.len() + 1 + LEVELED.len();

/// How many values each option has: those of the database, then of each family and its strategy.
pub fn columns(families: usize) -> Vec<usize> {
    fn sizes<T>(values: Values<T>) -> impl Iterator<Item = usize> {
        values.iter().map(|(_, values)| values.len())
    }
    let family = || sizes(FAMILY).chain([1 + strategies::others().count()]).chain(sizes(LEVELED));
    sizes(DATABASE).chain((0..families).flat_map(|_| family())).collect()
}

/// Gives each option the value that the row has for it, but for a column that is left as it is.
pub fn set(row: &[usize], left: Option<usize>, options: &mut Options, families: &mut [&mut FamilyOptions]) {
    let values: Vec<Option<usize>> =
        row.iter().enumerate().map(|(column, value)| (left != Some(column)).then_some(*value)).collect();
    let (database, mut rest) = values.split_at(DATABASE.len());
    apply(DATABASE, database, options);
    for family in families {
        let (plain, strategy, of_leveled);
        (plain, rest) = rest.split_at(FAMILY.len());
        (strategy, rest) = rest.split_at(1);
        (of_leveled, rest) = rest.split_at(LEVELED.len());
        apply(FAMILY, plain, family);
        let mut leveled = LeveledOptions::default();
        apply(LEVELED, of_leveled, &mut leveled);
        if let Some(strategy) = strategy[0] {
            family.strategy = match strategy.checked_sub(1) {
                None => StrategyOptions::Leveled(leveled),
                Some(other) => strategies::other(other, leveled.sstable_bytes),
            };
        }
    }
    assert!(rest.is_empty());
}

fn apply<T>(values: Values<T>, row: &[Option<usize>], options: &mut T) {
    for ((_, values), value) in values.iter().zip(row) {
        if let Some(value) = value {
            values[*value](options);
        }
    }
}

/// Option and number of value, for people; columns as in [`columns`].
pub fn name(column: usize, value: usize) -> String {
    let Some(of_families) = column.checked_sub(DATABASE.len()) else {
        return format!("{} (value {value})", DATABASE[column].0);
    };
    let (family, column) = (of_families / OF_FAMILY, of_families % OF_FAMILY);
    let name = match column.checked_sub(FAMILY.len()) {
        None => FAMILY[column].0,
        Some(0) => "strategy",
        Some(column) => LEVELED[column - 1].0,
    };
    format!("{name} of family {family} (value {value})")
}

#[cfg(test)]
mod tests {
    use super::*;
    use siltstone::Tuning;
    use siltstone::strategy::{ExploringOptions, GeometricOptions, RangemergeOptions, SizeTieredOptions};
    use std::collections::BTreeSet;

    /// The names of the fields, as `Debug` prints them.
    fn fields(options: &impl std::fmt::Debug) -> BTreeSet<String> {
        let text = format!("{options:#?}");
        let own =
            text.lines().filter_map(|line| line.strip_prefix("    ").filter(|line| !line.starts_with(' ')));
        own.filter_map(|line| Some(line.split_once(':')?.0.to_string())).collect()
    }

    fn listed<T>(values: Values<T>) -> BTreeSet<String> {
        values.iter().map(|(name, _)| name.to_string()).collect()
    }

    #[test]
    fn every_option_that_exists_has_values_here_or_a_reason() {
        let elsewhere: BTreeSet<String> = ELSEWHERE.iter().map(|name| name.to_string()).collect();
        let missing = |all: BTreeSet<String>, listed: BTreeSet<String>| {
            assert!(!all.is_empty() && listed.is_subset(&all), "{listed:?} of {all:?}");
            &(&all - &listed) - &elsewhere
        };
        let none = BTreeSet::new();
        let mut of_database = fields(&Options::default());
        assert!(of_database.remove("tuning"));
        of_database.extend(fields(&Tuning::default()));
        assert_eq!(missing(of_database, listed(DATABASE)), none);
        assert_eq!(missing(fields(&FamilyOptions::default()), listed(FAMILY)), none);
        assert_eq!(missing(fields(&LeveledOptions::default()), listed(LEVELED)), none);
        let named = |option: &String| {
            // The size of tables is added.
            option == "sstable_bytes" || strategies::others().any(|text| text.contains(&format!("{option}=")))
        };
        let others = [
            fields(&SizeTieredOptions::default()),
            fields(&GeometricOptions::default()),
            fields(&ExploringOptions::default()),
            fields(&RangemergeOptions::default()),
        ];
        for option in others.iter().flatten() {
            assert!(named(option), "{option} has no value in strategies.rs");
        }
    }

    #[test]
    fn every_value_of_every_option_is_allowed_and_differs_from_the_others() {
        let columns = columns(1);
        for column in 0..columns.len() {
            let mut seen = Vec::new();
            for value in 0..columns[column] {
                let mut row = vec![0; columns.len()];
                row[column] = value;
                let (mut options, mut family) = (Options::default(), FamilyOptions::default());
                set(&row, None, &mut options, &mut [&mut family]);
                options.validate().unwrap();
                family.validate().unwrap();
                assert!(!seen.contains(&(options.clone(), family.clone())), "{}", name(column, value));
                seen.push((options, family));
            }
        }
    }
}
