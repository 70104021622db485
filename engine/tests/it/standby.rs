//! A standby of a shared database: when it opens that, and what the owner answers meanwhile. Two machines on
//! one thread: while the standby waits, the test lets the owner's machine go on.

use siltstone::schedule::SimScheduler;
use siltstone::storage::sim::{SimClock, SimObjects, SimStorage, SimWorld};
use siltstone::storage::{Clock, ObjectStore};
use siltstone::{Builder, Db, ErrorKind, Options, Result, Waiting};
use std::path::Path;
use std::sync::Arc;

struct Machine {
    world: SimWorld,
    scheduler: Arc<SimScheduler>,
    store: Arc<dyn ObjectStore>,
}

impl Machine {
    fn builder(&self) -> Builder {
        let options = Options { write_memory: 1 << 20, memory_budget: 4 << 20, ..Options::default() };
        let builder = Builder::new().options(options).env(self.world.env());
        builder.scheduler(self.scheduler.clone()).shared(self.store.clone())
    }

    fn open(&self) -> Db {
        self.builder().open("/db").unwrap()
    }

    fn now(&self) -> u64 {
        self.world.clock.monotonic_ns()
    }

    /// Moves the clock on to that of the other machine.
    fn keep_up_with(&self, other: &Machine) {
        self.world.clock.advance_us(other.now().saturating_sub(self.now()).div_ceil(1_000));
    }
}

fn machines<const N: usize>() -> [Machine; N] {
    let disk = Arc::new(SimStorage::new(99));
    let store = SimObjects::new(disk, Arc::new(SimClock::default()), Path::new("objects"), None);
    std::array::from_fn(|seed| {
        let world = SimWorld::new(seed as u64);
        Machine { scheduler: Arc::new(SimScheduler::for_world(&world)), world, store: store.clone() }
    })
}

fn value(db: &Db, key: &str) -> Result<Option<Vec<u8>>> {
    Ok(db.get(key)?.map(|value| value.to_vec()))
}

/// Stands by on the second machine while the first goes on as `lives` says, which is told what the standby
/// waits for, and whether it has been ready before.
fn stand_by(
    [first, second]: [&Machine; 2],
    lives: &mut dyn FnMut(&Waiting, usize) -> bool,
) -> Result<Option<Db>> {
    let mut ready = 0;
    second.keep_up_with(first);
    second.builder().stand_by("/db", |waiting| {
        first.keep_up_with(second);
        ready += usize::from(matches!(waiting, Waiting::Ready));
        if lives(waiting, ready) {
            first.scheduler.run(40);
        }
        ready < 1_000
    })
}

#[test]
fn a_standby_opens_the_database_once_the_owner_stops_and_the_owner_answers_no_read_then() {
    let [first, second] = machines();
    let owner = first.open();
    owner.put("k", "v").unwrap();
    let mut scan = owner.scan::<&str>(..);
    let taken = stand_by([&first, &second], &mut |_, ready| {
        if ready < 30 {
            assert_eq!(value(&owner, "k").unwrap().unwrap(), b"v");
        }
        ready < 30
    });
    let taken = taken.unwrap().expect("the owner did nothing for long");
    first.keep_up_with(&second);
    let refused = |result: Result<Option<Vec<u8>>>| {
        let error = result.unwrap_err();
        assert!(error.kind() == ErrorKind::Busy && error.to_string().contains("lease"), "{error}");
    };
    let read_all = || {
        refused(value(&owner, "k"));
        refused(owner.multi_get(&["k"]).map(|_| None));
        refused(owner.default_family().get_versions("k", 1).map(|_| None));
        refused(owner.at(&owner.snapshot()).get("k").map(|_| None));
        refused(owner.scan::<&str>(..).next().transpose().map(|_| None));
        refused(owner.scan::<&str>(..).cursor().first().map(|_| None));
        assert_eq!(owner.check_lease().unwrap_err().kind(), ErrorKind::Busy);
    };
    read_all();
    refused(scan.next().transpose().map(|_| None));
    assert_eq!(value(&taken, "k").unwrap().unwrap(), b"v");
    taken.put("k", "w").unwrap();
    first.scheduler.run(40);
    read_all();
    owner.put("k", "lost").unwrap_err();
    first.world.clock.advance_us(60_000_000);
    first.scheduler.run(40);
    read_all();
    assert_eq!(value(&taken, "k").unwrap().unwrap(), b"w");
    taken.close().unwrap();
}

#[test]
fn a_standby_opens_the_database_at_once_when_the_owner_closes_it() {
    let [first, second] = machines();
    let owner = first.open();
    owner.put("k", "v").unwrap();
    let mut waited = 0;
    let taken = stand_by([&first, &second], &mut |waiting, _| {
        assert!(matches!(waiting, Waiting::Unanswered), "{waiting:?}");
        waited += 1;
        if waited == 5 {
            owner.close().unwrap();
        }
        false
    });
    let taken = taken.unwrap().unwrap();
    assert!(waited <= 7, "{waited}");
    assert_eq!(value(&taken, "k").unwrap().unwrap(), b"v");
    assert!(value(&owner, "k").is_err());
}

#[test]
fn an_owner_whose_lease_lapsed_answers_again_where_nobody_took_the_database() {
    let [first, second] = machines();
    let owner = first.open();
    owner.put("k", "v").unwrap();
    let mut has_lapsed = false;
    let mut ready = 0;
    second.keep_up_with(&first);
    let left = second.builder().stand_by("/db", |waiting| {
        first.keep_up_with(&second);
        first.scheduler.run(40);
        ready += usize::from(matches!(waiting, Waiting::Ready));
        if ready == 5 {
            // The owner's machine is suspended for a moment.
            first.world.clock.advance_us(4_500_000);
            has_lapsed = value(&owner, "k").is_err();
            first.scheduler.run(40);
            assert_eq!(value(&owner, "k").unwrap().unwrap(), b"v");
        }
        ready < 8
    });
    assert!(left.unwrap().is_none() && has_lapsed);
}

#[test]
fn who_opens_the_database_in_spite_of_a_lease_waits_until_that_has_ended() {
    let [first, second, third] = machines();
    let owner = first.open();
    owner.put("k", "v").unwrap();
    let left = second.builder().stand_by("/db", |waiting| {
        first.keep_up_with(&second);
        first.scheduler.run(40);
        !matches!(waiting, Waiting::Ready)
    });
    assert!(left.unwrap().is_none());
    assert!(owner.check_lease().is_ok());
    third.keep_up_with(&first);
    let began = third.now();
    let taken = third.open();
    assert!(third.now() - began >= 5_000_000_000);
    first.keep_up_with(&third);
    assert_eq!(value(&owner, "k").unwrap_err().kind(), ErrorKind::Busy);
    assert_eq!(value(&taken, "k").unwrap().unwrap(), b"v");
}

#[test]
fn only_a_shared_database_that_is_there_has_a_standby() {
    let [first] = machines();
    let none = first.builder().stand_by("/db", |_| panic!("there is nothing to wait for")).unwrap_err();
    assert_eq!(none.kind(), ErrorKind::NotFound, "{none}");
    let local = Builder::new().env(first.world.env()).stand_by("/other", |_| false).unwrap_err();
    assert_eq!(local.kind(), ErrorKind::Invalid, "{local}");
}
