//! Reads of many keys at once.
//!
//! All of them see one version and one read point. In each SSTable the keys are looked up in order, so that a
//! block that holds several is fetched once.

use super::Inner;
use super::get::search_memory;
use super::visible::Lookup;
use crate::commit::Store;
use crate::error::Result;
use crate::types::{Pinned, SeqNo, Timestamp, hash};

/// A key that memory gave no answer for.
struct Wanted<'a> {
    /// Its number among the keys asked for.
    number: usize,
    key: &'a [u8],
    hash: u64,
    lookup: Lookup<'a>,
}

impl Inner {
    /// The newest visible values of the keys, in the order asked. `read`: a snapshot's sequence number, or
    /// `None` for now.
    pub(crate) fn multi_get<K: AsRef<[u8]>>(
        &self,
        store: &Store,
        keys: &[K],
        read: Option<SeqNo>,
    ) -> Result<Vec<Option<Pinned>>> {
        store.check_not_dropped()?;
        let settings = store.settings();
        let rules = &settings.read;
        if rules.explicit {
            // The read point of now holds for all keys only while a snapshot keeps what it sees.
            let now = read.is_none().then(|| self.commit.snapshots.take());
            let read = read.or(now.as_ref().map(|now| now.seq()));
            return keys.iter().map(|key| self.get(store, key.as_ref(), read)).collect();
        }
        rules.check_filter()?;
        let now_us = self.now_for(rules);
        let (version, read) = self.view(read, || store.version());
        let mut order: Vec<usize> = (0..keys.len()).collect();
        order.sort_unstable_by_key(|&number| keys[number].as_ref());
        let mut values: Vec<Option<Pinned>> = vec![None; keys.len()];
        let mut wanted = Vec::with_capacity(keys.len());
        for number in order {
            let key = keys[number].as_ref();
            version.check_key(key)?;
            let mut lookup = Lookup::new(rules, key, now_us);
            match search_memory(&version, key, read, &mut lookup).is_break() {
                true => values[number] = lookup.finish()?,
                false => wanted.push(Wanted { number, key, hash: hash(key), lookup }),
            }
        }
        for run in version.runs.iter() {
            let mut last_table = std::ptr::null();
            let mut last_block = None;
            let mut left = Vec::with_capacity(wanted.len());
            for mut one in wanted {
                let Wanted { number, key, hash, ref mut lookup } = one;
                let Some(open) = run.find(key) else {
                    left.push(one);
                    continue;
                };
                let table = open.table()?;
                if !std::ptr::eq(last_table, &raw const *table) {
                    last_table = &raw const *table;
                    last_block = None;
                }
                if !table.fragments().is_empty() {
                    lookup.cover(table.fragments().newest_over(key, Timestamp::ZERO, read));
                }
                let found = table
                    .get_next(&mut last_block, key, hash, read, &mut |cell, owner| lookup.take(cell, owner));
                match found?.is_break() {
                    true => values[number] = one.lookup.finish()?,
                    false => left.push(one),
                }
            }
            wanted = left;
            if wanted.is_empty() {
                break;
            }
        }
        for one in wanted {
            values[one.number] = one.lookup.finish()?;
        }
        Ok(values)
    }
}
