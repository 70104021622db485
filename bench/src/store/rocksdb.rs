//! RocksDB, as it comes and tuned. This file alone says what "tuned" means: what its authors and users
//! recommend for a small machine and can be set through its C interface, measured to be the best of what was
//! tried.
//!
//! Its statistics are on at the lowest level that has counters, without histograms and timers: they alone say
//! how many bytes its flushes, compactions and log took.
//!
//! A configuration beyond these two is made of parts, as ours are: `universal+prepopulate` is as tuned, by
//! universal compaction, and puts what compactions write into the block cache.

use super::{CacheCount, Named, Session, Store, Wanted, Written};
use crate::failure::Result;
use crate::record::Durability;
use rocksdb::{
    BlockBasedOptions, BottommostLevelCompaction, Cache, CompactOptions, DB, DBCompactionStyle,
    DBCompressionType, DEFAULT_COLUMN_FAMILY_NAME, DataBlockIndexType, Options, ReadOptions,
    WaitForCompactOptions, WriteBatch, WriteOptions,
    perf::{PerfContext, PerfMetric, PerfStatsLevel, set_perf_stats},
    statistics::{StatsLevel, Ticker},
};
use std::borrow::Cow;
use std::collections::HashMap;

const fn named(config: &'static str, what: &'static str) -> Named {
    let config = Cow::Borrowed(config);
    Named { store: "rocksdb", config, compression: "lz4", what, package: "librocksdb-sys", open }
}

pub(super) const NAMED: [Named; 9] = [
    named(
        "tuned",
        "lz4, bloom 10, HyperClockCache, pipelined writes, 2 background jobs, 4 write buffers, log files used again, level base 4 \
         memtables (at least 64 MiB), data block hash index",
    ),
    named("default", "its defaults, with lz4 and the memory wanted"),
    named(
        LIMITED,
        "as tuned, flushes and compactions held to a rate that it tunes itself, files synced by the MiB as they are \
         written",
    ),
    named(MEMPURGE, "as tuned, with experimental_mempurge_threshold 1.0"),
    named(UNIVERSAL, "as tuned, with universal compaction"),
    named(PREPOPULATE_FLUSH, "as tuned, prepopulate_block_cache kFlushOnly"),
    named(PREPOPULATE, "as tuned, prepopulate_block_cache kFlushAndCompaction"),
    named("universal+prepopulate-flush", "both"),
    named("universal+prepopulate", "both"),
];

const LIMITED: &str = "limited";
const MEMPURGE: &str = "mempurge";
const UNIVERSAL: &str = "universal";
const PREPOPULATE_FLUSH: &str = "prepopulate-flush";
const PREPOPULATE: &str = "prepopulate";

/// Bytes a second, at most, of the limiter that tunes itself.
const RATE: i64 = 400 << 20;

struct RocksDb {
    db: DB,
    /// Shares its counters with the database.
    options: Options,
    sync: bool,
    settings: Vec<(&'static str, String)>,
}

fn open(wanted: &Wanted<'_>, config: &str) -> Result<Box<dyn Store>> {
    Ok(Box::new(opened(wanted, config)?))
}

fn opened(wanted: &Wanted<'_>, config: &str) -> Result<RocksDb> {
    let memory = wanted.memory;
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_compression_type(DBCompressionType::Lz4);
    options.set_write_buffer_size(memory.write as usize);
    let mut table = BlockBasedOptions::default();
    let mut settings = vec![
        ("compression", "lz4".to_string()),
        ("write_buffer_size", memory.write.to_string()),
        ("block_cache", memory.cache.to_string()),
        ("statistics", "counters".to_string()),
    ];
    if wanted.direct_reads {
        options.set_use_direct_reads(true);
        settings.push(("use_direct_reads", "true".to_string()));
    }
    options.enable_statistics();
    options.set_statistics_level(StatsLevel::ExceptHistogramOrTimers);
    let has = |part: &str| config.split('+').any(|known| known == part);
    if has(MEMPURGE) {
        options.set_experimental_mempurge_threshold(1.0);
        settings.push(("experimental_mempurge_threshold", "1.0".to_string()));
    }
    if has(LIMITED) {
        // Up to a rate that the device has; what it says of itself between a twentieth of that and that.
        options.set_auto_tuned_ratelimiter(RATE, 100_000, 10);
        options.set_bytes_per_sync(1 << 20);
        options.set_wal_bytes_per_sync(512 << 10);
        settings.push(("auto_tuned_rate_limiter", RATE.to_string()));
        settings.push(("bytes_per_sync", "1 MiB, log 512 KiB".to_string()));
    }
    if has(UNIVERSAL) {
        options.set_compaction_style(DBCompactionStyle::Universal);
        settings.push(("compaction_style", "universal".to_string()));
    }
    if config != super::DEFAULT_CONFIG {
        // Charge of 0: entries of any size, the variant that its authors now recommend.
        table.set_block_cache(&Cache::new_hyper_clock_cache(memory.cache as usize, 0));
        table.set_bloom_filter(10.0, false);
        table.set_data_block_index_type(DataBlockIndexType::BinaryAndHash);
        options.set_enable_pipelined_write(true);
        options.set_max_background_jobs(2);
        // A sync of a file that was written before needs no metadata.
        options.set_recycle_log_file_num(4);
        options.set_max_write_buffer_number(4);
        let level_base = (4 * memory.write).max(64 << 20);
        options.set_max_bytes_for_level_base(level_base);
        settings.extend([
            ("cache", "hyper_clock".to_string()),
            ("bloom_bits", "10".to_string()),
            ("data_block_index", "binary_and_hash".to_string()),
            ("enable_pipelined_write", "true".to_string()),
            ("max_background_jobs", "2".to_string()),
            ("recycle_log_file_num", "4".to_string()),
            ("max_write_buffer_number", "4".to_string()),
            ("max_bytes_for_level_base", level_base.to_string()),
        ]);
    } else {
        table.set_block_cache(&Cache::new_lru_cache(memory.cache as usize));
    }
    options.set_block_based_table_factory(&table);
    // Named, so that there is a handle of it, which reads in batches need.
    let families = [(DEFAULT_COLUMN_FAMILY_NAME, options.clone())];
    let db = DB::open_cf_with_opts(&options, wanted.dir, families)?;
    let prepopulate = match () {
        () if has(PREPOPULATE) => Some("kFlushAndCompaction"),
        () if has(PREPOPULATE_FLUSH) => Some("kFlushOnly"),
        () => None,
    };
    if let Some(prepopulate) = prepopulate {
        // The binding has no call for it, but table options can be set by their names while a database is
        // open.
        let tables = format!("{{prepopulate_block_cache={prepopulate};}}");
        db.set_options(&[("block_based_table_factory", &tables)])?;
        settings.push(("prepopulate_block_cache", prepopulate.to_string()));
    }
    Ok(RocksDb { db, options, sync: wanted.durability == Durability::Sync, settings })
}

impl Store for RocksDb {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        let mut write = WriteOptions::default();
        write.set_sync(self.sync);
        Ok(Box::new(Thread { db: &self.db, write, read: ReadOptions::default(), counters: None }))
    }

    fn settle(&self) -> Result<()> {
        let mut wait = WaitForCompactOptions::default();
        wait.set_flush(true);
        Ok(self.db.wait_for_compact(&wait)?)
    }

    fn drain(&self) -> Result<()> {
        Ok(self.db.wait_for_compact(&WaitForCompactOptions::default())?)
    }

    fn settings(&self) -> Vec<(&'static str, String)> {
        self.settings.clone()
    }

    fn runs(&self) -> Option<u64> {
        let files = |level: i32| {
            self.db.property_int_value(&format!("rocksdb.num-files-at-level{level}")).ok().flatten()
        };
        let below = (1..LEVELS).filter(|level| files(*level).is_some_and(|files| files > 0)).count();
        Some(files(0)? + below as u64)
    }

    fn largest_merge_bytes(&self) -> Option<u64> {
        largest_merge_bytes(&std::fs::read_to_string(self.db.path().join("LOG")).ok()?)
    }

    fn written(&self) -> Option<Written> {
        let table = self.db.property_value("rocksdb.cfstats-no-file-histogram").ok()??;
        let flushes = compactions(&table, "L0");
        Some(Written {
            flushed_bytes: self.options.get_ticker_count(Ticker::FlushWriteBytes),
            compaction_written_bytes: self.options.get_ticker_count(Ticker::CompactWriteBytes),
            wal_bytes: self.options.get_ticker_count(Ticker::WalFileBytes),
            flushes,
            compactions: compactions(&table, "Sum").saturating_sub(flushes),
        })
    }

    fn merging(&self) -> Option<bool> {
        Some(self.db.property_int_value("rocksdb.num-running-compactions").ok()?? > 0)
    }

    fn debt(&self) -> Option<u64> {
        self.db.property_int_value("rocksdb.estimate-pending-compaction-bytes").ok()?
    }

    fn major(&self) -> Result<()> {
        let mut how = CompactOptions::default();
        how.set_bottommost_level_compaction(BottommostLevelCompaction::Force);
        self.db.compact_range_opt(None::<&[u8]>, None::<&[u8]>, &how);
        Ok(())
    }
}

/// From its table of compactions by level, the count in a row: the sixth column from the end. What ends in L0
/// are flushes; a compaction within L0 counts as one too.
fn compactions(table: &str, row: &str) -> u64 {
    let found = table.lines().find(|line| line.split_whitespace().next() == Some(row));
    found.and_then(|line| line.split_whitespace().nth_back(5)?.parse().ok()).unwrap_or(0)
}

/// Its levels by default.
const LEVELS: i32 = 7;

/// From the events in its log of itself: what a compaction found and what it left, by job.
fn largest_merge_bytes(log: &str) -> Option<u64> {
    let mut found = HashMap::new();
    let mut largest = 0;
    for line in log.lines() {
        let Some((_, event)) = line.split_once("EVENT_LOG_v1 ") else { continue };
        let Ok(event) = serde_json::from_str::<serde_json::Value>(event) else { continue };
        let number = |name: &str| event[name].as_u64().unwrap_or(0);
        match event["event"].as_str() {
            Some("compaction_started") => drop(found.insert(number("job"), number("input_data_size"))),
            Some("compaction_finished") => {
                let read = found.remove(&number("job")).unwrap_or(0);
                largest = largest.max(read + number("total_output_size"));
            }
            _ => {}
        }
    }
    Some(largest)
}

struct Thread<'a> {
    db: &'a DB,
    write: WriteOptions,
    read: ReadOptions,
    /// RocksDB's counters of the thread that made this session; absent until they are asked for.
    counters: Option<PerfContext>,
}

impl Session for Thread<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        Ok(self.db.put_opt(key, value, &self.write)?)
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        Ok(self.db.delete_opt(key, &self.write)?)
    }

    fn get(&mut self, key: &[u8], seen: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value = self.db.get_pinned_opt(key, &self.read)?;
        if let Some(value) = &value {
            seen(value);
        }
        Ok(value.is_some())
    }

    fn scan(&mut self, from: &[u8], each: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        let mut cursor = self.db.raw_iterator();
        cursor.seek(from);
        while let Some((key, value)) = cursor.item() {
            if !each(key, value) {
                return Ok(());
            }
            cursor.next();
        }
        Ok(cursor.status()?)
    }

    fn put_many(&mut self, entries: &[(Vec<u8>, Vec<u8>)]) -> Result<()> {
        let mut batch = WriteBatch::default();
        entries.iter().for_each(|(key, value)| batch.put(key, value));
        Ok(self.db.write_opt(batch, &self.write)?)
    }

    fn get_many(&mut self, keys: &[Vec<u8>], seen: &mut dyn FnMut(usize, &[u8])) -> Result<()> {
        let Some(family) = self.db.cf_handle(DEFAULT_COLUMN_FAMILY_NAME) else {
            return Err("RocksDB without its default family".into());
        };
        let values = self.db.batched_multi_get_cf_opt(family, keys, false, &self.read);
        for (at, value) in values.into_iter().enumerate() {
            if let Some(value) = value? {
                seen(at, &value);
            }
        }
        Ok(())
    }

    /// Its counters of the whole database have its compactions in them, which use the cache too; those of a
    /// thread have not. Index and filter blocks, which are counted alike, are kept outside the cache.
    fn cache(&mut self) -> Option<CacheCount> {
        let counters = self.counters.get_or_insert_with(|| {
            set_perf_stats(PerfStatsLevel::EnableCount);
            PerfContext::default()
        });
        let count = |metric| counters.metric(metric);
        Some(CacheCount {
            hits: count(PerfMetric::BlockCacheHitCount),
            misses: count(PerfMetric::BlockReadCount),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Memory;

    /// RocksDB keeps the options that it goes by in a file, and counts what it puts into the cache.
    #[test]
    fn the_cache_is_filled_as_the_configuration_says() {
        for (config, option, filled) in [
            ("tuned", "kDisable", [false, false]),
            ("prepopulate-flush", "kFlushOnly", [true, false]),
            ("prepopulate", "kFlushAndCompaction", [true, true]),
            ("universal+prepopulate", "kFlushAndCompaction", [true, true]),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let memory = Memory { write: 4 << 20, cache: 4 << 20 };
            let durability = Durability::Buffered;
            let wanted = Wanted { dir: dir.path(), memory, durability, direct_reads: false };
            let mut options = Vec::new();
            let store = opened(&wanted, config).unwrap();
            for entry in std::fs::read_dir(dir.path()).unwrap().flatten() {
                if entry.file_name().to_string_lossy().starts_with("OPTIONS") {
                    options.push((entry.file_name(), std::fs::read_to_string(entry.path()).unwrap()));
                }
            }
            options.sort();
            let newest = &options.last().unwrap().1;
            assert!(newest.contains(&format!("prepopulate_block_cache={option}\n")), "{config}: {newest}");
            assert_eq!(newest.contains("kCompactionStyleUniversal"), config.starts_with("universal"));

            let added = || store.options.get_ticker_count(Ticker::BlockCacheDataAdd);
            let mut session = store.session().unwrap();
            for number in 0..1000u32 {
                session.put(&number.to_be_bytes(), &[7; 100]).unwrap();
            }
            store.settle().unwrap();
            let flushed = added();
            // Of the thread, so earlier databases are in it.
            let before = session.cache().unwrap();
            store.major().unwrap();
            assert_eq!([flushed > 0, added() > flushed], filled, "{config}");
            let read = |session: &mut dyn Session| session.cache().unwrap().since(&before);
            assert_eq!(read(&mut *session), CacheCount::default(), "{config}: compactions are not counted");
            let warm = filled[1];
            session.get(&7u32.to_be_bytes(), &mut |_| ()).unwrap();
            let (hits, misses) = (u64::from(warm), u64::from(!warm));
            assert_eq!(read(&mut *session), CacheCount { hits, misses }, "{config}");
        }
    }
}
