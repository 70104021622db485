//! The operations of one thread: a pure function of seed, workload and thread, so every store is asked for
//! exactly the same, byte for byte. What a stream reads exists: it was loaded before or this same stream
//! inserted it.

use super::mixgraph::{self, MixGraph};
use super::pick::{Pick, Zipf};
use super::random::{Rng, Shuffle};
use super::{Distribution, Kind, Mix, Pace, Workload};

/// One operation. Keys are numbers; `salt` chooses the value's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    /// A read that must find its key.
    Get(u64),
    /// A read that must not.
    Miss(u64),
    /// A write of all columns.
    Put {
        number: u64,
        salt: u32,
    },
    Delete(u64),
    /// A read that must find its key, then a write of it.
    Modify {
        number: u64,
        salt: u32,
    },
    /// So many entries from this key on, which must be there.
    Scan {
        number: u64,
        entries: u32,
    },
    /// All entries, each counted as an operation.
    Walk,
}

/// State that all streams of a workload share, because it takes long to make.
#[derive(Clone, Debug)]
pub(crate) struct Picks {
    pick: Pick,
    scatter: Shuffle,
    graph: Option<MixGraph>,
}

impl Picks {
    pub(crate) fn new(workload: &Workload, seed: u64) -> Self {
        let n = workload.keys;
        let pick = match workload.distribution {
            Distribution::Uniform => Pick::Uniform(n),
            Distribution::Zipf | Distribution::Latest => Pick::Zipf(Zipf::new(n)),
            Distribution::Hot { share, accesses } => Pick::hot(n, share, accesses),
        };
        let graph = matches!(workload.kind, Kind::MixGraph).then(|| MixGraph::new(n, seed));
        Picks { pick, scatter: Shuffle::new(n, seed), graph }
    }

    /// The `at`-th of all keys in an order of no pattern.
    pub(crate) fn shuffled(&self, at: u64) -> u64 {
        self.scatter.at(at)
    }
}

/// The operations of one thread, as an iterator.
pub(crate) struct Stream<'a> {
    workload: &'a Workload,
    kind: Kind,
    picks: &'a Picks,
    rng: Rng,
    thread: u64,
    done: u64,
    todo: u64,
    inserted: u64,
}

impl<'a> Stream<'a> {
    pub(crate) fn new(workload: &'a Workload, picks: &'a Picks, seed: u64, thread: u32) -> Self {
        let (ops, threads, at) =
            (workload.ops, u64::from(workload.threads - workload.readers), u64::from(thread));
        let (kind, todo) = match workload.kind {
            // As many as all writers together, unless they have a rate of their own: they are ended when the
            // writers are done.
            _ if thread >= workload.threads - workload.readers => {
                let is_apart = matches!(workload.pace, Pace::Apart(_));
                (Kind::Mix(workload.reads), if is_apart { u64::MAX } else { ops })
            }
            Kind::Walk => (Kind::Walk, 1),
            kind => (kind, ops / threads + u64::from(at < ops % threads)),
        };
        let rng = Rng::new(seed, &workload.name, at);
        Stream { workload, kind, picks, rng, thread: at, done: 0, todo, inserted: 0 }
    }

    /// Puts of loaded keys without an end: what writes beside a measured reader.
    pub(crate) fn companion(
        workload: &'a Workload,
        picks: &'a Picks,
        seed: u64,
    ) -> impl Iterator<Item = Op> + 'a {
        let mut rng = Rng::new(seed, &workload.name, u64::MAX);
        std::iter::repeat_with(move || {
            let number = picks.pick.next(&mut rng);
            Op::Put { number, salt: rng.next() as u32 }
        })
    }

    fn put(&mut self, number: u64) -> Op {
        Op::Put { number, salt: self.rng.next() as u32 }
    }

    /// The number of this thread's i-th new key.
    fn new_key(&self, i: u64) -> u64 {
        self.workload.first_new_key() + i * u64::from(self.workload.threads) + self.thread
    }

    /// The number of a key that is there.
    fn existing(&mut self) -> u64 {
        let rank = self.picks.pick.next(&mut self.rng);
        match self.workload.distribution {
            Distribution::Uniform | Distribution::Hot { .. } => rank,
            Distribution::Zipf => self.picks.scatter.at(rank),
            // Newest first: its own inserts, then what was loaded. Those of other threads are not known to be
            // there.
            Distribution::Latest if rank < self.inserted => self.new_key(self.inserted - 1 - rank),
            Distribution::Latest => self.workload.keys - 1 - (rank - self.inserted),
        }
    }

    fn mixed(&mut self, mix: Mix) -> Op {
        let mut choice = self.rng.unit();
        let mut falls = |share: f64| {
            choice -= share;
            choice < 0.0
        };
        if falls(mix.read) {
            let number = self.existing();
            Op::Get(self.workload.loaded_at_or_below(number))
        } else if falls(mix.scan) {
            let number = self.existing();
            Op::Scan { number, entries: 1 + self.rng.below(u64::from(mix.scan_entries_max)) as u32 }
        } else if falls(mix.modify) {
            let number = self.existing();
            Op::Modify { number, salt: self.rng.next() as u32 }
        } else if falls(mix.insert) {
            let number = self.new_key(self.inserted);
            self.inserted += 1;
            self.put(number)
        } else if self.workload.updates_all_alike {
            let number = self.rng.below(self.workload.keys);
            self.put(number)
        } else {
            let number = self.existing();
            self.put(number)
        }
    }

    fn graph(&mut self, graph: &MixGraph) -> Op {
        let choice = self.rng.unit();
        let number = graph.key(&mut self.rng);
        if choice < mixgraph::GETS {
            Op::Get(number)
        } else if choice < mixgraph::GETS + mixgraph::PUTS {
            self.put(number)
        } else {
            Op::Scan { number, entries: mixgraph::scan_length(&mut self.rng) }
        }
    }
}

impl Iterator for Stream<'_> {
    type Item = Op;

    #[inline]
    fn next(&mut self) -> Option<Op> {
        if self.done == self.todo {
            return None;
        }
        let in_turn = self.done * u64::from(self.workload.threads) + self.thread;
        self.done += 1;
        Some(match self.kind {
            Kind::FillInOrder => self.put(in_turn),
            Kind::FillShuffled => self.put(self.picks.shuffled(in_turn)),
            Kind::DeleteInOrder => Op::Delete(in_turn),
            Kind::Missing => Op::Miss(self.existing()),
            Kind::Open => Op::Get(self.existing()),
            Kind::Walk => Op::Walk,
            Kind::Mix(mix) => self.mixed(mix),
            Kind::MixGraph => match &self.picks.graph {
                Some(graph) => self.graph(graph),
                None => unreachable!("made with the picks of another workload"),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Scale, named, names};
    use super::*;
    use crate::workload::bytes::Values;
    use std::collections::HashSet;

    fn small() -> Scale {
        Scale { keys: Some(5_000), ops: Some(5_000), ..Scale::default() }
    }

    /// The bytes of all keys and values of a stream, hashed.
    fn digest(workload: &Workload, seed: u64, thread: u32) -> u64 {
        use std::hash::{DefaultHasher, Hasher};
        let (picks, values) = (Picks::new(workload, seed), Values::new(seed, workload.longest_value()));
        let (mut key, mut value) = (Vec::new(), Vec::new());
        let mut hasher = DefaultHasher::new();
        for op in Stream::new(workload, &picks, seed, thread).take(20_000) {
            let (number, salt) = match op {
                Op::Put { number, salt } | Op::Modify { number, salt } => (number, Some(salt)),
                Op::Get(number) | Op::Miss(number) | Op::Delete(number) | Op::Scan { number, .. } => {
                    (number, None)
                }
                Op::Walk => (0, None),
            };
            workload.key.write(number, &mut key);
            hasher.write(&key);
            if let Some(salt) = salt {
                values.write(number, salt, 0, workload.value_bytes(number), &mut value);
                hasher.write(&value);
            }
        }
        hasher.finish()
    }

    #[test]
    fn a_stream_is_a_function_of_seed_workload_and_thread() {
        for name in names() {
            for workload in named(name, &small()).unwrap() {
                let same = digest(&workload, 1, 0);
                assert_eq!(same, digest(&workload, 1, 0), "{name}");
                if !matches!(workload.kind, Kind::Walk | Kind::DeleteInOrder) {
                    assert_ne!(same, digest(&workload, 2, 0), "{name}: seed");
                    assert_ne!(same, digest(&workload, 1, 1), "{name}: thread");
                }
            }
        }
    }

    #[test]
    fn what_is_read_was_loaded_or_inserted_by_the_same_stream() {
        for name in names().chain(["ycsb-d:uniform", "ycsb-a:latest", "ws1:r50"]) {
            for workload in named(name, &small()).unwrap() {
                let picks = Picks::new(&workload, 9);
                let loaded: HashSet<u64> = workload.loaded(9).collect();
                for thread in 0..workload.threads {
                    let mut there = loaded.clone();
                    // Readers at a rate of their own read without an end.
                    for op in Stream::new(&workload, &picks, 9, thread).take(20_000) {
                        match op {
                            Op::Put { number, .. } => drop(there.insert(number)),
                            Op::Get(number) | Op::Modify { number, .. } | Op::Scan { number, .. } => {
                                assert!(there.contains(&number), "{name} reads {number}");
                            }
                            Op::Delete(number) => assert!(there.remove(&number), "{name} deletes {number}"),
                            Op::Miss(_) | Op::Walk => {}
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn threads_share_the_operations_and_insert_different_keys() {
        let workload =
            &named("ycsb-d", &Scale { threads: Some(3), ops: Some(10_001), ..small() }).unwrap()[0];
        let picks = Picks::new(workload, 1);
        let (mut ops, mut inserted) = (0, HashSet::new());
        for thread in 0..3 {
            for op in Stream::new(workload, &picks, 1, thread) {
                ops += 1;
                if let Op::Put { number, .. } = op {
                    assert!(number >= workload.keys && inserted.insert(number));
                }
            }
        }
        assert_eq!(ops, 10_001);
        assert!((400..600).contains(&inserted.len()), "5 % of them: {}", inserted.len());
    }

    #[test]
    fn latest_reads_what_is_new() {
        let workload = &named("ycsb-d", &small()).unwrap()[0];
        let picks = Picks::new(workload, 1);
        let reads = Stream::new(workload, &picks, 1, 0).filter_map(|op| match op {
            Op::Get(number) => Some(number),
            _ => None,
        });
        let reads: Vec<u64> = reads.collect();
        let newest_tenth = reads.iter().filter(|number| **number >= workload.keys * 9 / 10).count();
        assert!(newest_tenth * 10 > reads.len() * 6, "{newest_tenth} of {}", reads.len());
    }
}
