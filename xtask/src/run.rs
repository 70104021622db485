//! Runs commands, prints what each took (all together at the end, longest first), and counts: tests passed,
//! steps passed, failures by name.

use crate::progress::{Cargo, Place};
use std::collections::VecDeque;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The results so far.
pub(crate) struct Tally {
    place: Place,
    passed: u64,
    failed: Vec<String>,
    /// The last lines of what failed, for the end of a long output.
    said: Vec<String>,
    took: Vec<Took>,
    /// Processor time of all steps until now.
    processors: Duration,
    /// Test programs that the last build made.
    programs: Option<usize>,
}

/// The last lines of a step's output.
#[derive(Default)]
struct LastLines(VecDeque<String>);

impl LastLines {
    const MOST: usize = 30;

    fn push(&mut self, line: &str) {
        if self.0.len() == Self::MOST {
            self.0.pop_front();
        }
        self.0.push_back(line.chars().take(500).collect());
    }
}

/// The time of a step.
struct Took {
    wall: Duration,
    /// Processor time. Where steps ran beside each other, that of all since the last one ended.
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
            place: Place::default(),
            passed: 0,
            failed: Vec::new(),
            said: Vec::new(),
            took: Vec::new(),
            processors: processors_of_children(),
            programs: None,
        }
    }
}

/// Processor time of all that this process has started and that has ended.
fn processors_of_children() -> Duration {
    // Behind the name of the program, which may contain anything: user and system time of children, in
    // hundredths of a second.
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
    let mut command = command(&cargo_program(), args);
    command.envs(Cargo::ENVIRONMENT);
    if LINTS.load(Ordering::Relaxed) {
        command.env(WRAPPER, "clippy-driver");
    }
    command
}

fn cargo_program() -> String {
    std::env::var("CARGO").unwrap_or_else(|_| "cargo".into())
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
    /// From now on steps are those of this part, of so many; with how many there are, where that is known
    /// beforehand.
    pub(crate) fn part(&mut self, part: usize, parts: usize, steps: Option<usize>) {
        self.place.part(part, parts, steps);
    }

    /// The run, which has no parts, has so many steps.
    pub(crate) fn steps(&mut self, steps: usize) {
        self.place.steps(steps);
    }

    /// A step that is right if the command ends with 0.
    pub(crate) fn step(&mut self, name: &str, command: &mut Command) -> bool {
        let began = self.begin(name);
        let mut cargo = Cargo::default();
        let ok = run(command, &mut cargo, None);
        self.programs = Some(cargo.built).filter(|built| *built > 0);
        self.count(name, began.elapsed(), ok)
    }

    /// A step that is right only if the compiler, beside, warns of nothing. (It warns again of what was built
    /// before.)
    pub(crate) fn step_without_warnings(&mut self, name: &str, command: &mut Command) -> bool {
        let began = self.begin(name);
        let mut cargo = Cargo::default();
        let ok = run(command.stderr(Stdio::piped()), &mut cargo, None);
        self.programs = Some(cargo.built).filter(|built| *built > 0);
        self.count(name, began.elapsed(), ok && cargo.warnings == 0)
    }

    /// A step with each line of its output seen as it is passed on.
    pub(crate) fn step_with_lines(
        &mut self,
        name: &str,
        command: &mut Command,
        mut seen: impl FnMut(&str),
    ) -> bool {
        let began = self.begin(name);
        let mut last = LastLines::default();
        let mut all = |line: &str| {
            last.push(line);
            seen(line);
        };
        let ok = run(command, &mut Cargo::default(), Some(&mut all));
        if !ok {
            self.keep(name, last);
        }
        self.count(name, began.elapsed(), ok)
    }

    /// Steps of which so many run beside each other; what one prints comes when it has ended.
    pub(crate) fn beside(&mut self, steps: Vec<(String, Command)>, at_once: usize) {
        let waiting = Mutex::new(steps.into_iter());
        let tally = Mutex::new(self);
        let locked = || tally.lock().expect("no thread panics");
        std::thread::scope(|scope| {
            for _ in 0..at_once {
                scope.spawn(|| {
                    loop {
                        let next = waiting.lock().expect("no thread panics").next();
                        let Some((name, mut command)) = next else { return };
                        let began = locked().begin(&name);
                        let output = command.stdin(Stdio::null()).output();
                        let mut tally = locked();
                        let ok = match output {
                            Ok(output) => {
                                print!("{}", String::from_utf8_lossy(&output.stdout));
                                eprint!("{}", String::from_utf8_lossy(&output.stderr));
                                if !output.status.success() {
                                    let said = [output.stdout, output.stderr].concat();
                                    let mut last = LastLines::default();
                                    String::from_utf8_lossy(&said).lines().for_each(|line| last.push(line));
                                    tally.keep(&name, last);
                                }
                                output.status.success()
                            }
                            Err(e) => {
                                println!("{e}");
                                false
                            }
                        };
                        tally.count(&name, began.elapsed(), ok);
                    }
                });
            }
        });
    }

    /// A step that is a function: it answers with what is wrong.
    pub(crate) fn check(&mut self, name: &str, wrong: impl FnOnce() -> Vec<String>) -> bool {
        let began = self.begin(name);
        let wrong = wrong();
        wrong.iter().for_each(|line| println!("  {line}"));
        self.count(name, began.elapsed(), wrong.is_empty())
    }

    /// A run of `cargo test`: every test counts. A run that fails without naming a failed test (it does not
    /// build, or a test binary died) counts as one failure.
    pub(crate) fn tests(&mut self, name: &str, command: &mut Command) -> bool {
        let began = self.begin(name);
        let (mut passed, mut failed) = (0, 0);
        let mut cargo = Cargo::running(self.programs.take());
        let (mut last, mut said) = (LastLines::default(), Vec::new());
        let mut seen = |line: &str| {
            last.push(line);
            if let Some((p, f)) = test_result(line) {
                passed += p;
                failed += f;
                if f > 0 {
                    said.push(std::mem::take(&mut last));
                }
            }
        };
        let ok = run(command, &mut cargo, Some(&mut seen));
        let ok = ok && failed == 0;
        said.into_iter().for_each(|last| self.keep(name, last));
        self.passed += passed;
        if !ok {
            let failures = failed.max(1);
            self.failed.extend((0..failures).map(|_| name.to_string()));
        }
        let took = self.took(name, began.elapsed());
        println!("--- {name}: {passed} passed, {failed} failed, {took}");
        ok
    }

    fn keep(&mut self, name: &str, last: LastLines) {
        self.said.push(format!("the last lines of {name}:"));
        self.said.extend(last.0.into_iter().map(|line| format!("  {line}")));
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

    /// Says which step begins, and how far the run is.
    fn begin(&mut self, name: &str) -> Instant {
        println!("=== {} {name}", self.place.next());
        Instant::now()
    }

    /// Notes what a step took; answers that as text.
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
        println!("where the time went, {:.1} minutes in all:", self.place.elapsed().as_secs_f64() / 60.0);
        self.took.iter().for_each(|took| println!("{}  {}", took.text(), took.name));
        self.said.iter().for_each(|line| println!("{line}"));
        self.failed.iter().for_each(|name| println!("failed: {name}"));
        println!("{} passed, {} failed", self.passed, self.failed.len());
        if self.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

/// Runs the command, passing on, line by line, what it prints and what cargo says; whether it ended with 0.
fn run(command: &mut Command, cargo: &mut Cargo, seen: Option<&mut dyn FnMut(&str)>) -> bool {
    if command.get_program() == &*cargo_program() {
        command.stderr(Stdio::piped());
    }
    if seen.is_some() {
        command.stdout(Stdio::piped());
    }
    let Ok(mut child) = command.spawn() else { return false };
    let (out, errors) = (child.stdout.take(), child.stderr.take());
    std::thread::scope(|scope| {
        if let Some(errors) = errors {
            scope.spawn(|| cargo.follow(errors));
        }
        if let (Some(out), Some(seen)) = (out, seen) {
            for line in BufReader::new(out).split(b'\n').map_while(Result::ok) {
                let line = String::from_utf8_lossy(&line);
                println!("{line}");
                seen(&line);
            }
        }
    });
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
        let beside = ["true", "false", "true"].map(|program| (program.to_string(), command(program, "")));
        tally.beside(beside.into(), 2);
        assert_eq!(tally.said, ["the last lines of false:"]);
        let mut says = Command::new("sh");
        assert!(!tally.step_with_lines("says", says.args(["-c", "seq 100; exit 1"]), |_| {}));
        assert_eq!((tally.said.len(), &*tally.said[31]), (32, "  100"));
        assert_eq!(tally.failed, ["wrong", "missing", "warns", "false", "says"]);
        assert_eq!(tally.passed, 4);
    }
}
