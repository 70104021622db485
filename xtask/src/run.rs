//! Runs commands, prints what each took (all together at the end, longest first), and counts: tests passed, steps passed,
//! failures by name.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// What has come of everything so far.
pub(crate) struct Tally {
    began: Instant,
    passed: u64,
    failed: Vec<String>,
    took: Vec<Took>,
    /// Processor time of all steps until now.
    processors: Duration,
}

/// What a step took.
struct Took {
    wall: Duration,
    /// Processor time. Of steps that ran beside each other, the first that is told has that of all.
    processors: Duration,
    name: String,
}

impl Took {
    fn text(&self) -> String {
        let (wall, processors) = (self.wall.as_secs_f64(), self.processors.as_secs_f64());
        format!("{wall:8.1} s, {processors:6.0} s of processors")
    }
}

impl Default for Tally {
    fn default() -> Self {
        Tally {
            began: Instant::now(),
            passed: 0,
            failed: Vec::new(),
            took: Vec::new(),
            processors: processors_of_children(),
        }
    }
}

/// Processor time of all that this process has started and that has ended.
fn processors_of_children() -> Duration {
    // Behind the name of the program, which may contain anything: user and system time of children, in hundredths of a second.
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace().skip(13).take(2);
    let ticks: u64 = fields.map(|field| field.parse::<u64>().unwrap_or(0)).sum();
    Duration::from_millis(ticks * 10)
}

/// The root of the working tree.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace").to_path_buf()
}

/// Whether what cargo builds of the workspace is linted as it is built.
static LINTS: AtomicBool = AtomicBool::new(false);

/// From now on builds lint too. To lint apart would take the compiler through everything twice.
pub(crate) fn lint_builds() {
    LINTS.store(true, Ordering::Relaxed);
}

/// A cargo command in the workspace, by the cargo that runs this.
pub(crate) fn cargo(args: &str) -> Command {
    let mut command = command(&std::env::var("CARGO").unwrap_or_else(|_| "cargo".into()), args);
    if LINTS.load(Ordering::Relaxed) {
        command.env(WRAPPER, "clippy-driver");
    }
    command
}

/// The variable that names what compiles the workspace in the compiler's place.
pub(crate) const WRAPPER: &str = "RUSTC_WORKSPACE_WRAPPER";

/// A command in the workspace, its arguments separated by spaces.
pub(crate) fn command(program: &str, args: &str) -> Command {
    let mut command = Command::new(program);
    command.args(args.split_whitespace()).current_dir(root());
    command
}

impl Tally {
    /// A step that is right if the command ends with 0.
    pub(crate) fn step(&mut self, name: &str, command: &mut Command) -> bool {
        let began = begin(name);
        let ok = command.status().is_ok_and(|status| status.success());
        self.count(name, began.elapsed(), ok)
    }

    /// The same, and right only if the compiler warns of nothing. (Told again of what was built before.)
    pub(crate) fn step_without_warnings(&mut self, name: &str, command: &mut Command) -> bool {
        let began = begin(name);
        let mut warnings = 0;
        // Without colours, by which no line would begin with the word.
        let ok =
            command.env("CARGO_TERM_COLOR", "never").stderr(Stdio::piped()).spawn().is_ok_and(|mut child| {
                for line in child
                    .stderr
                    .take()
                    .into_iter()
                    .flat_map(|out| BufReader::new(out).lines())
                    .map_while(Result::ok)
                {
                    eprintln!("{line}");
                    warnings += usize::from(line.starts_with("warning"));
                }
                child.wait().is_ok_and(|status| status.success())
            });
        self.count(name, began.elapsed(), ok && warnings == 0)
    }

    /// The same, with each line of its output seen as it is passed on.
    pub(crate) fn step_with_lines(
        &mut self,
        name: &str,
        command: &mut Command,
        seen: impl FnMut(&str),
    ) -> bool {
        let began = begin(name);
        let ok = each_line(command, seen);
        self.count(name, began.elapsed(), ok)
    }

    /// Steps of which so many run beside each other; what they print comes when they have ended.
    pub(crate) fn beside(&mut self, steps: Vec<(String, Command)>, at_once: usize) {
        let waiting = Mutex::new(steps.into_iter());
        let ended = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for _ in 0..at_once {
                scope.spawn(|| {
                    loop {
                        let next = waiting.lock().expect("no thread panics").next();
                        let Some((name, mut command)) = next else { return };
                        let began = Instant::now();
                        let output = command.stdin(Stdio::null()).output();
                        ended.lock().expect("no thread panics").push((name, began.elapsed(), output));
                    }
                });
            }
        });
        for (name, took, output) in ended.into_inner().expect("no thread panics") {
            begin(&name);
            let ok = match output {
                Ok(output) => {
                    print!("{}", String::from_utf8_lossy(&output.stdout));
                    eprint!("{}", String::from_utf8_lossy(&output.stderr));
                    output.status.success()
                }
                Err(e) => {
                    println!("{e}");
                    false
                }
            };
            self.count(&name, took, ok);
        }
    }

    /// A step that is a function: it answers with what is wrong.
    pub(crate) fn check(&mut self, name: &str, wrong: impl FnOnce() -> Vec<String>) -> bool {
        let began = begin(name);
        let wrong = wrong();
        wrong.iter().for_each(|line| println!("  {line}"));
        self.count(name, began.elapsed(), wrong.is_empty())
    }

    /// A run of `cargo test`: every test counts. A run that fails without naming a failed test (it does not build,
    /// or a test binary died) counts as one failure.
    pub(crate) fn tests(&mut self, name: &str, command: &mut Command) -> bool {
        let began = begin(name);
        let (mut passed, mut failed) = (0, 0);
        let ok = each_line(command, |line| {
            if let Some((p, f)) = test_result(line) {
                passed += p;
                failed += f;
            }
        });
        let ok = ok && failed == 0;
        self.passed += passed;
        if !ok {
            let failures = failed.max(1);
            self.failed.extend((0..failures).map(|_| name.to_string()));
        }
        let took = self.took(name, began.elapsed());
        println!("--- {name}: {passed} passed, {failed} failed, {took}");
        ok
    }

    /// Whether anything has.
    pub(crate) fn has_failed(&self) -> bool {
        !self.failed.is_empty()
    }

    fn count(&mut self, name: &str, wall: Duration, ok: bool) -> bool {
        let took = self.took(name, wall);
        if ok {
            self.passed += 1;
        } else {
            self.failed.push(name.to_string());
        }
        println!("--- {name}: {}, {took}", if ok { "passed" } else { "FAILED" });
        ok
    }

    /// Notes what a step took; the same for people.
    fn took(&mut self, name: &str, wall: Duration) -> String {
        let now = processors_of_children();
        let took = Took { wall, processors: now.saturating_sub(self.processors), name: name.to_string() };
        self.processors = now;
        let text = took.text();
        self.took.push(took);
        text
    }

    /// Prints the closing line; the process's exit status.
    pub(crate) fn close(mut self) -> ExitCode {
        self.took.sort_by_key(|took| std::cmp::Reverse(took.wall));
        println!("where the time went, {:.1} minutes in all:", self.began.elapsed().as_secs_f64() / 60.0);
        self.took.iter().for_each(|took| println!("{}  {}", took.text(), took.name));
        self.failed.iter().for_each(|name| println!("failed: {name}"));
        println!("{} passed, {} failed", self.passed, self.failed.len());
        if self.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

fn begin(name: &str) -> Instant {
    println!("=== {name}");
    Instant::now()
}

/// Runs the command, passing its standard output on, line by line; whether it ended with 0.
fn each_line(command: &mut Command, mut line_seen: impl FnMut(&str)) -> bool {
    let Ok(mut child) = command.stdout(Stdio::piped()).spawn() else { return false };
    if let Some(out) = child.stdout.take() {
        for line in BufReader::new(out).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line);
            println!("{line}");
            line_seen(&line);
        }
    }
    child.wait().is_ok_and(|status| status.success())
}

/// (passed, failed) of the line that ends a test binary's output.
fn test_result(line: &str) -> Option<(u64, u64)> {
    let rest = line.trim_start().strip_prefix("test result: ")?;
    let number =
        |what: &str| rest.split([';', '.']).find_map(|p| p.trim().strip_suffix(what)?.trim().parse().ok());
    Some((number("passed")?, number("failed")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_result_line_of_a_test_binary_is_understood_and_no_other() {
        let line = "test result: FAILED. 12 passed; 3 failed; 0 ignored; 0 measured; 1 filtered out; finished in 0.02s";
        assert_eq!(test_result(line), Some((12, 3)));
        assert_eq!(test_result("test log::a_result ... ok"), None);
    }

    #[test]
    fn a_failed_command_is_a_failure_and_a_missing_one_too() {
        let mut tally = Tally::default();
        assert!(tally.step("right", &mut command("true", "")));
        assert!(!tally.step("wrong", &mut command("false", "")));
        assert!(!tally.tests("missing", &mut command("/no/such/program", "")));
        let mut warns = Command::new("sh");
        assert!(!tally.step_without_warnings("warns", warns.args(["-c", "echo warning: unused >&2"])));
        assert!(tally.step_without_warnings("right", &mut command("true", "")));
        assert_eq!(tally.failed, ["wrong", "missing", "warns"]);
        assert_eq!(tally.passed, 2);
    }
}
