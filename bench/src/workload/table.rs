//! The names of the workloads and their default sizes.

use super::*;
use std::collections::HashSet;

/// Name, what it does.
const NAMES: &[(&str, &str)] = &[
    ("fillseq", "puts of all keys in order, one thread"),
    ("fillrandom", "puts of random keys into an empty store, one thread"),
    ("overwrite", "puts of random keys into a full store, one thread"),
    ("readrandom", "gets of random keys, all found, two threads"),
    ("readmissing", "gets of keys between those that are there, two threads"),
    ("seekrandom", "seeks to a random key and the read of its entry, two threads"),
    ("readseq", "one pass over all entries, each an operation, one thread"),
    ("readwhilewriting", "gets of random keys while another thread puts 50,000 a second"),
    ("deleteseq", "deletes of all keys in order, one thread"),
    ("syncput:1", "puts that survive a power cut, one thread"),
    ("syncput:8", "the same, eight threads"),
    ("ycsb-load", "YCSB: puts of all keys into an empty store, two threads"),
    ("ycsb-a", "YCSB: 50 % gets, 50 % updates, zipf"),
    ("ycsb-b", "YCSB: 95 % gets, 5 % updates, zipf"),
    ("ycsb-c", "YCSB: gets, zipf"),
    ("ycsb-d", "YCSB: 95 % gets of the newest, 5 % inserts"),
    ("ycsb-e", "YCSB: 95 % scans of 1 to 100 entries, 5 % inserts, zipf"),
    ("ycsb-f", "YCSB: 50 % gets, 50 % gets with an update of the same key, zipf"),
    ("ws1", "TRIAD: 1 % of the keys take 99 % of 10 % gets and 90 % puts, half loaded before"),
    ("ws2", "TRIAD: 20 % of the keys take 80 %"),
    ("ws3", "TRIAD: all keys alike"),
    ("accordion-zipf", "Accordion: puts of rows of four cells, each a batch, zipf"),
    ("accordion-uniform", "the same, all rows alike"),
    (
        "accordion-mix",
        "Accordion: ten threads that put 100 rows a batch, two that get a cell, zipf, all rows loaded before",
    ),
    ("mixgraph", "gets, puts and seeks as traced at Facebook (FAST 2020)"),
    ("stability", "puts: closed loop for the maximum, then open loop at 95 % of it, from due times"),
    (
        "unseen",
        "zipf gets at 70 % of the maximum, with a major compaction in their middle, data ten times the cache",
    ),
    (
        "felt",
        "puts of all keys alike on one thread, zipf gets and short scans on another, compactions as they come: as fast as they go \
         (felt:max), then at 30, 50 and 70 % of the slowest store's (felt:p50), data ten times the cache",
    ),
    (
        "offload",
        "the same with a tenth of scans, at 40 % and with all data in the cache, as measured for compaction offloading",
    ),
    (
        "rangemerge",
        "Rangemerge: puts of all keys in no order, 2,500 a second, beside 20 scans of 10 entries a second",
    ),
    ("rangemerge-fill", "the same puts as fast as they go, without scans; memory is a twentieth of the data"),
    ("open", "opening 5 GB until a first get is answered: after closing, and with a log after a kill"),
];

/// The 10 KB that Accordion's clients send at once.
const ROWS_AT_ONCE: usize = 100;
/// Shares are of the same operations, so that a batch is of one kind with others in between.
const BATCH: usize = 16;
const MIB: u64 = 1 << 20;
const DB_BENCH: Memory = Memory { write: 64 * MIB, cache: 32 * MIB };
const YCSB: Memory = Memory { write: 64 * MIB, cache: 256 * MIB };
/// What a region of HBase holds, and as much again for reading, as in HBase's own division.
const ACCORDION: Memory = Memory { write: 128 * MIB, cache: 128 * MIB };
const TRIAD: Memory = Memory { write: 4 * MIB, cache: 32 * MIB };
/// Operations of which those in which the cache fills are a few per cent.
const STEADY_READS: u64 = 6_000_000;
/// Operations of a steady run where fewer are enough: seeks, of which each takes longer, and gets of other
/// numbers of threads, which come to a full cache.
const STEADY_FEWER: u64 = 2_000_000;
const STEADY_SCANS: u64 = 400_000;
/// Less is no store's memory any more.
const MEMORY_MIN: u64 = 256 << 10;
/// The least time around a compaction that shows anything.
const SECONDS_MIN: f64 = 0.5;
/// The time for measuring how fast a store is with its compactions: those of its deeper levels come late.
const MOST_SECONDS: f64 = 60.0;
/// Puts a second of the thread that writes beside a reader: well below what a core can do, so that all
/// stores keep up.
const COMPANION_PUTS_S: f64 = 50_000.0;

/// All names without variants.
#[cfg(test)]
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    NAMES.iter().map(|(name, _)| *name)
}

/// The table for people.
pub(crate) fn help() -> String {
    let mut text = String::from("Workloads:\n");
    NAMES.iter().for_each(|(name, what)| text.push_str(&format!("  {name:17} {what}\n")));
    text.push_str(
        "Variants: `syncput` is syncput:1 and syncput:8; ycsb-a:uniform, :zipf, :latest for other keys, :batched for\n\
         16 operations a call; ws1:r50 for 50 % gets, ws1:at20k for 20,000 operations a second, ws1:x20 for 20 million keys and 80 MiB of write memory;\n\
         readrandom:steady, seekrandom:steady and ycsb-c:steady (b, d, e alike) with many operations, so that those in which the\n\
         cache fills hardly count; readrandom:t8, overwrite:t8 for 8 threads (as of any that has no number of its own);\n\
         ws1:d10, accordion-zipf:d10 or :d100 for a tenth or a hundredth of keys, operations and memory; rangemerge-fill:m5\n\
         or :m100 for a write memory of a fifth or a hundredth of the data; open:log1g for 1 GB, and a log of 1 GiB\n\
         after a kill; open:cold with files that are not in the page cache.",
    );
    text
}

/// The workloads of a name; several where the name stands for several.
pub(crate) fn named(name: &str, scale: &Scale) -> Result<Vec<Workload>, String> {
    let all = |names: &[&str]| {
        let each = names.iter().map(|name| named(name, scale));
        let mut all = each.collect::<Result<Vec<_>, String>>()?.concat();
        let mut seen = HashSet::new();
        all.retain(|workload| seen.insert(workload.name.clone()));
        Ok(all)
    };
    match name {
        "syncput" => return all(&["syncput:1", "syncput:8"]),
        "felt" => return all(&["felt:p30", "felt:p50", "felt:p70"]),
        _ => {}
    }
    let mut parts = name.split(':');
    let base = parts.next().unwrap_or_default();
    let mut workload = base_workload(base).ok_or_else(|| format!("no such workload: {name}"))?;
    workload.name = name.to_string();
    for variant in parts {
        workload.vary(base, variant).ok_or_else(|| format!("no such variant: {name}"))?;
    }
    workload.scale(scale)?;
    // What it takes a share of comes first.
    let most = if workload.wants_most() { named("felt:max", scale)? } else { Vec::new() };
    Ok([most, vec![workload]].concat())
}

/// What most have in common: db_bench's sizes.
fn classic(kind: Kind, preload: Preload, threads: u32) -> Workload {
    Workload {
        name: String::new(),
        group: "",
        turn: 0,
        keys: 2_000_000,
        ops: 2_000_000,
        key: Keys { form: Form::Ordered, bytes: 16 },
        value: 100,
        columns: 1,
        threads,
        readers: 0,
        reads: Mix { read: 1.0, ..Mix::default() },
        updates_all_alike: false,
        most: None,
        memory: DB_BENCH,
        preload,
        kind,
        distribution: Distribution::Uniform,
        batch: 1,
        durability: Durability::Buffered,
        pace: Pace::Closed,
        companion: None,
        scans: None,
        keeps_memory: false,
        merged: None,
        from_begin: false,
        seconds: 0.0,
        ends_after: None,
        beside_merges: false,
        direct_reads: false,
        cold: false,
        logged: None,
    }
}

fn base_workload(name: &str) -> Option<Workload> {
    use Preload::{InOrder, Nothing, Shuffled};
    let updates = Kind::Mix(Mix::default());
    let reads = Kind::Mix(Mix { read: 1.0, ..Mix::default() });
    let seeks = Kind::Mix(Mix { scan: 1.0, scan_entries_max: 1, ..Mix::default() });
    let on_one_store = |workload| Workload { group: "reads", ..workload };
    Some(match name {
        "fillseq" => classic(Kind::FillInOrder, Nothing, 1),
        "fillrandom" => classic(updates, Nothing, 1),
        "overwrite" => classic(updates, Shuffled, 1),
        "readrandom" => on_one_store(classic(reads, Shuffled, 2)),
        "readmissing" => on_one_store(classic(Kind::Missing, Shuffled, 2)),
        "seekrandom" => on_one_store(classic(seeks, Shuffled, 2)),
        "readseq" => on_one_store(classic(Kind::Walk, Shuffled, 1)),
        "readwhilewriting" => {
            Workload { ops: 500_000, companion: Some(COMPANION_PUTS_S), ..classic(reads, Shuffled, 1) }
        }
        "deleteseq" => classic(Kind::DeleteInOrder, InOrder, 1),
        "syncput" => Workload { ops: 3_000, durability: Durability::Sync, ..classic(updates, Nothing, 1) },
        "mixgraph" => Workload {
            ops: 1_000_000,
            key: Keys { form: Form::Ordered, bytes: 48 },
            ..classic(Kind::MixGraph, Shuffled, 2)
        },
        "stability" => Workload {
            ops: 5_000_000,
            pace: Pace::ThenOpen(0.95),
            direct_reads: true,
            ..classic(updates, Shuffled, 1)
        },
        "accordion-zipf" => accordion(Distribution::Zipf),
        "accordion-uniform" => accordion(Distribution::Uniform),
        "accordion-mix" => Workload {
            threads: 12,
            readers: 2,
            batch: ROWS_AT_ONCE,
            preload: Shuffled,
            ..accordion(Distribution::Zipf)
        },
        "unseen" => unseen(reads),
        "felt" => Workload {
            threads: 2,
            readers: 1,
            reads: Mix { read: 0.95, scan: 0.05, scan_entries_max: 19, ..Mix::default() },
            updates_all_alike: true,
            merged: None,
            beside_merges: true,
            ..unseen(updates)
        },
        // As in the paper half as much cache again as there is data, and processors that have room.
        "offload" => Workload {
            memory: Memory { write: 64 * MIB, cache: 3_072 * MIB },
            merged: Some(0.4),
            from_begin: true,
            ..unseen(Kind::Mix(Mix { read: 0.9, scan: 0.1, scan_entries_max: 100, ..Mix::default() }))
        },
        "rangemerge" => Workload {
            pace: Pace::Due(2_500.0),
            scans: Some(Scans { rate: 20.0, entries: 10 }),
            ..rangemerge()
        },
        "rangemerge-fill" => rangemerge(),
        "open" => {
            Workload { keys: 5_000_000, ops: 5, value: 1000, memory: YCSB, ..classic(Kind::Open, InOrder, 1) }
        }
        "ws1" => triad(Distribution::Hot { share: 0.01, accesses: 0.99 }),
        "ws2" => triad(Distribution::Hot { share: 0.2, accesses: 0.8 }),
        "ws3" => triad(Distribution::Uniform),
        _ => return ycsb(name.strip_prefix("ycsb-")?),
    })
}

/// Readers around a compaction: one thread, so that on a small machine the compaction has a processor too.
fn unseen(kind: Kind) -> Workload {
    Workload {
        keys: 2_000_000,
        key: Keys { form: Form::Scattered, bytes: 24 },
        value: 1000,
        memory: Memory { write: 64 * MIB, cache: 200 * MIB },
        distribution: Distribution::Zipf,
        merged: Some(0.7),
        seconds: 60.0,
        direct_reads: true,
        ..classic(kind, Preload::Shuffled, 1)
    }
}

/// A tenth of the paper's data and memory, with as much cache as memory.
fn rangemerge() -> Workload {
    const DATA: u64 = 1_000_000_000;
    let (key, value) = (100, 1000);
    let keys = DATA / (key + value) as u64;
    Workload {
        keys,
        ops: keys,
        key: Keys { form: Form::Scattered, bytes: key },
        value,
        memory: Memory { write: DATA / 20, cache: DATA / 20 },
        keeps_memory: true,
        direct_reads: true,
        ..classic(Kind::FillShuffled, Preload::Nothing, 1)
    }
}

fn triad(distribution: Distribution) -> Workload {
    Workload {
        keys: 1_000_000,
        ops: 1_000_000,
        key: Keys { form: Form::Scattered, bytes: 8 },
        value: 255,
        memory: TRIAD,
        distribution,
        ..classic(Kind::Mix(Mix { read: 0.1, ..Mix::default() }), Preload::Half, 2)
    }
}

/// A row is 100 bytes in four cells, whose keys are the row's, as YCSB writes them, with a digit behind.
fn accordion(distribution: Distribution) -> Workload {
    Workload {
        keys: 10_000_000,
        ops: 10_000_000,
        key: Keys { form: Form::Scattered, bytes: 24 },
        value: 25,
        columns: 4,
        memory: ACCORDION,
        distribution,
        ..classic(Kind::Mix(Mix::default()), Preload::Nothing, 2)
    }
}

/// Turns are those of YCSB's own recommendation, where what inserts comes late; E scans a fifth as often as
/// the others do anything.
fn ycsb(letter: &str) -> Option<Workload> {
    let mix = Mix::default();
    let (turn, kind) = match letter {
        "load" => (0, Kind::FillInOrder),
        "c" => (1, Kind::Mix(Mix { read: 1.0, ..mix })),
        "b" => (2, Kind::Mix(Mix { read: 0.95, ..mix })),
        "d" => (3, Kind::Mix(Mix { read: 0.95, insert: 0.05, ..mix })),
        "e" => (4, Kind::Mix(Mix { scan: 0.95, insert: 0.05, scan_entries_max: 100, ..mix })),
        "a" => (5, Kind::Mix(Mix { read: 0.5, ..mix })),
        "f" => (6, Kind::Mix(Mix { read: 0.5, modify: 0.5, ..mix })),
        _ => return None,
    };
    let load = letter == "load";
    Some(Workload {
        group: "ycsb",
        turn,
        keys: 1_000_000,
        ops: match letter {
            "load" => 1_000_000,
            "e" => 40_000,
            _ => 200_000,
        },
        key: Keys { form: Form::Scattered, bytes: 24 },
        value: 1000,
        memory: YCSB,
        distribution: if letter == "d" { Distribution::Latest } else { Distribution::Zipf },
        ..classic(kind, if load { Preload::Nothing } else { Preload::InOrder }, 2)
    })
}

impl Workload {
    /// Applies a variant; `None` if this workload has no such one.
    fn vary(&mut self, base: &str, variant: &str) -> Option<()> {
        let ycsb = base.starts_with("ycsb-") && base != "ycsb-load";
        match variant {
            "uniform" if ycsb => self.distribution = Distribution::Uniform,
            "zipf" if ycsb => self.distribution = Distribution::Zipf,
            "latest" if ycsb => self.distribution = Distribution::Latest,
            "batched" if base.starts_with("ycsb-") => self.batch = BATCH,
            "r50" if base.starts_with("ws") => self.kind = Kind::Mix(Mix { read: 0.5, ..Mix::default() }),
            "at20k" if base.starts_with("ws") => self.pace = Pace::Due(20_000.0),
            "x20" if base.starts_with("ws") => self.resize(20.0),
            "d10" if base.starts_with("ws") || base.starts_with("accordion-") => self.resize(0.1),
            "d100" if base.starts_with("ws") || base.starts_with("accordion-") => self.resize(0.01),
            "m5" if base == "rangemerge-fill" => self.memory.write *= 4,
            "m20" if base == "rangemerge-fill" => {}
            "m100" if base == "rangemerge-fill" => self.memory.write /= 5,
            "sorted" if base == "rangemerge-fill" => {
                (self.kind, self.key.form) = (Kind::FillInOrder, Form::Ordered);
            }
            // Memory must hold more than is put, else it is flushed and the WAL goes.
            "log1g" if base == "open" => {
                (self.keys, self.logged) = (1_000_000, Some(1 << 30));
                self.memory.write = 1536 * MIB;
            }
            "cold" if base == "open" => self.cold = true,
            "max" if base == "felt" => (self.ends_after, self.ops) = (Some(MOST_SECONDS), u64::MAX),
            "p30" if base == "felt" => self.pace = Pace::Apart(0.3),
            "p50" if base == "felt" => self.pace = Pace::Apart(0.5),
            "p70" if base == "felt" => self.pace = Pace::Apart(0.7),
            "steady" if matches!(self.kind, Kind::Mix(_)) && (self.group == "reads" || ycsb) => {
                self.ops = match base {
                    "ycsb-e" => STEADY_SCANS,
                    "seekrandom" => STEADY_FEWER,
                    _ => STEADY_READS,
                };
            }
            threads if threads.starts_with('t') && matches!(self.kind, Kind::Mix(_) | Kind::Missing) => {
                if base == "syncput" {
                    return None;
                }
                if self.ops == STEADY_READS {
                    self.ops = STEADY_FEWER;
                }
                self.threads =
                    threads[1..].parse().ok().filter(|n| (1..=64).contains(n) && self.readers == 0)?;
            }
            "1" if base == "syncput" => self.threads = 1,
            "8" if base == "syncput" => self.threads = 8,
            _ => return None,
        }
        Some(())
    }

    /// Multiplies keys, operations and memory, so that they stay in proportion.
    fn resize(&mut self, factor: f64) {
        let Memory { write, cache } = self.memory;
        (self.keys, self.ops) = (times(self.keys, factor), times(self.ops, factor));
        self.memory = Memory { write: times(write, factor), cache: times(cache, factor) };
    }

    fn scale(&mut self, scale: &Scale) -> Result<(), String> {
        self.keys = scale.keys.unwrap_or(self.keys);
        self.ops = scale.ops.unwrap_or(self.ops);
        self.key.bytes = scale.key_size.unwrap_or(self.key.bytes);
        self.value = scale.value_size.unwrap_or(self.value);
        self.threads = scale.threads.unwrap_or(self.threads);
        self.seconds = scale.seconds.unwrap_or(self.seconds);
        self.direct_reads |= scale.direct_reads;
        self.most = scale.most_puts.zip(scale.most_reads);
        self.ends_after = self.ends_after.map(|most| scale.seconds.unwrap_or(most).min(most));
        if let Some(total) = scale.memory {
            let Memory { write, cache } = self.memory;
            let write = (u128::from(total) * u128::from(write) / u128::from(write + cache)) as u64;
            self.memory = Memory { write, cache: total - write };
        }
        match self.kind {
            // All keys are the point of it.
            Kind::Walk => (self.ops, self.threads) = (self.keys, 1),
            Kind::Open => self.threads = 1,
            Kind::FillInOrder | Kind::FillShuffled | Kind::DeleteInOrder => self.ops = self.keys,
            _ => {}
        }
        if self.keys < 2 || self.ops == 0 || self.threads <= self.readers {
            let least = self.readers + 1;
            return Err(format!("--keys is at least 2, --ops at least 1, --threads at least {least}"));
        }
        if scale.seconds.is_some_and(|seconds| !(0.1..=3600.0).contains(&seconds)) {
            return Err("--seconds is between 0.1 and 3600".into());
        }
        if self.most.is_some_and(|(puts, reads)| !(puts >= 1.0 && reads >= 1.0)) {
            return Err("--most-puts and --most-reads are at least 1".into());
        }
        if self.key.bytes < 8 {
            return Err("--key-size is at least 8".into());
        }
        Ok(())
    }
}

impl Scale {
    /// Multiplies a workload's keys, operations and memory, the latter by `memory` once more.
    pub(crate) fn of(name: &str, factor: f64, memory: f64) -> Result<Scale, String> {
        let mut total = 0;
        let (mut keys, mut ops, mut seconds) = (None, None, None);
        for workload in named(name, &Scale::default())? {
            let Memory { write, cache } = workload.memory;
            (keys, ops) =
                (Some(times(workload.keys, factor).max(2)), Some(times(workload.ops, factor).max(1)));
            seconds = workload.merged.map(|_| (workload.seconds * factor).max(SECONDS_MIN));
            total = times(write + cache, factor * memory).max(MEMORY_MIN);
        }
        Ok(Scale { keys, ops, seconds, memory: Some(total), ..Scale::default() })
    }
}

fn times(number: u64, factor: f64) -> u64 {
    (number as f64 * factor).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(name: &str) -> Workload {
        named(name, &Scale::default()).unwrap().remove(0)
    }

    #[test]
    fn every_name_means_what_its_variants_say() {
        let count = |name: &str| named(name, &Scale::default()).unwrap().len();
        names().for_each(|name| assert_eq!(count(name), if name == "felt" { 4 } else { 1 }, "{name}"));
        let rates = Scale { most_puts: Some(1000.0), most_reads: Some(2000.0), ..Scale::default() };
        let known: Vec<String> = named("felt", &rates).unwrap().into_iter().map(|w| w.name).collect();
        assert_eq!(known, ["felt:p30", "felt:p50", "felt:p70"], "what is known is not measured");
        assert_eq!((one("ycsb-c:steady").ops, one("ycsb-e:steady").ops), (6_000_000, 400_000));
        assert_eq!((one("readrandom:steady:t8").threads, one("readrandom:steady:t8").ops), (8, 2_000_000));
        for wrong in
            ["overwrite:steady", "readseq:steady", "overwrite:t0", "syncput:t8", "felt:t4", "readseq:t4"]
        {
            assert!(named(wrong, &Scale::default()).is_err(), "{wrong}");
        }
        assert_eq!(one("ws1:x20").keys, 20_000_000);
        assert_eq!(one("ws1:x20").memory.write, 80 << 20);
        assert_eq!(one("accordion-zipf:d100").keys, 100_000);
        assert_eq!(one("accordion-mix:d10").memory, Memory { write: 13_421_773, cache: 13_421_773 });
        assert_eq!(one("ws3:at20k").pace, Pace::Due(20_000.0));
        assert_eq!(one("ws3:r50").kind, Kind::Mix(Mix { read: 0.5, ..Mix::default() }));
        assert_eq!(one("ycsb-a:uniform:batched").distribution, Distribution::Uniform);
        assert_eq!(one("ycsb-a:uniform:batched").batch, BATCH);
        let long = one("open:log1g");
        assert!(long.before_kill() == 1 << 30 && long.memory.write > 1 << 30);
        assert_eq!(one("open").before_kill(), one("open").memory.write);
        let data_over_memory = ["m5", "m20", "m100"].map(|variant| {
            let workload = one(&format!("rangemerge-fill:{variant}"));
            1_000_000_000 / workload.memory.write
        });
        assert_eq!(data_over_memory, [5, 20, 100]);
        let sorted = one("rangemerge-fill:m20:sorted");
        assert_eq!((sorted.kind, sorted.key.form), (Kind::FillInOrder, Form::Ordered));
        let sync = named("syncput", &Scale::default()).unwrap();
        assert_eq!(
            sync.iter().map(|w| (w.name.as_str(), w.threads)).collect::<Vec<_>>(),
            [("syncput:1", 1), ("syncput:8", 8)]
        );
        for wrong in
            ["", "fill", "ycsb-g", "ws1:x21", "fillseq:zipf", "syncput:3", "ycsb-load:zipf", "rangemerge:m5"]
        {
            assert!(named(wrong, &Scale::default()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_factor_leaves_the_proportions_as_they_are() {
        let scaled = &named("ws1", &Scale::of("ws1", 0.1, 1.0).unwrap()).unwrap()[0];
        let (divided, whole) = (one("ws1:d10"), one("ws1"));
        assert_eq!((scaled.keys, scaled.ops), (divided.keys, divided.ops));
        assert_eq!((scaled.keys, scaled.ops), (whole.keys / 10, whole.ops / 10));
        assert!(scaled.memory.write.abs_diff(whole.memory.write / 10) < 10);
        assert!(named("accordion-mix", &Scale { threads: Some(2), ..Scale::default() }).is_err());
    }

    #[test]
    fn memory_is_divided_as_by_default() {
        let scale = Scale { memory: Some(72 << 20), ..Scale::default() };
        let workload = &named("ws1", &scale).unwrap()[0];
        assert_eq!(workload.memory, Memory { write: 8 << 20, cache: 64 << 20 });
    }
}
