//! Tests that cross crates: what they compare the database with, and what they demand of it after a crash.
//!
//! `model` and `history` say what is right, `stream` what a stream of changes must show; `subject` is the
//! database in its simulated world, with `strategies` drawn; `campaign` runs cases by seed. `ways` are the
//! ways through a range, `disks` small file systems, `kill` is for the program of that name. The campaigns,
//! listed in [`ROWS`]: `power` (crashes), `twice` (at any two places), `faults` (calls that fail, full disks,
//! replays), `small_disk` (a real file system that fills up), `torn` (the last thing written, cut
//! at every offset), `copies` (checkpoints, backups and moves that crash), `random` (against the model),
//! `between` (reads and steps in each other's middle), `metamorphic` (one list, many configurations:
//! `settings`, `pairs`), `corners` (what the others do not enter), `objects` (an object store that fails),
//! `shared` (owners of a shared database that come and go),
//! `offload` (compactions elsewhere, where everything goes wrong), `regions` (splits and joins), `rot`
//! (damaged files, repairs), `strangers` (other people's files). `planted` proves that they notice mistakes.

/// Runs the README's example with the documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;

pub mod between;
pub mod campaign;
pub mod copies;
pub mod corners;
pub mod disks;
pub mod faults;
pub mod history;
pub mod kill;
pub mod metamorphic;
pub mod model;
pub mod objects;
pub mod offload;
pub mod pairs;
pub mod planted;
pub mod power;
pub mod random;
pub mod regions;
pub mod rot;
pub mod settings;
pub mod shared;
pub mod small_disk;
pub mod strangers;
pub mod strategies;
pub mod stream;
pub mod subject;
pub mod torn;
pub mod twice;
pub mod ways;

use campaign::Row;

/// Every campaign over the simulated world, in the order of the table of goals.
pub const ROWS: &[Row] = &[
    power::POWER,
    twice::TWICE,
    faults::FAULTS,
    faults::SYNC,
    faults::FULL,
    small_disk::SMALL_DISK,
    faults::REPLAY,
    metamorphic::METAMORPHIC,
    random::MODEL,
    between::BETWEEN,
    corners::CORNERS,
    objects::OBJECTS,
    shared::SHARED,
    offload::OFFLOAD,
    regions::REGIONS,
    torn::TORN,
    copies::COPIES,
    rot::ROT,
    rot::EVERY_BIT,
    rot::RESCUE,
    strangers::STRANGERS,
];
