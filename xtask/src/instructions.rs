//! How many instructions an operation takes, by callgrind, beside what `xtask/instructions.txt` says: unlike
//! times, they are the same on a busy machine. A change that makes an operation cost more, or less, writes
//! the new figure there, with the reason.
//!
//! The program is built as a release, and alone: what else is built beside it would decide on features of
//! what it links.

use crate::run::{Tally, WRAPPER, cargo, command, root};
use crate::tools::install;
use std::process::Command;

/// By how much a count may differ from the recorded one, in per cent.
const MAY_DIFFER: f64 = 5.0;

/// What is counted: the work of `siltstone-instructions`, and the function that is counted with all that it
/// calls.
const ROWS: [(&str, &str, &str); 10] = [
    ("put", "put", "*siltstone_instructions::measured*"),
    ("put in a batch of 4,000", "batch", "*siltstone_instructions::measured*"),
    ("append to the WAL", "wal", "*siltstone::wal::writer::Appender::append*"),
    ("get from memory", "get-memory", "*siltstone_instructions::measured*"),
    ("get from an SSTable", "get", "*siltstone_instructions::measured*"),
    ("get of a key that is missing", "missing", "*siltstone_instructions::measured*"),
    ("step of a scan", "scan", "*siltstone_instructions::measured*"),
    ("scan of ten entries", "short-scan", "*siltstone_instructions::measured*"),
    ("seek of a new cursor", "seek", "*siltstone_instructions::measured*"),
    (
        "cell of a flush or compaction",
        "compaction",
        "*siltstone::compaction::machine::LocalCompactionRun as *CompactionRun>::advance*",
    ),
];

/// A recorded count.
struct Line {
    name: String,
    count: f64,
    reason: String,
}

/// Builds, counts, prints how the counts differ from the recorded ones, and fails where one differs by more
/// than it may. With a reason the counts that differ so are recorded.
pub(crate) fn step(tally: &mut Tally, reason: Option<&str>) -> bool {
    if !install("valgrind", "--version", "valgrind") {
        println!("valgrind is not here and cannot be installed: instructions are NOT COUNTED");
        return false;
    }
    let mut build = cargo("build --release -p siltstone-instructions");
    // Linted it was with the tests.
    if !tally.step("build of what is counted", build.env_remove(WRAPPER)) {
        return false;
    }
    // On one line of the file.
    let reason = reason.map(|why| why.split_whitespace().collect::<Vec<_>>().join(" "));
    let reason = reason.as_deref();
    let mut lines = recorded();
    tally.check("instructions an operation", || {
        let counted = count_all();
        let mut wrong = Vec::new();
        for ((name, ..), count) in ROWS.iter().zip(counted) {
            let Some(count) = count else {
                wrong.push(format!("{name}: callgrind counted nothing; is the function still called so?"));
                continue;
            };
            let line = lines.iter_mut().find(|line| line.name == *name);
            let before = line.as_ref().map_or(0.0, |line| line.count);
            let change = (count / before - 1.0) * 100.0;
            println!("  {name}: {count:.0}, recorded {before:.0}, {change:+.1} %");
            match (differs(before, count), reason, line) {
                (false, ..) => {}
                (true, None, _) => {
                    wrong.push(format!("{name}: {count:.0} instead of {before:.0} instructions"))
                }
                (true, Some(why), Some(line)) => (line.count, line.reason) = (count, why.to_string()),
                (true, Some(why), None) => {
                    lines.push(Line { name: name.to_string(), count, reason: why.to_string() });
                }
            }
        }
        if reason.is_some() {
            wrong.extend(record(&lines).err().map(|e| e.to_string()));
        } else if !wrong.is_empty() {
            wrong.push("if that is meant: cargo xtask instructions --update 'REASON'".into());
        }
        wrong
    })
}

/// Whether a count is too far from the recorded one, which is 0 where there is none.
fn differs(recorded: f64, count: f64) -> bool {
    (count - recorded).abs() > recorded * MAY_DIFFER / 100.0
}

/// Instructions an operation of all rows, two beside each other.
fn count_all() -> Vec<Option<f64>> {
    let mut counted = Vec::new();
    for two in ROWS.chunks(2) {
        std::thread::scope(|scope| {
            let threads: Vec<_> = two.iter().map(|row| scope.spawn(|| count(row))).collect();
            counted.extend(threads.into_iter().map(|thread| thread.join().ok().flatten()));
        });
    }
    counted
}

fn count((name, work, function): &(&str, &str, &str)) -> Option<f64> {
    let place = root().join("target/instructions").join(name.replace(' ', "-"));
    // What is left of a run before.
    let _ = std::fs::remove_dir_all(&place);
    std::fs::create_dir_all(&place).ok()?;
    let mut callgrind =
        command("valgrind", "--tool=callgrind --callgrind-out-file=/dev/null --collect-atstart=no");
    callgrind.arg(format!("--toggle-collect={function}"));
    callgrind.arg(root().join("target/release/siltstone-instructions")).arg(work).arg(place.join("db"));
    let told = tell(&mut callgrind)?;
    let _ = std::fs::remove_dir_all(&place);
    let number = |behind: &str| {
        let at = told.find(behind)? + behind.len();
        told[at..].split_whitespace().find_map(|word| word.parse::<f64>().ok())
    };
    let (instructions, operations) = (number("Collected :")?, number("operations")?);
    (instructions > 0.0).then_some(instructions / operations)
}

/// All that the command prints, if it ends with 0.
fn tell(command: &mut Command) -> Option<String> {
    let output = command.output().ok()?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let told = text(&output.stdout) + &text(&output.stderr);
    if !output.status.success() {
        println!("{told}");
    }
    output.status.success().then_some(told)
}

fn recorded() -> Vec<Line> {
    let text = std::fs::read_to_string(file()).unwrap_or_default();
    let line = |line: &str| {
        let mut parts = line.split('\t');
        let (name, count, reason) = (parts.next()?, parts.next()?.parse().ok()?, parts.next()?);
        Some(Line { name: name.to_string(), count, reason: reason.to_string() })
    };
    text.lines().filter_map(line).collect()
}

fn record(lines: &[Line]) -> std::io::Result<()> {
    let text: String =
        lines.iter().map(|line| format!("{}\t{:.0}\t{}\n", line.name, line.count, line.reason)).collect();
    std::fs::write(file(), text)
}

fn file() -> std::path::PathBuf {
    root().join("xtask/instructions.txt")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_may_differ_by_a_twentieth_and_one_that_is_not_recorded_differs() {
        assert!(!differs(1_000.0, 1_050.0));
        assert!(differs(1_000.0, 1_051.0));
        assert!(differs(1_000.0, 949.0));
        assert!(differs(0.0, 1.0));
    }

    #[test]
    fn every_row_is_recorded_with_a_reason() {
        let lines = recorded();
        for (name, ..) in ROWS {
            assert!(lines.iter().any(|line| line.name == name && !line.reason.is_empty()), "{name}");
        }
    }
}
