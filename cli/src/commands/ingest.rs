use super::Place;
use crate::failure::Outcome;
use crate::text::count;
use crate::{interrupt, open};
use clap::Args;
use serde_json::json;
use siltstone::size_text;
use std::path::PathBuf;

/// Add SSTables made elsewhere to a family, all or none
///
/// SSTables come from `siltstone dump DB FILE.table`, or from the library's SstableWriter. Their rows become
/// the newest data of the family at once, without passing through its WAL. Files are linked, or copied from
/// another file system; they stay, but must not be written to.
#[derive(Args)]
#[command(after_help = "\
Example: siltstone dump /tmp/old rows.table && siltstone ingest /tmp/db rows.table
         siltstone ingest /tmp/db --family rivers a-m.table n-z.table")]
pub(crate) struct Ingest {
    #[command(flatten)]
    place: Place,
    /// SSTables, whose keys must not overlap
    #[arg(required = true)]
    tables: Vec<PathBuf>,
    /// Report as JSON
    #[arg(long)]
    json: bool,
}

impl Ingest {
    pub(crate) fn run(self) -> Outcome {
        let db = open::to_write(&self.place.db)?;
        let family = open::family(&db, &self.place.family, false)?;
        interrupt::leaves("the tables are in the family all or none");
        let ingested = family.ingest(&self.tables);
        let bytes = self.tables.iter().filter_map(|table| Some(std::fs::metadata(table).ok()?.len())).sum();
        let closed = db.close();
        let seq = ingested?;
        closed?;
        let tables = self.tables.len() as u64;
        if self.json {
            println!("{}", json!({ "tables": tables, "bytes": bytes, "seq": seq }));
        } else {
            println!("ingested {}, {}", count(tables, "table"), size_text(bytes));
        }
        Ok(())
    }
}
