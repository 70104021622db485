//! Process kills on the real file system: acknowledged batches are there, the later ones are a prefix, and no
//! batch is halved.
//!
//! A campaign goes in rounds. In each a child process opens the database and works on it ([`child`]) until it
//! is killed: by `SIGKILL` at a random moment, or by itself at a kill point of the engine (`SILTSTONE_KILL`).
//! What it was about to do and what was acknowledged it notes in a file outside the store ([`oracle`]),
//! which, written with `pwrite`, survives the kill as surely as the store must. Then the parent opens the
//! same directory and compares ([`check`]). One directory lives through many rounds, as a real one does; some
//! rounds are not checked, so that a recovery is killed and recovered from in turn.
//!
//! What is written is a function of seed, stream, batch number and round ([`work`]), so the parent needs no
//! list of writes. The round is part of it so that a batch that was lost cannot be mistaken for the one of
//! the same number that came in its place.

pub mod adopting;
pub mod campaign;
pub mod check;
pub mod child;
pub mod copies;
pub mod oracle;
pub mod work;
