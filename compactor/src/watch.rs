//! Decides whether a server makes progress with a compaction. Its reports are not enough: a server that only
//! says that it works would keep the compaction for ever, and with it the SSTables that wait for it.
//!
//! A compaction is taken back when for a while neither a step, nor bytes of an SSTable, nor another count of
//! cells came; and when all of it takes longer than its size allows. Time in which the server waits for the
//! database does not count: it is at most one step ahead of the last one that was installed.

use std::time::{Duration, Instant};

/// Bytes of inputs for which a compaction is given one second in all, beside the time that it may go without
/// progress.
const BYTES_PER_SECOND: u64 = 1 << 20;
/// The most bytes of inputs that may be fetched: so many times all of them, and so many more. Blocks of an
/// index may be read again.
const FETCHED: (u64, u64) = (4, 64 << 20);
/// The number of steps that a server may have handed out before it must wait for one to be installed.
const AHEAD: u64 = 2;

/// The progress of one compaction; see the page above.
pub(crate) struct Watch {
    stall: Duration,
    most: Duration,
    fetched_max: u64,
    fetched: u64,
    /// The most cells that the server said it had met.
    cells: u64,
    /// Steps that were handed out and not installed yet.
    ahead: u64,
    /// The moment of the last progress, or of the last message to go on.
    moved: Instant,
    /// The moment since which it works without waiting, and how long it worked before.
    since: Instant,
    worked: Duration,
}

impl Watch {
    /// The watch over a compaction of so many bytes that begins now.
    pub(crate) fn new(stall: Duration, input_bytes: u64, now: Instant) -> Self {
        Self {
            stall,
            most: stall.saturating_add(Duration::from_secs(input_bytes / BYTES_PER_SECOND)),
            fetched_max: input_bytes.saturating_mul(FETCHED.0).saturating_add(FETCHED.1),
            fetched: 0,
            cells: 0,
            ahead: 0,
            moved: now,
            since: now,
            worked: Duration::ZERO,
        }
    }

    /// Notes that the compaction waits for others at the server and has not begun.
    pub(crate) fn waits(&mut self, now: Instant) {
        (self.moved, self.since) = (now, now);
    }

    /// Notes how many cells the server says it has met.
    pub(crate) fn met(&mut self, cells: u64, now: Instant) {
        if cells > self.cells {
            (self.cells, self.moved) = (cells, now);
        }
    }

    /// Notes that a step came.
    pub(crate) fn step(&mut self, now: Instant) {
        self.ahead += 1;
        self.moved = now;
        if self.ahead == AHEAD {
            self.worked += now - self.since;
        }
    }

    /// Notes that a step was installed.
    pub(crate) fn go_ahead(&mut self, now: Instant) {
        if self.ahead == AHEAD {
            (self.moved, self.since) = (now, now);
        }
        self.ahead = self.ahead.saturating_sub(1);
    }

    /// Notes that bytes of an output came.
    pub(crate) fn stored(&mut self, bytes: u64, now: Instant) {
        if bytes > 0 {
            self.moved = now;
        }
    }

    /// Notes that bytes of an input are asked for; an error says why they are not given.
    pub(crate) fn fetched(&mut self, bytes: u64, now: Instant) -> Result<(), String> {
        self.stored(bytes, now);
        self.fetched = self.fetched.saturating_add(bytes);
        match self.fetched <= self.fetched_max {
            true => Ok(()),
            false => Err(format!("it has asked for more than {} bytes of the inputs", self.fetched_max)),
        }
    }

    /// The time that is left until the compaction is taken back; `None` while it waits for the database. The
    /// error says why it is taken back now.
    pub(crate) fn left(&self, now: Instant) -> Result<Option<Duration>, String> {
        if self.ahead >= AHEAD {
            return Ok(None);
        }
        let (still, worked) = (now - self.moved, self.worked + (now - self.since));
        if still >= self.stall {
            return Err(format!("it has got nowhere for {} s", self.stall.as_secs_f32()));
        }
        if worked >= self.most {
            return Err(format!("it is not done after {} s", self.most.as_secs_f32()));
        }
        Ok(Some((self.stall - still).min(self.most - worked)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STALL: Duration = Duration::from_secs(60);

    /// A compaction of 100 MiB, and the moments of its life.
    fn watch() -> (Watch, impl Fn(u64) -> Instant) {
        let began = Instant::now();
        (Watch::new(STALL, 100 << 20, began), move |second| began + Duration::from_secs(second))
    }

    #[test]
    fn a_server_that_only_speaks_has_a_minute() {
        let (mut watch, at) = watch();
        assert_eq!(watch.left(at(0)), Ok(Some(STALL)));
        assert_eq!(watch.left(at(59)), Ok(Some(Duration::from_secs(1))));
        // The same once more is nothing new.
        watch.met(5, at(10));
        watch.met(5, at(30));
        watch.stored(0, at(30));
        assert!(watch.left(at(69)).is_ok());
        let why = watch.left(at(70)).unwrap_err();
        assert!(why.contains("got nowhere for 60 s"), "{why}");
    }

    #[test]
    fn steps_bytes_and_cells_renew_it_and_all_of_it_has_an_end() {
        let (mut watch, at) = watch();
        watch.met(1, at(50));
        watch.stored(9, at(100));
        watch.fetched(9, at(150)).unwrap();
        assert_eq!(watch.left(at(150)), Ok(Some(Duration::from_secs(10))), "of 160 s in all");
        let why = watch.left(at(160)).unwrap_err();
        assert!(why.contains("not done after 160 s"), "{why}");
    }

    #[test]
    fn time_in_which_it_waits_for_the_database_or_for_its_turn_does_not_count() {
        let (mut watch, at) = watch();
        watch.waits(at(100));
        watch.step(at(110));
        watch.step(at(120));
        assert_eq!(watch.left(at(5_000)), Ok(None));
        watch.go_ahead(at(5_000));
        assert_eq!(watch.left(at(5_050)), Ok(Some(Duration::from_secs(10))));
        watch.step(at(5_050));
        watch.go_ahead(at(5_060));
        assert_eq!(watch.left(at(5_060)), Ok(Some(STALL)), "20 s and 50 s of 160");
    }

    #[test]
    fn the_same_bytes_are_not_fetched_for_ever() {
        let (mut watch, at) = watch();
        let all = (400 << 20) + (64 << 20);
        let mut fetched = 0;
        while watch.fetched(1 << 20, at(1)).is_ok() {
            fetched += 1 << 20;
        }
        assert_eq!(fetched, all);
    }
}
