//! Running a decoder over many inputs on several threads.

use crate::all;
use crate::mutate::Maker;
use siltstone::testing::Target;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// An input that takes longer hangs.
const HANGS: Duration = Duration::from_secs(10);

/// What a decoder must not have done.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Which.
    pub target: &'static str,
    /// The input's number.
    pub number: u64,
    /// The panic, or how much memory.
    pub what: String,
    /// The input.
    pub bytes: Vec<u8>,
}

/// The decoders of that name; all of them for `all`.
pub fn targets(name: &str) -> Vec<Target> {
    all().into_iter().filter(|target| name == "all" || target.name == name).collect()
}

/// Where failing inputs are kept.
pub fn corpus(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target)
}

/// Decodes one input; a panic, or more memory at a time than allowed, is told.
pub fn one(target: &Target, bytes: &[u8], memory: &dyn Memory) -> Result<(), String> {
    memory.begin();
    let decoded = catch_unwind(AssertUnwindSafe(|| (target.decode)(bytes)));
    let most = memory.most();
    if let Err(panic) = decoded {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_string()));
        return Err(format!("panicked: {}", text.unwrap_or_default()));
    }
    let may = crate::memory_max(target, bytes.len());
    if most > may {
        return Err(format!("took {most} bytes of memory for {} of input, where {may} may be", bytes.len()));
    }
    Ok(())
}

/// Who counts what this thread allocates.
pub trait Memory: Sync {
    /// Counts from here.
    fn begin(&self);
    /// The most bytes held at a time since then.
    fn most(&self) -> usize;
}

/// Runs inputs `range` on so many threads, as many as come in that time; the first failure found ends it. How
/// many inputs there were.
pub fn many(
    target: Target,
    seed: u64,
    range: std::ops::Range<u64>,
    threads: usize,
    memory: &dyn Memory,
    time: Option<Duration>,
) -> Result<u64, Failure> {
    let end = time.map(|time| Instant::now() + time);
    let maker = Maker::new(target, seed);
    let stop = AtomicBool::new(false);
    let at: Vec<AtomicU64> = (0..threads).map(|_| AtomicU64::new(0)).collect();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads as u64)
            .map(|thread| {
                let (maker, stop, at, range) = (&maker, &stop, &at[thread as usize], range.clone());
                scope.spawn(move || {
                    let (mut bytes, mut inputs) = (Vec::new(), 0);
                    for number in (range.start + thread..range.end).step_by(threads) {
                        let is_late = inputs % 1_000 == 0 && end.is_some_and(|end| Instant::now() >= end);
                        if is_late || stop.load(Ordering::Relaxed) {
                            break;
                        }
                        inputs += 1;
                        maker.make(number, &mut bytes);
                        at.store(number + 1, Ordering::Relaxed);
                        if let Err(what) = one(&target, &bytes, memory) {
                            stop.store(true, Ordering::Relaxed);
                            return Err(Failure { target: target.name, number, what, bytes });
                        }
                    }
                    at.store(u64::MAX, Ordering::Relaxed);
                    Ok(inputs)
                })
            })
            .collect();
        watch(&workers, &at, target.name);
        workers.into_iter().map(|worker| worker.join().expect("a worker catches panics")).sum()
    })
}

/// Waits for the workers. A decoder that hangs cannot be stopped, so the process ends.
fn watch<T>(workers: &[std::thread::ScopedJoinHandle<'_, T>], at: &[AtomicU64], target: &str) {
    let mut seen: Vec<(u64, Duration)> = vec![(0, Duration::ZERO); at.len()];
    let pause = Duration::from_millis(5);
    while workers.iter().any(|worker| !worker.is_finished()) {
        std::thread::sleep(pause);
        for (seen, at) in seen.iter_mut().zip(at) {
            let now = at.load(Ordering::Relaxed);
            *seen =
                if now == seen.0 && now != u64::MAX { (now, seen.1 + pause) } else { (now, Duration::ZERO) };
            if seen.1 > HANGS {
                eprintln!("siltstone-fuzz: {target} hangs on input {}", now.saturating_sub(1));
                std::process::exit(1);
            }
        }
    }
}
