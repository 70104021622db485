//! The workload `unseen`: readers at a rate, one major compaction in their middle, and its effect on them.
//!
//! A loaded store is updated in part, so that a major compaction has everything to rewrite. Then its readers
//! go as fast as they can, until caches are full and the maximum is known; then at a share of that, from due
//! times: for a while, during the compaction, and for as long again. All of it is reported window by window:
//! latencies, how often a block was found in the cache, and how much memory the process took more than before
//! the compaction.

use super::latency::{Buckets, Class, Recorder, add, buckets, empty, latency};
use super::worker::wait_until;
use super::{Bench, Identity, Phase, Recorded};
use crate::failure::Result;
use crate::measure::{self, Processors, Usage};
use crate::record::{Latency, RunRecord, Stage, Window};
use crate::store::{CacheCount, Session, Store, Wanted};
use crate::workload::bytes::Values;
use crate::workload::random::Rng;
use crate::workload::{Op, Picks, Stream, Workload};
use hdrhistogram::Histogram;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Windows before the compaction, and after it.
const WINDOWS: u32 = 12;
/// Part of the rows that is written again before all that.
const UPDATED: u64 = 5;
const UPDATED_LAST: u64 = 100;
/// Windows of the first part, in which readers go as fast as they can. The last half of them gives the
/// maximum rate.
const FAST_WINDOWS: u32 = 12;

/// Gets and scans of one window, as compact histograms: the memory of the measurement must not show in the
/// result.
#[derive(Default)]
struct Counted {
    gets: Buckets,
    scans: Buckets,
    /// What sessions tell of the cache.
    cache: Option<CacheCount>,
}

impl Counted {
    fn add(&mut self, other: &Counted) {
        self.gets.extend(&other.gets);
        self.scans.extend(&other.scans);
        if let Some(CacheCount { hits, misses }) = other.cache {
            let cache = self.cache.get_or_insert_default();
            (cache.hits, cache.misses) = (cache.hits + hits, cache.misses + misses);
        }
    }

    fn memory_bytes(&self) -> u64 {
        (size_of_val(&*self.gets) + size_of_val(&*self.scans)) as u64
    }

    fn count(&self) -> u64 {
        self.gets.iter().chain(&self.scans).map(|(_, count)| count).sum()
    }
}

/// The window that a thread is in.
struct Now {
    gets: Histogram<u64>,
    scans: Histogram<u64>,
}

impl Now {
    /// The window is over.
    fn rest(&mut self, window: &mut Counted) {
        (window.gets, window.scans) = (buckets(&self.gets), buckets(&self.scans));
        self.gets.reset();
        self.scans.reset();
    }
}

/// The samples at the end of a window.
#[derive(Clone, Copy)]
struct Sample {
    cache: Option<CacheCount>,
    rss: u64,
    processors: Processors,
}

/// One part of a run: all windows, with a sample at the beginning and at the end of each.
struct Part {
    windows: Vec<Counted>,
    recorders: Vec<Recorder>,
    samples: Vec<Sample>,
    /// The windows in which the compaction began and ended.
    compaction: Option<(usize, usize)>,
    merge_seconds: f64,
}

struct Readers<'a> {
    store: &'a dyn Store,
    workload: &'a Workload,
    picks: &'a Picks,
    seed: u64,
    window: Duration,
    /// Memory that measuring itself keeps, which is nobody's but ours.
    own_bytes: AtomicU64,
}

pub(crate) fn run(identity: &Identity, wanted: &Wanted<'_>, workload: &Workload) -> Result<RunRecord> {
    let store = identity.named.open(wanted)?;
    let values = Values::new(identity.seed, workload.longest_value());
    let mut bench = Bench::new(store.as_ref(), wanted.dir, identity);
    bench.load(workload, &values)?;
    let live_bytes = bench.live.as_ref().map_or(0, |live| live.bytes(workload));
    update(store.as_ref(), workload, &values, identity.seed, workload.keys / UPDATED)?;
    // Writes a little once more: otherwise a single run that an automatic compaction left would not be
    // compacted.
    update(store.as_ref(), workload, &values, !identity.seed, workload.keys / UPDATED_LAST)?;
    if workload.memory.cache > live_bytes {
        read_all(store.as_ref())?;
    }
    store.slow_down()?;
    let picks = Picks::new(workload, identity.seed);
    let window = Duration::from_secs_f64(workload.seconds / f64::from(WINDOWS));
    let readers = Readers {
        store: store.as_ref(),
        workload,
        picks: &picks,
        seed: identity.seed,
        window,
        own_bytes: AtomicU64::new(0),
    };

    let fast = readers.run(None, FAST_WINDOWS, false)?;
    let counted: u64 = fast.windows[fast.windows.len() / 2..].iter().map(Counted::count).sum();
    let rate = counted as f64 / (window.as_secs_f64() * f64::from(FAST_WINDOWS - FAST_WINDOWS / 2));
    let rate = rate * workload.merged.unwrap_or(1.0);

    measure::forget_peak();
    let (before, processors, written_before) = (Usage::now(), Processors::now(), store.written());
    let mut part = readers.run(Some(rate), WINDOWS, true)?;
    let used = Usage::now().since(&before);
    let peak_rss_bytes = measure::peak_rss_bytes();
    let disk_bytes = measure::directory_bytes(wanted.dir);
    let phase = Phase {
        seconds: part.windows.len() as f64 * window.as_secs_f64(),
        settle_seconds: 0.0,
        used,
        stolen: Processors::now().stolen_since(&processors),
        written: store.written().zip(written_before).map(|(now, before)| now.since(&before)),
        user_bytes: 0,
        live_bytes,
        disk_bytes,
        peak_disk_bytes: disk_bytes,
        peak_rss_bytes,
        runs_max: None,
        largest_merge_bytes: None,
        settled: true,
    };
    let recorded = Recorded::of(std::mem::take(&mut part.recorders), |_, _| true);
    let settings = workload.settings().into_iter().chain(store.settings());
    let more = [("rate", format!("{rate:.0}")), ("merge_seconds", format!("{:.1}", part.merge_seconds))];
    let mut record = identity.record(workload, settings.chain(more), recorded, phase);
    let (first, last) = part.compaction.ok_or("the major compaction did not end")?;
    let at_first = part.samples[first].rss;
    let most = part.samples[first..=last + 1].iter().map(|sample| sample.rss).max().unwrap_or(at_first);
    record.extra_memory_bytes = Some(most.saturating_sub(at_first));
    record.windows = part.told(window, first, last);
    let any_calm = record.windows[..first].iter().any(|window| window.calm);
    let mut before = empty();
    for (window, told) in part.windows[..first].iter().zip(&record.windows) {
        if told.calm || !any_calm {
            add(&mut before, &window.gets);
        }
    }
    record.before_p99_us = Some(latency(&before).p99_us);
    Ok(record)
}

/// Writes a part of the rows again, and waits until no compaction is due for that.
fn update(store: &dyn Store, workload: &Workload, values: &Values, seed: u64, rows: u64) -> Result<()> {
    let mut rng = Rng::new(seed, "updates before a merge", 0);
    let mut session = store.session()?;
    let mut row = vec![(Vec::new(), Vec::new()); workload.columns];
    for _ in 0..rows {
        workload.row(rng.below(workload.keys), rng.next() as u32, values, &mut row);
        session.put_many(&row)?;
    }
    store.settle()?;
    rustix::fs::sync();
    Ok(())
}

/// Reads all there is, so that a cache that holds it does.
fn read_all(store: &dyn Store) -> Result<()> {
    store.session()?.scan(&[], &mut |_, _| true)
}

impl Readers<'_> {
    /// Reads for so many windows, at a rate or as fast as it goes; with a compaction beginning at the end of
    /// them, during it and for as many windows again.
    fn run(&self, rate: Option<f64>, windows: u32, with_merge: bool) -> Result<Part> {
        let stop = AtomicBool::new(false);
        let began = Instant::now();
        std::thread::scope(|scope| {
            let stop = &stop;
            let threads: Vec<_> = (0..self.workload.threads)
                .map(|thread| {
                    scope.spawn(move || {
                        let read = self.thread(thread, rate, began, stop);
                        // The others need not go on.
                        stop.fetch_or(read.is_err(), Ordering::Relaxed);
                        read
                    })
                })
                .collect();
            let mut part = Part {
                windows: Vec::new(),
                recorders: Vec::new(),
                samples: vec![self.sample()],
                compaction: None,
                merge_seconds: 0.0,
            };
            let (told, merged) = mpsc::channel();
            let mut failed = None;
            let (mut at, mut ends_at) = (0, windows);
            let mut merge_began = None;
            while at < ends_at && !stop.load(Ordering::Relaxed) {
                if with_merge && at == windows && merge_began.is_none() {
                    merge_began = Some(Instant::now());
                    let told = told.clone();
                    scope.spawn(move || told.send(self.store.major()));
                }
                std::thread::sleep(
                    (began + self.window * (at + 1)).saturating_duration_since(Instant::now()),
                );
                part.samples.push(self.sample());
                at += 1;
                if with_merge && at == windows {
                    ends_at = u32::MAX;
                }
                if let (Some(then), Ok(ended)) = (merge_began, merged.try_recv()) {
                    part.compaction = Some((windows as usize, at as usize - 1));
                    part.merge_seconds = then.elapsed().as_secs_f64();
                    failed = ended.err();
                    ends_at = if failed.is_some() { at } else { at + windows };
                }
            }
            stop.store(true, Ordering::Relaxed);
            part.windows.resize_with(at as usize, Counted::default);
            for thread in threads {
                let (windows, recorder) = super::join(thread)?;
                part.recorders.push(recorder);
                for (number, counted) in windows.iter().enumerate() {
                    if let Some(window) = part.windows.get_mut(number) {
                        window.add(counted);
                    }
                }
            }
            failed.map_or(Ok(part), Err)
        })
    }

    fn sample(&self) -> Sample {
        let rss = measure::rss_bytes().saturating_sub(self.own_bytes.load(Ordering::Relaxed));
        Sample { cache: self.store.cache(), rss, processors: Processors::now() }
    }

    /// One thread's windows.
    fn thread(
        &self,
        thread: u32,
        rate: Option<f64>,
        began: Instant,
        stop: &AtomicBool,
    ) -> Result<(Vec<Counted>, Recorder)> {
        let every = rate.map(|rate| Duration::from_secs_f64(f64::from(self.workload.threads) / rate));
        let mut session = self.store.session()?;
        let mut endless = self.workload.clone();
        endless.ops = u64::MAX;
        let mut key = Vec::new();
        let mut windows: Vec<Counted> = Vec::new();
        let mut cache = session.cache();
        let mut now_in = Now { gets: empty(), scans: empty() };
        let mut recorder = Recorder::new();
        recorder.begin(began);
        let mut kept = 0;
        let seed = self.seed ^ u64::from(rate.is_some()) << 32;
        for (at, op) in Stream::new(&endless, self.picks, seed, thread).enumerate() {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let due = match every {
                Some(every) => {
                    let due = began + every.mul_f64(at as f64);
                    wait_until(due);
                    if self.workload.from_begin { Instant::now() } else { due }
                }
                None => Instant::now(),
            };
            let is_scan = self.read(session.as_mut(), op, &mut key)?;
            let now = Instant::now();
            // By when it was due: the window in which somebody began to wait.
            let number = (due.saturating_duration_since(began).as_nanos() / self.window.as_nanos()) as usize;
            if windows.len() <= number {
                let earlier = std::mem::replace(&mut cache, session.cache());
                if let Some(window) = windows.last_mut() {
                    now_in.rest(window);
                    let kept_now = recorder.kept_bytes();
                    self.own_bytes.fetch_add(window.memory_bytes() + kept_now - kept, Ordering::Relaxed);
                    kept = kept_now;
                    window.cache = cache.zip(earlier).map(|(now, earlier)| now.since(&earlier));
                }
                windows.resize_with(number + 1, Counted::default);
            }
            let (of, class) =
                if is_scan { (&mut now_in.scans, Class::Scan) } else { (&mut now_in.gets, Class::Read) };
            let took = now.saturating_duration_since(due);
            of.saturating_record(took.as_nanos() as u64);
            recorder.record(class, took, now, 1);
        }
        if let Some(window) = windows.last_mut() {
            now_in.rest(window);
        }
        Ok((windows, recorder))
    }

    /// Whether it was a scan.
    fn read(&self, session: &mut dyn Session, op: Op, key: &mut Vec<u8>) -> Result<bool> {
        match op {
            Op::Get(number) => {
                self.workload.read_key(number, key);
                let mut right = false;
                session.get(key, &mut |value| right = Values::belongs(number, value))?;
                if right { Ok(false) } else { Err(format!("key number {number} was not read right").into()) }
            }
            Op::Scan { number, entries } => {
                self.workload.key.write(number, key);
                let mut left = entries;
                session.scan(key, &mut |_, _| {
                    left -= 1;
                    left > 0
                })?;
                if left < entries {
                    Ok(true)
                } else {
                    Err(format!("no entry from number {number} on").into())
                }
            }
            _ => Err("this workload only reads".into()),
        }
    }
}

impl Part {
    fn told(&self, window: Duration, first: usize, last: usize) -> Vec<Window> {
        let stolen = |number: usize| {
            let (at_first, at_last) = (&self.samples[number], &self.samples[number + 1]);
            at_last.processors.stolen_since(&at_first.processors)
        };
        let is_calm = |number: usize| stolen(number).is_none_or(|share| share <= measure::CALM);
        let told = |(number, counted): (usize, &Counted)| {
            let stage = match number {
                _ if number < first => Stage::Before,
                _ if number <= last => Stage::During,
                _ => Stage::After,
            };
            let (at_first, at_last) = (&self.samples[number], &self.samples[number + 1]);
            let sampled = at_first.cache.zip(at_last.cache);
            let cache = counted.cache.or(sampled.map(|(before, after)| after.since(&before)));
            let told = |at_rest| {
                let mut histogram = empty();
                add(&mut histogram, at_rest);
                latency(&histogram)
            };
            let (gets, scans): (Latency, Latency) = (told(&counted.gets), told(&counted.scans));
            Window {
                at: number as f64 * window.as_secs_f64(),
                stage,
                gets: gets.count,
                get_mean_us: gets.mean_us,
                get_p99_us: gets.p99_us,
                scans: scans.count,
                scan_mean_us: scans.mean_us,
                hit_ratio: cache.and_then(|count| count.ratio()),
                rss_bytes: at_last.rss,
                stolen: stolen(number),
                // Who waited in the one before makes others wait in this one.
                calm: is_calm(number) && is_calm(number.saturating_sub(1)),
            }
        };
        self.windows.iter().enumerate().map(told).collect()
    }
}
