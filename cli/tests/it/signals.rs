//! SIGINT and SIGTERM leave one sentence that says what was done, and nothing broken.

use super::*;
use std::io::Read;
use std::process::Child;
use std::time::Duration;

/// A process that no signal is ignored in, even where these tests run in the background of a shell.
fn start(arguments: &[&str]) -> Child {
    start_under("--default-signal=INT,TERM", arguments)
}

fn start_under(signals: &str, arguments: &[&str]) -> Child {
    let mut command = Command::new("env");
    command
        .args([signals, env!("CARGO_BIN_EXE_siltstone")])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn signal(child: &Child, signal: &str) {
    let sent = Command::new("kill").args(["-s", signal, &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
}

/// Waits until another process sees the key.
fn wait_for(db: &str, key: &str) {
    while siltstone(&["get", db, key]).code != 0 {
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn rows(count: u32) -> String {
    (0..count).map(|n| format!("key{n:07}\tvalue {n}\n")).collect()
}

#[test]
fn a_load_from_a_pipe_says_how_many_rows_it_stored() {
    let place = Place::new();
    let mut child = start(&["load", &place.db(), "-", "--format", "tsv"]);
    let mut input = child.stdin.take().unwrap();
    input.write_all(rows(2_500).as_bytes()).unwrap();
    wait_for(&place.db(), "key0001999");
    signal(&child, "TERM");
    Said::new(child.wait_with_output().unwrap())
        .refused(143, &["ended by SIGTERM: at least 2,000 rows stored"]);
    drop(input);
    assert!(siltstone(&["scan", &place.db()]).fine().lines().count() >= 2_000);
}

#[test]
fn a_load_from_a_file_ends_behind_a_batch_and_says_how_many_rows_it_stored() {
    for count in [200_000, 400_000, 800_000, 1_600_000] {
        let place = Place::new();
        let child = start(&["load", &place.db(), &place.file("rows.tsv", rows(count))]);
        wait_for(&place.db(), "key0000000");
        signal(&child, "INT");
        let said = Said::new(child.wait_with_output().unwrap());
        if said.code == 0 {
            // It was done before the signal came.
            continue;
        }
        let err = said.err.clone();
        said.refused(130, &["ended by SIGINT: ", " rows stored"]);
        let stored: usize = err.chars().filter(char::is_ascii_digit).collect::<String>().parse().unwrap();
        assert_eq!(siltstone(&["scan", &place.db(), "--keys"]).fine().lines().count(), stored);
        return;
    }
    panic!("every load was faster than the signal");
}

#[test]
fn a_signal_that_was_ignored_at_the_start_stays_ignored() {
    let place = Place::new();
    let mut child = start_under("--ignore-signal=INT", &["load", &place.db(), "-", "--format", "tsv"]);
    let mut input = child.stdin.take().unwrap();
    input.write_all(rows(1_000).as_bytes()).unwrap();
    wait_for(&place.db(), "key0000999");
    signal(&child, "INT");
    input.write_all(b"later\tvalue\n").unwrap();
    drop(input);
    Said::new(child.wait_with_output().unwrap()).fine();
    assert_eq!(siltstone(&["get", &place.db(), "later"]).code, 0);
}

#[test]
fn a_dump_that_waits_for_its_reader_ends_at_once() {
    let place = Place::new();
    siltstone(&["load", &place.db(), &place.file("rows.tsv", rows(50_000))]).fine();
    let mut child = start(&["dump", &place.db(), "-", "--format", "tsv"]);
    // The pipe holds some more rows; the others wait for the reader.
    child.stdout.as_mut().unwrap().read_exact(&mut [0; 100]).unwrap();
    signal(&child, "TERM");
    let said = Said::new(child.wait_with_output().unwrap());
    assert_eq!(
        (said.code, said.err.as_str()),
        (143, "siltstone: ended by SIGTERM: not all rows are printed\n")
    );
}

#[test]
fn a_compaction_ends_at_its_next_step_and_nothing_is_lost() {
    let place = Place::new();
    siltstone(&["load", &place.db(), &place.file("rows.tsv", rows(100_000))]).fine();
    for wait_ms in [0, 20, 60, 120] {
        let child = start(&["compact", &place.db()]);
        std::thread::sleep(Duration::from_millis(wait_ms));
        signal(&child, "INT");
        let said = Said::new(child.wait_with_output().unwrap());
        // A signal before the program handles signals ends it as any other.
        match said.code {
            0 | -1 => {}
            _ => said.refused(130, &["ended by SIGINT: "]),
        }
    }
    siltstone(&["check", &place.db()]).fine();
    assert_eq!(siltstone(&["scan", &place.db(), "--keys"]).fine().lines().count(), 100_000);
}
