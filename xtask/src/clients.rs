//! Official clients, and a browser, against the real server: each is installed from its registry into
//! `target/clients`, reads what the demonstration loaded, writes it into a table of its own and reads it
//! back. Where a registry or a program cannot be had, that client is left out, and it says so.

use crate::run::{Tally, command, root};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Seconds that a client may take, and that getting it may take.
const RUN_SECONDS: &str = "120";
pub(crate) const GET_SECONDS: &str = "300";

/// The clients' packages; Go's is pinned in the `go.mod` of its program, Java's in the `pom.xml`, Node's in
/// the `package.json`.
pub(crate) const GO_MODULE: &str = "cloud.google.com/go/bigtable";
pub(crate) const PYTHON_PACKAGE: &str = "google-cloud-bigtable==2.50.2";
/// The program that compares what bigtable-hbase maps with HBase's documentation.
pub(crate) const HBASE_MAPPING: &str = "HbaseMapping";

/// The version of the Go client.
pub(crate) fn go_version() -> &'static str {
    let pinned = include_str!("../../tests/clients/go/go.mod");
    let line = pinned.lines().find(|line| line.contains(GO_MODULE));
    line.and_then(|line| line.split(' ').next_back()).unwrap_or_default()
}

/// A server of its own, ended with this.
pub(crate) struct Served {
    child: Child,
    pub(crate) grpc: String,
    page: String,
}

impl Served {
    /// Whether it is still there.
    pub(crate) fn lives(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }
}

pub(crate) fn step(tally: &mut Tally) {
    if !tally.step("build of the server", &mut crate::tools::build()) {
        return;
    }
    let base = root().join("target/clients");
    let data = base.join("data");
    let _ = fs::remove_dir_all(&data);
    let _ = fs::create_dir_all(&data);
    let Some(compactor) = compactor(&data) else {
        tally.check("the compaction server starts", || vec!["it did not say where it listens".into()]);
        return;
    };
    let Some(served) = start("debug", &data, &["--demo", "--compactor", &compactor.grpc]) else {
        tally.check("the server starts", || vec!["it did not say where it listens".into()]);
        return;
    };
    for (name, get) in [
        ("python", python as fn(&Path) -> Option<Command>),
        ("go", go),
        ("java", java),
        ("node", node),
        ("browser", browser),
    ] {
        let place = base.join(name);
        let _ = fs::create_dir_all(&place);
        match get(&place) {
            None => println!("client {name}: left out, as it cannot be had here"),
            Some(mut client) => {
                client.env("BIGTABLE_EMULATOR_HOST", &served.grpc).env("PAGE", &served.page);
                client.env("METADATA_SERVER_DETECTION", "none");
                tally.step(&format!("client {name}"), &mut client);
            }
        }
    }
    tally.check("the server stops at SIGTERM", || stop(served));
    tally.check("the compaction server stops at SIGTERM", || stop(compactor));
}

/// Starts a compaction server for that directory, and reads from what it prints where it listens.
fn compactor(data: &Path) -> Option<Served> {
    let mut command = Command::new(root().join("target/debug/siltstone"));
    command.args(["compactor", "--listen", "127.0.0.1:0", "--tables"]).arg(data);
    let mut child = command.stdout(Stdio::piped()).spawn().ok()?;
    let mut line = String::new();
    BufReader::new(child.stdout.take()?).read_line(&mut line).ok()?;
    let Some(grpc) = line.trim().strip_prefix("compactions are taken at ").map(String::from) else {
        let _ = child.kill();
        let _ = child.wait();
        return None;
    };
    Some(Served { child, grpc, page: String::new() })
}

/// Starts the server, and reads from what it prints where it listens.
pub(crate) fn start(profile: &str, data: &Path, more: &[&str]) -> Option<Served> {
    let mut command = Command::new(root().join("target").join(profile).join("siltstone"));
    command.arg("serve").arg(data).args(["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]).args(more);
    let mut child = command.stdout(Stdio::piped()).spawn().ok()?;
    let out = child.stdout.take()?;
    for line in BufReader::new(out).lines().map_while(Result::ok) {
        println!("{line}");
        let Some((_, rest)) = line.split_once(" at ").filter(|_| line.starts_with("serving ")) else {
            continue;
        };
        let grpc = rest.split(' ').next()?.to_string();
        let page = rest.split_once("http://")?.1.split(' ').next()?.to_string();
        return Some(Served { child, grpc, page: format!("http://{page}") });
    }
    let _ = child.kill();
    let _ = child.wait();
    None
}

pub(crate) fn stop(mut served: Served) -> Vec<String> {
    let asked = Command::new("kill").arg(served.child.id().to_string()).status();
    match (asked, served.child.wait()) {
        (Ok(_), Ok(status)) if status.success() => Vec::new(),
        (asked, ended) => vec![format!("kill: {asked:?}, the server: {ended:?}")],
    }
}

/// Whether a command ends with 0, within its time; what it prints is shown if not.
pub(crate) fn done(command: &mut Command) -> bool {
    match command.stdin(Stdio::null()).output() {
        Ok(output) if output.status.success() => true,
        Ok(output) => {
            let text = [output.stdout, output.stderr].concat();
            let text = String::from_utf8_lossy(&text);
            text.lines().rev().take(5).for_each(|line| println!("  {line}"));
            false
        }
        Err(e) => {
            println!("  {e}");
            false
        }
    }
}

pub(crate) fn limited(seconds: &str, program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = command("timeout", seconds);
    command.arg(program);
    command
}

/// A Python environment, made if it is not there, with what `pip install` is told to get within so many
/// seconds; its interpreter.
pub(crate) fn environment(place: &Path, seconds: &str, packages: &[&str]) -> Option<PathBuf> {
    let python = place.join("bin/python");
    let is_there = python.exists() || done(limited(seconds, "python3").args(["-m", "venv"]).arg(place));
    let mut get = limited(seconds, &python);
    (is_there && done(get.args(["-m", "pip", "install", "--quiet"]).args(packages))).then_some(python)
}

/// The sources of a client.
fn sources(name: &str) -> PathBuf {
    root().join("tests/clients").join(name)
}

/// Copies a client's sources beside what is installed for it.
fn copied(name: &str, into: &Path, files: &[&str]) -> bool {
    copied_from(&sources(name), into, files)
}

pub(crate) fn copied_from(from: &Path, into: &Path, files: &[&str]) -> bool {
    files.iter().all(|file| fs::copy(from.join(file), into.join(file)).is_ok())
}

/// Copies a program that users read first.
fn example(file: &str, into: &Path) -> bool {
    fs::copy(root().join("examples/clients").join(file), into.join(file)).is_ok()
}

fn python(place: &Path) -> Option<Command> {
    environment(place, GET_SECONDS, &[PYTHON_PACKAGE]).map(|program| {
        // What users read first, and then the rest.
        let of = |file: &str| root().join("examples/clients").join(file);
        let mut run = limited(RUN_SECONDS, "sh");
        run.args(["-ec", "for program in \"$@\"; do \"$0\" \"$program\"; done"]).arg(&program);
        run.args([of("hello.py"), of("timeseries.py"), sources("python").join("main.py")]);
        run
    })
}

fn go(place: &Path) -> Option<Command> {
    let program = place.join("client");
    let mut build = limited(GET_SECONDS, "go");
    build.args(["build", "-mod=mod", "-o"]).arg(&program).arg(".").current_dir(place);
    let mut hello = limited(GET_SECONDS, "go");
    hello.args(["build", "-mod=mod", "-o", "hello", "hello.go"]).current_dir(place.join("example"));
    let is_there = copied("go", place, &["go.mod", "main.go"])
        && fs::create_dir_all(place.join("example")).is_ok()
        && example("hello.go", &place.join("example"));
    (is_there && done(&mut build) && done(&mut hello)).then(|| {
        let mut run = limited(RUN_SECONDS, "sh");
        run.args(["-ec", "example/hello; ./client"]).current_dir(place);
        run
    })
}

fn java(place: &Path) -> Option<Command> {
    java_of(place, &format!("Hello Hbase {HBASE_MAPPING}"))
}

/// Programs in Java, one after another; they are told where the server is by `BIGTABLE_EMULATOR_HOST`.
pub(crate) fn java_of(place: &Path, mains: &str) -> Option<Command> {
    let source = place.join("src/main/java");
    let programs = ["pom.xml", "src/main/java/Hbase.java", "src/main/java/HbaseMapping.java"];
    let copied = fs::create_dir_all(&source).is_ok()
        && copied("java", place, &programs)
        && example("Hello.java", &source);
    let mut get = limited(GET_SECONDS, "mvn");
    get.args(["-q", "-B", "dependency:build-classpath", "-Dmdep.outputFile=target/classpath"]);
    if !(copied && done(get.current_dir(place))) {
        return None;
    }
    let classpath = fs::read_to_string(place.join("target/classpath")).ok()?;
    let mut run = limited(RUN_SECONDS, "sh");
    // Its log is long and says what its configuration is. HBase's FuzzyRowFilter reads its mask by memory
    // that java.base opens to it alone when told; without, its mask reaches no server as HBase means it.
    run.args([
        "-c",
        "mvn -q -B compile || exit 1; for main in $2; do java --add-opens java.base/java.nio=ALL-UNNAMED \
         -cp \"target/classes:$1\" $main \"$BIGTABLE_EMULATOR_HOST\" 2> log || { tail -20 log; exit 1; }; done",
        "sh",
    ]);
    run.arg(classpath.trim()).arg(mains).current_dir(place);
    Some(run)
}

fn node(place: &Path) -> Option<Command> {
    let is_there = example("hello.mjs", place);
    npm("node", place).filter(|_| is_there)
}

/// A page in Debian's Chromium; what it looks like is kept in `target/clients/browser`.
fn browser(place: &Path) -> Option<Command> {
    let there = || done(limited("30", "chromium").arg("--version"));
    let install = || done(limited(GET_SECONDS, "apt-get").args(["install", "--yes", "--quiet", "chromium"]));
    let update = || done(limited(GET_SECONDS, "apt-get").args(["update", "--quiet"]));
    (there() || (install() || (update() && install()))).then(|| npm("browser", place)).flatten()
}

fn npm(name: &str, place: &Path) -> Option<Command> {
    let mut install = limited(GET_SECONDS, "npm");
    install.args(["install", "--silent", "--no-audit", "--no-fund"]).current_dir(place);
    (copied(name, place, &["package.json", "main.js"]) && done(&mut install)).then(|| {
        let mut run = limited(RUN_SECONDS, "sh");
        run.args(["-ec", "if [ -e hello.mjs ]; then node hello.mjs; fi; node main.js"]).current_dir(place);
        run
    })
}
