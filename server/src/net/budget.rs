//! Memory of calls: what their requests become until they are answered, and what is read for clients that
//! have not taken it yet.
//!
//! There is a budget for requests and one for answers, so that clients that are slow to read do not keep
//! others from asking. Each caller, known by a token or else by an address, has a share of both, whatever its
//! connections. A part of the budget for requests is for complete ones of at most [`SMALL`] bytes, so that
//! they have room beside any number of large and of unfinished ones. A request that does not fit is refused
//! as it comes in; a scan waits until there is room for its next messages.

use crate::net::counts::Counts;
use crate::status::overloaded;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use tonic::{Code, Status};

/// Bytes of a request on the wire, at most, that draws on the part for small ones.
pub(crate) const SMALL: usize = 64 << 10;
/// Bytes of the part for small requests, at most; it is never more than a quarter of the budget for requests.
const SMALL_PART_MAX: usize = 16 << 20;
/// How long no second answer is given up for the same want of room.
const YIELDS_APART: Duration = Duration::from_millis(50);
/// The number of callers at which those without calls are removed.
const CALLERS_LOOKED_THROUGH: usize = 1_024;

/// Bytes that may be used: by all, by one caller, or by one connection of a caller.
#[derive(Debug)]
pub(crate) struct Budget {
    used: AtomicUsize,
    most: usize,
    /// Scans that wait for room.
    waiting: AtomicUsize,
    /// Scans that wait on connections of which no answer was given up.
    waiting_first: AtomicUsize,
    /// Whether an answer of this connection was given up, and nothing was taken since.
    is_behind: AtomicBool,
    /// When an answer was last given up for them, in milliseconds since `began`.
    yielded_ms: AtomicU64,
    began: Instant,
    /// The budget that it is a part of.
    of: Option<Arc<Budget>>,
}

/// A scan that waits for room, until it is dropped.
pub(crate) struct Waits {
    budget: Arc<Budget>,
    is_first: bool,
}

impl Drop for Waits {
    fn drop(&mut self) {
        for budget in self.budget.levels() {
            budget.waiting.fetch_sub(1, Ordering::Relaxed);
            budget.waiting_first.fetch_sub(usize::from(self.is_first), Ordering::Relaxed);
        }
    }
}

impl Budget {
    fn new(most: usize) -> Arc<Self> {
        Self::made(most, None)
    }

    fn made(most: usize, of: Option<Arc<Self>>) -> Arc<Self> {
        Arc::new(Self {
            used: AtomicUsize::new(0),
            most,
            waiting: AtomicUsize::new(0),
            waiting_first: AtomicUsize::new(0),
            is_behind: AtomicBool::new(false),
            yielded_ms: AtomicU64::new(0),
            began: Instant::now(),
            of,
        })
    }

    /// One caller's part: half of the whole.
    fn part(self: &Arc<Self>) -> Arc<Self> {
        Self::made(self.most / 2, Some(self.clone()))
    }

    /// The part of one of a caller's connections: all of it, if there are no others.
    pub(crate) fn of_connection(self: &Arc<Self>) -> Arc<Self> {
        Self::made(self.most, Some(self.clone()))
    }

    /// It, and what it is a part of.
    fn levels(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |budget| budget.of.as_deref())
    }

    fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Bytes that may be used.
    pub(crate) fn most(&self) -> usize {
        self.most
    }

    /// Counts bytes that are there already.
    pub(crate) fn count(self: &Arc<Self>, bytes: usize) -> Arc<Lease> {
        Arc::new(self.counted(bytes))
    }

    /// Takes bytes of it and of what it is a part of, or nothing.
    fn take(&self, bytes: usize) -> bool {
        self.take_below(bytes, 1)
    }

    /// Takes bytes as long as not more than that part of it is used, half of it for 2; or nothing.
    fn take_below(&self, bytes: usize, part: usize) -> bool {
        let before = self.used.fetch_add(bytes, Ordering::Relaxed);
        let fits = before.saturating_add(bytes) <= self.most / part
            && self.of.as_ref().is_none_or(|of| of.take_below(bytes, part));
        if !fits {
            self.used.fetch_sub(bytes, Ordering::Relaxed);
        }
        fits
    }

    /// Takes bytes whether there is room or not.
    fn add(&self, bytes: usize) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
        if let Some(of) = &self.of {
            of.add(bytes);
        }
    }

    fn give_back(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
        if let Some(of) = &self.of {
            of.give_back(bytes);
        }
    }

    fn lease(self: &Arc<Self>) -> Arc<Lease> {
        Arc::new(Lease { budget: self.clone(), bytes: AtomicUsize::new(0) })
    }

    /// Counts bytes that are in memory already, until the lease is dropped.
    pub(crate) fn counted(self: &Arc<Self>, bytes: usize) -> Lease {
        self.add(bytes);
        Lease { budget: self.clone(), bytes: AtomicUsize::new(bytes) }
    }

    /// Says that a scan waits for room, for as long as what is returned lives.
    pub(crate) fn wait(self: &Arc<Self>) -> Waits {
        let is_first = !self.is_behind.load(Ordering::Relaxed);
        for budget in self.levels() {
            budget.waiting.fetch_add(1, Ordering::Relaxed);
            budget.waiting_first.fetch_add(usize::from(is_first), Ordering::Relaxed);
        }
        Waits { budget: self.clone(), is_first }
    }

    /// Whether scans of the same caller's other connections wait.
    fn others_wait(&self) -> bool {
        self.of.as_ref().is_some_and(|of| of.waiting() > self.waiting())
    }

    /// Whether an answer of which nothing is taken is to be given up now, as others wait for its room: those
    /// of the same caller, or any where all callers together have used the budget up. One answer at a time
    /// is.
    pub(crate) fn is_wanted(&self) -> bool {
        let is_full = |budget: &Self| budget.used() >= budget.most / 4 * 3;
        let by_callers =
            || self.of.as_ref().is_some_and(|of| of.others_wait() && of.of.as_deref().is_some_and(is_full));
        if !self.others_wait() && !by_callers() {
            return false;
        }
        let whole = self.levels().last().unwrap_or(self);
        // None was before the first.
        let now = whole.began.elapsed() + YIELDS_APART;
        let now_ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        let apart = u64::try_from(YIELDS_APART.as_millis()).unwrap_or(u64::MAX);
        let next = |last: u64| (now_ms.saturating_sub(last) >= apart).then_some(now_ms);
        let is_wanted = whole.yielded_ms.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok();
        if is_wanted {
            self.is_behind.store(true, Ordering::Relaxed);
        }
        is_wanted
    }

    /// Something of an answer of this connection was taken.
    pub(crate) fn is_taken_from(&self) {
        if self.is_behind.load(Ordering::Relaxed) {
            self.is_behind.store(false, Ordering::Relaxed);
        }
    }

    /// Whether those come first that wait on the same caller's other connections. One that took nothing of an
    /// answer that was given up comes after all others. One that has something leaves the last quarter of the
    /// share to those that have none.
    fn is_after_others(&self) -> bool {
        let Some(of) = &self.of else { return false };
        if self.is_behind.load(Ordering::Relaxed) {
            let first = |budget: &Self| budget.waiting_first.load(Ordering::Relaxed);
            return first(of) > first(self);
        }
        self.used() > 0 && self.others_wait() && of.used() >= of.most / 4 * 3
    }

    /// Bytes of the caller's share for what a call works with. They are nothing that waits for a client, so
    /// whose turn it is does not matter.
    pub(crate) fn lend_to_work(self: &Arc<Self>, bytes: usize) -> Option<Arc<Lease>> {
        let lease = self.of.as_ref().unwrap_or(self).lease();
        lease.grow(bytes).then_some(lease)
    }

    /// Lends bytes to who comes new, as [`Budget::lend`] does, but not where others wait already.
    pub(crate) fn lend_new(self: &Arc<Self>, bytes: usize) -> Option<Arc<Lease>> {
        let caller = self.of.as_ref().unwrap_or(self);
        (caller.waiting() == 0).then(|| self.lend(bytes)).flatten()
    }

    /// Bytes that are in use until the lease is dropped; `None` where there is no room now, or what there is
    /// belongs to those of the caller's connections that have none.
    pub(crate) fn lend(self: &Arc<Self>, bytes: usize) -> Option<Arc<Lease>> {
        if self.is_after_others() {
            return None;
        }
        let lease = self.lease();
        lease.grow(bytes).then_some(lease)
    }
}

/// Bytes of a budget in use: until it is dropped.
#[derive(Debug)]
pub(crate) struct Lease {
    budget: Arc<Budget>,
    bytes: AtomicUsize,
}

impl Lease {
    /// Counts bytes that are there already.
    pub(crate) fn add(&self, bytes: usize) {
        self.budget.add(bytes);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Takes so many bytes more; false where there is no room for them now.
    pub(crate) fn grow(&self, bytes: usize) -> bool {
        let fits = self.budget.take(bytes);
        if fits {
            self.bytes.fetch_add(bytes, Ordering::Relaxed);
        }
        fits
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.budget.give_back(*self.bytes.get_mut());
    }
}

/// The caller, for shares.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Name {
    Token(String),
    Address(IpAddr),
}

/// A caller's shares.
#[derive(Debug)]
pub(crate) struct Caller {
    name: Name,
    /// For requests that are large, or of which something is missing.
    large: Arc<Budget>,
    /// For small requests that are complete.
    small: Arc<Budget>,
    pub(crate) answers: Arc<Budget>,
    /// Calls under way, by kind.
    pub(crate) calls: Counts,
}

impl Caller {
    /// Whether that is who calls.
    pub(crate) fn is(&self, token: Option<&str>, address: IpAddr) -> bool {
        match (&self.name, token) {
            (Name::Token(own), Some(token)) => own == token,
            (Name::Address(own), None) => *own == address,
            _ => false,
        }
    }
}

/// The address by which callers differ: for IPv6, the network of 64 bits that one customer has.
pub(crate) fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() >> 64 << 64).into()),
        address => address,
    }
}

/// The state that all callers share.
#[derive(Clone)]
pub(crate) struct Budgets {
    large: Arc<Budget>,
    small: Arc<Budget>,
    answers: Arc<Budget>,
    callers: Arc<Mutex<HashMap<Name, Weak<Caller>>>>,
}

impl Budgets {
    /// Budgets of so many bytes together.
    pub(crate) fn new(bytes: u64) -> Self {
        let half = usize::try_from(bytes / 2).unwrap_or(usize::MAX);
        let small = (half / 4).min(SMALL_PART_MAX);
        Self {
            large: Budget::new(half - small),
            small: Budget::new(small),
            answers: Budget::new(half),
            callers: Arc::default(),
        }
    }

    /// The shares of a caller with that token, or without one from that address.
    pub(crate) fn caller(&self, token: Option<&str>, address: IpAddr) -> Arc<Caller> {
        let name = token.map_or(Name::Address(address), |token| Name::Token(token.to_string()));
        let mut callers = self.callers.lock();
        if let Some(caller) = callers.get(&name).and_then(Weak::upgrade) {
            return caller;
        }
        if callers.len() >= CALLERS_LOOKED_THROUGH {
            callers.retain(|_, caller| caller.strong_count() > 0);
        }
        let caller = Arc::new(Caller {
            name: name.clone(),
            // One that writes large batches may use more than a half: others have the rest, and the part for
            // small ones.
            large: Budget::made(self.large.most / 4 * 3, Some(self.large.clone())),
            small: self.small.part(),
            answers: self.answers.part(),
            calls: Default::default(),
        });
        callers.insert(name, Arc::downgrade(&caller));
        caller
    }

    pub(crate) fn used(&self) -> usize {
        self.large.used() + self.small.used() + self.answers.used()
    }
}

/// The share of the budgets that a request has taken, until this is dropped.
#[derive(Debug)]
pub(crate) struct RequestLease {
    caller: Arc<Caller>,
    large: usize,
    small: usize,
}

impl RequestLease {
    pub(crate) fn new(caller: Arc<Caller>) -> Self {
        Self { caller, large: 0, small: 0 }
    }

    /// Takes bytes for a part of a request of which more is to come. A small one may use half of the part for
    /// small ones where there is no other room.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED`.
    pub(crate) fn grow(&mut self, bytes: usize, is_small: bool) -> Result<(), Status> {
        if self.caller.large.take(bytes) {
            self.large += bytes;
        } else if is_small && self.caller.small.take_below(bytes, 2) {
            self.small += bytes;
        } else {
            return Err(self.refused(bytes));
        }
        Ok(())
    }

    /// Takes bytes for a request that is there, or for what it becomes: a small one from the part for those
    /// first.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED`.
    pub(crate) fn grow_whole(&mut self, bytes: usize, is_small: bool) -> Result<(), Status> {
        if is_small && self.caller.small.take(bytes) {
            self.small += bytes;
        } else if self.caller.large.take(bytes) {
            self.large += bytes;
        } else {
            return Err(self.refused(bytes));
        }
        Ok(())
    }

    /// Why there is no room for so many bytes more: for now, or for one request ever.
    fn refused(&self, bytes: usize) -> Status {
        let (needs, most) = (self.large + bytes, self.caller.large.most);
        if needs <= most {
            return no_memory();
        }
        Status::resource_exhausted(format!(
            "the request takes {needs} bytes of memory, and a caller may have {most} (a part of call-memory)"
        ))
    }

    #[cfg(test)]
    fn bytes(&self) -> usize {
        self.large + self.small
    }
}

impl Drop for RequestLease {
    fn drop(&mut self) {
        if self.large > 0 {
            self.caller.large.give_back(self.large);
        }
        if self.small > 0 {
            self.caller.small.give_back(self.small);
        }
    }
}

/// The error for a call that there is no memory for.
pub(crate) fn no_memory() -> Status {
    overloaded(Code::ResourceExhausted, "the memory for calls is in use")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    #[test]
    fn a_part_is_never_over_its_half_and_all_parts_together_never_over_the_whole() {
        let whole = Budget::new(100);
        let (a, b, c) = (whole.part(), whole.part(), whole.part());
        assert!(a.lend(51).is_none() && whole.used() == 0);
        let first = a.lend(50).unwrap();
        let second = b.lend(40).unwrap();
        assert!(c.lend(11).is_none() && c.used() == 0 && whole.used() == 90);
        assert!(second.grow(10) && !second.grow(1));
        drop(first);
        assert_eq!((a.used(), whole.used()), (0, 50));
        drop((c.lend(50).unwrap(), second));
        assert_eq!(whole.used(), 0);
    }

    #[test]
    fn small_requests_have_room_beside_any_number_that_do_not_end() {
        let budgets = Budgets::new(16 << 20);
        let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let mut unfinished = Vec::new();
        // Of one caller, until there is no room even for a byte more.
        for bytes in [1 << 20, 64 << 10, 4 << 10, 1 << 10, 1] {
            loop {
                let mut lease = RequestLease::new(budgets.caller(None, address));
                if lease.grow(bytes, bytes <= SMALL).is_err() {
                    break;
                }
                unfinished.push(lease);
            }
        }
        let used: usize = unfinished.iter().map(RequestLease::bytes).sum();
        assert_eq!(used, budgets.used());
        for _ in 0..100 {
            let mut lease = RequestLease::new(budgets.caller(None, address));
            lease.grow_whole(SMALL, true).unwrap();
            lease.grow_whole(2 * SMALL, true).unwrap();
        }
        let mut large = RequestLease::new(budgets.caller(None, address));
        assert_eq!(large.grow(1 << 20, false).unwrap_err().code(), Code::ResourceExhausted);
        // Another caller has its own share, by a token or an address.
        for other in [Some("name"), None] {
            let mut lease = RequestLease::new(budgets.caller(other, IpAddr::V6(Ipv6Addr::LOCALHOST)));
            lease.grow(1 << 20, false).unwrap();
        }
        drop((unfinished, large));
        assert_eq!(budgets.used(), 0);
    }

    #[test]
    fn a_caller_is_one_whatever_its_connections_and_forgotten_when_it_is_gone() {
        let budgets = Budgets::new(16 << 20);
        let at = |last: u16| IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 1, 0, 0, 0, last));
        assert_eq!(network_of(at(1)), network_of(at(2)));
        assert_eq!(network_of("::ffff:10.0.0.1".parse().unwrap()), IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)));
        let (a, b) = (budgets.caller(Some("a"), at(1)), budgets.caller(Some("a"), at(2)));
        assert!(Arc::ptr_eq(&a, &b) && a.is(Some("a"), at(3)) && !a.is(None, at(1)));
        for n in 0..3 * CALLERS_LOOKED_THROUGH {
            drop(budgets.caller(Some(&n.to_string()), at(1)));
        }
        assert!(budgets.callers.lock().len() <= CALLERS_LOOKED_THROUGH + 1);
    }

    #[test]
    fn an_answer_yields_to_who_waits_and_one_at_a_time() {
        let whole = Budget::new(100);
        let (a, b) = (whole.part(), whole.part());
        let (first, second, other) = (a.of_connection(), a.of_connection(), b.of_connection());
        let held = first.lend(50).unwrap();
        assert!(second.lend(1).is_none() && !first.is_wanted());
        let own = first.wait();
        assert!(!first.is_wanted(), "its own connection takes nothing");
        let waits = second.wait();
        assert!(first.is_wanted());
        // Right after another.
        whole.yielded_ms.store(u64::MAX, Ordering::Relaxed);
        assert!(!first.is_wanted());
        drop((held, own));
        assert!(first.lend(10).is_none(), "one that took nothing comes after others");
        first.is_taken_from();
        let some = first.lend(40).unwrap();
        assert!(first.lend(10).is_none(), "what is left is for the connection that has none");
        assert!(second.lend(10).is_some());
        drop((waits, some));
        // Who waits for its own share is not helped by others'.
        let held = first.lend(50).unwrap();
        let _waits = other.wait();
        whole.yielded_ms.store(0, Ordering::Relaxed);
        assert!(!first.is_wanted());
        let more = other.lend(40).unwrap();
        assert!(first.is_wanted());
        drop((held, more));
        assert_eq!(whole.used(), 0);
    }
}
