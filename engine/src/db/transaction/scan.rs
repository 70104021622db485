//! Scans of a transaction: its snapshot merged with its own writes, key by key.

use super::super::write_set::OfFamily;
use super::super::{Entry, Family, Scan};
use super::{Isolation, Transaction};
use crate::error::Result;
use crate::types::{KeyRange, successor};
use std::collections::{VecDeque, btree_map};
use std::iter::FusedIterator;

/// The entries of a range as a [`Transaction`] sees them; see [`Transaction::scan`].
pub struct TransactionScan<'t> {
    transaction: &'t Transaction,
    family: Family,
    own: Option<&'t OfFamily>,
    before: Ends<Scan>,
    written: Ends<btree_map::Range<'t, Vec<u8>, Vec<usize>>>,
    /// Versions of a key with own writes, not yet yielded at either end.
    ready: [VecDeque<Entry>; 2],
    range: KeyRange,
    /// Its range among those that the transaction has read.
    tracked: Option<usize>,
    /// How far each end has come.
    reached: [Option<Vec<u8>>; 2],
    ended: bool,
}

/// An iterator of which the next item can be put back, at both ends.
struct Ends<I: Iterator> {
    inner: I,
    held: [Option<I::Item>; 2],
}

const FRONT: usize = 0;
const BACK: usize = 1;

impl<I: DoubleEndedIterator> Ends<I> {
    fn new(inner: I) -> Self {
        Self { inner, held: [None, None] }
    }

    fn take(&mut self, end: usize) -> Option<I::Item> {
        let mut next = || if end == FRONT { self.inner.next() } else { self.inner.next_back() };
        self.held[end].take().or_else(&mut next).or_else(|| self.held[1 - end].take())
    }

    fn put_back(&mut self, end: usize, item: Option<I::Item>) {
        self.held[end] = item;
    }
}

fn take(ready: &mut VecDeque<Entry>, end: usize) -> Option<Entry> {
    if end == FRONT { ready.pop_front() } else { ready.pop_back() }
}

impl<'t> TransactionScan<'t> {
    pub(super) fn new(transaction: &'t Transaction, family: &Family, range: KeyRange) -> Self {
        let range = family.own(range);
        let before = family.at(&transaction.snapshot).scan(range.clone());
        let own = transaction.own.of(family);
        let none: &'t btree_map::BTreeMap<Vec<u8>, Vec<usize>> = const { &btree_map::BTreeMap::new() };
        let keys = own.map_or(none, |own| &own.keys);
        let written = match range.is_empty() {
            true => none.range::<Vec<u8>, _>(..),
            false => keys.range::<Vec<u8>, _>(range.clone()),
        };
        // All of the range counts until it is known how far the scan went.
        let tracked = (transaction.isolation == Isolation::Serializable).then(|| {
            let mut reads = transaction.reads.lock();
            reads.ranges.push((family.clone(), range.clone()));
            reads.ranges.len() - 1
        });
        Self {
            transaction,
            family: family.clone(),
            own,
            before: Ends::new(before),
            written: Ends::new(written),
            ready: [VecDeque::new(), VecDeque::new()],
            range,
            tracked,
            reached: [None, None],
            ended: false,
        }
    }

    fn advance(&mut self, end: usize) -> Result<Option<Entry>> {
        loop {
            if let Some(entry) = take(&mut self.ready[end], end) {
                return Ok(Some(entry));
            }
            let before = self.before.take(end).transpose()?;
            let written = self.written.take(end);
            let before_is_next = match (&before, &written) {
                (None, None) => {
                    // The remaining versions of the key at which the other end stands.
                    return Ok(take(&mut self.ready[1 - end], end));
                }
                (None, Some(_)) => false,
                (Some(_), None) => true,
                (Some(entry), Some((key, _))) => match end {
                    FRONT => entry.key < **key,
                    _ => entry.key > **key,
                },
            };
            if before_is_next {
                self.written.put_back(end, written);
                let Some(entry) = before else { continue };
                let is_own = |own: &OfFamily| {
                    own.keys.contains_key(&entry.key) || own.deletes(&entry.key, entry.timestamp)
                };
                if !self.own.is_some_and(is_own) {
                    return Ok(Some(entry));
                }
                continue;
            }
            self.before.put_back(end, before.map(Ok));
            if let (Some((key, _)), Some(own)) = (written, self.own) {
                self.ready[end] = self.versions(own, key)?;
            }
        }
    }

    /// The versions of a key with own writes, newest first.
    fn versions(&self, own: &OfFamily, key: &[u8]) -> Result<VecDeque<Entry>> {
        let transaction = self.transaction;
        // The whole range counts as read.
        let versions = own.versions(&transaction.batch, key, transaction.now_us(), || ())?;
        let entry = |(timestamp, value)| Entry { key: key.to_vec(), timestamp, value };
        Ok(versions.unwrap_or_default().into_iter().map(entry).collect())
    }

    fn step(&mut self, end: usize) -> Option<Result<Entry>> {
        if self.ended {
            return None;
        }
        let next = self.advance(end);
        match &next {
            Ok(Some(entry)) => self.reached[end] = Some(entry.key.clone()),
            _ => self.ended = true,
        }
        next.transpose()
    }
}

impl Drop for TransactionScan<'_> {
    fn drop(&mut self) {
        let Some(tracked) = self.tracked.filter(|_| !self.ended) else { return };
        let mut reads = self.transaction.reads.lock();
        let [front, back] = &self.reached;
        let start = self.range.start.clone();
        let end = front.as_ref().map_or_else(|| start.clone(), |last| successor(last));
        reads.ranges[tracked].1 = KeyRange { start, end: Some(end) };
        if let Some(first) = back {
            let behind = KeyRange { start: first.clone(), end: self.range.end.clone() };
            reads.ranges.push((self.family.clone(), behind));
        }
    }
}

impl Iterator for TransactionScan<'_> {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step(FRONT)
    }
}

impl DoubleEndedIterator for TransactionScan<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.step(BACK)
    }
}

impl FusedIterator for TransactionScan<'_> {}

impl std::fmt::Debug for TransactionScan<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TransactionScan({} of {:?})", self.range, self.family)
    }
}
