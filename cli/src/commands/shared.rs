//! Shared databases: moving a local one into shared storage.

use crate::failure::Outcome;
use crate::text::count;
use crate::{interrupt, open, progress};
use clap::{Args, Subcommand};
use siltstone::{Options, size_text};
use std::path::PathBuf;

/// Move a database into shared storage
#[derive(Args)]
#[command(after_help = "Example: siltstone shared adopt /tmp/db s3://bucket/prod")]
pub(crate) struct Shared {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    Adopt(Adopt),
}

impl Shared {
    pub(crate) fn run(self) -> Outcome {
        match self.action {
            Action::Adopt(action) => action.run(),
        }
    }
}

/// Make a database that nobody has open the shared one in a place
///
/// Its SSTables, WAL and manifest are brought there; the directory becomes a cache that may be lost. From the
/// beginning on nothing else opens the directory. Whatever ends the command, running it again goes on.
#[derive(Args)]
#[command(after_help = "\
Example: siltstone shared adopt /tmp/db s3://bucket/prod && siltstone serve /tmp/db --shared s3://bucket/prod
         siltstone shared adopt /tmp/db s3://bucket/prod --undo")]
struct Adopt {
    /// Directory of the database
    db: PathBuf,
    /// The place: a directory, or an object store, as s3://bucket/prefix
    #[arg(value_parser = open::place)]
    location: PathBuf,
    /// Make it a local database again, unless all of it is there already
    #[arg(long)]
    undo: bool,
    /// Report as JSON
    #[arg(long, conflicts_with = "undo")]
    json: bool,
}

impl Adopt {
    fn run(self) -> Outcome {
        open::directory(&self.db)?;
        let (dir, place) = (self.db.display(), self.location.display());
        let options = Options { shared: Some(self.location.clone()), ..Options::default() };
        let builder = open::builder().options(options);
        if self.undo {
            interrupt::leaves("it may be undone or not; run it again");
            builder.undo_adoption(&self.db)?;
            println!("{dir} is a local database");
            return Ok(());
        }
        interrupt::leaves("run it again to go on, or with --undo to have the local database again");
        let adopted = progress::over_files(|progress| builder.adopt(&self.db, progress))?;
        if self.json {
            println!("{}", serde_json::to_string(&adopted)?);
            return Ok(());
        }
        let (tables, bytes) = (count(adopted.tables, "SSTable"), size_text(adopted.bytes));
        let uploaded = size_text(adopted.uploaded_bytes);
        println!(
            "{dir} is the local part of the shared database in {place}: {tables} with {bytes}; {uploaded} uploaded"
        );
        Ok(())
    }
}
