//! Running a phase: load, settle, then the measured threads, then settle again with the wait, its CPU and its
//! bytes counted, because work put off is work all the same.
//!
//! Two workloads have phases of their own: `open` opens a store again and again, `unseen` reads before,
//! during and after a compaction. In a phase of puts at a rate one more thread may scan what has been put by
//! then. `worker` issues the operations of one thread, `latency` records them, `beside` those in seconds with
//! a compaction apart, `watch` looks at the directory meanwhile, `live` counts what should be there in the
//! end.

mod beside;
mod latency;
mod live;
pub(crate) mod open;
pub(crate) mod unseen;
mod watch;
mod worker;

use crate::failure::Result;
use crate::measure::{self, Processors, Usage};
use crate::record::RunRecord;
use crate::store::{Named, Store, Written};
use crate::workload::bytes::Values;
use crate::workload::random::Rng;
use crate::workload::{Pace, Picks, Preload, Scans, Stream, Workload};
use latency::Recorded;
use live::Live;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Barrier, OnceLock};
use std::time::{Duration, Instant};
use watch::Watch;
use worker::{Shared, Worker};

/// Rows written at once while loading, which is not measured; fewer where they would take more than this part
/// of write memory, as stores bound a batch by it.
const LOAD_BATCH: u64 = 100;
const LOAD_BATCH_SHARE: u64 = 16;

/// Operations at a rate of their own are due by this much together.
const TOGETHER: Duration = Duration::from_millis(1);

/// Who measures what, as the records name it.
pub(crate) struct Identity {
    pub(crate) named: Named,
    pub(crate) run: u32,
    pub(crate) seed: u64,
}

/// A store in a directory of its own, on which phases run one after another.
pub(crate) struct Bench<'a> {
    store: &'a dyn Store,
    dir: &'a Path,
    identity: &'a Identity,
    /// Once anything was written.
    live: Option<Live>,
}

impl<'a> Bench<'a> {
    pub(crate) fn new(store: &'a dyn Store, dir: &'a Path, identity: &'a Identity) -> Self {
        Bench { store, dir, identity, live: None }
    }

    /// Runs a workload: one record, or one for each of its phases. What it needs is loaded if nothing is
    /// there yet.
    pub(crate) fn run(&mut self, workload: &Workload) -> Result<Vec<RunRecord>> {
        let seed = self.identity.seed;
        let values = Values::new(seed, workload.longest_value());
        if self.live.is_none() {
            self.load(workload, &values)?;
        }
        self.store.slow_down()?;
        let picks = Picks::new(workload, seed);
        match workload.pace {
            Pace::Closed => Ok(vec![self.measure(workload, &picks, &values, Rate::Most)?]),
            Pace::Due(rate) => Ok(vec![self.measure(workload, &picks, &values, Rate::All(rate))?]),
            Pace::Apart(share) => {
                let (puts, reads) = workload.most.ok_or("the most that stores can do is not known")?;
                let (puts, reads) = (puts * share, reads * share);
                let mut timed = workload.clone();
                timed.ops = ((puts * workload.seconds) as u64).max(1);
                Ok(vec![self.measure(&timed, &picks, &values, Rate::Apart { puts, reads })?])
            }
            Pace::ThenOpen(share) => {
                let mut closed = self.measure(workload, &picks, &values, Rate::Most)?;
                closed.workload = format!("{}:max", workload.name);
                let rate = closed.ops_s * share;
                let mut open = workload.clone();
                if workload.seconds > 0.0 {
                    open.ops = ((rate * workload.seconds) as u64).max(1);
                }
                let mut open = self.measure(&open, &picks, &values, Rate::All(rate))?;
                open.settings.insert("rate".into(), format!("{rate:.0}"));
                Ok(vec![closed, open])
            }
        }
    }

    fn load(&mut self, workload: &Workload, values: &Values) -> Result<()> {
        let mut live = Live::new(workload.keys);
        let mut session = self.store.session()?;
        let mut rng = Rng::new(self.identity.seed, "preload values", 0);
        let shared = Shared::default();
        let watch =
            Watch::new(self.dir, self.store, &shared, &self.title(workload, "loading"), workload.keys);
        let mut numbers = workload.loaded(self.identity.seed);
        std::thread::scope(|scope| -> Result<()> {
            let watching = watch.spawn(scope);
            let columns = workload.columns;
            let row_bytes = workload.row_key_bytes() + (columns * workload.longest_value()) as u64;
            let rows = (workload.memory.write / LOAD_BATCH_SHARE / row_bytes).clamp(1, LOAD_BATCH);
            let mut batch = vec![(Vec::new(), Vec::new()); rows as usize * columns];
            loop {
                let mut filled = 0;
                for (row, number) in batch.chunks_mut(columns).zip(&mut numbers) {
                    workload.row(number, rng.next() as u32, values, row);
                    live.add(number);
                    filled += 1;
                }
                if filled == 0 {
                    break;
                }
                let written = session.put_many(&batch[..filled * columns]);
                shared.done.fetch_add(filled as u64, Ordering::Relaxed);
                if written.is_err() {
                    watching.end();
                    return written;
                }
            }
            watching.end();
            Ok(())
        })?;
        if workload.preload != Preload::Nothing {
            self.store.settle()?;
            // The kernel writes out what is loaded now rather than under the measured operations.
            rustix::fs::sync();
        }
        self.live = Some(live);
        Ok(())
    }

    fn title(&self, workload: &Workload, doing: &str) -> String {
        format!("{} {} run {}: {doing}", self.identity.named.name(), workload.name, self.identity.run)
    }

    /// One measured phase; at a rate, or as fast as it goes.
    fn measure(
        &mut self,
        workload: &Workload,
        picks: &Picks,
        values: &Values,
        rate: Rate,
    ) -> Result<RunRecord> {
        let seed = self.identity.seed;
        let live = self.live.as_ref().map_or(0, Live::count);
        let shared = Shared::default();
        let watch = Watch::new(self.dir, self.store, &shared, &self.title(workload, "running"), workload.ops);
        let new_worker = || -> Result<Worker<'_>> {
            Ok(Worker::new(self.store.session()?, workload, values, &shared, live))
        };
        let threads = workload.threads as usize;
        let writers = threads - workload.readers as usize;
        let controlled = rate.every(true, writers, threads - writers).is_some();
        let beside = usize::from(workload.companion.is_some())
            + usize::from(workload.scans.is_some())
            + usize::from(controlled);
        let gate = Barrier::new(threads + beside);
        let began = OnceLock::new();
        let start = || {
            gate.wait();
            *began.get_or_init(Instant::now)
        };

        let work = |thread: u32| {
            let (worker, began) = (new_worker(), start());
            let mut worker = worker?;
            let limit = workload.ends_after.map(Duration::from_secs_f64);
            let ops = Stream::new(workload, picks, seed, thread)
                .take_while(|_| limit.is_none_or(|limit| began.elapsed() < limit));
            let is_writer = (thread as usize) < writers;
            let cache_before = if is_writer { None } else { worker.cache() };
            let ended = match rate.every(is_writer, writers, threads - writers) {
                Some(every) => worker.open(ops, began, every, rate.together(every)),
                None if workload.batch > 1 && is_writer => worker.batched(ops, began, workload.batch),
                None => worker.closed(ops, began),
            };
            if ended.is_err() {
                shared.stop.store(true, Ordering::Relaxed);
            }
            let cache = cache_before.zip(worker.cache()).map(|(before, now)| now.since(&before));
            ended.map(|()| (worker.recorder, worker.user_bytes, cache))
        };

        let beside = |rate: f64| {
            let (worker, began) = (new_worker(), start());
            let mut worker = worker?;
            let ended = worker.beside(
                Stream::companion(workload, picks, seed),
                began,
                Duration::from_secs_f64(1.0 / rate),
            );
            if ended.is_err() {
                shared.stop.store(true, Ordering::Relaxed);
            }
            ended.map(|()| worker.user_bytes)
        };

        let scan = |scans: Scans| {
            let (worker, began) = (new_worker(), start());
            let mut worker = worker?;
            let ended = worker.scans_of_what_was_put(&scans, picks, seed, began);
            if ended.is_err() {
                shared.stop.store(true, Ordering::Relaxed);
            }
            ended.map(|()| worker.recorder)
        };

        measure::forget_peak();
        let (before, processors) = (Usage::now(), Processors::now());
        let (written_before, cache_before) = (self.store.written(), self.store.cache());
        let (mut recorders, caches, scanned, control, user_bytes, settle_seconds, (used, stolen)) =
            std::thread::scope(|scope| -> Result<_> {
                let watching = watch.spawn(scope);
                let (work, beside, scan) = (&work, &beside, &scan);
                let mut spawned: Vec<_> =
                    (0..workload.threads).map(|thread| scope.spawn(move || work(thread))).collect();
                let companion = workload.companion.map(|rate| scope.spawn(move || beside(rate)));
                let scanner = workload.scans.map(|scans| scope.spawn(move || scan(scans)));
                let (shared, start) = (&shared, &start);
                let control = controlled.then(|| scope.spawn(move || Ok(worker::nothing(shared, start()))));
                let readers = spawned.split_off(writers);
                let mut joined: Vec<Result<_>> = spawned.into_iter().map(join).collect();
                shared.stop.store(true, Ordering::Relaxed);
                joined.extend(readers.into_iter().map(join));
                let beside = companion.map_or(Ok(0), join);
                let scanned = scanner.map(join).transpose();
                let control = control.map(join).transpose();
                let ended = Instant::now();
                let outcome = joined.into_iter().collect::<Result<Vec<_>>>().and_then(|recorded| {
                    let (mut recorders, mut caches, mut user_bytes) = (Vec::new(), Vec::new(), beside?);
                    for (recorder, bytes, cache) in recorded {
                        recorders.push(recorder);
                        caches.extend(cache);
                        user_bytes += bytes;
                    }
                    let (scanned, control) = (scanned?, control?);
                    if workload.keeps_memory {
                        self.store.drain()?
                    } else {
                        self.store.settle()?
                    }
                    let used = (Usage::now().since(&before), Processors::now().stolen_since(&processors));
                    Ok((recorders, caches, scanned, control, user_bytes, ended.elapsed().as_secs_f64(), used))
                });
                watching.end();
                outcome
            })?;
        let peak_disk_bytes = watch.peak();
        let peak_rss_bytes = measure::peak_rss_bytes();
        let disk_bytes = measure::directory_bytes(self.dir);

        let scan_timeline = scanned
            .iter()
            .flat_map(|scans| Recorded::of(vec![scans.clone()], |_, _| true).timeline)
            .collect();
        recorders.extend(scanned);
        let (runs_max, (stolen_looks, compactions)) = (watch.peak_runs(), watch.looks());
        let of_store = self.store.cache().zip(cache_before).map(|(now, before)| now.since(&before));
        let cache = caches.into_iter().chain(of_store).next().and_then(|count| count.ratio());
        let beside_merges =
            workload.beside_merges.then(|| beside::of(&mut recorders, &compactions, cache)).flatten();
        let recorded = Recorded::of(recorders, |began, second| stolen_looks.is_calm(began, second));
        let mut live_bytes = 0;
        if let Some(live) = &mut self.live {
            // One that ends by the clock updates what was loaded.
            if workload.ends_after.is_none() {
                live.apply(workload, picks, seed);
            }
            live_bytes = live.bytes(workload);
        }
        let settings = workload.settings().into_iter().chain(self.store.settings());
        let now = self.store.written();
        let phase = Phase {
            seconds: recorded.took.as_secs_f64(),
            settle_seconds,
            used,
            stolen,
            written: now.zip(written_before).map(|(now, before)| now.since(&before)),
            user_bytes,
            live_bytes,
            disk_bytes,
            peak_disk_bytes: peak_disk_bytes.max(disk_bytes),
            peak_rss_bytes,
            runs_max,
            largest_merge_bytes: self.store.largest_merge_bytes(),
            settled: self.store.merging() != Some(true),
        };
        let control = control.map(|mut recorder| latency::total(&mut recorder));
        Ok(RunRecord {
            scan_timeline,
            beside_merges,
            control,
            ..self.identity.record(workload, settings, recorded, phase)
        })
    }
}

/// How fast operations come.
#[derive(Clone, Copy)]
enum Rate {
    /// Each when the one before has ended.
    Most,
    /// So many a second of all threads.
    All(f64),
    /// So many a second of those that write, and of those that read.
    Apart { puts: f64, reads: f64 },
}

impl Rate {
    /// How often an operation of a thread is due, if it is by the clock.
    fn every(self, is_writer: bool, writers: usize, readers: usize) -> Option<Duration> {
        let (threads, rate) = match self {
            Rate::Most => return None,
            Rate::All(rate) => (writers + readers, rate),
            Rate::Apart { puts, .. } if is_writer => (writers, puts),
            Rate::Apart { reads, .. } => (readers, reads),
        };
        Some(Duration::from_secs_f64(threads as f64 / rate))
    }

    /// How many operations of a thread that come so often are due at once. A thread that waits for less than
    /// it takes to wake up keeps a processor busy with that, which those would need who are measured beside
    /// it.
    fn together(self, every: Duration) -> usize {
        match self {
            Rate::Apart { .. } => (TOGETHER.as_secs_f64() / every.as_secs_f64()).max(1.0) as usize,
            Rate::Most | Rate::All(_) => 1,
        }
    }
}

/// The counts of a phase, beside its latencies.
struct Phase {
    seconds: f64,
    settle_seconds: f64,
    used: Usage,
    stolen: Option<f64>,
    written: Option<Written>,
    user_bytes: u64,
    live_bytes: u64,
    disk_bytes: u64,
    peak_disk_bytes: u64,
    peak_rss_bytes: u64,
    runs_max: Option<u64>,
    largest_merge_bytes: Option<u64>,
    /// No compaction ran any more at the end, as far as the store reports that.
    settled: bool,
}

impl Identity {
    fn record(
        &self,
        workload: &Workload,
        settings: impl Iterator<Item = (&'static str, String)>,
        recorded: Recorded,
        phase: Phase,
    ) -> RunRecord {
        let Identity { named, run, seed } = self;
        let Phase { seconds, used, written, user_bytes, .. } = phase;
        RunRecord {
            kind: "run".into(),
            workload: workload.name.clone(),
            store: named.store.into(),
            config: named.config.to_string(),
            version: named.version().into(),
            settings: settings.map(|(name, value)| (name.to_string(), value)).collect(),
            run: *run,
            seed: *seed,
            threads: workload.threads,
            ops: recorded.ops,
            seconds,
            ops_s: recorded.ops as f64 / seconds,
            cpu_us_op: used.cpu.as_secs_f64() * 1e6 / recorded.ops as f64,
            user_bytes,
            device_write_bytes: used.device_write_bytes,
            device_read_bytes: used.device_read_bytes,
            flushed_bytes: written.map(|w| w.flushed_bytes),
            compaction_written_bytes: written.map(|w| w.compaction_written_bytes),
            wal_bytes: written.map(|w| w.wal_bytes),
            flushes: written.map(|w| w.flushes),
            compactions: written.map(|w| w.compactions),
            write_amp: ratio(used.device_write_bytes, user_bytes),
            space_amp: ratio(phase.disk_bytes, phase.live_bytes),
            p50_us: recorded.all.p50_us,
            p99_us: recorded.all.p99_us,
            p999_us: recorded.all.p999_us,
            max_us: recorded.all.max_us,
            peak_rss_bytes: phase.peak_rss_bytes,
            peak_disk_bytes: phase.peak_disk_bytes,
            durability: named.keeps(workload.durability),
            compression: named.compression.into(),
            settled: phase.settled,
            settle_seconds: phase.settle_seconds,
            latency: recorded.classes,
            calm: recorded.calm,
            calm_seconds: recorded.calm_seconds,
            timeline: recorded.timeline,
            windows: Vec::new(),
            extra_memory_bytes: None,
            before_p99_us: None,
            runs_max: phase.runs_max,
            largest_merge_bytes: phase.largest_merge_bytes,
            stolen: phase.stolen,
            scan_timeline: Vec::new(),
            beside_merges: None,
            control: None,
        }
    }
}

fn ratio(above: u64, below: u64) -> Option<f64> {
    (below > 0).then(|| above as f64 / below as f64)
}

fn join<T>(thread: std::thread::ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    thread.join().unwrap_or_else(|_| Err("a thread panicked".into()))
}
