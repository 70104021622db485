//! One thread that issues a stream's operations, checks the answers, and records how long each took.

use super::latency::{Class, Recorder};
use crate::failure::Result;
use crate::store::{CacheCount, Session};
use crate::workload::bytes::Values;
use crate::workload::random::Rng;
use crate::workload::{Op, Picks, Scans, Workload};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The state that the threads of a phase share.
#[derive(Default)]
pub(crate) struct Shared {
    /// Operations done, told now and then.
    pub(crate) done: AtomicU64,
    /// Set when a thread failed, or when the measured ones are done.
    pub(crate) stop: AtomicBool,
}

/// Operations between two reads of shared state.
const LOOK_EVERY: u64 = 256;

/// How often the control is due: seldom enough to take a hundredth of a processor.
const CONTROL_EVERY: Duration = Duration::from_millis(5);

/// The work of one thread.
pub(crate) struct Worker<'a> {
    session: Box<dyn Session + 'a>,
    workload: &'a Workload,
    values: &'a Values,
    shared: &'a Shared,
    /// Entries that a pass over everything must find.
    live: u64,
    key: Vec<u8>,
    /// The cells of one put.
    row: Vec<(Vec<u8>, Vec<u8>)>,
    found_key: Vec<u8>,
    pub(crate) recorder: Recorder,
    /// Bytes of keys and values written.
    pub(crate) user_bytes: u64,
}

impl<'a> Worker<'a> {
    pub(crate) fn new(
        session: Box<dyn Session + 'a>,
        workload: &'a Workload,
        values: &'a Values,
        shared: &'a Shared,
        live: u64,
    ) -> Self {
        let (key, found_key, recorder) = (Vec::new(), Vec::new(), Recorder::new());
        let row = vec![(Vec::new(), Vec::new()); workload.columns];
        Worker { session, workload, values, shared, live, key, row, found_key, recorder, user_bytes: 0 }
    }

    /// How the cache does for its session, if the store tells.
    pub(crate) fn cache(&mut self) -> Option<CacheCount> {
        self.session.cache()
    }

    /// Issues each operation when the one before has ended.
    pub(crate) fn closed(&mut self, ops: impl Iterator<Item = Op>, began: Instant) -> Result<()> {
        self.recorder.begin(began);
        let mut last = Instant::now();
        let mut at = 0;
        for op in ops {
            if let Op::Walk = op {
                self.walk()?;
                continue;
            }
            let class = self.apply(op)?;
            let now = Instant::now();
            last = self.recorder.record(class, now - last, now, 1);
            at += 1;
            if at % LOOK_EVERY == 0 && self.look() {
                break;
            }
        }
        self.shared.done.fetch_add(at % LOOK_EVERY, Ordering::Relaxed);
        Ok(())
    }

    /// Issues each operation when it is due, or as soon after as the one before has ended; measured from when
    /// it was due, so that a stall counts for all who would have waited. So many are due at the same time.
    pub(crate) fn open(
        &mut self,
        ops: impl Iterator<Item = Op>,
        began: Instant,
        every: Duration,
        together: usize,
    ) -> Result<()> {
        self.recorder.begin(began);
        for (at, op) in ops.enumerate() {
            let due = began + every.mul_f64((at / together * together) as f64);
            wait_until(due);
            let class = self.apply(op)?;
            let now = Instant::now();
            self.recorder.record(class, now.saturating_duration_since(due), now, 1);
            // Who reads seldom would read on long after the writers are done.
            let over = self.shared.stop.load(Ordering::Relaxed);
            if over || (at as u64 + 1).is_multiple_of(LOOK_EVERY) && self.look() {
                break;
            }
        }
        Ok(())
    }

    /// Issues `batch` operations at once: puts as one write, gets as one read, others one by one. Each is as
    /// late as its batch.
    pub(crate) fn batched(
        &mut self,
        mut ops: impl Iterator<Item = Op>,
        began: Instant,
        batch: usize,
    ) -> Result<()> {
        self.recorder.begin(began);
        let mut last = Instant::now();
        loop {
            let (mut puts, mut gets, mut numbers, mut others) =
                (Vec::new(), Vec::new(), Vec::new(), Vec::new());
            let mut rows = 0;
            for op in ops.by_ref().take(batch) {
                match op {
                    Op::Put { number, salt } => {
                        self.prepare(number, salt);
                        puts.extend_from_slice(&self.row);
                        rows += 1;
                    }
                    Op::Get(number) => {
                        self.workload.read_key(number, &mut self.key);
                        gets.push(self.key.clone());
                        numbers.push(number);
                    }
                    other => others.push(other),
                }
            }
            let together = rows + gets.len() as u64;
            if together == 0 && others.is_empty() {
                return Ok(());
            }
            if !puts.is_empty() {
                self.session.put_many(&puts)?;
                let now = Instant::now();
                last = self.recorder.record(Class::Write, now - last, now, rows);
            }
            if !gets.is_empty() {
                let mut right = 0;
                let mut seen =
                    |at: usize, value: &[u8]| right += usize::from(Values::belongs(numbers[at], value));
                self.session.get_many(&gets, &mut seen)?;
                if right != gets.len() {
                    return Err(format!(
                        "{} of {} keys read at once were not found",
                        gets.len() - right,
                        gets.len()
                    )
                    .into());
                }
                let now = Instant::now();
                last = self.recorder.record(Class::Read, now - last, now, gets.len() as u64);
            }
            for op in others {
                let class = self.apply(op)?;
                let now = Instant::now();
                last = self.recorder.record(class, now - last, now, 1);
            }
            self.shared.done.fetch_add(together, Ordering::Relaxed);
            if self.shared.stop.load(Ordering::Relaxed) {
                return Ok(());
            }
        }
    }

    /// Issues operations at a rate until told to stop, unrecorded.
    pub(crate) fn beside(
        &mut self,
        ops: impl Iterator<Item = Op>,
        began: Instant,
        every: Duration,
    ) -> Result<()> {
        for (at, op) in ops.enumerate() {
            wait_until(began + every.mul_f64(at as f64));
            if self.shared.stop.load(Ordering::Relaxed) {
                break;
            }
            self.apply(op)?;
        }
        Ok(())
    }

    /// Scans at a rate until told to stop, each from when it was due and from a key that was put before.
    /// Nothing is scanned while it is not known that something was put.
    pub(crate) fn scans_of_what_was_put(
        &mut self,
        scans: &Scans,
        picks: &Picks,
        seed: u64,
        began: Instant,
    ) -> Result<()> {
        self.recorder.begin(began);
        let mut rng = Rng::new(seed, "scans of what was put", 0);
        let every = Duration::from_secs_f64(1.0 / scans.rate);
        for at in 0.. {
            let due = began + every.mul_f64(at as f64);
            wait_until(due);
            if self.shared.stop.load(Ordering::Relaxed) {
                break;
            }
            let put = self.shared.done.load(Ordering::Relaxed);
            if put > 0 {
                self.scan(picks.shuffled(rng.below(put)), scans.entries)?;
                let now = Instant::now();
                self.recorder.record(Class::Scan, now.saturating_duration_since(due), now, 1);
            }
        }
        Ok(())
    }

    /// Tells how far it is; whether to stop.
    #[cold]
    fn look(&self) -> bool {
        self.shared.done.fetch_add(LOOK_EVERY, Ordering::Relaxed);
        self.shared.stop.load(Ordering::Relaxed)
    }

    fn prepare(&mut self, number: u64, salt: u32) {
        self.workload.row(number, salt, self.values, &mut self.row);
        self.user_bytes += self.row.iter().map(|(key, value)| (key.len() + value.len()) as u64).sum::<u64>();
    }

    #[inline]
    fn put(&mut self, number: u64, salt: u32) -> Result<()> {
        self.prepare(number, salt);
        match self.row.as_slice() {
            [(key, value)] => self.session.put(key, value),
            row => self.session.put_many(row),
        }
    }

    #[inline]
    fn apply(&mut self, op: Op) -> Result<Class> {
        match op {
            Op::Put { number, salt } => {
                self.put(number, salt)?;
                Ok(Class::Write)
            }
            Op::Get(number) => {
                self.get(number)?;
                Ok(Class::Read)
            }
            Op::Miss(number) => {
                self.workload.key.write_missing(number, &mut self.key);
                if self.session.get(&self.key, &mut |_| ())? {
                    return Err(format!("a key beside number {number} was found, but never written").into());
                }
                Ok(Class::Read)
            }
            Op::Delete(number) => {
                self.workload.key.write(number, &mut self.key);
                self.user_bytes += self.key.len() as u64;
                self.session.delete(&self.key)?;
                Ok(Class::Write)
            }
            Op::Modify { number, salt } => {
                self.get(number)?;
                self.put(number, salt)?;
                Ok(Class::Modify)
            }
            Op::Scan { number, entries } => {
                self.scan(number, entries)?;
                Ok(Class::Scan)
            }
            Op::Walk => Err("a pass over everything is not one operation".into()),
        }
    }

    #[inline]
    fn get(&mut self, number: u64) -> Result<()> {
        self.workload.read_key(number, &mut self.key);
        let mut right = false;
        let found = self.session.get(&self.key, &mut |value| right = Values::belongs(number, value))?;
        if !right {
            return Err(wrong(number, found));
        }
        Ok(())
    }

    fn scan(&mut self, number: u64, entries: u32) -> Result<()> {
        self.workload.key.write(number, &mut self.key);
        let (mut left, mut right) = (entries, false);
        let (key, first) = (&self.key, &mut self.found_key);
        first.clear();
        self.session.scan(key, &mut |found, value| {
            if left == entries {
                right = found == key && Values::belongs(number, value);
                first.extend_from_slice(found);
            }
            left -= 1;
            left > 0
        })?;
        if !right {
            return Err(wrong(number, first == key));
        }
        Ok(())
    }

    /// Every entry is an operation.
    fn walk(&mut self) -> Result<()> {
        let (recorder, shared) = (&mut self.recorder, self.shared);
        let (mut last, mut seen, mut bytes) = (Instant::now(), 0, 0);
        self.session.scan(b"", &mut |key, value| {
            let now = Instant::now();
            last = recorder.record(Class::Scan, now - last, now, 1);
            seen += 1;
            bytes += key.len() + value.len();
            if seen % LOOK_EVERY == 0 {
                shared.done.fetch_add(LOOK_EVERY, Ordering::Relaxed);
            }
            true
        })?;
        if seen != self.live {
            return Err(format!("a pass over everything found {seen} entries of {}", self.live).into());
        }
        Ok(())
    }
}

#[cold]
fn wrong(number: u64, found: bool) -> crate::failure::Error {
    let what = if found { "has a value that was never written for it" } else { "was not found" };
    format!("key number {number} {what}").into()
}

/// The control: does nothing, at due times, until the others are done. It is as late as the machine and the
/// store's threads make it.
pub(super) fn nothing(shared: &Shared, began: Instant) -> Recorder {
    let mut recorder = Recorder::new();
    recorder.begin(began);
    for at in 1.. {
        let due = began + CONTROL_EVERY * at;
        wait_until(due);
        let now = Instant::now();
        recorder.record(Class::Nothing, now.saturating_duration_since(due), now, 1);
        if shared.stop.load(Ordering::Relaxed) {
            break;
        }
    }
    recorder
}

/// Sleeps through a long wait and spins through the end of it: waking up takes longer than an operation, and
/// one who only spun would take a processor from the store.
pub(super) fn wait_until(due: Instant) {
    const SPIN: Duration = Duration::from_micros(60);
    loop {
        let now = Instant::now();
        match due.checked_duration_since(now) {
            None | Some(Duration::ZERO) => return,
            Some(left) if left > 2 * SPIN => std::thread::sleep(left - SPIN),
            Some(_) => std::hint::spin_loop(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{Picks, Scale, Stream, named};

    /// Answers every get with the same bytes, or not at all, and scans from the same key.
    struct Broken(Option<&'static [u8]>);

    impl Session for Broken {
        fn put(&mut self, _: &[u8], _: &[u8]) -> Result<()> {
            Ok(())
        }
        fn delete(&mut self, _: &[u8]) -> Result<()> {
            Ok(())
        }
        fn get(&mut self, _: &[u8], seen: &mut dyn FnMut(&[u8])) -> Result<bool> {
            self.0.inspect(|value| seen(value));
            Ok(self.0.is_some())
        }
        fn scan(&mut self, _: &[u8], each: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
            if let Some(value) = self.0 {
                each(b"another key", value);
            }
            Ok(())
        }
        fn put_many(&mut self, _: &[(Vec<u8>, Vec<u8>)]) -> Result<()> {
            Ok(())
        }
        fn get_many(&mut self, keys: &[Vec<u8>], seen: &mut dyn FnMut(usize, &[u8])) -> Result<()> {
            self.0.inspect(|value| (0..keys.len()).for_each(|at| seen(at, value)));
            Ok(())
        }
    }

    fn error(name: &str, answer: Option<&'static [u8]>) -> String {
        let scale = Scale { keys: Some(100), ops: Some(100), ..Scale::default() };
        let workload = &named(name, &scale).unwrap()[0];
        let (values, picks, shared) = (Values::new(1, 100), Picks::new(workload, 1), Shared::default());
        let mut worker = Worker::new(Box::new(Broken(answer)), workload, &values, &shared, 100);
        let (ops, began) = (Stream::new(workload, &picks, 1, 0), Instant::now());
        let ended = match workload.batch {
            1 => worker.closed(ops, began),
            batch => worker.batched(ops, began, batch),
        };
        ended.expect_err(name).to_string()
    }

    #[test]
    fn a_wrong_answer_ends_the_run() {
        for (name, lost) in [
            ("readrandom", "was not found"),
            ("seekrandom", "was not found"),
            ("ycsb-f", "was not found"),
            ("ycsb-c:batched", "were not found"),
            ("readseq", "found 0 entries of 100"),
        ] {
            assert!(error(name, None).contains(lost), "{name}: {}", error(name, None));
        }
        let value: &[u8] = b"of no key at all";
        assert!(error("readrandom", Some(value)).contains("never written"));
        assert!(error("seekrandom", Some(value)).contains("was not found"));
        assert!(error("readmissing", Some(value)).contains("was found"));
        assert!(error("readseq", Some(value)).contains("found 1 entries of 100"));
    }
}
