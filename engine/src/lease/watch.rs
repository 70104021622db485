//! Which standbys the owner knows of.

use super::object::Announcement;
use super::{ANNOUNCE_NS, LOOK_NS};
use std::collections::BTreeMap;

/// After how long without an announcement a standby counts as gone.
const SILENCE_NS: u64 = 3 * ANNOUNCE_NS;
/// After how long the owner looks again, where it could not.
const AGAIN_NS: u64 = 5_000_000_000;

/// What the owner has read of announcements.
#[derive(Debug)]
pub(super) struct Watch {
    /// The highest number that it has read.
    pub(super) newest: u64,
    /// When it has looked last, with success, and when it is to look next.
    looked: Option<u64>,
    look_at: u64,
    /// The standbys that wait, and when each was heard of last.
    waiting: BTreeMap<u64, u64>,
}

impl Watch {
    /// The owner's, which knows nothing yet and looks at once.
    pub(super) fn new() -> Self {
        Self { newest: 0, looked: None, look_at: 0, waiting: BTreeMap::new() }
    }

    pub(super) fn is_due(&self, now: u64) -> bool {
        now >= self.look_at
    }

    /// Whether to begin with a listing: what follows the newest that it knows may be deleted.
    pub(super) fn lists(&self, now: u64) -> bool {
        self.looked.is_none_or(|looked| now > looked + ANNOUNCE_NS)
    }

    /// Notes an announcement.
    pub(super) fn heard(&mut self, now: u64, announcement: &Announcement) {
        self.newest = self.newest.max(announcement.number);
        match announcement.waits {
            true => _ = self.waiting.insert(announcement.standby, now),
            false => _ = self.waiting.remove(&announcement.standby),
        }
    }

    /// Notes that the owner has looked, with success or without.
    pub(super) fn looked(&mut self, now: u64, has_read: bool) {
        self.looked = if has_read { Some(now) } else { self.looked };
        self.look_at = now
            + match (has_read, self.waiting.is_empty()) {
                (true, true) => LOOK_NS,
                // Another may want to be answered, and beside the lease this costs little.
                (true, false) => LOOK_NS / 6,
                (false, _) => AGAIN_NS,
            };
    }

    /// Up to which announcement the owner has looked, if a standby waits.
    pub(super) fn awaited(&mut self, now: u64) -> Option<u64> {
        self.waiting.retain(|_, heard| now < *heard + SILENCE_NS);
        (!self.waiting.is_empty()).then_some(self.newest)
    }
}

#[cfg(all(test, not(models)))]
mod tests {
    use super::*;

    #[test]
    fn a_standby_counts_until_it_leaves_or_falls_silent() {
        let mut watch = Watch::new();
        assert!(watch.is_due(7) && watch.lists(7) && watch.awaited(7).is_none());
        watch.looked(7, true);
        assert!(!watch.lists(7 + ANNOUNCE_NS) && watch.lists(8 + ANNOUNCE_NS));
        assert!(!watch.is_due(7 + LOOK_NS - 1) && watch.is_due(7 + LOOK_NS));
        watch.looked(7, false);
        assert!(watch.is_due(7 + AGAIN_NS));
        let said = |number, standby, waits| Announcement { number, standby, nonce: 0, waits };
        watch.heard(10, &said(4, 1, true));
        watch.looked(10, true);
        assert!(watch.is_due(10 + LOOK_NS / 6));
        watch.heard(20, &said(5, 2, true));
        watch.heard(30, &said(6, 1, false));
        assert_eq!(watch.awaited(30), Some(6), "the other one waits");
        assert_eq!(watch.awaited(20 + SILENCE_NS - 1), Some(6));
        assert_eq!(watch.awaited(20 + SILENCE_NS), None);
    }
}
