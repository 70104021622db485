//! Compactions run by a process that shares no storage with the database: inputs and outputs travel over the
//! connection of the compaction.
//!
//! ```text
//! merge code  ->  Carried (a Storage)  ->  CompactionTables
//!                                              ~ network ~
//!                 the database's own storage  <-  OwnTables  <-  CompactionTables
//! ```
//!
//! One trait stands at both ends. The process that runs the compaction sees a storage with the inputs, to
//! which it may write the outputs. The database gives out the inputs of that one compaction and takes
//! SSTables with the names of its outputs, and nothing else.

use crate::compaction::{CompactionSpec, CompactionTables, sum};
use crate::storage::{ReadFile, Storage, TableStore, WriteFile};
use crate::sync::Mutex;
use crate::types::TableId;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt::Debug;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// The SSTables that a compaction reads and writes, at the database's end.
pub(crate) struct OwnTables {
    store: TableStore,
    inputs: BTreeMap<TableId, u64>,
    /// The name that the outputs have, but for the part.
    output: TableId,
    /// The most outputs, and bytes of outputs, that are taken.
    tables_max: u64,
    bytes_max: u64,
    files: Mutex<Files>,
}

/// The limit of output bytes: so many times the bytes of the inputs, and so many more. As many SSTables are
/// taken as these bytes and the cuts make, and `TABLES_MORE`.
const BYTES_MAX: (u64, u64) = (2, 64 << 20);
const TABLES_MORE: u64 = 8;

#[derive(Default)]
struct Files {
    reading: BTreeMap<TableId, Arc<dyn ReadFile>>,
    /// Outputs that are not synced yet.
    writing: BTreeMap<TableId, Box<dyn WriteFile>>,
    /// The number of outputs that were begun, and their bytes.
    tables: u64,
    bytes: u64,
}

impl Debug for OwnTables {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "OwnTables({} inputs)", self.inputs.len())
    }
}

impl OwnTables {
    pub(crate) fn new(store: &TableStore, spec: &CompactionSpec) -> Self {
        let inputs: BTreeMap<TableId, u64> = spec.inputs().map(|table| (table.id, table.bytes)).collect();
        let bytes_max = sum(inputs.values().copied()).saturating_mul(BYTES_MAX.0).saturating_add(BYTES_MAX.1);
        let tables_max =
            bytes_max / spec.output.sstable_bytes.max(1) + spec.output.cuts.len() as u64 + TABLES_MORE;
        let (store, output) = (store.clone(), spec.output.id);
        Self { store, inputs, output, tables_max, bytes_max, files: Mutex::default() }
    }

    fn check_output(&self, table: TableId) -> io::Result<()> {
        if (TableId { part: table.part, ..self.output }) == table {
            return Ok(());
        }
        Err(refused(format!("table {table} is no output of the compaction")))
    }
}

fn refused(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, why)
}

impl CompactionTables for OwnTables {
    fn read(&self, table: TableId, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let Some(bytes) = self.inputs.get(&table) else {
            return Err(refused(format!("table {table} is no input of the compaction")));
        };
        if offset.checked_add(into.len() as u64).is_none_or(|end| end > *bytes) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut files = self.files.lock();
        let file = match files.reading.get(&table) {
            Some(file) => file.clone(),
            None => {
                let file = self.store.storage().open(&self.store.path(table))?;
                files.reading.insert(table, file.clone());
                file
            }
        };
        drop(files);
        file.read_exact_at(into, offset)
    }

    fn write(&self, table: TableId, bytes: &[u8]) -> io::Result<()> {
        self.check_output(table)?;
        let mut files = self.files.lock();
        files.bytes = files.bytes.saturating_add(bytes.len() as u64);
        if files.bytes > self.bytes_max {
            return Err(refused(format!("more than the {} bytes that its outputs may have", self.bytes_max)));
        }
        let Files { writing, tables, .. } = &mut *files;
        match writing.entry(table) {
            Entry::Occupied(mut file) => file.get_mut().write(bytes),
            Entry::Vacant(new) => {
                if *tables >= self.tables_max {
                    return Err(refused(format!(
                        "more than the {tables} outputs that the compaction may have"
                    )));
                }
                let path = self.store.path(table);
                if self.store.storage().exists(&path)? {
                    return Err(refused(format!("table {table} is there already")));
                }
                *tables += 1;
                new.insert(self.store.storage().create(&path)?).write(bytes)
            }
        }
    }

    fn sync(&self, table: TableId) -> io::Result<()> {
        self.check_output(table)?;
        // Nothing follows, so its file is closed.
        let file = self.files.lock().writing.remove(&table);
        match file {
            Some(mut file) => file.sync(),
            None => Err(refused(format!("nothing was written of table {table}"))),
        }
    }
}

/// The SSTables of a compaction at the other end, as a storage for the code that runs it.
#[derive(Debug)]
pub(super) struct Carried {
    tables: Arc<dyn CompactionTables>,
    /// How long the inputs' files are.
    inputs: BTreeMap<TableId, u64>,
}

impl Carried {
    pub(super) fn new(tables: Arc<dyn CompactionTables>, spec: &CompactionSpec) -> Self {
        Self { tables, inputs: spec.inputs().map(|table| (table.id, table.bytes)).collect() }
    }
}

fn table_of(path: &Path) -> io::Result<TableId> {
    let name = path.file_name().and_then(|name| name.to_str());
    name.and_then(TableId::parse_file_name).ok_or_else(|| io::ErrorKind::NotFound.into())
}

fn unsupported<T>() -> io::Result<T> {
    Err(io::ErrorKind::Unsupported.into())
}

impl Storage for Carried {
    fn create(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        Ok(Box::new(CarriedWrite { tables: self.tables.clone(), table: table_of(path)? }))
    }
    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>> {
        let table = table_of(path)?;
        let bytes = *self.inputs.get(&table).ok_or(io::ErrorKind::NotFound)?;
        Ok(Arc::new(CarriedRead { tables: self.tables.clone(), table, bytes }))
    }
    /// Whether it is an input. Whether an output exists is for the database's end to say.
    fn exists(&self, path: &Path) -> io::Result<bool> {
        Ok(self.inputs.contains_key(&table_of(path)?))
    }
    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }
    fn list(&self, _: &Path) -> io::Result<Vec<String>> {
        Ok(self.inputs.keys().map(|table| table.file_name()).collect())
    }
    fn rename(&self, _: &Path, _: &Path) -> io::Result<()> {
        unsupported()
    }
    fn remove(&self, _: &Path) -> io::Result<()> {
        unsupported()
    }
    fn create_dir(&self, _: &Path) -> io::Result<()> {
        unsupported()
    }
    fn remove_dir(&self, _: &Path) -> io::Result<()> {
        unsupported()
    }
}

struct CarriedRead {
    tables: Arc<dyn CompactionTables>,
    table: TableId,
    bytes: u64,
}

impl ReadFile for CarriedRead {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.tables.read(self.table, offset, buffer)
    }
    fn len(&self) -> io::Result<u64> {
        Ok(self.bytes)
    }
}

struct CarriedWrite {
    tables: Arc<dyn CompactionTables>,
    table: TableId,
}

impl WriteFile for CarriedWrite {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.tables.write(self.table, bytes)
    }
    fn sync(&mut self) -> io::Result<()> {
        self.tables.sync(self.table)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compaction::sample;
    use crate::storage::sim::SimWorld;

    #[test]
    fn a_compaction_reaches_its_inputs_and_outputs_and_nothing_else() {
        let storage: Arc<dyn Storage> = SimWorld::new(1).env().storage;
        let store = TableStore::beside(&storage, Path::new("/"));
        let mut spec = sample::spec("a", "z", 30);
        let input = spec.inputs[0][0].id;
        let other = TableId { job: 99, ..input };
        for table in [input, other] {
            let mut file = storage.create(&store.path(table)).unwrap();
            file.write(b"0123456789").unwrap();
            file.sync().unwrap();
        }
        spec.inputs[0][0].bytes = 10;
        let own: Arc<dyn CompactionTables> = Arc::new(OwnTables::new(&store, &spec));
        let carried = Carried::new(own.clone(), &spec);
        let file = carried.open(&store.path(input)).unwrap();
        let mut bytes = [0; 4];
        file.read_exact_at(&mut bytes, 3).unwrap();
        assert_eq!((&bytes, file.len().unwrap()), (b"3456", 10));
        let end = |offset| own.read(input, offset, &mut [0; 4]).unwrap_err().kind();
        assert_eq!([end(7), end(u64::MAX)], [io::ErrorKind::UnexpectedEof; 2]);
        assert!(carried.open(&store.path(other)).is_err());
        assert!(own.read(other, 0, &mut [0; 4]).unwrap_err().to_string().contains("is no input"));

        let output = TableId { part: 7, ..spec.output.id };
        let mut file = carried.create(&store.path(output)).unwrap();
        file.write(b"ab").unwrap();
        file.write(b"cd").unwrap();
        file.sync().unwrap();
        let mut bytes = [0; 4];
        storage.open(&store.path(output)).unwrap().read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes, b"abcd");
        // Existing files are never overwritten, and only names of outputs are allowed.
        let again = OwnTables::new(&store, &spec);
        assert!(again.write(output, b"x").unwrap_err().to_string().contains("is there already"));
        assert!(own.write(input, b"x").unwrap_err().to_string().contains("is no output"));
        assert!(
            own.sync(TableId { part: 8, ..output }).unwrap_err().to_string().contains("nothing was written")
        );
    }

    #[test]
    fn outputs_are_taken_up_to_twice_the_inputs_and_a_bit_more() {
        let storage: Arc<dyn Storage> = SimWorld::new(1).env().storage;
        let store = TableStore::beside(&storage, Path::new("/"));
        let mut spec = sample::spec("a", "z", 30);
        spec.inputs[0][0].bytes = 10 << 20;
        (spec.output.sstable_bytes, spec.output.cuts) = (4 << 20, Vec::new());
        let output = |part| TableId { part, ..spec.output.id };
        // 84 MiB.
        let own = OwnTables::new(&store, &spec);
        let piece = vec![0; 1 << 20];
        (0..84).for_each(|_| own.write(output(0), &piece).unwrap());
        let refused = own.write(output(0), b"x").unwrap_err().to_string();
        assert!(refused.contains("more than the 88080384 bytes"), "{refused}");
        // 84 / 4 and 8 SSTables, of which only those that are not synced are open.
        let own = OwnTables::new(&store, &spec);
        for part in 1..30 {
            own.write(output(part), b"x").unwrap();
            own.sync(output(part)).unwrap();
            assert!(own.files.lock().writing.is_empty());
        }
        let refused = own.write(output(30), b"x").unwrap_err().to_string();
        assert!(refused.contains("more than the 29 outputs"), "{refused}");
    }
}
