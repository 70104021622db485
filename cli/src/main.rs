//! The siltstone command line: direct use of an embedded database, and the simulation of strategies.
//!
//! - `commands/`: one file a command, with its options and its `run`.
//! - `format/`: rows as tsv, csv and jsonl; `escape`: bytes as text.
//! - `open`: how commands open a database. `progress`: bars. `failure`: exit codes and the one line on
//!   stderr. `interrupt`: what a command that a signal ends leaves behind.
//! - `remote`: a server as commands reach it. `logs`: what the server says of itself. `text`: numbers and
//!   times for people.
//!
//! Nothing here knows how the engine works inside; only its public API is used.

mod commands;
mod escape;
mod failure;
mod format;
mod interrupt;
mod logs;
mod open;
mod progress;
mod remote;
mod text;

use clap::Parser;
use std::process::ExitCode;

/// The allocator of the program. It gives what a burst of calls freed back to the system within seconds,
/// which the C library's does not (docs/experiments/server.md has both). The libraries choose none.
#[cfg(not(target_env = "msvc"))]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Siltstone: a log-structured merge key-value store whose compactions are not felt.
///
/// Keys and values on the command line, and in tsv and jsonl files, may hold backslash escapes: \t, \n, \\
/// and \xNN for any byte. Exit codes: 0 fine, 1 an error, damage, or no such key, 2 wrong usage, 130 ended by
/// Ctrl-C (SIGINT), 143 by SIGTERM.
#[derive(Parser)]
#[command(name = "siltstone", version, arg_required_else_help = false, disable_help_subcommand = true)]
#[command(after_help = "Example: siltstone put /tmp/db river silt && siltstone get /tmp/db river")]
struct Cli {
    #[command(subcommand)]
    command: commands::Command,
}

fn main() -> ExitCode {
    let result = match Cli::try_parse() {
        Ok(cli) => {
            interrupt::watch();
            cli.command.run()
        }
        Err(e) => failure::usage(&e),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
