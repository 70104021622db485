//! Running a campaign: many independent cases, each from a seed of its own, on a few threads.
//!
//! Case `i` of a campaign with seed `s` has the seed `s + i`, so `--seed s+i --count 1` replays it alone. A
//! case fails by an error or by a panic anywhere on its thread, the database's workers included (they run
//! there too).

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// The result of a case: how much it counts for (crash points, faults, ...), or what is wrong.
pub type CaseResult = Result<u64, String>;

/// A check's answer: what is wrong, if something is.
pub type Checked<T = ()> = Result<T, String>;

/// Says which call it was that failed.
pub fn failed(what: &str) -> impl Fn(siltstone::Error) -> String + '_ {
    move |e| format!("{what}: {e:?}")
}

/// A row of the table of goals.
#[derive(Clone, Copy)]
pub struct Row {
    /// Its name on the command line.
    pub name: &'static str,
    /// The unit of its count.
    pub unit: &'static str,
    /// How many are run where nobody says, and in search of a planted bug. (How many every change must reach
    /// stands in the list of campaigns.)
    pub usual: u64,
    /// Runs the case of a seed.
    pub case: fn(seed: u64) -> CaseResult,
    /// The check for something that not every machine has: why it is missing, if it is.
    pub needs: Option<fn() -> Result<(), String>>,
    /// The conditions that all cases of this process together must meet.
    pub together: Option<Together>,
}

/// Whether a run has met enough of what is rare for its success to say something.
#[derive(Clone, Copy)]
pub struct Together {
    /// The fewest units of which anything is asked.
    pub least: u64,
    /// Tells what was met; an error where so many units should have met more.
    pub check: fn(count: u64) -> Result<String, String>,
}

impl Row {
    /// A row that needs nothing and of which only the cases count.
    pub const fn new(
        name: &'static str,
        unit: &'static str,
        usual: u64,
        case: fn(u64) -> CaseResult,
    ) -> Self {
        Self { name, unit, usual, case, needs: None, together: None }
    }

    /// The fewest units whose success says something.
    pub fn least(&self) -> u64 {
        self.together.map_or(1, |together| together.least)
    }
}

/// The first case that failed.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Replays it.
    pub seed: u64,
    /// The failures.
    pub message: String,
}

/// The result of a campaign.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Units reached.
    pub count: u64,
    /// Cases run.
    pub cases: u64,
    /// Wall time.
    pub seconds: f64,
    /// The failure of the lowest seed, if any case failed.
    pub failure: Option<Failure>,
}

thread_local! {
    static PANICS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Notes panics by thread instead of printing them: a case that expects none reads them out.
fn note_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let noting = NOTING.with(|noting| *noting.borrow());
            if noting {
                PANICS.with(|panics| panics.borrow_mut().push(info.to_string()));
            } else {
                before(info);
            }
        }));
    });
}

thread_local! {
    static NOTING: RefCell<bool> = const { RefCell::new(false) };
}

/// Runs one case; a panic of the database's or the test's own is a failure.
pub fn run_case(row: &Row, seed: u64) -> CaseResult {
    note_panics();
    NOTING.with(|noting| *noting.borrow_mut() = true);
    PANICS.with(|panics| panics.borrow_mut().clear());
    let result = catch_unwind(AssertUnwindSafe(|| (row.case)(seed)));
    NOTING.with(|noting| *noting.borrow_mut() = false);
    let panics = PANICS.with(|panics| std::mem::take(&mut *panics.borrow_mut()));
    match (panics.first(), result) {
        (Some(panic), _) => Err(format!("panic: {panic}")),
        (None, Ok(result)) => result,
        (None, Err(_)) => Err("panic".into()),
    }
}

/// Runs cases until `count` units are reached, one fails, or that time is over.
pub fn run(row: &Row, seed: u64, count: u64, threads: usize, time: Option<Duration>) -> Outcome {
    let began = Instant::now();
    let next = AtomicU64::new(0);
    let reached = AtomicU64::new(0);
    let failed = AtomicBool::new(false);
    let failures = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                while !failed.load(Ordering::SeqCst) {
                    let is_late = time.is_some_and(|time| began.elapsed() >= time);
                    if is_late || reached.load(Ordering::SeqCst) >= count {
                        break;
                    }
                    let case = seed.wrapping_add(next.fetch_add(1, Ordering::SeqCst));
                    match run_case(row, case) {
                        Ok(units) => {
                            reached.fetch_add(units, Ordering::SeqCst);
                        }
                        Err(message) => {
                            failures.lock().push(Failure { seed: case, message });
                            failed.store(true, Ordering::SeqCst);
                        }
                    }
                }
            });
        }
    });
    let failure = failures.into_inner().into_iter().min_by_key(|failure| failure.seed);
    let (count, cases) = (reached.into_inner(), next.into_inner());
    Outcome { count, cases, seconds: began.elapsed().as_secs_f64(), failure }
}

/// For `#[test]`s: runs a few units on one thread and panics with the seed that failed.
pub fn must_hold(row: &Row, seed: u64, count: u64) {
    let outcome = run(row, seed, count, 1, None);
    if let Some(Failure { seed, message }) = outcome.failure {
        panic!(
            "{} failed; replay: siltstone-torture {} --seed {seed} --count 1\n{message}",
            row.name, row.name
        );
    }
    assert!(outcome.count >= count);
}
