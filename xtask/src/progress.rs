//! The progress of a run, for people: its part and step, the minutes so far, and what cargo prints of a
//! build.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::time::{Duration, Instant};

/// A build says how far it is no more often than this.
const SAY_EVERY: Duration = Duration::from_secs(10);

/// Where a run is among its parts and steps.
pub(crate) struct Place {
    began: Instant,
    /// The part, and how many there are.
    part: Option<(usize, usize)>,
    step: usize,
    /// How many steps the part has, or a run without parts, where that is known beforehand.
    steps: Option<usize>,
}

impl Default for Place {
    fn default() -> Self {
        Self { began: Instant::now(), part: None, step: 0, steps: None }
    }
}

impl Place {
    pub(crate) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// From now on the run is in that part, of so many, with so many steps where that is known.
    pub(crate) fn part(&mut self, part: usize, parts: usize, steps: Option<usize>) {
        (self.part, self.step, self.steps) = (Some((part, parts)), 0, steps);
    }

    /// The run, which has no parts, has so many steps.
    pub(crate) fn steps(&mut self, steps: usize) {
        self.steps = Some(steps);
    }

    /// A step begins: what stands before its name.
    pub(crate) fn next(&mut self) -> String {
        self.step += 1;
        let minutes = format!("{} min", self.elapsed().as_secs() / 60);
        let (step, steps) = (self.step, self.steps.filter(|steps| *steps >= self.step));
        match (self.part, steps) {
            (Some((part, parts)), Some(1)) => format!("[{part} of {parts}, {minutes}]"),
            (Some((part, parts)), Some(steps)) => {
                format!("[{part} of {parts}, step {step} of {steps}, {minutes}]")
            }
            (Some((part, parts)), None) => format!("[{part} of {parts}, step {step}, {minutes}]"),
            (None, Some(steps)) => format!("[{step} of {steps}, {minutes}]"),
            (None, None) => format!("[step {step}, {minutes}]"),
        }
    }
}

/// What cargo says on its standard error while it builds and runs tests.
#[derive(Default)]
pub(crate) struct Cargo {
    /// Warnings of the compiler.
    pub(crate) warnings: usize,
    /// Test programs that were built.
    pub(crate) built: usize,
    /// Test programs that were run, of so many.
    run: usize,
    to_run: Option<usize>,
    said: Option<Instant>,
}

impl Cargo {
    /// What cargo needs in its environment to say how far it is where nobody sees a terminal.
    pub(crate) const ENVIRONMENT: [(&str, &str); 3] = [
        ("CARGO_TERM_PROGRESS_WHEN", "always"),
        ("CARGO_TERM_PROGRESS_WIDTH", "100"),
        // With colours no line would begin with `warning`.
        ("CARGO_TERM_COLOR", "never"),
    ];

    /// What it says of a command that runs so many test programs, where that is known.
    pub(crate) fn running(to_run: Option<usize>) -> Self {
        Self { to_run, ..Self::default() }
    }

    /// Reads to the end, and prints what people want to see.
    pub(crate) fn follow(&mut self, from: impl Read) {
        for line in BufReader::new(from).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line);
            // Each state of the bar ends with a return to the line's beginning.
            for part in line.trim_end_matches('\r').split('\r') {
                if let Some(says) = self.line(part) {
                    eprintln!("{says}");
                }
            }
        }
    }

    /// What is printed for a line of cargo's.
    fn line(&mut self, line: &str) -> Option<String> {
        self.warnings += usize::from(line.starts_with("warning"));
        let Some((word, rest)) = line.trim_start().split_once(' ') else { return Some(line.to_string()) };
        match word {
            _ if !line.starts_with(' ') => Some(line.to_string()),
            "Building" if rest.starts_with('[') => self.bar(rest),
            "Running" | "Doc-tests" => {
                self.run += 1;
                let of = self.to_run.map_or(String::new(), |all| format!(" of {}", all.max(self.run)));
                Some(format!("    test program {}{of}: {}", self.run, program(word, rest)))
            }
            "Executable" => {
                self.built += usize::from(!["examples/", "benches/"].iter().any(|d| rest.starts_with(d)));
                None
            }
            "Checking" | "Compiling" | "Documenting" | "Downloaded" | "Downloading" | "Finished"
            | "Fresh" | "Generated" | "Locking" | "Packaged" | "Packaging" | "Updating" => None,
            _ => Some(line.to_string()),
        }
    }

    /// What a bar like `[===>   ] 12/345: name, name` says, now and then.
    fn bar(&mut self, bar: &str) -> Option<String> {
        let (count, names) = bar.split_once("] ")?.1.split_once(':').unwrap_or_default();
        let (done, all) = count.split_once('/')?;
        if self.said.is_some_and(|said| said.elapsed() < SAY_EVERY) {
            return None;
        }
        self.said = Some(Instant::now());
        Some(format!("    built {done} of {all}, now:{}", names.trim_end()))
    }
}

/// A test program by its crate, which is in the file's name alone, and its source.
fn program(word: &str, rest: &str) -> String {
    if word == "Doc-tests" {
        return format!("examples in the documentation of {rest}");
    }
    let Some((source, file)) = rest.strip_suffix(')').and_then(|rest| rest.split_once(" (")) else {
        return rest.to_string();
    };
    let stem = Path::new(file).file_name().and_then(|name| name.to_str()).unwrap_or(file);
    let name = stem.rsplit_once('-').map_or(stem, |(name, _)| name);
    format!("{name}, {}", source.trim_start_matches("unittests "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_say_how_far_the_run_is() {
        let mut place = Place::default();
        assert_eq!(place.next(), "[step 1, 0 min]");
        place.steps(2);
        assert_eq!(place.next(), "[2 of 2, 0 min]");
        place.part(1, 3, Some(1));
        assert_eq!(place.next(), "[1 of 3, 0 min]");
        place.part(2, 3, Some(2));
        assert_eq!(place.next(), "[2 of 3, step 1 of 2, 0 min]");
        assert_eq!(place.next(), "[2 of 3, step 2 of 2, 0 min]");
        assert_eq!(place.next(), "[2 of 3, step 3, 0 min]", "more than was said");
        place.part(3, 3, None);
        assert_eq!(place.next(), "[3 of 3, step 1, 0 min]");
    }

    #[test]
    fn of_what_cargo_says_people_see_how_far_it_is_and_what_is_wrong() {
        let mut cargo = Cargo::running(Some(2));
        let mut says = |line: &str| cargo.line(line);
        assert_eq!(says("   Compiling a v1.0.0"), None);
        let bar = "    Building [=====>      ] 12/345: a, b(bin)";
        assert_eq!(says(bar).as_deref(), Some("    built 12 of 345, now: a, b(bin)"));
        assert_eq!(says(bar), None, "so soon again");
        assert_eq!(says("  Executable tests/it/main.rs (target/debug/deps/it-1)"), None);
        assert_eq!(says("  Executable examples/packages.rs (target/debug/examples/packages-1)"), None);
        assert_eq!(
            says("     Running unittests src/lib.rs (target/debug/deps/siltstone_c-1a)").as_deref(),
            Some("    test program 1 of 2: siltstone_c, src/lib.rs")
        );
        assert_eq!(
            says("   Doc-tests siltstone").as_deref(),
            Some("    test program 2 of 2: examples in the documentation of siltstone")
        );
        for line in ["warning: unused", "  --> a.rs:1:1", "error", "    Blocking waiting for file lock"] {
            assert_eq!(says(line).as_deref(), Some(line));
        }
        assert_eq!((cargo.warnings, cargo.built), (1, 1));
    }
}
