//! The bench: measures Siltstone, and peers beside it, on one machine.
//!
//! - `record`: what a measurement is once it is over; nothing else passes between the parts.
//! - `limits/`: what the machine itself can do. `report/`: records as text and as a page.

mod limits;
mod record;
mod report;

use clap::{Parser, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;

/// Measures Siltstone, and peers beside it, on one machine.
#[derive(Parser)]
#[command(name = "siltstone-bench", version, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measures the machine's own limits, in about ten seconds.
    Limits {
        /// Directory whose file system is measured.
        #[arg(long, default_value = ".")]
        dir: PathBuf,
        /// Print one JSON object a line instead of a table.
        #[arg(long)]
        json: bool,
    },
    /// Prints the records of a file as tables, and writes them as a page.
    Report {
        /// Records, one JSON object a line.
        file: PathBuf,
        /// Where to write the page: one file that needs no other.
        #[arg(long)]
        html: Option<PathBuf>,
    },
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Limits { dir, json } => limits::run(&dir, json),
        Command::Report { file, html } => report::run(&file, html.as_deref()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("siltstone-bench: {e}");
            ExitCode::FAILURE
        }
    }
}
