//! The commands, one a file: its options, its `run`, and what it prints.
//!
//! - Rows of a database: `get`, `put`, `delete`, `scan`; in files: `load`, `dump`, `ingest`.
//! - A database: `family`, `inspect`, `compact`, `backup`, `check`, `repair`, `shared` (moves it into shared
//!   storage); and `simulate`, which needs none.
//! - A server: `serve`, `token`, `table`, `cells`, `top`. Compaction servers: `compactor`, `plan_compactors`.
//!   `serving` has the flags of all that listen.

mod backup;
mod cells;
mod check;
mod compact;
mod compactor;
mod delete;
mod dump;
mod family;
mod get;
mod ingest;
mod inspect;
mod load;
mod plan_compactors;
mod put;
mod repair;
mod scan;
mod serve;
mod serving;
mod shared;
mod simulate;
mod table;
mod token;
mod top;

use crate::failure::Outcome;
use crate::open::Database;
use clap::{Args, Subcommand};

#[derive(Subcommand)]
pub(crate) enum Command {
    Serve(serve::Serve),
    Compactor(compactor::Compactor),
    Token(token::Token),
    Table(table::Table),
    Top(top::Top),
    Get(get::Get),
    Put(put::Put),
    Delete(delete::Delete),
    Scan(scan::Scan),
    Load(load::Load),
    Dump(dump::Dump),
    Ingest(ingest::Ingest),
    Family(family::Family),
    Inspect(inspect::Inspect),
    Check(check::Check),
    Repair(repair::Repair),
    Backup(backup::Backup),
    Restore(backup::Restore),
    Compact(compact::Compact),
    Shared(shared::Shared),
    Simulate(simulate::Simulate),
    PlanCompactors(plan_compactors::PlanCompactors),
}

impl Command {
    pub(crate) fn run(self) -> Outcome {
        match self {
            Command::Serve(command) => command.run(),
            Command::Compactor(command) => command.run(),
            Command::Token(command) => command.run(),
            Command::Table(command) => command.run(),
            Command::Top(command) => command.run(),
            Command::Get(command) => command.run(),
            Command::Put(command) => command.run(),
            Command::Delete(command) => command.run(),
            Command::Scan(command) => command.run(),
            Command::Load(command) => command.run(),
            Command::Dump(command) => command.run(),
            Command::Ingest(command) => command.run(),
            Command::Family(command) => command.run(),
            Command::Inspect(command) => command.run(),
            Command::Check(command) => command.run(),
            Command::Repair(command) => command.run(),
            Command::Backup(command) => command.run(),
            Command::Restore(command) => command.run(),
            Command::Compact(command) => command.run(),
            Command::Shared(command) => command.run(),
            Command::Simulate(command) => command.run(),
            Command::PlanCompactors(command) => command.run(),
        }
    }
}

/// Which map of which database.
#[derive(Args)]
pub(crate) struct Place {
    #[command(flatten)]
    db: Database,
    /// Column family
    #[arg(long, default_value = siltstone::DEFAULT_FAMILY)]
    family: String,
}
