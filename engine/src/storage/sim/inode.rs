//! One file as the machine sees it, and its bytes on the medium.
//!
//! It has the current bytes, and for each 512-byte sector written since the last sync the old bytes on the
//! medium. So a sync drops the old sectors, and a power loss brings some of them back:
//!
//! - each unsynced sector keeps its new bytes or falls back to the old ones, independently; one appended to
//!   by several writes may also hold only the earlier of them (the page went out in between);
//! - an unsynced length keeps its new value, falls back, or stops at any byte in between; sectors lost below
//!   it read as the old bytes (zeros where there were none);
//! - a file truncated and written again is either wholly the old one, or the new one under the rules above;
//! - half of the time one toss decides for the whole file instead, so that "this file whole, that one not at
//!   all" occurs as well as the mixtures;
//! - sectors of a *failed* sync are clean to the machine, which still reads them, but never reach the medium:
//!   the next power loss loses them whatever is synced later, unless they are written again first.

use super::SECTOR;
use super::content::{BLOCK, Content, Sector};
use crate::types::Rng;
use std::collections::{BTreeMap, BTreeSet};

/// The old bytes on the medium of a sector that was written since.
#[derive(Clone)]
struct Unsynced {
    old: Sector,
    /// End of the newest write within the sector.
    end: u16,
    /// Ends of earlier writes that later ones continued without overwriting: states the medium may have.
    cuts: Vec<u16>,
}

#[derive(Clone, Default)]
pub(super) struct Inode {
    content: Content,
    durable_len: u64,
    unsynced: BTreeMap<u64, Unsynced>,
    /// Sectors whose sync failed, with the bytes on the medium.
    doomed: BTreeMap<u64, Sector>,
    /// Punched blocks: no space is charged for them.
    holes: BTreeSet<u64>,
}

impl Inode {
    /// A file whose bytes are all on the medium.
    pub(super) fn durable(bytes: &[u8]) -> Self {
        let mut content = Content::default();
        content.write(0, bytes);
        Self { durable_len: content.len(), content, ..Self::default() }
    }

    pub(super) fn content(&self) -> &Content {
        &self.content
    }

    pub(super) fn len(&self) -> u64 {
        self.content.len()
    }

    /// Bytes charged against the quota.
    pub(super) fn allocated(&self) -> u64 {
        let last = self.len() / BLOCK as u64;
        let short = if self.holes.contains(&last) { BLOCK as u64 - self.len() % BLOCK as u64 } else { 0 };
        self.len() - (self.holes.len() as u64 * BLOCK as u64 - short)
    }

    pub(super) fn is_clean(&self) -> bool {
        self.unsynced.is_empty() && self.doomed.is_empty() && self.durable_len == self.len()
    }

    /// Additional space for a write.
    pub(super) fn growth(&self, offset: u64, len: usize) -> u64 {
        let end = offset + len as u64;
        let beyond = end.saturating_sub(self.len());
        if len == 0 || self.holes.is_empty() {
            return beyond;
        }
        let blocks = offset / BLOCK as u64..=(end - 1) / BLOCK as u64;
        beyond + self.holes.range(blocks).count() as u64 * BLOCK as u64
    }

    pub(super) fn write(&mut self, offset: u64, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let end = offset + bytes.len() as u64;
        for sector in offset / SECTOR as u64..=(end - 1) / SECTOR as u64 {
            let start = sector * SECTOR as u64;
            let from = offset.max(start) - start;
            let to = end.min(start + SECTOR as u64) - start;
            self.touch(sector, from as u16, to as u16);
        }
        if !self.holes.is_empty() {
            for block in offset / BLOCK as u64..=(end - 1) / BLOCK as u64 {
                self.holes.remove(&block);
            }
        }
        self.content.write(offset, bytes);
    }

    /// Saves the sector's durable bytes before it is changed at `from..to`.
    fn touch(&mut self, sector: u64, from: u16, to: u16) {
        if let Some(dirty) = self.unsynced.get_mut(&sector) {
            if from < dirty.end {
                dirty.cuts.clear();
            } else {
                dirty.cuts.push(dirty.end);
            }
            dirty.end = dirty.end.max(to);
            return;
        }
        let old = self.doomed.remove(&sector).unwrap_or_else(|| self.content.sector(sector));
        self.unsynced.insert(sector, Unsynced { old, end: to, cuts: Vec::new() });
    }

    /// Extends with reserved zeros or truncates; a truncated tail comes back if the change does not survive.
    pub(super) fn set_len(&mut self, len: u64) {
        if len < self.len() {
            let tail = len / SECTOR as u64..self.len().div_ceil(SECTOR as u64);
            for sector in tail {
                if self.content.sector(sector).is_some() || self.unsynced.contains_key(&sector) {
                    self.touch(sector, 0, SECTOR as u16);
                }
            }
            self.holes = self.holes.range(..len / BLOCK as u64).copied().collect();
        }
        self.content.set_len(len);
    }

    /// Frees the whole blocks within the range; all of it reads as zeros after.
    pub(super) fn punch(&mut self, offset: u64, len: u64) {
        let end = offset.saturating_add(len).min(self.len());
        if offset >= end {
            return;
        }
        let zeros = [0; BLOCK];
        let mut at = offset;
        while at < end {
            let block = at / BLOCK as u64;
            let n = ((block + 1) * BLOCK as u64).min(end) - at;
            if !self.content.is_absent(block) {
                self.write(at, &zeros[..n as usize]);
            }
            let whole = at == block * BLOCK as u64 && (n == BLOCK as u64 || end == self.len());
            if whole {
                self.content.clear_block(block);
                self.holes.insert(block);
            }
            at += n;
        }
    }

    pub(super) fn sync(&mut self) {
        self.unsynced.clear();
        self.durable_len = self.len();
    }

    /// A failed sync: nothing reached the medium, and nothing will, though the machine thinks it clean.
    pub(super) fn fail_sync(&mut self) {
        let lost = std::mem::take(&mut self.unsynced);
        self.doomed.extend(lost.into_iter().map(|(sector, dirty)| (sector, dirty.old)));
    }

    /// The file after a power loss; `odds` percent is the chance of each unsynced change to survive.
    pub(super) fn after_power_loss(&self, odds: u8, rng: &mut Rng) -> Self {
        let odds = match rng.chance(50) {
            true if rng.chance(odds) => 100,
            true => 0,
            false => odds,
        };
        let (old_len, new_len) = (self.durable_len, self.len());
        let mut content = self.content.clone();
        content.set_len(old_len.max(new_len));
        for (&sector, old) in &self.doomed {
            content.set_sector(sector, old.as_deref());
        }
        for (&sector, dirty) in &self.unsynced {
            if !rng.chance(odds) {
                content.set_sector(sector, dirty.old.as_deref());
            } else if odds < 100 && !dirty.cuts.is_empty() && rng.chance(25) {
                let cut = usize::from(*rng.pick(&dirty.cuts));
                let mut torn = content.sector(sector).unwrap_or_else(|| Box::new([0; SECTOR]));
                match &dirty.old {
                    Some(old) => torn[cut..].copy_from_slice(&old[cut..]),
                    None => torn[cut..].fill(0),
                }
                content.set_sector(sector, Some(&torn));
            }
        }
        let len = if rng.chance(odds) {
            new_len
        } else if odds == 0 || new_len <= old_len {
            old_len
        } else {
            let between = rng.range(old_len..new_len + 1);
            match rng.range(0..4) {
                0 => old_len,
                1 => between,
                _ => (between / SECTOR as u64 * SECTOR as u64).max(old_len),
            }
        };
        content.set_len(len);
        self.settled(content)
    }

    /// A clean file with these bytes; holes stay where they are still empty.
    fn settled(&self, content: Content) -> Self {
        let blocks = content.len().div_ceil(BLOCK as u64);
        let holes = self.holes.range(..blocks).copied().filter(|&b| content.is_absent(b)).collect();
        Self { durable_len: content.len(), content, holes, ..Self::default() }
    }
}
