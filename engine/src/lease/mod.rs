//! The lease on a shared database, by which a second process, the standby, takes it over without a read that
//! is answered too late by the first one, the owner. The stream alone decides who may write; the lease
//! decides until when the owner may answer reads, and so when the standby may begin. `tests/models` has the
//! protocol as the model `lease`.
//!
//! - The lease is a chain of objects `lease/<n>`, each put once, of which the highest counts: so it works in
//!   every store that can refuse the second put of a name. `object` has their contents, `numbered` the calls
//!   to the store. Whoever opens the database puts one of kind `taken` (`claim`): the owner before finds it
//!   where it would put its next one, and answers no read from then on.
//! - Without a standby no lease is kept, and reads need none. A standby announces itself by an object
//!   `standby/<n>`. The owner looks for one once a minute (`watch`): one request. While one waits it puts a
//!   `held` object every third of the TTL and answers reads until the time at which it sent the last one, and
//!   the TTL, less a margin. Each says up to which announcement its owner has looked.
//! - A lease that has ended once is over. A new one lets reads be answered only after an entry was
//!   acknowledged in the stream that was sent once the new lease was acquired: it proves that nobody had
//!   taken the database. `holder` is this state machine, and `keeper` drives it, in a worker of its own.
//! - The standby takes over when it has seen the same `held` object as the newest for the TTL and a margin,
//!   from when it first read it; or at once if its owner `released` the database after its last read, or is
//!   proved to have ended. `waiter` is that state machine, and `standby` drives it. Both sides go by clocks
//!   that count suspended time; no wall clock is looked at.
//!
//! Deleted numbers must not be taken for free ones, so objects are deleted only far below the newest, and a
//! standby that did not look for a minute begins anew.

mod claim;
mod holder;
mod keeper;
mod numbered;
mod object;
mod standby;
#[cfg(all(test, not(models)))]
mod tests;
mod waiter;
mod watch;

pub(crate) use claim::{ClaimEnv, Claimed};
pub(crate) use keeper::{Keeper, KeeperWorker};
pub use standby::Waiting;

/// How long a lease lasts.
const TTL_NS: u64 = 5_000_000_000;
/// What the owner and the standby each leave for clocks that run apart.
const MARGIN_NS: u64 = 1_000_000_000;
/// How often the owner looks whether a standby announced itself.
const LOOK_NS: u64 = 60_000_000_000;
/// How often a standby announces itself.
const ANNOUNCE_NS: u64 = 10 * LOOK_NS;
