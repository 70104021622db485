//! A store's version, memory and read points as writers, readers and background work share them. Each model
//! joins parts that run in production in the order in which `write`, `get` and `background` join them.

use super::family::FamilySettings;
use super::store::{Generations, Store};
use super::turns::{Patience, Turns};
use crate::memtable::{ActiveMemtable, MemoryOptions, Sizes, Visibility};
use crate::operator::Registry;
use crate::options::FamilyOptions;
use crate::snapshot::Snapshots;
use crate::sync::thread::{JoinHandle, spawn, yield_now};
use crate::sync::{Limits, Mutex, check};
use crate::types::{CellRef, Generation, Kind, SeqNo, StoreId, Timestamp};
use crate::version::{Graveyard, Memtables, Version};
use std::ops::ControlFlow;
use std::sync::Arc;

struct Parts {
    store: Arc<Store>,
    graveyard: Arc<Graveyard>,
    snapshots: Arc<Snapshots>,
    stage: Mutex<Stage>,
    turns: Turns,
}

struct Stage {
    next_seq: u64,
    next_ticket: u64,
}

fn active(generation: u64) -> Arc<ActiveMemtable> {
    Arc::new(ActiveMemtable::new(
        Generation(generation),
        MemoryOptions { chunks: Sizes::all(1 << 10), spares: None },
    ))
}

fn put(active: &ActiveMemtable, seq: u64) {
    let cell = CellRef {
        key: b"k",
        timestamp: Timestamp::ZERO,
        seq: SeqNo(seq),
        kind: Kind::Value,
        written: 0,
        value: b"v",
    };
    assert!(active.writer().insert(&cell));
}

impl Parts {
    fn new() -> Arc<Self> {
        let graveyard = Arc::new(Graveyard::default());
        let settings = FamilySettings::resolve("f", FamilyOptions::default(), &Registry::default()).unwrap();
        let version = Version::new(active(1).into());
        let generations = Arc::new(Generations::default());
        generations.above(Generation(1));
        let (name, attached) = ("f".into(), (SeqNo::ZERO, SeqNo::ZERO));
        let buried = graveyard.clone();
        let store = Store::new(StoreId(1), name, settings, version, &generations, buried, attached);
        let stage = Mutex::new(Stage { next_seq: 1, next_ticket: 0 });
        Arc::new(Self { store, graveyard, snapshots: Arc::default(), stage, turns: Turns::new() })
    }

    fn beside<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> JoinHandle<T> {
        let parts = self.clone();
        spawn(move || work(&parts))
    }

    /// Log stage and apply stage of a put; the WAL's record says which memtable the cell is for.
    fn write(&self) -> u64 {
        let (seq, ticket, generation) = {
            let mut stage = self.stage.lock();
            let logged = (stage.next_seq, stage.next_ticket, self.store.version().memory.active.generation());
            stage.next_seq += 1;
            stage.next_ticket += 1;
            logged
        };
        self.turns.run(ticket, Patience::Long, || {
            let version = self.store.version();
            assert_eq!(
                version.memory.active.generation(),
                generation,
                "a cell goes where the WAL says it goes (I1)"
            );
            put(version.active(), seq);
            self.snapshots.publish(SeqNo(seq));
        });
        seq
    }

    fn freeze(&self) {
        let stage = self.stage.lock();
        self.turns.wait_all(stage.next_ticket);
        let fresh = active(self.store.take_generation().0);
        self.store.swap(|now| now.with_fresh_active(fresh.clone()));
    }

    /// Flattening of an immutable memtable, by what readers may still see.
    fn flatten(&self) {
        let version = self.store.version_full();
        let Some(oldest) = version.memory.waiting.last() else { return };
        let visible = self.snapshots.visible();
        let snapshots = self.snapshots.read_points();
        let flat = oldest.flatten(&Visibility { counts: false, visible, snapshots: &snapshots });
        self.store.swap_if(|now| {
            let Memtables { waiting, ranges, .. } = &now.memory;
            waiting.last().is_some_and(|last| last.is(oldest)).then(|| {
                let waiting = waiting[..waiting.len() - 1].to_vec();
                let ranges = Arc::new(ranges.with_newest(Some(flat.clone()), oldest.generation()));
                now.with_memory(Memtables { waiting, ranges, ..now.memory.clone() })
            })
        });
    }

    /// The newest cell that a reader who comes now sees, and its read point.
    fn read(&self) -> (Option<u64>, u64) {
        let version = self.store.version();
        let read = self.snapshots.visible();
        (newest(&version, read), read.0)
    }
}

fn newest(version: &Version, read: SeqNo) -> Option<u64> {
    let mut found = None;
    for memtable in version.memory.all() {
        let _ = memtable.get(b"k", read, &mut |cell, _| {
            found = found.max(Some(cell.seq.0));
            ControlFlow::Break(())
        });
    }
    found
}

#[test]
fn two_changes_of_a_version_at_once_are_both_in_the_outcome() {
    check(Limits { preemptions: 3, schedules: 5_000 }, || {
        let parts = Parts::new();
        put(parts.store.version().active(), 1);
        let other = parts.beside(|parts| {
            parts.store.swap(|now| {
                now.with_memory(Memtables { waiting: vec![active(1).into()], ..now.memory.clone() })
            })
        });
        let fresh = active(9);
        parts.store.swap(|now| now.with_fresh_active(fresh.clone()));
        other.join().unwrap();
        let version = parts.store.version();
        assert_eq!(version.memory.active.generation(), Generation(9));
        assert!(!version.memory.waiting.is_empty(), "one of the changes is gone");
        drop(version);
        parts.graveyard.sweep();
        assert!(parts.graveyard.next_file().is_none());
        assert_eq!(parts.graveyard.held(), 0, "what was swapped out is freed when nobody reads it");
    });
}

#[test]
fn a_write_beside_a_freeze_goes_into_the_memtable_that_was_logged() {
    check(Limits { preemptions: 3, schedules: 5_000 }, || {
        let parts = Parts::new();
        let writer = parts.beside(Parts::write);
        parts.freeze();
        let seq = writer.join().unwrap();
        assert_eq!(parts.read(), (Some(seq), seq));
    });
}

#[test]
fn a_reader_beside_a_write_sees_all_that_was_visible_when_it_came() {
    check(Limits { preemptions: 3, schedules: 5_000 }, || {
        let parts = Parts::new();
        parts.write();
        let writer = parts.beside(|parts| (0..2).for_each(|_| assert!(parts.write() > 1)));
        let (found, read) = parts.read();
        assert_eq!(found, Some(read), "every number up to the read point was a write of this key");
        writer.join().unwrap();
    });
}

#[test]
fn a_reader_beside_a_freeze_and_a_flattening_finds_its_version_of_a_key() {
    check(Limits { preemptions: 2, schedules: 5_000 }, || {
        let parts = Parts::new();
        parts.write();
        let writer = parts.beside(|parts| {
            parts.write();
            parts.freeze();
            parts.flatten();
        });
        // No snapshot keeps the old version: only the order in which a reader takes version and read point
        // does.
        let (found, read) = parts.read();
        assert_eq!(found, Some(read));
        writer.join().unwrap();
    });
}

#[test]
fn a_version_is_freed_by_the_sweep_and_only_when_no_reader_has_it() {
    check(Limits { preemptions: 3, schedules: 5_000 }, || {
        let parts = Parts::new();
        parts.write();
        let reader = parts.beside(|parts| {
            let version = parts.store.version_full();
            yield_now();
            assert_eq!(newest(&version, SeqNo::MAX), Some(1));
            assert!(Arc::strong_count(&version) > 1, "a reader would free it");
        });
        let fresh = active(9);
        parts.store.swap(|now| now.with_fresh_active(fresh.clone()));
        parts.graveyard.sweep();
        reader.join().unwrap();
        parts.graveyard.sweep();
        assert!(parts.graveyard.is_empty(), "nobody has an old version any more");
    });
}
