//! Chooses the active memtable's structure by measuring it against others: nanoseconds an operation, the
//! median of five runs, on one thread, with keys of 16 random bytes or 16 zero-padded digits and values of
//! 100 bytes.
//!
//! `cargo bench -p siltstone --features testing --bench active`
//!
//! All candidates copy key and value; the hash index sorts before its first scan, and that is counted there.

#![allow(missing_docs, clippy::disallowed_methods, reason = "a bench measures real time")]

use crossbeam_skiplist::SkipMap;
use siltstone::memory_probe::{ActiveProbe, FlatProbe};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::RwLock;
use std::time::Instant;

const VALUE: [u8; 100] = [7; 100];

/// What is asked of a structure.
trait Candidate {
    const NAME: &'static str;
    fn new(expected: usize) -> Self;
    fn insert(&mut self, key: &[u8; 16]);
    /// A byte of the value.
    fn get(&self, key: &[u8; 16]) -> Option<usize>;
    /// Seeks and sums a byte of the values of `count` entries.
    fn walk(&self, key: &[u8; 16], count: usize) -> usize;
}

impl Candidate for ActiveProbe {
    const NAME: &'static str = "B+-tree, arena (chosen)";
    fn new(expected: usize) -> Self {
        ActiveProbe::new(expected * 160)
    }
    fn insert(&mut self, key: &[u8; 16]) {
        self.insert(key, &VALUE);
    }
    fn get(&self, key: &[u8; 16]) -> Option<usize> {
        self.get(key)
    }
    fn walk(&self, key: &[u8; 16], count: usize) -> usize {
        self.walk(key, count)
    }
}

/// The flat memtable, flattened at the first read; "insert" is only the active memtable's.
struct Flattened {
    active: ActiveProbe,
    flat: RefCell<Option<FlatProbe>>,
}

impl Flattened {
    fn with<R>(&self, read: impl Fn(&FlatProbe) -> R) -> R {
        if self.flat.borrow().is_none() {
            *self.flat.borrow_mut() = Some(self.active.flatten());
        }
        read(self.flat.borrow().as_ref().expect("just flattened"))
    }
}

impl Candidate for Flattened {
    const NAME: &'static str = "  the same, flattened";
    fn new(expected: usize) -> Self {
        Self { active: ActiveProbe::new(expected * 160), flat: RefCell::new(None) }
    }
    fn insert(&mut self, key: &[u8; 16]) {
        self.active.insert(key, &VALUE);
    }
    fn get(&self, key: &[u8; 16]) -> Option<usize> {
        self.with(|flat| flat.get(key))
    }
    fn walk(&self, key: &[u8; 16], count: usize) -> usize {
        self.with(|flat| flat.walk(key, count))
    }
}

/// Key, then sequence number descending, as a memtable must order its entries.
type VersionKey = ([u8; 16], std::cmp::Reverse<u64>);

struct SkipList(SkipMap<VersionKey, Box<[u8]>>, u64);

impl Candidate for SkipList {
    const NAME: &'static str = "skiplist (crossbeam)";
    fn new(_: usize) -> Self {
        Self(SkipMap::new(), 0)
    }
    fn insert(&mut self, key: &[u8; 16]) {
        self.1 += 1;
        self.0.insert((*key, std::cmp::Reverse(self.1)), VALUE.into());
    }
    fn get(&self, key: &[u8; 16]) -> Option<usize> {
        let entry = self.0.range((*key, std::cmp::Reverse(u64::MAX))..).next()?;
        (entry.key().0 == *key).then(|| entry.value()[50] as usize)
    }
    fn walk(&self, key: &[u8; 16], count: usize) -> usize {
        let from = (*key, std::cmp::Reverse(u64::MAX));
        self.0.range(from..).take(count).map(|entry| entry.value()[50] as usize).sum()
    }
}

struct Locked(RwLock<BTreeMap<VersionKey, Box<[u8]>>>, u64);

impl Candidate for Locked {
    const NAME: &'static str = "std BTreeMap, RwLock";
    fn new(_: usize) -> Self {
        Self(RwLock::default(), 0)
    }
    fn insert(&mut self, key: &[u8; 16]) {
        self.1 += 1;
        self.0.write().expect("one thread").insert((*key, std::cmp::Reverse(self.1)), VALUE.into());
    }
    fn get(&self, key: &[u8; 16]) -> Option<usize> {
        let map = self.0.read().expect("one thread");
        let (found, value) = map.range((*key, std::cmp::Reverse(u64::MAX))..).next()?;
        (found.0 == *key).then(|| value[50] as usize)
    }
    fn walk(&self, key: &[u8; 16], count: usize) -> usize {
        let from = (*key, std::cmp::Reverse(u64::MAX));
        let map = self.0.read().expect("one thread");
        map.range(from..).take(count).map(|(_, value)| value[50] as usize).sum()
    }
}

/// Open addressing over an append-only array of cells; a scan needs the order, made when it is first wanted.
struct Hashed {
    slots: Vec<(u32, u32)>,
    cells: Vec<([u8; 16], [u8; 100])>,
    sorted: RefCell<Vec<u32>>,
}

impl Hashed {
    fn slot(&self, key: &[u8; 16]) -> Result<usize, (usize, u32)> {
        let hash = xxhash_rust::xxh3::xxh3_64(key);
        let tag = (hash >> 32) as u32 | 1;
        let mut slot = hash as usize & (self.slots.len() - 1);
        loop {
            match self.slots[slot] {
                (0, _) => return Err((slot, tag)),
                (other, at) if other == tag && self.cells[at as usize].0 == *key => return Ok(slot),
                _ => slot = (slot + 1) & (self.slots.len() - 1),
            }
        }
    }
}

impl Candidate for Hashed {
    const NAME: &'static str = "hash, sorted for scans";
    fn new(expected: usize) -> Self {
        let slots = vec![(0, 0); (expected * 2).next_power_of_two()];
        Self { slots, cells: Vec::new(), sorted: RefCell::default() }
    }
    fn insert(&mut self, key: &[u8; 16]) {
        let at = self.cells.len() as u32;
        self.cells.push((*key, VALUE));
        match self.slot(key) {
            Ok(slot) => self.slots[slot].1 = at,
            Err((slot, tag)) => self.slots[slot] = (tag, at),
        }
    }
    fn get(&self, key: &[u8; 16]) -> Option<usize> {
        let slot = self.slot(key).ok()?;
        Some(self.cells[self.slots[slot].1 as usize].1[50] as usize)
    }
    fn walk(&self, key: &[u8; 16], count: usize) -> usize {
        let mut sorted = self.sorted.borrow_mut();
        let key_at = |&at: &u32| self.cells[at as usize].0;
        if sorted.len() < self.cells.len() {
            *sorted = (0..self.cells.len() as u32).collect();
            sorted.sort_unstable_by_key(key_at);
        }
        let from = sorted.partition_point(|at| key_at(at) < *key);
        sorted[from..].iter().take(count).map(|&at| self.cells[at as usize].1[50] as usize).sum()
    }
}

/// A fixed sequence of well-mixed numbers.
fn mixed(n: u64) -> u64 {
    let z = (n.wrapping_add(1)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z ^ (z >> 27)
}

fn random_key(n: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&mixed(n).to_be_bytes());
    key[8..].copy_from_slice(&n.to_be_bytes());
    key
}

fn padded_key(n: u64) -> [u8; 16] {
    format!("{:016}", mixed(n) % 100_000_000).into_bytes().try_into().expect("sixteen digits")
}

fn nanos(count: usize, work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_nanos() as f64 / count as f64
}

fn run<C: Candidate>(keys: &[[u8; 16]]) -> [f64; 5] {
    let n = keys.len();
    let order: Vec<usize> = (0..n as u64).map(|i| (mixed(i + 77) % n as u64) as usize).collect();
    // As many rounds as give a million inserts, each into a new one.
    let rounds = (1_000_000 / n).max(1);
    let mut insert = 0.0;
    let mut last = None;
    for _ in 0..rounds {
        let mut map = C::new(n);
        insert += nanos(n * rounds, || keys.iter().for_each(|key| map.insert(key)));
        last = Some(map);
    }
    let map = last.expect("at least one round");
    let sort = nanos(n, || _ = black_box(map.walk(&keys[0], 1)));
    let get = nanos(n, || order.iter().for_each(|&i| assert_eq!(map.get(&keys[i]), Some(7))));
    let seeks = n.min(200_000);
    let seek = nanos(seeks, || order[..seeks].iter().for_each(|&i| _ = black_box(map.walk(&keys[i], 10))));
    let iterate = nanos(n, || assert!(map.walk(&[0; 16], n) > n));
    [insert, sort, get, seek, iterate]
}

fn report<C: Candidate>(keys: &[[u8; 16]]) {
    let mut runs: Vec<[f64; 5]> = (0..5).map(|_| run::<C>(keys)).collect();
    let median = |column: usize, runs: &mut Vec<[f64; 5]>| {
        runs.sort_by(|a, b| a[column].total_cmp(&b[column]));
        runs[2][column]
    };
    let columns: Vec<String> = (0..5).map(|c| format!("{:>9.0}", median(c, &mut runs))).collect();
    println!("{:<26}{}", C::NAME, columns.concat());
}

fn main() {
    for (name, key) in [("random", random_key as fn(u64) -> [u8; 16]), ("zero-padded", padded_key)] {
        for n in [32 << 10, 1_000_000] {
            let keys: Vec<[u8; 16]> = (0..n).map(key).collect();
            println!("\n{n} {name} keys, ns an operation (\"order\": making scans possible, an entry)");
            println!("{:<26}   insert    order      get  seek+10  iterate", "");
            report::<ActiveProbe>(&keys);
            report::<Flattened>(&keys);
            report::<SkipList>(&keys);
            report::<Locked>(&keys);
            report::<Hashed>(&keys);
        }
    }
}
