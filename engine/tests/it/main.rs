//! Behaviour through the public API, on real files. With the feature `testing`: many tests simulate storage
//! and time, or set what is constant for users.
#![cfg(feature = "testing")]

mod adopt;
mod api;
mod backup;
mod basics;
mod changes;
mod clean;
mod corners;
mod destroy;
mod directories;
mod far;
mod follower;
mod hot;
mod memory;
mod moving;
mod offload;
mod one_side;
mod operators;
mod papers;
mod places;
mod rangemerge;
mod regions;
mod schedule;
mod shared;
mod space;
mod standby;
mod strategies;
mod transactions;
mod turns;
mod versions;
mod wal_values;
mod warm;

/// All methods, with tables of that size, and with levels and numbers of runs that little data reaches.
fn strategies(sstable_bytes: u64) -> Vec<siltstone::strategy::StrategyOptions> {
    use siltstone::strategy::{METHODS, StrategyOptions};
    let small = |text: &&str| {
        let strategy: StrategyOptions = text.parse().expect("a method");
        let mut strategy = strategy.with_sstable_bytes(sstable_bytes);
        match &mut strategy {
            StrategyOptions::Auto(auto) => auto.runs_max = 6,
            StrategyOptions::Leveled(leveled) => {
                (leveled.base_bytes, leveled.multiplier) = (2 * sstable_bytes, 2);
            }
            StrategyOptions::Exploring(exploring) => exploring.min_runs = 2,
            _ => {}
        }
        strategy
    };
    ["auto"].iter().chain(METHODS).map(small).collect()
}

/// How often files were read while that ran.
fn reads(world: &siltstone::storage::sim::SimWorld, run: impl FnOnce()) -> u64 {
    let count = || world.storage.op_counts().of(siltstone::storage::sim::OpKind::Read);
    let before = count();
    run();
    count() - before
}

/// The disk as it is, after a power loss, at every visit of the kill points of that name.
fn crashes_at(
    world: &siltstone::storage::sim::SimWorld,
    point: &'static str,
    run: impl FnOnce(),
) -> Vec<siltstone::storage::sim::SimStorage> {
    use siltstone::storage::sim::{SimStorage, Survive};
    use std::{cell::RefCell, rc::Rc};
    let images: Rc<RefCell<Vec<SimStorage>>> = Rc::default();
    let (into, disk) = (images.clone(), world.storage.clone());
    let hook = move |name| {
        if name == point {
            for survive in [Survive::None, Survive::Half, Survive::All] {
                let seed = into.borrow().len() as u64;
                into.borrow_mut().push(disk.clone_crashed(survive, seed));
            }
        }
    };
    siltstone::testing::with_kill_hook(hook, run);
    let images = images.take();
    assert!(!images.is_empty(), "{point} was not passed");
    images
}
