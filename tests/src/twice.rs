//! Crashes in pairs: at any two of the places where memory is frozen, goes to SSTables or to the WAL again,
//! where SSTables refer to the WAL, and where either is released, one after the other.
//!
//! A workload with all of that switched on has its disk copied, as a power cut or a kill would leave it, at
//! visits of some of the places. Each copy is opened and goes on as a database of its own, whose disk is
//! copied at every place that it comes by, those of its recovery included. What is found must be all that was
//! promised and a prefix of the rest, after the first crash and after the second.

use crate::campaign::{CaseResult, Row, Together};
use crate::history::{End, History};
use crate::power::{Image, recovered_and_shown};
use crate::subject::{Setup, Subject, draw_memory, world_of};
use parking_lot::Mutex;
use siltstone::Durability;
use siltstone::storage::Clock;
use siltstone::storage::sim::{Rng, SimStorage, SimWorld, Survive};
use siltstone::testing::with_kill_hook;
use std::cell::RefCell;
use std::rc::Rc;

/// Every pair of places, twenty times and more.
pub const TWICE: Row =
    Row { together: Some(TOGETHER), ..Row::new("twice", "pairs of crashes", ALL_PAIRS, twice_case) };

/// The places, in about the order in which a cell comes by them.
pub const PLACES: &[&str] = &[
    "memtable-frozen",
    "join-after-swap",
    "flush-wal-file-begun",
    "wal-file-begun",
    "flush-places-found",
    "sstable-written-not-synced",
    "flush-hot-keys-logged",
    "install-before-commit",
    "manifest-appended-not-synced",
    "install-after-commit",
    "install-after-swap",
    "clean-copied",
    "clean-synced",
    "clean-marked",
    "clean-committed",
    "wal-before-release",
    "sweep-before-remove",
    "open-wal-read",
    "open-after-manifest",
];

/// Places of the first crash in one case.
const FIRST: usize = 5;
/// Copies taken at each of them.
const COPIES: u64 = 2;
const FIRST_STEPS: u64 = 160;
const SECOND_STEPS: u64 = 60;

/// Pairs of crashes that are enough to meet each pair of places [`TIMES`] times.
const ALL_PAIRS: u64 = 160_000;
/// How often.
const TIMES: u64 = 20;
/// One in so many pairs of places may be met too seldom, where there are fewer pairs of crashes than
/// [`ALL_PAIRS`]: those that hardly follow each other.
const MAY_LACK: usize = 20;
/// From where on each pair has its part, which is once.
const TOGETHER: Together = Together { least: ALL_PAIRS / TIMES, check: together };

/// How often pairs were met, by the first place and the second.
type Met = [[u32; PLACES.len()]; PLACES.len()];

/// How often each pair was met in this process.
static MET: Mutex<Met> = Mutex::new([[0; PLACES.len()]; PLACES.len()]);

/// The pairs that were met less than so many times, the rarest first.
fn rarer_than(met: &Met, times: u32) -> Vec<(u32, &'static str, &'static str)> {
    let all = met
        .iter()
        .zip(PLACES)
        .flat_map(|(row, first)| row.iter().zip(PLACES).map(move |(met, second)| (*met, *first, *second)));
    let mut rare: Vec<_> = all.filter(|pair| pair.0 < times).collect();
    rare.sort_unstable();
    rare
}

fn together(count: u64) -> Result<String, String> {
    enough(&MET.lock(), count)
}

fn enough(met: &Met, count: u64) -> Result<String, String> {
    let times = (count * TIMES / ALL_PAIRS).min(TIMES) as u32;
    let rare = rarer_than(met, times);
    let all = rarer_than(met, u32::MAX);
    let (least, first, second) = all[0];
    let told = format!("the rarest of {} pairs, {first} and {second}, was met {least} times", all.len());
    let may_lack = if count >= ALL_PAIRS { 0 } else { all.len() / MAY_LACK };
    match rare.len() <= may_lack {
        true => Ok(told),
        false => Err(format!("{told}; less than {times} times, where {may_lack} pairs may: {rare:?}")),
    }
}

/// A disk as a crash at a place leaves it, with what was promised by then.
struct Crash {
    place: usize,
    image: Image,
    history: History,
}

/// Copies a disk at the places that it passes.
#[derive(Clone)]
struct Watch {
    disk: SimStorage,
    taken: Rc<RefCell<Vec<(usize, Image)>>>,
}

impl Watch {
    fn new(disk: &SimStorage) -> Self {
        Self { disk: disk.clone(), taken: Rc::default() }
    }

    /// What is to be called at kill points; `wanted` is asked at each visit of a place.
    fn hook(
        self,
        mut rng: Rng,
        mut wanted: impl FnMut(usize) -> bool + 'static,
    ) -> impl FnMut(&'static str) + 'static {
        move |point| {
            let Some(place) = PLACES.iter().position(|place| *place == point) else { return };
            if !wanted(place) {
                return;
            }
            let (end, survive) = *rng.pick(&[
                (End::PowerLoss, Survive::None),
                (End::PowerLoss, Survive::Half),
                (End::PowerLoss, Survive::All),
                (End::Kill, Survive::All),
            ]);
            let storage = match end {
                End::PowerLoss => self.disk.clone_crashed(survive, rng.next_u64()),
                End::Kill => self.disk.clone_killed(),
            };
            let moment = format!("{end:?}, surviving {survive:?}, at {point}");
            self.taken.borrow_mut().push((place, Image { storage, end, moment }));
        }
    }

    /// What was copied since the last call.
    fn take(&self, history: &History, crashes: &mut Vec<Crash>) {
        let taken = self.taken.take().into_iter();
        crashes.extend(taken.map(|(place, image)| Crash { place, image, history: history.clone() }));
    }
}

/// Tiny memory and WAL files; every mechanism of memory and WAL is on.
fn draw_setup(rng: &mut Rng, now_us: u64) -> Setup {
    let mut setup = Setup::draw(rng, now_us);
    setup.options.write_memory = *rng.pick(&[16 << 10, 24 << 10]);
    setup.options.memory_budget = setup.options.write_memory + *rng.pick(&[0, 1 << 20]);
    setup.options.tuning.wal_file_bytes = *rng.pick(&[4 << 10, 8 << 10]);
    setup.options.tuning.wal_clean_bytes = *rng.pick(&[8 << 10, 12 << 10]);
    for family in &mut setup.families {
        let options = &mut family.options;
        options.wal_values = true;
        options.wal_values_write_amp_max = 1e6;
        options.hot_keys =
            rng.pick(&["factor{hot_factor=0}", "factor{hot_factor=1}"]).parse().expect("a rule");
        options.memtable_policy =
            rng.pick(&["eager{memtables=2}", "sketch{memtables=2}"]).parse().expect("a policy");
    }
    setup.value_bytes = *rng.pick(&[200, 600]);
    setup.keys = 300;
    setup.lopsided = rng.chance(70);
    setup.marker = true;
    setup
}

fn twice_case(seed: u64) -> CaseResult {
    let mut rng = Rng::new(seed);
    let world = SimWorld::new(rng.next_u64());
    let setup = draw_setup(&mut rng, world.clock.wall_us());
    let mut places: Vec<usize> = (0..PLACES.len()).collect();
    rng.shuffle(&mut places);
    places.truncate(FIRST);
    let mut left = vec![0; PLACES.len()];
    places.iter().for_each(|place| left[*place] = COPIES);
    let mut draws = rng.fork();
    // Not always the first visits.
    let wanted = move |place: usize| {
        let wanted = left[place] > 0 && draws.one_in(3);
        left[place] -= u64::from(wanted);
        wanted
    };
    let history = History::new(setup.rules());
    let crashes = live(&setup, &world, history, End::Kill, FIRST_STEPS, &mut rng, wanted)?;
    let mut pairs = 0;
    for first in crashes {
        pairs += second_crashes(&setup, &first, world.clock.wall_us(), &mut rng)
            .map_err(|e| format!("after {}: {e}", first.image.moment))?;
    }
    Ok(pairs)
}

/// Goes on with what the first crash left, and crashes wherever that comes by. How often that was.
fn second_crashes(setup: &Setup, first: &Crash, now_us: u64, rng: &mut Rng) -> CaseResult {
    let world = world_of(first.image.storage.clone(), now_us, rng.next_u64());
    let mut seen = vec![false; PLACES.len()];
    let mut draws = rng.fork();
    let wanted = move |place: usize| !std::mem::replace(&mut seen[place], true) || draws.one_in(12);
    let crashes = live(setup, &world, first.history.clone(), first.image.end, SECOND_STEPS, rng, wanted)?;
    let pairs = crashes.len() as u64;
    for second in crashes {
        let world = world_of(second.image.storage, world.clock.wall_us(), rng.next_u64());
        let found = Subject::open(setup, &world).map_err(|e| format!("open: {e:?}"));
        found
            .and_then(|subject| recovered_and_shown(&subject, setup, &second.history, second.image.end))
            .map_err(|e| format!("and {}: {e}", second.image.moment))?;
        MET.lock()[first.place][second.place] += 1;
    }
    Ok(pairs)
}

/// Opens what an end of that kind left, compares, and works on it. The crashes that `wanted` asked for.
fn live(
    setup: &Setup,
    world: &SimWorld,
    mut history: History,
    end: End,
    steps: u64,
    rng: &mut Rng,
    wanted: impl FnMut(usize) -> bool + 'static,
) -> Result<Vec<Crash>, String> {
    let watch = Watch::new(&world.storage);
    let hook = watch.clone().hook(rng.fork(), wanted);
    let mut crashes = Vec::new();
    with_kill_hook(hook, || {
        let subject = Subject::open(setup, world).map_err(|e| format!("open: {e:?}"))?;
        watch.take(&history, &mut crashes);
        if end == End::PowerLoss {
            // A kill in the middle of recovery keeps no more than the power loss before it.
            crashes.iter_mut().for_each(|crash| crash.image.end = end);
        }
        let batches = recovered_and_shown(&subject, setup, &history, end)?;
        history.recovered(batches, true);
        for step in 0..steps {
            work(setup, &subject, &mut history, rng, &watch, &mut crashes)
                .map_err(|e| format!("step {step}: {e:?}"))?;
            watch.take(&history, &mut crashes);
        }
        let found = recovered_and_shown(&subject, setup, &history, End::Kill)?;
        if found != history.len() {
            return Err(format!("{found} of {} batches are there at the end", history.len()));
        }
        Ok::<(), String>(())
    })
    .map(|()| crashes)
}

/// One call. What is copied meanwhile knows nothing of its acknowledgement.
fn work(
    setup: &Setup,
    subject: &Subject,
    history: &mut History,
    rng: &mut Rng,
    watch: &Watch,
    crashes: &mut Vec<Crash>,
) -> siltstone::Result<()> {
    match rng.range(0..100) {
        0..75 => {
            let durability = if rng.one_in(6) { Durability::Sync } else { Durability::Buffered };
            let ops = setup.batch(rng, history.len() + 1);
            let id = history.start(ops.clone(), subject.now_us());
            subject.write(setup, &ops, durability)?;
            watch.take(history, crashes);
            match durability {
                Durability::Sync => history.synced(id),
                Durability::Buffered => history.buffered(id),
            }
        }
        75..92 => drop(subject.scheduler.run(rng.range(1..12) as u32)),
        92..94 => {
            subject.db.sync()?;
            watch.take(history, crashes);
            history.all_synced();
        }
        94..95 => {
            subject.db.flush()?;
            watch.take(history, crashes);
            history.all_synced();
        }
        95..96 => rng.pick(&subject.families).compact::<&[u8]>(..)?,
        96..98 => {
            let (write_memory, budget) = draw_memory(&setup.options, rng);
            subject.db.set_memory_limits(write_memory, budget)?;
        }
        _ => subject.db.wait_idle()?,
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::campaign::run_case;

    #[test]
    fn of_each_count_from_the_least_on_a_run_that_met_nothing_fails() {
        for count in [TOGETHER.least, 30_000, ALL_PAIRS] {
            let times = (count * TIMES / ALL_PAIRS) as u32;
            let mut met = [[times; PLACES.len()]; PLACES.len()];
            assert!(enough(&met, count).is_ok(), "{count}");
            met[3][4] = times - 1;
            assert_eq!(enough(&met, count).is_ok(), count < ALL_PAIRS, "{count}");
            // A place that nothing came by.
            met[3] = [0; PLACES.len()];
            assert!(enough(&met, count).is_err(), "{count}");
        }
    }

    #[test]
    fn after_any_two_crashes_at_places_of_memory_and_wal_all_promises_are_kept() {
        for seed in 1..400 {
            if let Err(why) = run_case(&TWICE, seed) {
                panic!("replay: siltstone-torture twice --seed {seed} --count 1\n{why}");
            }
            if rarer_than(&MET.lock(), 1).is_empty() {
                println!("every pair was met after {seed} cases");
                return;
            }
        }
        panic!("pairs that never were: {:?}", rarer_than(&MET.lock(), 1));
    }
}
