//! How the driver reaches its tables: by transactions of an embedded database, or by calls of single rows.

use super::schema::{Row, Table};
use crate::store::Result;
use siltstone::{Db, Durability, ErrorKind, Family, FamilyOptions, Transaction};
use std::ops::Range;

/// What a transaction reads and writes.
pub(crate) trait Access {
    /// The row of that key.
    fn get(&mut self, table: Table, key: &[u8]) -> Result<Option<Row>>;
    fn put(&mut self, table: Table, key: &[u8], row: &Row) -> Result<()>;
    fn delete(&mut self, table: Table, key: &[u8]) -> Result<()>;
    /// The first rows of a range, so many at most.
    fn scan(&mut self, table: Table, keys: Range<Vec<u8>>, most: usize) -> Result<Vec<(Vec<u8>, Row)>>;

    /// The row, which must be there.
    fn row(&mut self, table: Table, key: &[u8]) -> Result<Row> {
        self.get(table, key)?.ok_or_else(|| format!("{}: a row is missing", table.name()).into())
    }
}

/// What came of a try.
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

    pub(crate) fn family(&self, table: Table) -> &Family {
        &self.families[table as usize]
    }

    /// Runs the transaction until it commits; how often others were in its way.
    pub(crate) fn run(
        &self,
        mut transaction: impl FnMut(&mut dyn Access) -> Result<Outcome>,
    ) -> Result<(Outcome, u64)> {
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
}

struct Open<'a> {
    of: &'a Embedded,
    transaction: Transaction,
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

    fn put(&mut self, table: Table, key: &[u8], row: &Row) -> Result<()> {
        self.transaction.put(self.of.family(table), key, row.encode());
        Ok(())
    }

    fn delete(&mut self, table: Table, key: &[u8]) -> Result<()> {
        self.transaction.delete(self.of.family(table), key);
        Ok(())
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
