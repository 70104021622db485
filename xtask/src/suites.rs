//! The clients' own test suites against the real server. They come from the clients' registries when they are
//! run, and nothing of them is in our tree. Each test is a process of its own, so that one that ends its
//! process costs one test. A suite fails where a test does that is not excluded, and where fewer pass than
//! are known to: excluding a test changes a count, too.

use crate::clients::{
    GET_SECONDS, GO_MODULE, HBASE_MAPPING, PYTHON_PACKAGE, Served, copied_from, done, environment,
    go_version, java_of, limited, start, stop,
};
use crate::run::{Tally, cargo, command, root};
use std::cell::Cell;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Seconds that a test may take: Python's client tries again for two minutes where a test says that a call
/// fails for good.
const TEST_SECONDS: &str = "180";
/// What the program for HBase begins a line with that tells of a difference.
const DIFFERS: &str = "differs: ";
/// What tells Go's integration tests that they have the service before them.
const SERVICE: &[&str] =
    &["-it.use-prod", "-it.project=project", "-it.instance=instance", "-it.cluster=c1", "-it.table=prod"];
/// Characters of why a test failed.
const WHY_MAX: usize = 170;

/// A suite.
struct Suite {
    name: &'static str,
    /// The client whose it is.
    client: &'static str,
    /// How many tests pass, at least.
    passes: usize,
    get: fn(&Path, &str) -> Option<Tests>,
}

/// All of them.
static SUITES: [Suite; 5] = [
    // The integration tests as for an emulator: they dial ours where they would start one.
    Suite { name: "integration", client: "go", passes: 13, get: integration },
    // The emulator's own tests, each call of which goes over the wire.
    Suite { name: "unit", client: "go", passes: 41, get: unit },
    // The integration tests as for the service.
    Suite { name: "prod", client: "go", passes: 18, get: prod },
    Suite { name: "python", client: "python", passes: 102, get: python },
    // Ours: HBase's filters, deletes and conditions, each beside what HBase's documentation says.
    Suite { name: "java", client: "java", passes: 1, get: java },
];

/// The suites that every change runs.
const GATE: [&str; 2] = ["integration", "unit"];

/// Tests that do not count, by suite and name (which `*` ends), and why. They run with `--all`.
const EXCLUDED: &[(&str, &str, &str)] = &[
    ("integration", "TestIntegration_NewClientWithEmulatorHost", ASKS_NOTHING),
    ("integration", "TestIntegration_SessionVRpc_*", FAKE),
    ("unit", "ExampleNewServer", IN_MEMORY),
    ("unit", "TestNewServer", IN_MEMORY),
    ("unit", "TestDeleteInstance", "it puts an instance into the memory of the server"),
    ("unit", "TestGetPartitionsByTableName", "what it looks at has no call"),
    ("unit", "TestTimestampConversion", ASKS_NOTHING),
    ("unit", "TestFilterRowWithRowSampleFilter", "it replaces the server's random numbers"),
    (
        "unit",
        "TestFilterRowCellsPerRowLimitFilterTruthiness",
        "its row has two cells of one column and time, which no client can write",
    ),
    (
        "unit",
        "TestSampleRowKeysVsModifyColumnFamilies",
        "it gives 51,000 calls in turn 2 seconds, too few over a wire",
    ),
    ("unit", "TestValidateReadRowsRequestSendsRPCError", "its table is in the memory of the server alone"),
    ("unit", "TestMessageOnInvalidKeyRange", IN_MEMORY),
    ("unit", "TestAuthorizedViewApis", "it wants authorized views refused, which are served"),
    ("unit", "TestReadRowsOrder", VERSIONS),
    ("unit", "TestModifyColumnFamilies", VERSIONS),
    ("prod", "TestIntegration_NewClientWithEmulatorHost", ASKS_NOTHING),
    ("prod", "TestIntegration_SessionVRpc_*", FAKE),
    (
        "prod",
        "TestIntegration_LargeReadsWritesAndScans",
        "it reads a row of 5 MB with a client that accepts messages of at most 4 MiB and no row split over messages",
    ),
    ("prod", "TestIntegration_Execute", "SQL is not served"),
    ("prod", "TestIntegration_ExportBuiltInMetrics", "it reads what another service, for metrics, has kept"),
    ("prod", "TestIntegration_Admin", "it moves a table into a storage tier, and there is one tier"),
    ("prod", "TestIntegration_TableIam", IAM),
    ("prod", "TestIntegration_BackupIAM", IAM),
    ("prod", "TestIntegration_AuthorizedViewIAM", IAM),
    ("prod", "TestIntegration_AdminCreateInstance", PLACES),
    ("prod", "TestIntegration_AdminEncryptionInfo", "it encrypts with keys of another service"),
    ("prod", "TestIntegration_AdminUpdateInstanceAndSyncClusters", PLACES),
    ("prod", "TestIntegration_Autoscaling", PLACES),
    ("prod", "TestIntegration_NodeScalingFactor", PLACES),
    ("prod", "TestIntegration_InstanceUpdate", PLACES),
    ("prod", "TestIntegration_InstanceAdminClient_Clusters_WithFailedLocations", ASKS_NOTHING),
    ("prod", "TestIntegration_InstanceAdminClient_CreateAppProfile", PROFILES),
    ("prod", "TestIntegration_InstanceAdminClient_UpdateAppProfile", PROFILES),
    ("prod", "TestIntegration_DataMaterializedView", "materialized views are not served"),
    ("prod", "TestIntegration_AdminMaterializedView", "materialized views are not served"),
    ("prod", "TestIntegration_AdminLogicalView", "logical views are SQL, which is not served"),
    ("prod", "TestIntegration_DirectPathFallback", "it cuts a network between data centres"),
    (
        "python",
        "tests/system/data/test_system_async.py::*",
        "the same tests are in test_system_autogen.py; these need a pytest-asyncio of years ago",
    ),
    ("python", "tests/system/data/test_metrics_*", "they skip themselves for an emulator"),
    ("python", "tests/system/v2_client/test_instance_admin.py::*", "they skip themselves for an emulator"),
];

const FAKE: &str = "it brings a server of its own and judges the client";
const IN_MEMORY: &str = "it tests a server in memory, not its answers";
const VERSIONS: &str = "it wants to see versions beyond a rule's number, which are hidden at once";
const IAM: &str = "it sets policies of IAM, and rights come from tokens";
const PLACES: &str = "it changes clusters, and one process is one cluster";
const PROFILES: &str = "its profiles spread calls over clusters, and one process is one cluster";
const ASKS_NOTHING: &str = "it asks no server for anything";

/// The reason why a test does not count.
fn excluded(suite: &str, test: &str) -> Option<&'static str> {
    let fits = |name: &str| match name.strip_suffix('*') {
        Some(begin) => test.starts_with(begin),
        None => test == name,
    };
    EXCLUDED.iter().find(|(of, name, _)| *of == suite && fits(name)).map(|(_, _, why)| *why)
}

/// The tests of a suite, and what runs one of them.
struct Tests {
    names: Vec<String>,
    run: Box<dyn Fn(&str) -> Command>,
    /// What lines begin with by which a test says that it passed, or that it was skipped.
    passed: &'static [&'static str],
    skipped: &'static [&'static str],
}

/// The result of a test.
#[derive(Debug, PartialEq)]
enum Outcome {
    Passed,
    /// It skipped itself.
    Skipped,
    Failed(String),
}

impl Outcome {
    /// The outcome of a test that printed this.
    fn of(ended_well: bool, text: &str, tests: &Tests) -> Self {
        let says = |mark: &&str| text.lines().any(|line| line.starts_with(*mark));
        match ended_well {
            false => Self::Failed(why(text)),
            true if tests.skipped.iter().any(says) => Self::Skipped,
            true if tests.passed.iter().any(says) => Self::Passed,
            true => Self::Failed("it was not run".into()),
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Passed => "passed".into(),
            Self::Skipped => "skipped".into(),
            Self::Failed(why) => format!("FAILED: {why}"),
        }
    }
}

/// The first line of what a test printed that says why it failed.
fn why(text: &str) -> String {
    let is_said = |line: &&str| {
        let frame = ["=== ", "---", "Note:", "cbt createinst", "FAIL", "PASS", "goroutine"];
        !line.trim().is_empty() && !frame.iter().any(|begin| line.trim_start().starts_with(begin))
    };
    // pytest marks what failed by an E, Go's tests by their file.
    let is_marked = |line: &&str| {
        ["E  ", "panic: ", DIFFERS].iter().any(|mark| line.starts_with(mark)) || line.contains("_test.go:")
    };
    let line = text.lines().find(is_marked).or_else(|| text.lines().find(is_said));
    let line = line.unwrap_or("it said nothing");
    line.trim().chars().take(WHY_MAX).collect()
}

/// Runs the suites of those names, or of those clients; all where none is named. False where a name is none.
pub(crate) fn step(tally: &mut Tally, which: &[&str]) -> bool {
    let (all, names): (Vec<&str>, Vec<&str>) = which.iter().copied().partition(|name| *name == "--all");
    let is_known = |name: &&str| SUITES.iter().any(|suite| [suite.name, suite.client].contains(name));
    if !names.iter().all(is_known) {
        return false;
    }
    if tally.step("build of the server", &mut cargo("build --release -p siltstone-cli")) {
        let is_asked =
            |suite: &&Suite| names.is_empty() || names.iter().any(|n| [suite.name, suite.client].contains(n));
        for suite in SUITES.iter().filter(is_asked) {
            suite.step(tally, "release", !all.is_empty());
        }
    }
    true
}

/// Runs the suites that take about a minute, with the server that all tests were built with.
pub(crate) fn gate(tally: &mut Tally) {
    for suite in SUITES.iter().filter(|suite| GATE.contains(&suite.name)) {
        suite.step(tally, "debug", false);
    }
}

impl Suite {
    fn step(&self, tally: &mut Tally, profile: &str, is_all: bool) {
        let place = root().join("target/suites").join(self.name);
        let data = place.join("data");
        let _ = fs::remove_dir_all(&data);
        let _ = fs::create_dir_all(&data);
        let Some(mut served) = start(profile, &data, &[]) else {
            tally.check("the server starts", || vec!["it did not say where it listens".into()]);
            return;
        };
        match (self.get)(&place, &served.grpc) {
            None => println!("--- suite {}: NOT RUN, its packages or tools cannot be had here", self.name),
            Some(tests) => {
                let name = format!("suite {}", self.name);
                tally.check(&name, || self.judge(&tests, &mut served, &place.join("log"), is_all));
            }
        }
        tally.check("the server stops at SIGTERM", || stop(served));
    }

    /// Runs the tests, a line for each; what is wrong. Excluded ones come last: what they leave behind harms
    /// no other.
    fn judge(&self, tests: &Tests, served: &mut Served, log: &Path, is_all: bool) -> Vec<String> {
        let [mut passed, mut skipped] = [0; 2];
        let (mut failed, mut wrong) = (Vec::new(), Vec::new());
        let (apart, counted): (Vec<&String>, Vec<&String>) =
            tests.names.iter().partition(|name| excluded(self.name, name).is_some());
        let _ = fs::remove_file(log);
        for name in counted {
            let outcome = tests.outcome(name, log);
            println!("{name}: {}", outcome.text());
            match outcome {
                Outcome::Passed => passed += 1,
                Outcome::Skipped => skipped += 1,
                Outcome::Failed(_) => failed.push(name.clone()),
            }
            if !served.lives() {
                return vec![format!("the server ended in {name}")];
            }
        }
        for name in &apart {
            let why = excluded(self.name, name).unwrap_or_default();
            match is_all {
                true => println!("{name}: excluded, {}; {why}", tests.outcome(name, log).text()),
                false => println!("{name}: excluded, {why}"),
            }
        }
        if !served.lives() {
            wrong.push("the server ended in an excluded test".to_string());
        }
        println!(
            "suite {}: {passed} passed, {} failed, {skipped} skipped, {} excluded; {} are known to pass",
            self.name,
            failed.len(),
            apart.len(),
            self.passes
        );
        wrong.extend(failed.into_iter().map(|name| format!("{name} failed, see {}", log.display())));
        if passed < self.passes {
            wrong.push(format!("{passed} passed, and {} are known to", self.passes));
        }
        wrong
    }
}

impl Tests {
    /// Runs one of them; what it prints is added to the log.
    fn outcome(&self, name: &str, log: &Path) -> Outcome {
        let output = match (self.run)(name).stdin(Stdio::null()).output() {
            Ok(output) => output,
            Err(e) => return Outcome::Failed(e.to_string()),
        };
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text);
        if let Ok(mut log) = fs::OpenOptions::new().create(true).append(true).open(log) {
            let _ = writeln!(log, "##### {name}: {}\n{text}", output.status);
        }
        match output.status.code() {
            // The exit code of `timeout`.
            Some(124) => Outcome::Failed(format!("it did not end within {TEST_SECONDS} s")),
            code => Outcome::of(code == Some(0), &text, self),
        }
    }
}

/// The lines that a command prints, if it ends with 0.
fn lines_of(command: &mut Command) -> Option<Vec<String>> {
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    output.status.success().then(|| text.lines().map(String::from).collect())
}

fn integration(place: &Path, server: &str) -> Option<Tests> {
    let (program, sources) = go_program(place, ".", true)?;
    go_tests(program, sources, &[("PEER_ADDR", server)], "^TestIntegration_", &[])
}

fn unit(place: &Path, server: &str) -> Option<Tests> {
    let (program, sources) = go_program(place, "./bttest", true)?;
    go_tests(program, sources, &[("PEER_ADDR", server)], ".", &[])
}

fn prod(place: &Path, server: &str) -> Option<Tests> {
    let (program, sources) = go_program(place, ".", false)?;
    go_tests(program, sources, &[("BIGTABLE_EMULATOR_HOST", server)], "^TestIntegration_", SERVICE)
}

/// The test program of a package of the Go client, built from a copy of its module, and the copy. Where it is
/// told to, what the package `bttest` has of a server in memory gives way to what calls the real one.
fn go_program(place: &Path, package: &str, is_redirected: bool) -> Option<(PathBuf, PathBuf)> {
    let sources = place.join("sources");
    let _ = fs::remove_dir_all(&sources);
    fs::write(place.join("go.mod"), "module suites\n").ok()?;
    let mut get = limited(GET_SECONDS, "go");
    get.args(["mod", "download", "-json", &format!("{GO_MODULE}@{}", go_version())]).current_dir(place);
    let told = lines_of(&mut get)?;
    let module = told.iter().find_map(|line| line.trim().strip_prefix("\"Dir\": \"")?.split('"').next())?;
    let mut copy = command("cp", "-r --no-preserve=mode");
    if !done(copy.arg(module).arg(&sources)) {
        return None;
    }
    if is_redirected {
        let bttest = sources.join("bttest");
        for file in ["inmem.go", "instance_server.go", "validation.go"] {
            fs::remove_file(bttest.join(file)).ok()?;
        }
        copied_from(&root().join("tests/suites"), &bttest, &["redirect.go"]).then_some(())?;
    }
    let program = place.join("program");
    let mut build = limited("600", "go");
    build.args(["test", "-c", "-o"]).arg(&program).arg(package).current_dir(&sources);
    // Without a program there are no tests, and the suite fails.
    let _ = fs::remove_file(&program);
    done(&mut build);
    Some((program, sources))
}

/// The tests in a test program of Go.
fn go_tests(
    program: PathBuf,
    sources: PathBuf,
    environment: &[(&'static str, &str)],
    which: &str,
    more: &'static [&'static str],
) -> Option<Tests> {
    let environment: Vec<_> = environment.iter().map(|(name, value)| (*name, value.to_string())).collect();
    let run = move |args: [&str; 2]| {
        let mut run = limited(TEST_SECONDS, &program);
        run.env_remove("BIGTABLE_EMULATOR_HOST").envs(environment.clone());
        run.args(args).args(more).current_dir(&sources);
        run
    };
    let listed = lines_of(&mut run(["-test.list", which])).unwrap_or_default();
    let is_test = |line: &String| line.starts_with("Test") || line.starts_with("Example");
    Some(Tests {
        names: listed.into_iter().filter(is_test).collect(),
        run: Box::new(move |name| run(["-test.v", &format!("-test.run=^{name}$")])),
        passed: &["--- PASS: "],
        skipped: &["--- SKIP: "],
    })
}

/// Two tests, of which the second reads a table that only tests before it make, as the first does.
const PYTHON_BEHIND_ANOTHER: (&str, &str) = (
    "tests/system/v2_client/test_data_api.py::test_table_read_rows_filter_millis",
    "tests/system/v2_client/test_data_api.py::test_access_with_non_admin_client",
);

/// The Python client's system tests, which its source distribution has. Its other ones (`admin_overlay`,
/// `cross_sync`) skip themselves for an emulator, or test a generator of code.
fn python(place: &Path, server: &str) -> Option<Tests> {
    let packages =
        [PYTHON_PACKAGE, "google-cloud-testutils", "pytest", "pytest-asyncio", "pytest-order", "mock"];
    let program = environment(&place.join("venv"), GET_SECONDS, &packages)?;
    let sources = place.join("sources");
    let _ = fs::remove_dir_all(&sources);
    fs::create_dir_all(&sources).ok()?;
    let mut get = limited(GET_SECONDS, &program);
    let (name, _) = PYTHON_PACKAGE.split_once("==")?;
    get.args(["-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", name, "--dest"]);
    if !done(get.arg(&sources).arg(PYTHON_PACKAGE)) {
        return None;
    }
    let mut files = fs::read_dir(&sources).ok()?.flatten().map(|entry| entry.path());
    let archive = files.find(|path| path.extension().is_some_and(|end| end == "gz"))?;
    // The tests alone: the sources beside them would be taken for the package, which is installed.
    let mut unpack = command("tar", "xzf");
    unpack.arg(archive).arg("-C").arg(&sources).args(["--strip-components=1", "--wildcards", "*/tests/*"]);
    if !done(&mut unpack) {
        return None;
    }
    let server = server.to_string();
    let run = move |args: &[&str]| {
        let mut run = limited(TEST_SECONDS, &program);
        run.args(["-m", "pytest", "-q", "-W", "ignore", "-p", "no:cacheprovider"]).args(args);
        run.env("BIGTABLE_EMULATOR_HOST", &server).env("GOOGLE_CLOUD_PROJECT", "p");
        run.env("NO_GCE_CHECK", "true").current_dir(&sources);
        run
    };
    let listed = lines_of(&mut run(&["--collect-only", "tests/system/data", "tests/system/v2_client"]))
        .unwrap_or_default();
    let is_test = |line: &String| line.starts_with("tests/") && line.contains("::");
    Some(Tests {
        names: listed.into_iter().filter(is_test).collect(),
        run: Box::new(move |name| match name == PYTHON_BEHIND_ANOTHER.1 {
            true => run(&[PYTHON_BEHIND_ANOTHER.0, name]),
            false => run(&[name]),
        }),
        passed: &["1 passed", "2 passed"],
        skipped: &["1 skipped", "1 xfailed"],
    })
}

/// One program, which is one test: it ends with 0 only if all its operations answer as HBase's documentation
/// says.
fn java(place: &Path, server: &str) -> Option<Tests> {
    let mut program = java_of(place, HBASE_MAPPING)?;
    program.env("BIGTABLE_EMULATOR_HOST", server);
    let program = Cell::new(Some(program));
    Some(Tests {
        names: vec![HBASE_MAPPING.to_string()],
        run: Box::new(move |_| program.take().unwrap_or_else(|| Command::new("false"))),
        passed: &["hbase: "],
        skipped: &[],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(passed: &'static [&'static str], skipped: &'static [&'static str]) -> Tests {
        Tests { names: Vec::new(), run: Box::new(|_| Command::new("true")), passed, skipped }
    }

    #[test]
    fn a_test_passed_only_if_it_says_so_and_its_process_ended_well() {
        let go = of(&["--- PASS: "], &["--- SKIP: "]);
        let judged = |well: bool, text: &str| Outcome::of(well, text, &go);
        assert_eq!(judged(true, "=== RUN TestA\n--- PASS: TestA (0.01s)\nPASS\n"), Outcome::Passed);
        assert_eq!(judged(true, "    --- SKIP: TestA/b (0.00s)\n--- PASS: TestA (0.01s)\n"), Outcome::Passed);
        assert_eq!(judged(true, "--- SKIP: TestA (0.00s)\nPASS\n"), Outcome::Skipped);
        assert_eq!(
            judged(true, "testing: warning: no tests to run\nPASS\n").text(),
            "FAILED: it was not run"
        );
        let text = "=== RUN TestA\n    a_test.go:7: got 1, want 2\n--- FAIL: TestA (0.00s)\nFAIL\n";
        assert_eq!(judged(false, text), Outcome::Failed("a_test.go:7: got 1, want 2".into()));
        let text = "--- FAIL: TestA (0.00s)\npanic: a nil map\ngoroutine 7\n";
        assert_eq!(judged(false, text), Outcome::Failed("panic: a nil map".into()));
        let python = of(&["1 passed", "2 passed"], &["1 skipped"]);
        assert_eq!(Outcome::of(true, ".  [100%]\n1 passed in 0.30s\n", &python), Outcome::Passed);
        assert_eq!(Outcome::of(true, "s  [100%]\n1 skipped in 0.30s\n", &python), Outcome::Skipped);
        let text = "F [100%]\n    def test_a():\nE   assert 1 == 2\n1 failed in 0.1s\n";
        assert_eq!(Outcome::of(false, text, &python), Outcome::Failed("E   assert 1 == 2".into()));
    }

    #[test]
    fn tests_are_excluded_by_name_or_by_its_beginning_in_their_suite_alone() {
        assert_eq!(excluded("integration", "TestIntegration_SessionVRpc_Apply"), Some(FAKE));
        assert_eq!(excluded("unit", "TestReadRowsOrder"), Some(VERSIONS));
        assert_eq!(excluded("unit", "TestReadRows"), None);
        assert_eq!(excluded("python", "TestReadRowsOrder"), None);
    }

    #[test]
    fn the_document_has_the_versions_the_counts_and_every_excluded_test() {
        let text = fs::read_to_string(root().join("docs/compatibility.md")).unwrap();
        let hbase = fs::read_to_string(root().join("tests/clients/java/pom.xml")).unwrap();
        let (_, hbase) = hbase.split_once("bigtable-hbase-2.x-hadoop").unwrap();
        let (_, hbase) = hbase.split_once("<version>").unwrap();
        let (_, python) = PYTHON_PACKAGE.split_once("==").unwrap();
        for version in [go_version(), python, hbase.split('<').next().unwrap()] {
            assert!(text.contains(version.trim_start_matches('v')), "the version {version}");
        }
        for suite in &SUITES {
            let begin = format!("| {} | {} |", suite.name, suite.passes);
            assert!(text.contains(&begin), "a line that begins with {begin}");
        }
        for (suite, name, why) in EXCLUDED {
            let line = format!("| {suite} | {name} | {why} |");
            assert!(text.contains(&line), "{line}");
        }
    }
}
