//! The steps of `test` and `ci`, in order. A step that fails does not keep the later ones from running: one
//! run tells all that is wrong.

use crate::guards::{self, Guard};
use crate::run::{Tally, WRAPPER, cargo, command, lint_builds, root};
use crate::tools::{build, install, on_many_threads, there};
use crate::{campaigns, rules};
use std::process::Command;

/// Seeds for each fault of a real object store before a release.
const SOAK_SEEDS: u32 = 200;
/// Schedules of a model before a release, for each one of every change.
const SOAK_SCHEDULES: u32 = 25;

/// A part of a run.
struct Part {
    says: &'static str,
    /// How many steps it has, where that is known beforehand.
    steps: Option<usize>,
    run: fn(&mut Tally, u64),
}

/// The checks of every change before its tests.
const BEFORE_TESTS: [Part; 6] = [
    Part { says: "formatting", steps: Some(1), run: |tally, _| formatting(tally) },
    Part { says: "house rules", steps: Some(rules::COUNT), run: |tally, _| rules::step(tally) },
    // Without the tests' features: what users build.
    Part {
        says: "lints of the command line",
        steps: Some(1),
        run: |tally, _| {
            tally.step("lints of the command line", &mut cargo("clippy -p siltstone-cli -- -D warnings"));
        },
    },
    Part { says: "the library's package", steps: Some(3), run: |tally, _| package(tally) },
    Part { says: "documentation", steps: Some(1), run: |tally, _| documentation(tally) },
    Part {
        says: "licences and sources",
        steps: None,
        run: |tally, _| {
            supply_chain(tally);
            // From here on the workspace is linted as it is built.
            lint_builds();
        },
    },
];

const TESTS: [Part; 2] = [
    // Apart, so that the times at the end tell compiling from testing.
    Part {
        says: "build",
        steps: Some(1),
        run: |tally, _| _ = tally.step_without_warnings("build of tests and campaigns", &mut build()),
    },
    Part { says: "tests", steps: Some(1), run: |tally, _| tests(tally) },
];

/// The long tests.
const LONG_TESTS: [Part; 7] = [
    Part {
        says: "campaigns",
        steps: Some(campaigns::COUNT),
        run: |tally, seed| {
            file_systems();
            campaigns::gate(tally, seed);
        },
    },
    Part {
        says: "models",
        steps: Some(3),
        run: |tally, seed| {
            guards::run(tally, Guard::Protocol, protocol);
            guards::run(tally, Guard::Models, |tally| {
                let all = interleavings(tally);
                schedules(tally, seed, 1) && all
            });
        },
    },
    Part { says: "Python", steps: None, run: |tally, _| crate::python::step(tally) },
    Part { says: "C", steps: None, run: crate::c::step },
    Part { says: "clients", steps: None, run: |tally, _| crate::clients::step(tally) },
    Part {
        says: "patterns of filters",
        steps: Some(2),
        run: |tally, seed| crate::patterns::step(tally, crate::patterns::COUNT, seed),
    },
    Part { says: "the clients' own suites", steps: None, run: |tally, _| crate::suites::gate(tally) },
];

/// The checks of every change after its tests.
const AFTER_TESTS: [Part; 2] = [
    Part {
        says: "instructions",
        steps: Some(2),
        run: |tally, _| {
            guards::run(tally, Guard::Instructions, |tally| crate::instructions::step(tally, None));
        },
    },
    Part {
        says: "address sanitizer",
        steps: Some(1),
        run: |tally, _| guards::run(tally, Guard::Sanitizer, sanitize),
    },
];

/// Runs them all in this order.
fn all(tally: &mut Tally, parts: &[&[Part]], seed: u64) {
    let parts: Vec<&Part> = parts.iter().copied().flatten().collect();
    let says: Vec<&str> = parts.iter().map(|part| part.says).collect();
    println!("{} parts: {}", parts.len(), says.join(", "));
    for (at, part) in parts.iter().enumerate() {
        tally.part(at + 1, parts.len(), part.steps);
        (part.run)(tally, seed);
    }
}

/// All tests; if `whole`, the models and the campaigns with their gate counts too.
pub(crate) fn test(tally: &mut Tally, seed: u64, whole: bool) {
    if whole {
        println!("seed {seed}; again: cargo xtask test --seed {seed}");
        all(tally, &[&TESTS, &LONG_TESTS], seed);
    } else {
        all(tally, &[&TESTS], seed);
    }
}

/// Everything that must hold of a change.
pub(crate) fn ci(tally: &mut Tally, seed: u64) {
    println!("seed {seed}; again: cargo xtask ci --seed {seed}");
    all(tally, &[&BEFORE_TESTS, &TESTS, &LONG_TESTS, &AFTER_TESTS], seed);
}

pub(crate) fn formatting(tally: &mut Tally) {
    tally.step("formatting", &mut cargo("fmt --all --check"));
}

fn documentation(tally: &mut Tally) {
    let mut doc = cargo("doc --no-deps --workspace");
    tally.step("documentation", doc.env("RUSTDOCFLAGS", "-D warnings"));
}

/// Runs the tests of all packages. The package `siltstone-tests` switches the engine's features `testing` and
/// `strict` on for all of them.
fn tests(tally: &mut Tally) {
    if !there(&mut command("apt-cache", "--version")) {
        println!("no apt-cache here: the example and its test make packages up");
    }
    let mut run = cargo("test --workspace --no-fail-fast -- --quiet");
    tally.tests("tests", on_many_threads(&mut run));
}

/// Fetches what makes file systems to try, where this machine lets us. The campaigns leave out what cannot be
/// mounted, and say so.
fn file_systems() {
    for (program, package) in [("mkfs.xfs", "xfsprogs"), ("mkfs.btrfs", "btrfs-progs")] {
        if !install(program, "-V", package) {
            println!("{program} is not here and cannot be installed: its file system is not tried");
        }
    }
}

/// Everything before a release.
pub(crate) fn soak(tally: &mut Tally, seed: u64, hours: Option<f64>) {
    println!("seed {seed}; again: cargo xtask soak --seed {seed}");
    tally.steps(campaigns::COUNT + 6);
    tally.step("build of tests and campaigns", &mut build());
    campaigns::soak(tally, hours, seed);
    let mut faults = cargo("test --workspace --test it faults:: -- --quiet");
    let what = format!("row 17: seven faults of an object store over HTTP, {SOAK_SEEDS} seeds each");
    tally.tests(&what, faults.env("SILTSTONE_SEEDS", SOAK_SEEDS.to_string()));
    guards::run_now(tally, Guard::Sanitizer, sanitize);
    protocol(tally);
    interleavings(tally);
    schedules(tally, seed, SOAK_SCHEDULES);
}

/// Lints the library's package, unpacked, as it would be uploaded: without the tests' features, and with no
/// other file.
fn package(tally: &mut Tally) {
    let mut make = cargo("package -p siltstone --allow-dirty --no-verify");
    if !tally.step("the library's package", &mut make) {
        return;
    }
    let (target, name) = (root().join("target"), concat!("siltstone-", env!("CARGO_PKG_VERSION")));
    let place = target.join("package/unpacked");
    let _ = std::fs::remove_dir_all(&place);
    let _ = std::fs::create_dir_all(&place);
    let mut unpack = command("tar", "xf");
    unpack.arg(target.join(format!("package/{name}.crate"))).arg("-C").arg(&place);
    if tally.step("the library's package, unpacked", &mut unpack) {
        let mut lint = cargo("clippy --manifest-path");
        lint.arg(place.join(name).join("Cargo.toml")).args(["--", "-D", "warnings"]);
        lint.env("CARGO_TARGET_DIR", target).env("CLIPPY_CONF_DIR", root().join("engine"));
        tally.step("lints of the library's package", &mut lint);
    }
}

/// Compares the library's interface with that of a revision, by `cargo-semver-checks`, which it installs.
pub(crate) fn semver(tally: &mut Tally, revision: &str) {
    if there(&mut cargo("semver-checks --version"))
        || tally
            .step("install cargo-semver-checks", &mut cargo("install cargo-semver-checks --locked --debug"))
    {
        let mut compare = cargo("semver-checks --package siltstone --all-features --baseline-rev");
        tally.step("the interface is that of the revision, or more", compare.arg(revision));
    }
}

/// The crates that users build, which have nothing that is only there to be compared with.
const PRODUCTS: [&str; 6] = [
    "siltstone-c",
    "siltstone-cli",
    "siltstone-compactor",
    "siltstone-python",
    "siltstone-server",
    "siltstone-storage-object",
];

/// The products that are built with the feature `papers`.
fn with_papers() -> Vec<String> {
    let has = |name: &&&str| {
        let tree = cargo("tree -e normal,build,features -p").arg(**name).output();
        tree.map_or(true, |tree| {
            let text = String::from_utf8_lossy(&tree.stdout);
            !tree.status.success() || text.contains("siltstone feature \"papers\"")
        })
    };
    PRODUCTS.iter().filter(has).map(|name| format!("{name} is built with the feature papers")).collect()
}

/// Licences, sources and known vulnerabilities of what we link (row 26).
fn supply_chain(tally: &mut Tally) {
    tally.check("products are built without the feature papers", with_papers);
    // It runs for a second: what counts is how long it takes to compile.
    if !there(&mut cargo("deny --version"))
        && !tally.step("install cargo-deny", &mut cargo("install cargo-deny --locked --debug"))
    {
        return;
    }
    tally.step("bans, licences, sources", &mut cargo("deny check bans licenses sources"));
    // The database of advisories comes from the network, which not every machine has.
    if there(&mut cargo("deny fetch db")) {
        tally.step("advisories", &mut cargo("deny check advisories"));
    } else {
        println!("--- advisories: NOT CHECKED, their database could not be fetched");
    }
}

/// All states of the protocol of shared databases, with all of its rules and without each.
pub(crate) fn protocol(tally: &mut Tally) -> bool {
    tally.tests("models of shared databases", &mut cargo("test -p siltstone-models --lib -- --quiet"))
}

/// The interleavings of what threads share, all of them up to each model's bound (row 22). Not of whole
/// databases, nor of what loom takes for other than it is.
pub(crate) fn interleavings(tally: &mut Tally) -> bool {
    let mut run = models(&["--skip", "db::model::", "--skip", "schedule::threads"]);
    run.env("SILTSTONE_CHECKER", "loom");
    tally.tests("row 22: models under loom", &mut run)
}

/// Schedules of the same and of whole databases, drawn at random (row 22). A failure prints the seed of its
/// schedule; with that in `SHUTTLE_RANDOM_SEED` the model runs it first.
pub(crate) fn schedules(tally: &mut Tally, seed: u64, times: u32) -> bool {
    // What readers walk without locks is for loom alone.
    let mut run = models(&["--skip", "memory::model"]);
    run.env("SILTSTONE_CHECKER", "shuttle").env("SILTSTONE_SEED", seed.to_string());
    run.env("SILTSTONE_SCHEDULES_TIMES", times.to_string());
    tally.tests(&format!("row 22: models under shuttle (seed {seed}, {times} times the schedules)"), &mut run)
}

/// The unit tests named `model`, in the one build that has both checkers.
fn models(skip: &[&str]) -> Command {
    let mut run = cargo("test --profile models -p siltstone --features papers --lib -- --quiet ::model::");
    run.args(skip)
        .env("RUSTFLAGS", "--cfg models")
        .env("CARGO_TARGET_DIR", root().join("target").join("models"))
        .env_remove(WRAPPER);
    run
}

/// The engine's unit tests under the address sanitizer, on the stable toolchain (row 23). Not those of the
/// simulation: it has no bytes of keys and values and no unsafe code, and 100 TB of it take ten minutes
/// there.
pub(crate) fn sanitize(tally: &mut Tally) -> bool {
    let target = root().join("target").join("asan");
    let args = "test -p siltstone --features testing --lib --target x86_64-unknown-linux-gnu \
                -- --quiet --skip simulate::";
    let mut run = cargo(args);
    run.env("RUSTC_BOOTSTRAP", "1")
        .env("RUSTFLAGS", "-Zsanitizer=address --cfg free_chunks")
        .env("CARGO_TARGET_DIR", target)
        .env_remove(WRAPPER);
    tally.tests("row 23: address sanitizer", &mut run)
}

/// The bench with the other stores, built once: RocksDB takes many minutes, and its bindings need libclang.
pub(crate) fn peers(tally: &mut Tally) {
    if !libclang() {
        tally.step("package lists", &mut command("apt-get", "update --quiet"));
        tally.step("install libclang", &mut command("apt-get", "install --yes --quiet libclang-dev"));
    }
    // Without Go there is one less.
    if install("go", "version", "golang-go") {
        let mut build = command("go", "build -buildmode=c-shared -o ../../target/peers/libpebble.so .");
        tally.step("pebble", build.current_dir(root().join("bench/pebble")));
    } else {
        println!("--- pebble: NOT BUILT, there is no Go here and it cannot be installed");
    }
    tally.step("bench with peers", &mut cargo("build --release -p siltstone-bench --features peers"));
}

/// Whether the C compiler's library that reads RocksDB's header is there.
fn libclang() -> bool {
    let known = command("ldconfig", "-p").output().map(|out| out.stdout).unwrap_or_default();
    let known = String::from_utf8_lossy(&known);
    std::env::var_os("LIBCLANG_PATH").is_some()
        || known.lines().any(|line| {
            let library = line.trim_start();
            library.starts_with("libclang.so")
                || library.starts_with("libclang-1")
                || library.starts_with("libclang-2")
        })
}
