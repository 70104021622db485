//! The protocol of shared databases as models, each small enough that all its states are visited.
//!
//! A shared database has its WAL, manifest and tables in an object store. It is owned by one process, and by
//! another after that one is gone, or only seems to be. The models say what a process may do, and what puts,
//! clocks and kills may do to it. They know nothing of the engine, which has to follow them.
//!
//! Words of all models: an *object* is put once under its name. The *stream* is the numbered objects of a
//! database. An *incarnation* is the stretch of the stream that one process writes; object 0 claims it, a
//! *seal* ends it. Place k/n is object n of incarnation k. The *owner* writes the newest incarnation; a
//! *recoverer* seals it and claims the next.
//!
//! Each model has a list of rules. With all of them its properties hold in every state. Without any one of
//! them a property fails, which the tests check too: no rule is there for nothing. For how it fails, see
//! `cargo run -p siltstone-models -- stream seal_at_first_hole`.
//!
//! - `check`: visits the states of a model
//! - `place`: places of objects, for the models of the stream
//! - `stream`: puts in flight, holes, seals, two recoverers
//! - `collect`: checkpoints, where replay begins, what is deleted of the stream
//! - `numbers`: sequence numbers, and what a local WAL holds beyond the stream
//! - `tables`: when a table may be deleted
//! - `lease`: reads of an owner that may have been replaced
//! - `adopt`: a local database that becomes a shared one
//! - `retry`: calls that are asked again
//! - `locks`: what waits for a put, and what must not
//! - `formats`: old and new programs side by side

pub mod adopt;
pub mod check;
pub mod collect;
pub mod formats;
pub mod lease;
pub mod locks;
pub mod numbers;
pub mod place;
pub mod retry;
pub mod stream;
pub mod tables;
