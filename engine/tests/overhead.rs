//! The memory that TRIAD's parts take (TRI-5), counted by the allocator and not by what the engine says of
//! itself. With n entries in memory and ten tables in level 0 the paper's bound is 12 B x n + 10 x (4 KB + 8
//! B x n).
#![expect(unsafe_code, reason = "a global allocator that counts what this thread holds")]

use siltstone::schedule::SimScheduler;
use siltstone::storage::Env;
use siltstone::storage::sim::SimRandom;
use siltstone::{Builder, CacheFill, Compression, Db, FamilyOptions, Options, Tuning};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
    static MOST: Cell<isize> = const { Cell::new(0) };
}

/// What this thread holds, with the chunks that are mapped and not allocated.
fn held() -> isize {
    HELD.get() + siltstone::memory_probe::mapped_bytes() as isize
}

struct Counting;

fn took(bytes: isize) {
    // A thread that is ending has no counters any more.
    let _ = HELD.try_with(|held| {
        held.set(held.get() + bytes);
        let _ = MOST.try_with(|most| most.set(most.get().max(held.get())));
    });
}

// SAFETY: every call is passed on to the system's allocator unchanged; counting neither allocates nor
// unwinds.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        took(layout.size() as isize);
        // SAFETY: the caller keeps `alloc`'s contract, which is the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        took(-(layout.size() as isize));
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const TABLES: u64 = 10;

/// Bytes that were held at certain moments.
#[derive(Debug)]
struct Held {
    /// By memory full of entries, and what the engine counts for that.
    memory: isize,
    counted: isize,
    /// At most while it is flushed, beyond what was held before.
    flush: isize,
    /// By ten open tables, all of which were read.
    tables: isize,
}

fn fill(db: &Db, entries: u64, round: u64) {
    for n in 0..entries {
        let value = [(round + n) as u8; 255];
        db.put((n * 7919 % entries).to_be_bytes(), value).unwrap();
        // Some hot keys.
        if n % 100 == 0 {
            db.put(n.to_be_bytes(), value).unwrap();
        }
    }
}

/// A database whose background work is done in turns of this thread.
fn open(dir: &Path, triad: bool, cache: u64) -> (Db, Arc<SimScheduler>) {
    let write_memory = 64 << 20;
    let options = Options {
        write_memory,
        memory_budget: write_memory + cache,
        cache_fill: CacheFill::None,
        workers: 1,
        tuning: Tuning { wal_file_bytes: 1 << 20, events_max: 0, ..Tuning::default() },
        ..Options::default()
    };
    let family = FamilyOptions {
        hot_keys: if triad { "factor" } else { "off" }.parse().unwrap(),
        wal_values: triad,
        wal_values_write_amp_max: 1e6,
        memtable_policy: "none".parse().unwrap(),
        compression: Compression::None,
        strategy: "nomerge".parse().unwrap(),
        ..FamilyOptions::default()
    };
    let scheduler = Arc::new(SimScheduler::new(Arc::new(SimRandom::new(1))));
    let db = Builder::new()
        .options(options)
        .env(Env::local())
        .scheduler(scheduler.clone())
        .family("default", family)
        .open(dir)
        .unwrap();
    scheduler.settle();
    (db, scheduler)
}

/// With so many entries in memory, as then in each of the tables.
fn measure(entries: u64, triad: bool) -> Held {
    let dir = tempfile::tempdir().unwrap();
    // SSTables with values in the WAL are made where compactions could hold the WAL in memory.
    let (db, scheduler) = open(dir.path(), triad, 1 << 30);
    let empty = held();
    fill(&db, entries, 0);
    scheduler.settle();
    // Memory that is kept for writes to come is counted apart.
    let statistics = db.statistics();
    let memory = held() - empty - statistics.spare_memory as isize;
    let counted = statistics.write_memory as isize;
    let before = HELD.get();
    MOST.set(before);
    db.flush().unwrap();
    let flush = MOST.get() - before;
    for round in 1..TABLES {
        fill(&db, entries, round);
        db.flush().unwrap();
    }
    scheduler.settle();
    let statistics = db.statistics();
    assert_eq!((statistics.sstables, statistics.flushes), (TABLES, TABLES));
    assert_eq!(statistics.wal_value_sstables, if triad { TABLES } else { 0 });
    db.close().unwrap();
    drop((db, scheduler));
    // What is left beyond an empty database is what tables hold: there is no cache.
    let beside = tempfile::tempdir().unwrap();
    let opened = |dir: &Path, entries: u64| {
        let before = held();
        let (db, scheduler) = open(dir, triad, 0);
        for n in 0..entries {
            db.get(n.to_be_bytes()).unwrap().unwrap();
        }
        scheduler.settle();
        held() - before - db.statistics().spare_memory as isize
    };
    let tables = opened(dir.path(), entries) - opened(beside.path(), 0);
    Held { memory, counted, flush, tables }
}

#[test]
fn values_in_the_wal_take_no_more_memory_than_the_papers_bound() {
    let [few, many] = [15_000, 45_000].map(|entries| {
        let [off, on] = [false, true].map(|triad| measure(entries, triad));
        println!("{entries} entries, without: {off:?}, with: {on:?}");
        let entries = entries as isize;
        // What memory counts for itself, 12 bytes a cell beside its chunks among it, is what it takes.
        for held in [&off, &on] {
            // But for what lies empty at the end of the newest chunks, of cells and of the index.
            let empty = (512 << 10) + (128 << 10);
            assert!(held.memory <= held.counted + held.counted / 100 + empty, "{held:?}");
        }
        // The second term, with all that an open table holds.
        assert!(on.tables <= TABLES as isize * (4096 + 8 * entries), "{on:?}");
        (entries, on.memory - off.memory, on.flush - off.flush, on.tables - off.tables)
    });
    // The first term: what is kept with an entry, and what a flush adds. That needs buffers, too, whatever it
    // flushes.
    assert_eq!((few.1, many.1), (0, 0), "nothing is kept with an entry");
    let more = (many.0 - few.0) as f64;
    let flush = (many.2 - few.2) as f64 / more;
    let tables = (many.3 - few.3) as f64 / more / TABLES as f64;
    println!(
        "{flush:.1} bytes more an entry that is flushed, {tables:.2} an entry of an SSTable with values in the WAL"
    );
    assert!(flush <= 12.0, "{few:?}, {many:?}");
    assert!(few.2 - 12 * few.0 <= 1 << 20, "{few:?}");
    // The open WAL files.
    assert!(tables <= 1.0, "{few:?}, {many:?}");
}
