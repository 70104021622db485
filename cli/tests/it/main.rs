//! The binary as a user runs it.

mod adopt;
mod backups;
mod bad_input;
mod families;
mod formats;
mod packages;
mod reports;
mod server;
mod shared;
mod signals;
mod standby;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

/// A directory of its own for a test, with a database in it.
struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        Place { dir: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn db(&self) -> String {
        self.text("db")
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_string()
    }

    /// Writes a file and gives its path.
    fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> String {
        std::fs::write(self.path(name), bytes).unwrap();
        self.text(name)
    }

    fn bytes(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).unwrap()
    }
}

/// What a command said.
#[derive(Debug)]
struct Said {
    code: i32,
    out: Vec<u8>,
    err: String,
}

impl Said {
    fn new(output: Output) -> Self {
        let err = String::from_utf8(output.stderr).unwrap();
        Said { code: output.status.code().unwrap_or(-1), out: output.stdout, err }
    }

    #[track_caller]
    fn fine(self) -> String {
        assert_eq!((self.code, self.err.as_str()), (0, ""), "{self:?}");
        String::from_utf8(self.out).unwrap()
    }

    /// It failed with that code and exactly one line, which holds each of these words.
    #[track_caller]
    fn refused(self, code: i32, words: &[&str]) {
        let one_line = self.err.lines().count() == 1 && self.err.starts_with("siltstone: ");
        let complete = words.iter().all(|word| self.err.contains(word));
        assert!(self.code == code && one_line && complete && self.out.is_empty(), "{words:?}: {self:?}");
    }
}

fn siltstone(arguments: &[&str]) -> Said {
    Said::new(Command::new(env!("CARGO_BIN_EXE_siltstone")).args(arguments).output().unwrap())
}

fn siltstone_with_input(arguments: &[&str], input: &[u8]) -> Said {
    let mut command = Command::new(env!("CARGO_BIN_EXE_siltstone"));
    let command = command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            // A command that refuses its input early closes the pipe.
            let _ = stdin.write_all(input);
        });
        Said::new(child.wait_with_output().unwrap())
    })
}

/// Every file of a directory with its bytes, and its time of change.
fn snapshot(dir: &Path) -> Vec<(String, Vec<u8>, std::time::SystemTime)> {
    let mut files: Vec<_> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            (name, std::fs::read(entry.path()).unwrap(), entry.metadata().unwrap().modified().unwrap())
        })
        .collect();
    files.sort();
    files
}
