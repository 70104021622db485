//! The driver's access to its tables; and that to an embedded database, by transactions. (Those of a server:
//! `served`.)

use super::schema::{Row, Table};
use crate::failure::Result;
use siltstone::{Db, Durability, ErrorKind, Family, FamilyOptions, Transaction};
use std::ops::Range;

/// A writer of rows.
pub(crate) trait Put {
    fn put(&mut self, table: Table, key: &[u8], row: &Row) -> Result<()>;
}

/// The reads and writes of a transaction.
pub(crate) trait Access: Put {
    /// The row of that key.
    fn get(&mut self, table: Table, key: &[u8]) -> Result<Option<Row>>;
    /// Changes a row, which must be there, while no other changes it; the row as it is now.
    fn change(&mut self, table: Table, key: &[u8], by: &mut dyn FnMut(&mut Row)) -> Result<Row>;
    /// Deletes a row; whether it was there.
    fn take(&mut self, table: Table, key: &[u8]) -> Result<bool>;
    /// The first rows of a range, so many at most.
    fn scan(&mut self, table: Table, keys: Range<Vec<u8>>, most: usize) -> Result<Vec<(Vec<u8>, Row)>>;

    /// The row, which must be there.
    fn row(&mut self, table: Table, key: &[u8]) -> Result<Row> {
        self.get(table, key)?.ok_or_else(|| format!("{}: a row is missing", table.name()).into())
    }
}

/// Access to the tables.
pub(crate) trait Tables: Sync {
    /// Runs the transaction until nobody is in its way; how often others were.
    fn run(&self, transaction: &mut dyn FnMut(&mut dyn Access) -> Result<Outcome>) -> Result<(Outcome, u64)>;
    /// Puts rows, which need not come all at once.
    fn load(&self, part: &mut dyn FnMut(&mut dyn Put) -> Result<()>) -> Result<()>;
    /// Whether a transaction happens as a whole.
    fn is_atomic(&self) -> bool;
    /// Flushes everything, and waits until no compaction is due.
    fn settle(&self) -> Result<()>;
    /// Compacts all of a table.
    fn merge(&self, table: Table) -> Result<()>;
}

/// The result of a try.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    Committed,
    /// The transaction wants it so, as one of a hundred New-Orders does.
    RolledBack,
}

/// A database whose families are the tables.
#[derive(Clone)]
pub(crate) struct Embedded {
    db: Db,
    families: Vec<Family>,
}

impl Embedded {
    /// Makes the families that are not there.
    pub(crate) fn new(db: &Db) -> Result<Self> {
        let family = |table: Table| match db.family(table.name()) {
            Err(e) if e.kind() == ErrorKind::NotFound => {
                db.create_family(table.name(), FamilyOptions::default())
            }
            found => found,
        };
        let families = Table::ALL.into_iter().map(family).collect::<siltstone::Result<_>>()?;
        Ok(Self { db: db.clone(), families })
    }

    fn family(&self, table: Table) -> &Family {
        &self.families[table as usize]
    }
}

impl Tables for Embedded {
    fn run(&self, transaction: &mut dyn FnMut(&mut dyn Access) -> Result<Outcome>) -> Result<(Outcome, u64)> {
        let mut conflicts = 0;
        loop {
            let mut open = Open { of: self, transaction: self.db.begin() };
            let outcome = transaction(&mut open)?;
            if outcome == Outcome::RolledBack {
                return Ok((outcome, conflicts));
            }
            match open.transaction.commit(Durability::Buffered) {
                Ok(_) => return Ok((outcome, conflicts)),
                Err(e) if e.kind() == ErrorKind::Conflict => conflicts += 1,
                Err(e) => return Err(e.into()),
            }
        }
    }

    fn load(&self, part: &mut dyn FnMut(&mut dyn Put) -> Result<()>) -> Result<()> {
        self.run(&mut |access| part(access).map(|()| Outcome::Committed)).map(drop)
    }

    fn is_atomic(&self) -> bool {
        true
    }

    fn settle(&self) -> Result<()> {
        self.db.flush()?;
        Ok(self.db.wait_idle()?)
    }

    fn merge(&self, table: Table) -> Result<()> {
        Ok(self.family(table).compact::<&[u8]>(..)?)
    }
}

struct Open<'a> {
    of: &'a Embedded,
    transaction: Transaction,
}

impl Put for Open<'_> {
    fn put(&mut self, table: Table, key: &[u8], row: &Row) -> Result<()> {
        self.transaction.put(self.of.family(table), key, row.encode());
        Ok(())
    }
}

impl Access for Open<'_> {
    fn get(&mut self, table: Table, key: &[u8]) -> Result<Option<Row>> {
        // What never changes cannot be in anybody's way.
        let found = match table {
            Table::Item => self.transaction.get_untracked(self.of.family(table), key)?,
            _ => self.transaction.get(self.of.family(table), key)?,
        };
        found.map(|bytes| Row::decode(&bytes)).transpose()
    }

    fn change(&mut self, table: Table, key: &[u8], by: &mut dyn FnMut(&mut Row)) -> Result<Row> {
        let mut row = self.row(table, key)?;
        by(&mut row);
        self.put(table, key, &row)?;
        Ok(row)
    }

    fn take(&mut self, table: Table, key: &[u8]) -> Result<bool> {
        let was_there = self.get(table, key)?.is_some();
        self.transaction.delete(self.of.family(table), key);
        Ok(was_there)
    }

    fn scan(&mut self, table: Table, keys: Range<Vec<u8>>, most: usize) -> Result<Vec<(Vec<u8>, Row)>> {
        let mut rows = Vec::new();
        for found in self.transaction.scan(self.of.family(table), keys).take(most) {
            let found = found?;
            rows.push((found.key, Row::decode(&found.value)?));
        }
        Ok(rows)
    }
}
