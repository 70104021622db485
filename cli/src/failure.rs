//! How a command ends badly: an exit code and at most one line on stderr.

use std::io::{self, Write};
use std::process::ExitCode;

/// The result of a command.
pub(crate) type Outcome<T = ()> = Result<T, Failure>;

/// Why a command did not succeed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The command was wrong: exit code 2.
    Usage(String),
    /// It could not be done: exit code 1.
    Failed(String),
    /// What there is to say was said, or there is nothing to say (no such key): exit code 1.
    Silent,
    /// A signal ended it: exit code 128 and the signal's number.
    Signal(i32, String),
    /// The reader of our output went away, as `head` does: not our failure, exit code 0.
    OutputClosed,
}

impl Failure {
    /// Prints the line and gives the exit code.
    pub(crate) fn report(self) -> ExitCode {
        match self {
            Failure::Usage(line) => {
                say(&line);
                ExitCode::from(2)
            }
            Failure::Failed(line) => {
                say(&line);
                ExitCode::FAILURE
            }
            Failure::Signal(signal, line) => {
                say(&line);
                ExitCode::from(128u8.wrapping_add(signal as u8))
            }
            Failure::Silent => ExitCode::FAILURE,
            Failure::OutputClosed => ExitCode::SUCCESS,
        }
    }
}

impl From<siltstone::Error> for Failure {
    fn from(e: siltstone::Error) -> Self {
        Failure::Failed(e.to_string())
    }
}

/// A failed write to our own output; other files name themselves where they fail.
impl From<io::Error> for Failure {
    fn from(e: io::Error) -> Self {
        match e.kind() {
            io::ErrorKind::BrokenPipe => Failure::OutputClosed,
            _ => Failure::Failed(format!("write the output: {e}")),
        }
    }
}

impl From<serde_json::Error> for Failure {
    fn from(e: serde_json::Error) -> Self {
        io::Error::from(e).into()
    }
}

/// What clap says, in one line; its help and version texts are printed as they are and are no failure.
pub(crate) fn usage(error: &clap::Error) -> Outcome {
    if !error.use_stderr() {
        return Ok(error.print()?);
    }
    let text = error.render().to_string();
    let head: Vec<&str> = text.lines().take_while(|line| !line.trim().is_empty()).map(str::trim).collect();
    let head = head.join(" ");
    let head = head.strip_prefix("error: ").unwrap_or(&head);
    Err(Failure::Usage(format!("{head} (see --help)")))
}

/// One line on stderr, where somebody may have stopped listening.
fn say(line: &str) {
    let _ = writeln!(io::stderr(), "siltstone: {}", one_line(line));
}

fn one_line(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}
