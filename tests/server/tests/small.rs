//! Each row in small, so that the program is known to run, and to build.

use std::process::Command;

fn siege(row: &str, count: &str) {
    let output = Command::new(env!("CARGO_BIN_EXE_siltstone-siege"))
        .args([row, "--count", count, "--seed", "1"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("held:"), "{said}");
}

#[test]
fn kills() {
    siege("kills", "3");
}

#[test]
fn ring() {
    siege("ring", "20000");
}

#[test]
fn messages() {
    siege("messages", "4000");
}

#[test]
fn attack() {
    siege("attack", "2");
}
