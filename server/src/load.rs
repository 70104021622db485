//! Rows from within the process: what a demonstration, or a program that embeds the server, begins with.

use crate::names;
use crate::proto::admin;
use crate::proto::data::{Mutation, mutation};
use crate::rows::mutate;
use crate::server::Server;
use crate::status::status;
use siltstone::Batch;

/// Bytes of a batch.
const BATCH_BYTES: usize = 1 << 20;

/// A cell to be written, with the server's time as its timestamp.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    /// Row key.
    pub row: String,
    /// Column family.
    pub family: &'static str,
    /// Column qualifier.
    pub qualifier: String,
    /// Value.
    pub value: String,
}

impl Server {
    /// Whether the instance (`projects/P/instances/I`) has a table of that name.
    ///
    /// # Errors
    /// A name that can be no table's.
    pub fn has_table(&self, instance: &str, id: &str) -> Result<bool, String> {
        let name = names::table_of(instance, id).map_err(|e| e.message().to_string())?;
        Ok(self.shared().tables.all().contains_key(&name))
    }

    /// Creates a table with these families and writes the cells into it, many to a batch, in their order.
    /// Waits for the disk once, at the end. Returns how many cells it wrote.
    ///
    /// # Errors
    /// A table that exists, names that are none, what the engine answers.
    pub fn load(
        &self,
        instance: &str,
        id: &str,
        families: &[&str],
        cells: impl IntoIterator<Item = Cell>,
    ) -> Result<u64, String> {
        let text = |e: tonic::Status| e.message().to_string();
        let name = names::table_of(instance, id).map_err(text)?;
        let column_families =
            families.iter().map(|family| ((*family).to_string(), admin::ColumnFamily::default())).collect();
        let table = admin::Table { column_families, ..Default::default() };
        let tables = &self.shared().tables;
        let table = tables.create(&name, &table, &[] as &[&[u8]]).map_err(text)?;
        let (mut waiting, mut bytes, mut written) = (Vec::new(), 0, 0);
        // Locked batch by batch, so that the table may be split meanwhile.
        let write = |cells: &mut Vec<Cell>| {
            let _hold = table.hold();
            let (layout, mut batch) = (table.now(), Batch::new());
            for cell in cells.drain(..) {
                let set = mutation::SetCell {
                    family_name: cell.family.to_string(),
                    column_qualifier: cell.qualifier.into(),
                    timestamp_micros: -1,
                    value: cell.value.into(),
                };
                let set = mutation::Mutation::SetCell(set);
                let mutation = Mutation { mutation: Some(set), ..Default::default() };
                mutate::add(&mut batch, &layout, cell.row.as_bytes(), &[mutation]).map_err(text)?;
            }
            if batch.is_empty() {
                return Ok(());
            }
            let result = tables.db.write_with(&batch, siltstone::Durability::Buffered);
            result.map(|_| ()).map_err(|e| text(status(e)))
        };
        for cell in cells {
            written += 1;
            bytes += cell.row.len() + cell.qualifier.len() + cell.value.len();
            waiting.push(cell);
            if bytes >= BATCH_BYTES {
                bytes = 0;
                write(&mut waiting)?;
            }
        }
        write(&mut waiting)?;
        tables.db.sync().map_err(|e| e.to_string())?;
        Ok(written)
    }
}
