//! Families copied from one open database into another, or within one, without copying SSTables.
//!
//! SSTables never change, so a copy refers to those of its source, by hard links: the file system counts the
//! names of a file, and frees its bytes with the last one. Each database removes its own names, punches no
//! hole in a file that has a second name (`Storage::punch_hole`), and compacts the SSTables like any others,
//! so in time the two share nothing. A count in the manifest, as regions have it (`version/regions.rs`),
//! would hold only within one database, and not for a backup, which is a directory of its own. Where there
//! are no links, as between two file systems or in an object store, SSTables are copied.
//!
//! First the source: its families take no writes while their memory is flushed; then their state is read from
//! the manifest, and their SSTables are pinned as for a backup (`db/backup.rs`), so that none is removed and
//! no hole is punched for a later clip before it has its second name. Writes go on from there. Then the copy,
//! as at the end of an attach (`db/detach.rs`): names, one sync of the directory, one edit for all families.
//! A crash before that edit leaves names that the next open removes. The two parts have no lock in common, so
//! two databases may copy from each other.
//!
//! Names, generations and sequence numbers are as `db/detach.rs` says. A copy within one database has cells
//! with the same sequence numbers as its source; that is fine, as cells are ordered only within a store.

use super::detach::known_of;
use super::{Db, Family, Inner};
use crate::commit::Store;
use crate::error::Result;
use crate::event::EventKind;
use crate::types::SeqNo;
use crate::version::PinnedTables;
use crate::version::edit::StoreState;
use std::cell::Cell;
use std::sync::Arc;

/// The state of families at one moment, and a hold on their SSTables.
struct Resting {
    states: Vec<StoreState>,
    last_seq: SeqNo,
    tables: PinnedTables,
}

impl Db {
    /// Adds copies of families of `from`, which may be this database, as they are at one moment: all of them
    /// or none. Of each pair the first is its name there, the second the name that the copy gets. On one file
    /// system SSTables are linked, so it takes moments and no space; SSTables that either compacts later are
    /// no longer shared. Meanwhile the families of `from` take no writes (`Busy`). Snapshots taken before do
    /// not see the copies.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// use siltstone::{Db, FamilyOptions};
    /// let db = Db::open(dir.path())?;
    /// let rivers = db.create_family("rivers", FamilyOptions::default())?;
    /// rivers.put(b"elbe", b"1094 km")?;
    /// let fork = db.copy_families(&db, &[("rivers", "fork")])?.remove(0);
    /// rivers.delete(b"elbe")?;
    /// assert_eq!(fork.get(b"elbe")?.unwrap(), b"1094 km");
    /// # Ok::<(), siltstone::Error>(())
    /// ```
    pub fn copy_families(&self, from: &Db, families: &[(&str, &str)]) -> Result<Vec<Family>> {
        let stores = self.inner.copy_families(&from.inner, families)?;
        Ok(stores.into_iter().map(|store| Family::new(self.inner.clone(), store)).collect())
    }
}

impl Inner {
    fn copy_families(&self, from: &Arc<Self>, families: &[(&str, &str)]) -> Result<Vec<Arc<Store>>> {
        self.cx.check_writable()?;
        if families.is_empty() {
            return Ok(Vec::new());
        }
        let theirs: Vec<&str> = families.iter().map(|(there, _)| *there).collect();
        let Resting { states, last_seq, tables } = from.rest(&theirs)?;
        kill_point!("copy-families-held");
        let names = families.iter().map(|(_, here)| *here);
        let arriving: Result<Vec<_>> =
            names.zip(states).map(|(name, state)| self.arriving(name, state)).collect();
        let (linked, copied) = (Cell::new(0), Cell::new(0));
        let stores = self.take_in(arriving?, last_seq, &|theirs, ours, bytes| {
            let (place, other) = (self.catalog.tables.store(), from.catalog.tables.store());
            let count = if place.share_from(other, theirs, ours, bytes)? { &linked } else { &copied };
            count.set(count.get() + 1);
            // Another process may have opened it since it was closed, and changed the pinned files.
            from.cx.check_open()
        })?;
        drop(tables);
        let numbers = [("families", stores.len() as u64), ("linked", linked.get()), ("copied", copied.get())];
        let reason = format!("copied from {}", from.catalog.dir.display());
        self.cx.events.record(EventKind::Family, &stores[0].name, reason, &numbers);
        Ok(stores)
    }

    /// Flushes families and takes their state, with all that was written to them in SSTables.
    fn rest(self: &Arc<Self>, names: &[&str]) -> Result<Resting> {
        self.cx.check_writable()?;
        let _one = self.catalog.families.lock();
        self.cx.check_writable()?;
        let stores: Result<Vec<_>> = names.iter().map(|name| self.catalog.find(name)).collect();
        let stores = stores?;
        // Flushes most of it while writes go on.
        stores.iter().try_for_each(|store| self.compact_wal_values(store))?;
        let rested = self.refuse_and_rest(&stores);
        stores.iter().for_each(|store| store.set_leaving(false));
        rested
    }

    /// Makes the stores refuse writes, flushes what memory still has, and takes their state and SSTables.
    fn refuse_and_rest(self: &Arc<Self>, stores: &[Arc<Store>]) -> Result<Resting> {
        self.commit.with_writes_held(|_| stores.iter().for_each(|store| store.set_leaving(true)))?;
        stores.iter().try_for_each(|store| self.empty_memory(store))?;
        let manifest = self.catalog.manifest.lock();
        let states: Result<Vec<_>> = stores.iter().map(|store| known_of(manifest.state(), store)).collect();
        let tables = self.catalog.hold_tables(stores);
        Ok(Resting { states: states?, last_seq: self.commit.snapshots.visible(), tables })
    }
}
