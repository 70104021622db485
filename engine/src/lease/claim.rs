//! Taking the database over, as the lease's chain has it: an object of kind `taken`, behind the newest.

use super::TTL_NS;
use super::numbered::Numbered;
use super::object::{Announcement, Kind, LeaseObject};
use crate::error::{Error, ErrorKind, Result};
use crate::storage::{Env, ObjectStore, PutOnce, Random};
use std::sync::Arc;

/// An open deletes old objects where the number of its own is a multiple of this.
const CLEAN_EVERY: u64 = 256;

/// What a claim is made with.
pub(crate) struct ClaimEnv<'a> {
    pub(crate) env: &'a Env,
    /// The place of the database.
    pub(crate) store: &'a Arc<dyn ObjectStore>,
    /// Lets so many nanoseconds pass.
    pub(crate) pause: &'a dyn Fn(u64),
}

/// A life of a process, as its objects name it.
#[derive(Debug)]
pub(super) struct Life {
    pub(super) id: u64,
    process: Option<String>,
    random: Arc<dyn Random>,
}

impl Life {
    pub(super) fn nonce(&self) -> u64 {
        self.random.next_u64()
    }

    /// An object of its own; a `held` one lasts for the TTL.
    pub(super) fn object(&self, counter: u64, kind: Kind, seen: u64, nonce: u64) -> LeaseObject {
        let ttl_ms = if kind == Kind::Held { TTL_NS / 1_000_000 } else { 0 };
        LeaseObject { counter, holder: self.id, nonce, kind, ttl_ms, seen, process: self.process.clone() }
    }
}

/// The chain's newest object, put by this process, which has the database from then on.
#[derive(Debug)]
pub(crate) struct Claimed {
    pub(super) chain: Numbered<LeaseObject>,
    pub(super) announcements: Numbered<Announcement>,
    pub(super) life: Life,
    /// The number of that object; 0 before it is put.
    pub(super) newest: u64,
    /// Whether it waited as a standby.
    pub(super) has_waited: bool,
    /// Whether a keeper has it now.
    pub(super) is_kept: bool,
}

/// An open that fails after its claim leaves no owner: it says so to whoever waits. It has answered no read.
impl Drop for Claimed {
    fn drop(&mut self) {
        if self.newest > 0 && !self.is_kept {
            let number = self.newest + 1;
            let object = self.life.object(number, Kind::Released, 0, self.life.nonce());
            // Without it a standby waits for another open.
            let _ = self.chain.put(number, &object);
        }
    }
}

impl Claimed {
    /// A claim that is to be made.
    pub(super) fn new(with: &ClaimEnv<'_>) -> Self {
        let ClaimEnv { env, store, .. } = with;
        let life =
            Life { id: env.random.next_u64(), process: env.storage.process(), random: env.random.clone() };
        Self {
            chain: Numbered::new(store, "lease"),
            announcements: Numbered::new(store, "standby"),
            life,
            newest: 0,
            has_waited: false,
            is_kept: false,
        }
    }

    /// Takes the database over whoever has it. The owner before cannot renew its lease from then on, and the
    /// call returns when that has ended.
    pub(crate) fn at_once(with: &ClaimEnv<'_>) -> Result<Self> {
        let mut claimed = Self::new(with);
        let mut before = claimed.chain.newest(1)?.pop();
        let lasts_ms = loop {
            let (number, lasts_ms) = match &before {
                Some((number, object)) => (*number, lasts_ms(with.env, object)),
                None => (0, 0),
            };
            if claimed.take_behind(number, lasts_ms)? == PutOnce::Mine {
                break lasts_ms;
            }
            before = claimed.chain.onwards(number)?.pop();
            if before.is_none() {
                let name = claimed.chain.name(number + 1);
                return Err(Error::new(ErrorKind::Busy, format!("{name} is taken, and cannot be read")));
            }
        };
        if claimed.newest.is_multiple_of(CLEAN_EVERY) {
            // What stays is garbage.
            let _ = claimed.chain.clean(claimed.newest);
        }
        let clock = &with.env.clock;
        let end = clock.boottime_ns().saturating_add(lasts_ms.saturating_mul(1_000_000));
        loop {
            match end.saturating_sub(clock.boottime_ns()) {
                0 => return Ok(claimed),
                left => (with.pause)(left),
            }
        }
    }

    /// Whether it was long ago that its process began.
    pub(crate) fn has_waited(&self) -> bool {
        self.has_waited
    }

    /// Whether nobody has taken the database over since. Asked once the stream is this process' own: whoever
    /// takes it over later then comes later in the stream, too.
    pub(crate) fn is_newest(&self) -> Result<bool> {
        Ok(self.chain.read(self.newest + 1)?.is_none())
    }

    /// Puts the object behind that number, which says for how long the owner before may answer reads; whose
    /// object lies there now.
    pub(super) fn take_behind(&mut self, number: u64, lasts_ms: u64) -> Result<PutOnce> {
        let taken = self.life.object(number + 1, Kind::Taken, 0, self.life.nonce());
        let put = self.chain.put(number + 1, &LeaseObject { ttl_ms: lasts_ms, ..taken })?;
        if put == PutOnce::Mine {
            self.newest = number + 1;
        }
        Ok(put)
    }
}

/// For how long reads may be answered by others, where that object is the newest and another is put now.
fn lasts_ms(env: &Env, object: &LeaseObject) -> u64 {
    let has_ended = || object.process.as_deref().is_some_and(|process| env.storage.has_ended(process));
    match object.kind {
        Kind::Held if has_ended() => 0,
        // Whoever took the database may have ended before the lease did that it took.
        Kind::Held | Kind::Taken => object.ttl_ms,
        Kind::Ended | Kind::Released => 0,
    }
}
