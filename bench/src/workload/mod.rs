//! The workloads: what a name on the command line means.
//!
//! `table` holds the names, `stream` makes the operations of a thread, `pick` the distributions, `bytes` the
//! keys and values, `mixgraph` the one workload with a model of its own, `random` the numbers behind all of
//! them.

pub(crate) mod bytes;
mod mixgraph;
mod pick;
pub(crate) mod random;
mod stream;
mod table;

use crate::record::Durability;
use bytes::{Form, Keys, Values};
use random::{Rng, Shuffle};

pub(crate) use stream::{Op, Picks, Stream};
#[cfg(test)]
pub(crate) use table::names;
pub(crate) use table::{help, named};

/// The command line's changes of a workload's sizes.
#[derive(Clone, Debug, Default, PartialEq, clap::Args)]
pub(crate) struct Scale {
    /// Keys (default: per workload).
    #[arg(long)]
    pub(crate) keys: Option<u64>,
    /// Operations measured (default: per workload).
    #[arg(long)]
    pub(crate) ops: Option<u64>,
    /// Bytes of a value (default: per workload).
    #[arg(long)]
    pub(crate) value_size: Option<usize>,
    /// Bytes of a key, at least 8 (default: per workload).
    #[arg(long)]
    pub(crate) key_size: Option<usize>,
    /// Threads that issue operations (default: per workload).
    #[arg(long)]
    pub(crate) threads: Option<u32>,
    /// Bytes of memory, K, M and G understood: one memtable and the cache, divided as the workload's default.
    #[arg(long, value_parser = crate::text::size)]
    pub(crate) memory: Option<u64>,
    /// Seconds of reading before a compaction and after it, for the workloads that have one in their middle;
    /// they are reported in twelfths; for `stability` seconds of the open loop (default: per workload).
    #[arg(long)]
    pub(crate) seconds: Option<f64>,
    /// Read tables past the page cache, so that a store's own is the only one (default: per workload).
    #[arg(long)]
    pub(crate) direct_reads: bool,
    /// Puts a second of which `felt` takes a share (default: the least that a store reaches in `felt:max`).
    #[arg(long, requires = "most_reads", value_name = "PUTS")]
    pub(crate) most_puts: Option<f64>,
    /// Gets and scans a second of which it takes that share.
    #[arg(long, requires = "most_puts", value_name = "READS")]
    pub(crate) most_reads: Option<f64>,
}

/// Which keys are asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Distribution {
    Uniform,
    /// Zipf's law, the popular keys scattered over all.
    Zipf,
    /// Zipf's law, the newest keys the popular ones.
    Latest,
    /// A share of the keys takes a share of the accesses.
    Hot {
        share: f64,
        accesses: f64,
    },
}

/// Shares of the kinds of operations; what is left are updates of existing keys.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Mix {
    pub(crate) read: f64,
    pub(crate) scan: f64,
    pub(crate) modify: f64,
    pub(crate) insert: f64,
    pub(crate) scan_entries_max: u32,
}

/// The work of a thread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
    FillInOrder,
    /// Every key once, in an order of no pattern.
    FillShuffled,
    DeleteInOrder,
    Mix(Mix),
    Missing,
    Walk,
    MixGraph,
    /// Opening the store, each time with a get.
    Open,
}

/// The contents of the store before the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Preload {
    Nothing,
    /// All keys, by rising number.
    InOrder,
    /// All keys, in an order of no pattern.
    Shuffled,
    /// Every second key.
    Half,
}

/// How operations are issued.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Pace {
    /// Each thread issues its next operation when the last has ended.
    Closed,
    /// So many operations a second, each measured from when it was due.
    Due(f64),
    /// First so; then once more at this share of the rate seen, each operation measured from when it was due.
    ThenOpen(f64),
    /// Writers and readers each at this share of the most that [`Scale`] says of them.
    Apart(f64),
}

/// Scans beside the puts of a [`Kind::FillShuffled`], from keys that were put before.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Scans {
    /// Scans a second.
    pub(crate) rate: f64,
    /// Entries of each.
    pub(crate) entries: u32,
}

/// Memory of a store: one memtable, and the cache of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Memory {
    pub(crate) write: u64,
    pub(crate) cache: u64,
}

/// One measured phase.
#[derive(Clone, Debug)]
pub(crate) struct Workload {
    /// The name that the command line gives it.
    pub(crate) name: String,
    /// Workloads of one group run one after another on one loaded store, by `turn`.
    pub(crate) group: &'static str,
    pub(crate) turn: u32,
    pub(crate) keys: u64,
    pub(crate) ops: u64,
    pub(crate) key: Keys,
    /// Bytes of a value; mixgraph has its own.
    value: usize,
    /// Cells of a row, which one put writes together; a get reads one of them.
    pub(crate) columns: usize,
    pub(crate) threads: u32,
    /// So many of the threads only read, until the others are done, and what they do.
    pub(crate) readers: u32,
    pub(crate) reads: Mix,
    /// Updates are of all keys alike, whatever is read.
    pub(crate) updates_all_alike: bool,
    /// The most puts and reads a second of which a share is due.
    pub(crate) most: Option<(f64, f64)>,
    pub(crate) memory: Memory,
    pub(crate) preload: Preload,
    pub(crate) kind: Kind,
    pub(crate) distribution: Distribution,
    /// Operations given to the store in one call.
    pub(crate) batch: usize,
    pub(crate) durability: Durability,
    pub(crate) pace: Pace,
    /// Puts a second of one more thread beside the measured ones.
    pub(crate) companion: Option<f64>,
    /// One more thread scans, and is measured.
    pub(crate) scans: Option<Scans>,
    /// What is in memory at the end stays there: a run has ended when nothing that is due is left to do.
    pub(crate) keeps_memory: bool,
    /// A major compaction runs in its middle, beside readers at this share of the most that they can do.
    pub(crate) merged: Option<f64>,
    /// Its operations are timed from when they began, as YCSB does it, and not from when they were due: one
    /// that waits makes no other one wait.
    pub(crate) from_begin: bool,
    /// How long it reads before that compaction, and after; or how long the open loop lasts, if not as long
    /// as the closed one.
    pub(crate) seconds: f64,
    /// The closed loop ends after so many seconds.
    pub(crate) ends_after: Option<f64>,
    /// Latencies are separated by whether a compaction ran.
    pub(crate) beside_merges: bool,
    /// Tables are read past the page cache.
    pub(crate) direct_reads: bool,
    /// Files are not in the page cache when a store is opened.
    pub(crate) cold: bool,
    /// Bytes put before a kill, where that is not what write memory holds.
    pub(crate) logged: Option<u64>,
}

impl Workload {
    /// Bytes put by the process that is killed.
    pub(crate) fn before_kill(&self) -> u64 {
        self.logged.unwrap_or(self.memory.write)
    }

    /// Bytes of the value of a key.
    #[inline]
    pub(crate) fn value_bytes(&self, number: u64) -> usize {
        if matches!(self.kind, Kind::MixGraph) { mixgraph::value_bytes(number) } else { self.value }
    }

    /// Replaces `row` by the cells of a row.
    #[inline]
    pub(crate) fn row(&self, number: u64, salt: u32, values: &Values, row: &mut [(Vec<u8>, Vec<u8>)]) {
        for (column, (key, value)) in row.iter_mut().enumerate() {
            match self.columns {
                1 => self.key.write(number, key),
                _ => self.key.write_column(number, column, key),
            }
            values.write(number, salt, column, self.value_bytes(number), value);
        }
    }

    /// Replaces `key` by that of the cell which a get of this number reads.
    #[inline]
    pub(crate) fn read_key(&self, number: u64, key: &mut Vec<u8>) {
        match self.columns {
            1 => self.key.write(number, key),
            columns => self.key.write_column(number, number as usize % columns, key),
        }
    }

    /// Whether it takes a share of what stores can do at most, which is not known.
    pub(crate) fn wants_most(&self) -> bool {
        matches!(self.pace, Pace::Apart(_)) && self.most.is_none()
    }

    /// Bytes of keys in a row.
    pub(crate) fn row_key_bytes(&self) -> u64 {
        let column = usize::from(self.columns > 1);
        (self.columns * (self.key.bytes + column)) as u64
    }

    /// Bytes of values in a row.
    pub(crate) fn row_value_bytes(&self, number: u64) -> u64 {
        (self.columns * self.value_bytes(number)) as u64
    }

    pub(crate) fn longest_value(&self) -> usize {
        if matches!(self.kind, Kind::MixGraph) { mixgraph::LONGEST } else { self.value }
    }

    /// The numbers to load, in their order.
    pub(crate) fn loaded(&self, seed: u64) -> Box<dyn Iterator<Item = u64>> {
        let shuffle = Shuffle::new(self.keys, Rng::new(seed, "preload", 0).next());
        match self.preload {
            Preload::Nothing => Box::new(std::iter::empty()),
            Preload::InOrder => Box::new(0..self.keys),
            Preload::Shuffled => Box::new((0..self.keys).map(move |i| shuffle.at(i))),
            Preload::Half => Box::new((0..self.keys).step_by(2)),
        }
    }

    /// `number`, or the loaded key below it where not all were loaded.
    #[inline]
    fn loaded_at_or_below(&self, number: u64) -> u64 {
        if self.preload == Preload::Half { number & !1 } else { number }
    }

    /// New keys are numbered from here: phases that share a store insert different ones.
    fn first_new_key(&self) -> u64 {
        let place = Rng::new(0, &self.name, 0).below(1 << 20) + 1;
        place << 40
    }

    /// Its sizes, for the record.
    pub(crate) fn settings(&self) -> Vec<(&'static str, String)> {
        let mut settings = vec![
            ("keys", self.keys.to_string()),
            ("key_bytes", self.key.bytes.to_string()),
            (
                "value_bytes",
                if matches!(self.kind, Kind::MixGraph) { "pareto".into() } else { self.value.to_string() },
            ),
            ("memory_write", self.memory.write.to_string()),
            ("memory_cache", self.memory.cache.to_string()),
            ("preload", format!("{:?}", self.preload).to_lowercase()),
            ("distribution", format!("{:?}", self.distribution).to_lowercase()),
        ];
        if self.columns > 1 {
            settings.push(("columns", self.columns.to_string()));
        }
        if self.readers > 0 {
            settings.push(("readers", self.readers.to_string()));
        }
        if self.batch > 1 {
            settings.push(("batch", self.batch.to_string()));
        }
        if let (Pace::Apart(share), Some((puts, reads))) = (self.pace, self.most) {
            settings.push(("puts_s", format!("{:.0}", puts * share)));
            settings.push(("reads_s", format!("{:.0}", reads * share)));
        }
        if let Some(rate) = self.companion {
            settings.push(("companion_puts_s", rate.to_string()));
        }
        if let Pace::Due(rate) = self.pace {
            settings.push(("rate", rate.to_string()));
        }
        if let Some(Scans { rate, entries }) = self.scans {
            settings.push(("scans_s", rate.to_string()));
            settings.push(("scan_entries", entries.to_string()));
        }
        if self.keeps_memory {
            settings.push(("keeps_memory", "true".into()));
        }
        if self.direct_reads {
            settings.push(("direct_reads", "true".into()));
        }
        if self.cold {
            settings.push(("cold", "true".into()));
        }
        settings
    }
}
