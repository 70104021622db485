//! A second server waits for the first one's end, as two real processes over a directory that they share.

use crate::server::{Serving, run};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// A standby that does not get so far by then has failed.
const PATIENCE: Duration = Duration::from_secs(120);

/// A server that stands by; it is killed where a test fails.
struct Standby {
    child: Child,
    said: Receiver<String>,
    logged: Receiver<String>,
}

fn lines(of: impl Read + Send + 'static) -> Receiver<String> {
    let (send, lines) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(of).lines().map_while(Result::ok) {
            // Nobody may be listening any more.
            let _ = send.send(line);
        }
    });
    lines
}

/// Waits for a line with these words.
fn wait_for(lines: &Receiver<String>, words: &str) -> String {
    loop {
        let line = lines.recv_timeout(PATIENCE);
        let line = line.unwrap_or_else(|e| panic!("{words:?} is not said: {e}"));
        if line.contains(words) {
            return line;
        }
    }
}

impl Standby {
    fn start(dir: &Path, shared: &Path) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_siltstone"))
            .arg("serve")
            .arg(dir)
            .args(["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--standby", "--shared"])
            .arg(shared)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let said = lines(child.stdout.take().unwrap());
        let logged = lines(child.stderr.take().unwrap());
        wait_for(&said, "standing by for");
        Self { child, said, logged }
    }

    /// Waits until it serves; its address.
    fn serves(&self) -> String {
        let line = wait_for(&self.said, "serving ");
        line.split(" at ").nth(1).unwrap().split(' ').next().unwrap().to_string()
    }

    /// Ends it in good order.
    fn stop(mut self) {
        signal(&self.child, "TERM");
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Standby {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn signal(child: &Child, signal: &str) {
    let sent = Command::new("kill").args(["-s", signal, &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
}

/// A place for servers, with rows to be loaded.
struct Servers {
    dir: tempfile::TempDir,
}

impl Servers {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn serve(&self, name: &str) -> Serving {
        Serving::start(&self.path(name), &["--shared", self.path("shared").to_str().unwrap()])
    }

    fn stand_by(&self, name: &str) -> Standby {
        Standby::start(&self.path(name), &self.path("shared"))
    }

    fn load(&self, at: &str, row: u32) -> Result<String, String> {
        let cells = self.path("cells.jsonl");
        std::fs::write(&cells, line(row)).unwrap();
        run(&["load", "t", cells.to_str().unwrap(), "--server", at])
    }
}

fn line(row: u32) -> String {
    let line = r#"{"row":"ROW","family":"f","qualifier":"","timestamp":1000,"value":"v"}"#;
    line.replace("ROW", &row.to_string()) + "\n"
}

fn dump(at: &str) -> Result<String, String> {
    run(&["dump", "t", "-", "--server", at])
}

#[test]
fn a_standby_takes_over_from_a_server_that_is_killed_and_from_one_that_is_stopped() {
    let servers = Servers::new();
    let first = servers.serve("first");
    run(&["table", "create", "t", "--family", "f", "--server", &first.at]).unwrap();
    servers.load(&first.at, 1).unwrap();
    let second = servers.stand_by("second");
    // It is killed at once, and on this machine it can be seen that it is gone.
    drop(first);
    let at = second.serves();
    assert_eq!(dump(&at).unwrap(), line(1));
    servers.load(&at, 2).unwrap();

    let third = servers.stand_by("first");
    second.stop();
    let at = third.serves();
    assert_eq!(dump(&at).unwrap(), [line(1), line(2)].concat());

    // A standby that waits in vain ends when it is told to.
    servers.stand_by("second").stop();
    assert_eq!(dump(&at).unwrap(), [line(1), line(2)].concat());
    third.stop();
}

#[test]
fn a_server_that_is_frozen_is_followed_by_the_standby_and_answers_nothing_afterwards() {
    let servers = Servers::new();
    let first = servers.serve("first");
    run(&["table", "create", "t", "--family", "f", "--server", &first.at]).unwrap();
    servers.load(&first.at, 1).unwrap();
    // A server finds a standby that is there when it begins at once; else within a minute.
    let mut before = servers.stand_by("before");
    wait_for(&before.logged, "does not know of it yet");
    before.child.kill().unwrap();
    before.child.wait().unwrap();
    first.stop();
    let first = servers.serve("first");
    let second = servers.stand_by("second");
    wait_for(&second.logged, "ready to take over");
    assert_eq!(dump(&first.at).unwrap(), line(1), "it answers while it keeps the lease");
    servers.load(&first.at, 2).unwrap();

    signal(&first.child, "STOP");
    let at = second.serves();
    assert_eq!(dump(&at).unwrap(), [line(1), line(2)].concat());
    servers.load(&at, 3).unwrap();
    signal(&first.child, "CONT");
    let refused = dump(&first.at).unwrap_err();
    assert!(refused.contains("lease"), "{refused}");
    servers.load(&first.at, 4).unwrap_err();
    dump(&first.at).unwrap_err();
    assert_eq!(dump(&at).unwrap(), [line(1), line(2), line(3)].concat());
    drop(first);
    second.stop();
}

#[test]
fn only_a_shared_database_that_is_there_has_a_standby() {
    let servers = Servers::new();
    let (dir, shared) = (servers.path("data"), servers.path("shared"));
    let [dir, shared] = [&dir, &shared].map(|path| path.to_str().unwrap());
    let refused = run(&["serve", dir, "--standby"]).unwrap_err();
    assert!(refused.contains("shared is not"), "{refused}");
    let refused = run(&["serve", dir, "--standby", "--shared", shared]).unwrap_err();
    assert!(refused.contains("holds no shared database"), "{refused}");
}
