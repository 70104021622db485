//! A sorted multiset.

use std::collections::BTreeMap;

/// A sorted multiset: O(log n) to add to, remove from and ask for its ends.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts<K>(BTreeMap<K, usize>);

impl<K: Ord> Counts<K> {
    /// Adds a value; returns whether it is the first of its kind.
    pub(crate) fn add(&mut self, key: K) -> bool {
        let count = self.0.entry(key).or_insert(0);
        *count += 1;
        *count == 1
    }

    /// Removes a value; returns whether it was the last of its kind.
    pub(crate) fn remove(&mut self, key: &K) -> bool {
        let Some(count) = self.0.get_mut(key) else { return false };
        *count -= 1;
        let is_last = *count == 0;
        if is_last {
            self.0.remove(key);
        }
        is_last
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The different values, ascending.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &K> {
        self.0.keys()
    }

    pub(crate) fn first(&self) -> Option<&K> {
        self.0.first_key_value().map(|(key, _)| key)
    }

    pub(crate) fn last(&self) -> Option<&K> {
        self.0.last_key_value().map(|(key, _)| key)
    }

    /// The number of values, repeated ones included. O(n).
    pub(crate) fn total(&self) -> usize {
        self.0.values().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_there_until_it_was_removed_as_often_as_added() {
        let mut counts = Counts::default();
        assert!(counts.add(3));
        assert!(!counts.add(3));
        assert!(counts.add(1));
        assert_eq!((counts.first(), counts.last(), counts.total()), (Some(&1), Some(&3), 3));
        assert!(!counts.remove(&3));
        assert!(counts.remove(&3));
        assert!(!counts.remove(&3), "it is not there");
        assert_eq!(counts.keys().collect::<Vec<_>>(), [&1]);
        assert!(counts.remove(&1) && counts.is_empty());
    }
}
