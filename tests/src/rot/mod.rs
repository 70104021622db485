//! Bit rot (row 6 of the reliability goals): damage of every kind to every byte of a store at rest.
//!
//! `rot` makes one damage at a time to a copy of a fixture store, opens it and reads. The answer must be
//! right or an error that names a file; never a panic, never silently wrong. It takes a store of some 300 KB:
//! one drawn bit of each of its bytes, lengths by a stride, blocks and files drawn. `every-bit` leaves
//! nothing to a draw on one of some 50 KB: all lengths of all its files, all bits of all their bytes. A case
//! of either makes a thirteenth of that, and the cases of thirteen seeds from a multiple of thirteen make all
//! of one store. `rescue` makes some damages together, repairs, and demands everything back that is not
//! reported lost.
//!
//! After a damage, reads follow: of an SSTable, the keys whose reads touch the damaged bytes (by get, and by
//! scans both ways around them); of any other file, opening is what reads it, and a few keys of each family
//! follow. One case in [`FULL_EVERY`] reads everything by get and by scans both ways, one in [`CHECK_EVERY`]
//! is also checked, which must report every damage that could be met, and one in [`WRITE_EVERY`] is opened
//! for writing instead of only reading.
//!
//! `fixture` makes the store, `sweep` goes through all of a small one.

mod fixture;
mod rescue;
mod sweep;

pub use fixture::{Fixture, Size, fixture};
pub use rescue::{RescueReport, rescue};
pub use sweep::EVERY_BIT;

use crate::campaign::Row;
use fixture::{DIR, FAMILIES, builder, env};
use siltstone::storage::sim::{Rng, SimStorage};
use siltstone::{Db, Error, ErrorKind};
use std::iter::StepBy;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

/// One case in so many reads the whole store. This and the next two have no factor in common with the number
/// of kinds of damages nor with that of parts, so that each kind meets each.
pub const FULL_EVERY: u64 = 257;
/// One case in so many is checked.
pub const CHECK_EVERY: u64 = 49;
/// One case in so many is opened for writing.
pub const WRITE_EVERY: u64 = 61;
/// Damages in one round: one cuts a file, one exchanges a block, the rest flip bits of one byte each.
const KINDS: u64 = 20;
const BLOCK: u64 = 512;
const THREADS: usize = 2;

/// Numbers of damages.
type Part = StepBy<Range<u64>>;

/// The results of the damages.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Damages made.
    pub damages: u64,
    /// Bytes of the fixture's files in use.
    pub fixture_bytes: u64,
    /// Bytes of these of which a bit was flipped.
    pub flipped: u64,
    /// Opening or a read said so, naming a file.
    pub named: u64,
    /// Every answer was right all the same.
    pub harmless: u64,
    /// Cases checked, and how many of these the check found damaged.
    pub checked: (u64, u64),
    /// Violations, each with a command that replays it. At most [`VIOLATIONS_KEPT`] are stored, all are
    /// counted.
    pub violations: Vec<String>,
    /// Count of violations; at [`VIOLATIONS_KEPT`] the rest is left out.
    pub violated: u64,
}

/// Violations described in a report.
pub const VIOLATIONS_KEPT: usize = 20;

impl Report {
    fn add(&mut self, other: Report) {
        self.damages += other.damages;
        self.flipped += other.flipped;
        self.named += other.named;
        self.harmless += other.harmless;
        self.checked.0 += other.checked.0;
        self.checked.1 += other.checked.1;
        self.violated += other.violated;
        self.violations.extend(other.violations);
        self.violations.truncate(VIOLATIONS_KEPT);
    }

    fn violation(&mut self, what: String) {
        self.violated += 1;
        if self.violations.len() < VIOLATIONS_KEPT {
            self.violations.push(what);
        }
    }
}

/// One damage.
#[derive(Clone, Debug)]
pub(crate) enum Damage {
    Flip {
        file: PathBuf,
        at: u64,
        xor: u8,
    },
    Cut {
        file: PathBuf,
        to: u64,
    },
    Swap {
        file: PathBuf,
        one: u64,
        two: u64,
    },
    /// The block becomes what it was some time before, or zeros.
    Stale {
        file: PathBuf,
        at: u64,
    },
    Zero {
        file: PathBuf,
        at: u64,
    },
    Missing {
        file: PathBuf,
    },
}

impl Damage {
    fn file(&self) -> &Path {
        match self {
            Damage::Flip { file, .. }
            | Damage::Cut { file, .. }
            | Damage::Swap { file, .. }
            | Damage::Stale { file, .. }
            | Damage::Zero { file, .. }
            | Damage::Missing { file } => file,
        }
    }

    /// The bytes that may have changed.
    fn range(&self) -> Range<u64> {
        match self {
            Damage::Flip { at, .. } => *at..at + 1,
            Damage::Cut { to, .. } => *to..u64::MAX,
            Damage::Stale { at, .. } | Damage::Zero { at, .. } => *at..at + BLOCK,
            Damage::Swap { .. } | Damage::Missing { .. } => 0..u64::MAX,
        }
    }

    /// Makes it; false when it changes nothing.
    pub(crate) fn make(&self, disk: &SimStorage, earlier: &SimStorage) -> bool {
        let bytes = |file: &Path| disk.file_bytes(file).unwrap_or_default();
        let put = |file: &Path, at: u64, block: &[u8]| {
            let mut all = bytes(file);
            let end = all.len().min(at as usize + block.len());
            if end < at as usize {
                // An earlier damage cut the file before this place.
                return false;
            }
            let place = &mut all[at as usize..end];
            let changes = *place != block[..place.len()];
            place.copy_from_slice(&block[..place.len()]);
            changes && disk.replace(file, &all).is_ok()
        };
        match self {
            Damage::Flip { file, at, xor } => disk.corrupt(file, *at, *xor).is_ok(),
            Damage::Cut { file, to } => bytes(file).len() as u64 > *to && disk.truncate(file, *to).is_ok(),
            Damage::Missing { file } => disk.delete(file).is_ok(),
            Damage::Zero { file, at } => put(file, *at, &[0; BLOCK as usize]),
            Damage::Stale { file, at } => {
                let old = earlier.file_bytes(file).unwrap_or_default();
                old.get(*at as usize..(at + BLOCK) as usize).is_some_and(|old| put(file, *at, old))
            }
            Damage::Swap { file, one, two } => {
                let all = bytes(file);
                let block = |at: u64| all.get(at as usize..(at + BLOCK) as usize);
                block(*one).is_some()
                    && block(*one) != block(*two)
                    && disk.swap_ranges(file, *one, *two, BLOCK as usize).is_ok()
            }
        }
    }
}

/// The damages: flips at evenly spread bytes (every byte, once there are enough of them), cuts likewise, and
/// blocks and files drawn from the seed.
pub(crate) struct Damages<'f> {
    fixture: &'f Fixture,
    seed: u64,
    total: u64,
    flips: u64,
}

impl<'f> Damages<'f> {
    pub(crate) fn new(fixture: &'f Fixture, seed: u64, damages: u64) -> Self {
        Self { fixture, seed, total: fixture.bytes(), flips: damages - damages / KINDS * 2 }
    }

    fn place(&self, at: u64) -> (PathBuf, u64) {
        self.fixture.place(at)
    }

    pub(crate) fn nth(&self, i: u64) -> Damage {
        let mut rng = Rng::new(self.seed ^ i.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let (round, within) = (i / KINDS, i % KINDS);
        match within {
            18 => self.cut(round, &mut rng),
            19 => self.block(&mut rng),
            _ => {
                let nth = round * (KINDS - 2) + within;
                let at = (u128::from(nth) * u128::from(self.total) / u128::from(self.flips.max(1))) as u64;
                let (file, at) = self.place(at.min(self.total - 1));
                Damage::Flip { file, at, xor: 1 << rng.range(0..8) }
            }
        }
    }

    /// A damage of whatever kind.
    pub(crate) fn any(&self, rng: &mut Rng) -> Damage {
        match rng.range(0..4) {
            0 => self.cut(0, rng),
            1 => self.block(rng),
            _ => {
                let (file, at) = self.place(rng.range(0..self.total));
                Damage::Flip { file, at, xor: 1 << rng.range(0..8) }
            }
        }
    }

    fn cut(&self, round: u64, rng: &mut Rng) -> Damage {
        // A large odd step walks over all lengths of all files before it comes back to one.
        let (file, to) = match round {
            0 => self.place(rng.range(0..self.total)),
            _ => self.place((round.wrapping_mul(7_919)) % self.total),
        };
        Damage::Cut { file, to }
    }

    fn block(&self, rng: &mut Rng) -> Damage {
        let (file, at) = self.place(rng.range(0..self.total));
        let at = at / BLOCK * BLOCK;
        let length = self.fixture.files.iter().find(|(f, _)| *f == file).map_or(0, |(_, bytes)| *bytes);
        match rng.range(0..8) {
            0 => Damage::Missing { file },
            1..=3 => Damage::Zero { file, at },
            4 => Damage::Stale { file, at },
            _ => Damage::Swap { file, one: at, two: rng.range(0..length / BLOCK + 1) * BLOCK },
        }
    }
}

const RESCUES: u64 = 100;

/// Cases that share the damages to one store, those of consecutive seeds from a multiple of it on. Each makes
/// one damage in so many.
const PARTS: u64 = 13;

/// Row 6: damaged files. A case uses two threads of its own.
pub const ROT: Row = Row::new("rot", "damages", 80_000, |seed| {
    let fixture = fixture(seed / PARTS, Size::Large);
    // So many that a bit of every byte is flipped.
    let damages = fixture.bytes() * KINDS / (KINDS - 2) + KINDS;
    let report = rot_part(&fixture, seed / PARTS, damages, part(seed, damages));
    verdict(report.damages, &report.violations)
});

/// The damages of that many that the case of a seed makes.
fn part(seed: u64, damages: u64) -> Part {
    (seed % PARTS..damages).step_by(PARTS as usize)
}

/// Rows 6 and 21: damaged databases repaired.
pub const RESCUE: Row = Row::new("rescue", "repairs", 200, |seed| {
    let report = rescue(seed, RESCUES);
    verdict(report.rescues, &report.violations)
});

fn verdict(count: u64, violations: &[String]) -> Result<u64, String> {
    if violations.is_empty() { Ok(count) } else { Err(violations.join("\n")) }
}

/// Makes that many damages, one at a time, on two threads; fewer where many answers are wrong.
pub fn rot(seed: u64, damages: u64) -> Report {
    rot_of(&fixture(seed, Size::Large), seed, damages)
}

fn rot_of(fixture: &Fixture, seed: u64, damages: u64) -> Report {
    rot_part(fixture, seed, damages, (0..damages).step_by(1))
}

fn rot_part(fixture: &Fixture, seed: u64, damages: u64, part: Part) -> Report {
    let list = Damages::new(fixture, seed, damages);
    each(fixture, seed, part, &|i| list.nth(i))
}

/// Makes each of the damages to a copy of its own, on two threads.
fn each(fixture: &Fixture, seed: u64, part: Part, nth: &(dyn Fn(u64) -> Damage + Sync)) -> Report {
    let mut report = Report { fixture_bytes: fixture.bytes(), ..Report::default() };
    let parts: Vec<Report> = std::thread::scope(|scope| {
        let share = |t| {
            let mine = part.clone().skip(t).step_by(THREADS);
            move || {
                let mut report = Report::default();
                for i in mine {
                    one(fixture, nth(i), i, seed, &mut report);
                    if report.violated >= VIOLATIONS_KEPT as u64 {
                        break;
                    }
                }
                report
            }
        };
        let threads: Vec<_> = (0..THREADS).map(|t| scope.spawn(share(t))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a case that panics is caught")).collect()
    });
    parts.into_iter().for_each(|part| report.add(part));
    report
}

fn one(fixture: &Fixture, damage: Damage, i: u64, seed: u64, report: &mut Report) {
    let disk = fixture.disk.clone_killed();
    if !damage.make(&disk, &fixture.earlier) {
        return;
    }
    report.damages += 1;
    report.flipped += u64::from(matches!(damage, Damage::Flip { .. }));
    let context = |what: &str| format!("{what} (fixture {seed}, damage {i}: {damage:?})");
    let case = Case { fixture, damage: &damage, i, seed };
    // Before the case itself, which may write.
    let check = i.is_multiple_of(CHECK_EVERY).then(|| {
        catch_unwind(AssertUnwindSafe(|| siltstone::check(&env(&disk, i), Path::new(DIR), &mut |_| {})))
    });
    let outcome = match catch_unwind(AssertUnwindSafe(|| case.run(&disk))) {
        Ok(outcome) => outcome,
        Err(_) => return report.violation(context("panic")),
    };
    match &outcome {
        Outcome::Right => report.harmless += 1,
        Outcome::Named => report.named += 1,
        Outcome::Wrong(what) => report.violation(context(what)),
    }
    let Some(check) = check else { return };
    report.checked.0 += 1;
    let found = match check {
        Err(_) => return report.violation(context("check panics")),
        // A missing database, say: an error is a finding too.
        Ok(Err(_)) => true,
        Ok(Ok(found)) => !found.is_clean(),
    };
    report.checked.1 += u64::from(found);
    let table =
        damage.file().extension().is_some_and(|e| e == "table") && !fixture.clipped.contains(damage.file());
    if !found && (table || matches!(outcome, Outcome::Named)) {
        report.violation(context("check finds nothing"));
    }
}

enum Outcome {
    Right,
    Named,
    Wrong(String),
}

struct Case<'a> {
    fixture: &'a Fixture,
    damage: &'a Damage,
    i: u64,
    seed: u64,
}

/// Reading ends at the first error or wrong answer.
enum Stop {
    Error(Error),
    Wrong(String),
}

impl From<Error> for Stop {
    fn from(e: Error) -> Self {
        Stop::Error(e)
    }
}

impl Case<'_> {
    fn run(&self, disk: &SimStorage) -> Outcome {
        let builder = builder(disk, self.seed ^ self.i);
        let opened = match self.i % WRITE_EVERY == 1 {
            true => builder.open(DIR),
            false => builder.open_read_only(DIR),
        };
        let stop = match opened {
            Ok(db) => match self.read(&db) {
                Ok(()) => return Outcome::Right,
                Err(stop) => stop,
            },
            Err(e) => Stop::Error(e),
        };
        match stop {
            Stop::Wrong(what) => Outcome::Wrong(what),
            Stop::Error(e) => {
                let kind = matches!(e.kind(), ErrorKind::Corruption | ErrorKind::Unsupported | ErrorKind::Io);
                // Without `CURRENT` a directory may as well hold no database.
                let absent = e.kind() == ErrorKind::NotFound && self.damage.file().ends_with("CURRENT");
                let named = e.file().is_some() || e.to_string().contains(DIR);
                match (kind && named) || absent {
                    true => Outcome::Named,
                    false => Outcome::Wrong(format!("an error without kind or file: {e:?}")),
                }
            }
        }
    }

    fn read(&self, db: &Db) -> Result<(), Stop> {
        if self.i.is_multiple_of(FULL_EVERY) {
            return (0..FAMILIES.len()).try_for_each(|family| self.whole(db, family));
        }
        let touched = self.fixture.touched.get(self.damage.file());
        let range = self.damage.range();
        let mut met = false;
        for touched in touched.into_iter().flatten().filter(|t| t.start < range.end && range.start < t.end) {
            for (family, key) in &touched.keys {
                self.get(db, *family, key)?;
            }
            if let (Some((family, first)), Some((_, last))) = (touched.keys.first(), touched.keys.last()) {
                self.around(db, *family, first, last)?;
            }
            met = true;
            // A cut or a missing file is met by its first reader or by opening.
            if range.end == u64::MAX && !self.i.is_multiple_of(8) {
                break;
            }
        }
        if !met {
            // What only opening reads: the answers must not have changed with it.
            for family in 0..FAMILIES.len() {
                let mut rng = Rng::new(self.seed ^ self.i);
                for _ in 0..4 {
                    let (key, _) = rng.pick(&self.fixture.contents[family]);
                    self.get(db, family, key)?;
                }
            }
        }
        Ok(())
    }

    fn get(&self, db: &Db, family: usize, key: &[u8]) -> Result<(), Stop> {
        let found = db.family(FAMILIES[family])?.get(key)?;
        let expected = self.fixture.families[family][key].last().and_then(|w| w.value.as_deref());
        if found.as_deref() == expected {
            return Ok(());
        }
        let show = |value: Option<&[u8]>| value.map(|v| v.escape_ascii().to_string());
        let (key, found) = (key.escape_ascii(), show(found.as_deref()));
        Err(Stop::Wrong(format!(
            "get {key} of {} is {found:?}, expected {:?}",
            FAMILIES[family],
            show(expected)
        )))
    }

    /// A few entries from `first` on forwards, and from `last` on backwards.
    fn around(&self, db: &Db, family: usize, first: &[u8], last: &[u8]) -> Result<(), Stop> {
        const FEW: usize = 5;
        let all = &self.fixture.contents[family];
        let from = all.partition_point(|(key, _)| key.as_slice() < first);
        let to = all.partition_point(|(key, _)| key.as_slice() <= last);
        let handle = db.family(FAMILIES[family])?;
        let mut found = Vec::new();
        for entry in handle.scan(first..).take(FEW) {
            let entry = entry?;
            found.push((entry.key, entry.value.to_vec()));
        }
        if found != all[from..all.len().min(from + FEW)] {
            return Err(Stop::Wrong(format!(
                "scan of {} from {} is wrong",
                FAMILIES[family],
                first.escape_ascii()
            )));
        }
        found.clear();
        for entry in handle.scan(..=last).rev().take(FEW) {
            let entry = entry?;
            found.push((entry.key, entry.value.to_vec()));
        }
        found.reverse();
        if found != all[to.saturating_sub(FEW)..to] {
            return Err(Stop::Wrong(format!(
                "scan of {} back from {} is wrong",
                FAMILIES[family],
                last.escape_ascii()
            )));
        }
        Ok(())
    }

    /// Everything, by get and by scans both ways.
    fn whole(&self, db: &Db, family: usize) -> Result<(), Stop> {
        self.fixture.families[family].keys().try_for_each(|key| self.get(db, family, key))?;
        let handle = db.family(FAMILIES[family])?;
        for back in [false, true] {
            let scan = handle.scan::<&[u8]>(..);
            let entries: Vec<_> = if back { scan.rev().collect() } else { scan.collect() };
            let mut found = Vec::new();
            for entry in entries {
                let entry = entry?;
                found.push((entry.key, entry.value.to_vec()));
            }
            if back {
                found.reverse();
            }
            if found != self.fixture.contents[family] {
                return Err(Stop::Wrong(format!(
                    "scan of {} (backwards: {back}) is wrong",
                    FAMILIES[family]
                )));
            }
        }
        Ok(())
    }
}
