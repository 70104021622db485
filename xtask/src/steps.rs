//! The steps of `test` and `ci`, in order. A step that fails does not keep the later ones from running: one run tells
//! all that is wrong.

use crate::guards::{self, Guard};
use crate::run::{Tally, WRAPPER, cargo, command, lint_builds, root};
use crate::{campaigns, rules};
use std::process::{Command, Stdio};

/// Seeds for each fault of a real object store before a release.
const SOAK_SEEDS: u32 = 200;
/// Schedules of a model before a release, for each one of every change.
const SOAK_SCHEDULES: u32 = 25;

/// All tests; if `whole`, the models and the campaigns with their gate counts too.
pub(crate) fn test(tally: &mut Tally, seed: u64, whole: bool) {
    if !there(&mut command("apt-cache", "--version")) {
        println!("no apt-cache here: the example and its test make packages up");
    }
    unit_tests(tally);
    if whole {
        file_systems();
        println!("seed {seed}; again: cargo xtask test --seed {seed}");
        campaigns::gate(tally, seed);
        guards::run(tally, Guard::Models, |tally| {
            let all = interleavings(tally);
            schedules(tally, seed, 1) && all
        });
        crate::python::step(tally);
        crate::c::step(tally, seed);
        crate::clients::step(tally);
        crate::patterns::step(tally, crate::patterns::COUNT, seed);
        crate::suites::gate(tally);
    }
}

/// Builds everything that tests and campaigns run, and runs the tests. The package `siltstone-tests` switches the engine's
/// features `testing` and `strict` on for all of it.
fn unit_tests(tally: &mut Tally) {
    // Built apart, so that the times at the end tell compiling from testing.
    tally.step_without_warnings("build of tests and campaigns", &mut build());
    // Many wait for a disk, a clock or another process.
    let threads = 2 * std::thread::available_parallelism().map_or(1, usize::from);
    let mut run = cargo("test --quiet --workspace --no-fail-fast");
    tally.tests("tests", run.env("RUST_TEST_THREADS", threads.to_string()));
}

/// Builds all that tests, campaigns and clients run: another choice of packages would compile most of it again.
pub(crate) fn build() -> Command {
    cargo("test --quiet --workspace --all-targets --no-run")
}

/// Fetches what makes file systems to try, where this machine lets us. The campaigns leave out what cannot be mounted, and say so.
fn file_systems() {
    for (program, package) in [("mkfs.xfs", "xfsprogs"), ("mkfs.btrfs", "btrfs-progs")] {
        if !install(program, "-V", package) {
            println!("{program} is not here and cannot be installed: its file system is not tried");
        }
    }
}

/// Whether the program is there, from the Debian package if need be.
pub(crate) fn install(program: &str, version: &str, package: &str) -> bool {
    let install = || there(&mut command("apt-get", &format!("install --yes --quiet {package}")));
    let update = || there(&mut command("apt-get", "update --quiet"));
    there(&mut command(program, version)) || install() || (update() && install())
}

/// Everything before a release.
pub(crate) fn soak(tally: &mut Tally, seed: u64, hours: Option<f64>) {
    println!("seed {seed}; again: cargo xtask soak --seed {seed}");
    tally.step("build of tests and campaigns", &mut build());
    campaigns::soak(tally, hours, seed);
    let mut faults = cargo("test --quiet --workspace --test it faults::");
    let what = format!("row 17: seven faults of an object store over HTTP, {SOAK_SEEDS} seeds each");
    tally.tests(&what, faults.env("SILTSTONE_SEEDS", SOAK_SEEDS.to_string()));
    guards::run_now(tally, Guard::Sanitizer, sanitize);
    interleavings(tally);
    schedules(tally, seed, SOAK_SCHEDULES);
}

/// Everything that must hold of a change.
pub(crate) fn ci(tally: &mut Tally, seed: u64) {
    tally.step("formatting", &mut cargo("fmt --all --check"));
    rules::step(tally);
    // Without the tests' features: what users build.
    tally.step("lints of the command line", &mut cargo("clippy --quiet -p siltstone-cli -- -D warnings"));
    package(tally);
    let mut doc = cargo("doc --quiet --no-deps --workspace");
    tally.step("documentation", doc.env("RUSTDOCFLAGS", "-D warnings"));
    supply_chain(tally);
    // The rest of the workspace is linted as it is built.
    lint_builds();
    test(tally, seed, true);
    guards::run(tally, Guard::Instructions, |tally| crate::instructions::step(tally, None));
    guards::run(tally, Guard::Sanitizer, sanitize);
}

/// Lints the library's package, unpacked, as it would be uploaded: without the tests' features, and with no other file.
fn package(tally: &mut Tally) {
    let mut make = cargo("package --quiet -p siltstone --allow-dirty --no-verify");
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
        let mut lint = cargo("clippy --quiet --manifest-path");
        lint.arg(place.join(name).join("Cargo.toml")).args(["--", "-D", "warnings"]);
        lint.env("CARGO_TARGET_DIR", target).env("CLIPPY_CONF_DIR", root().join("engine"));
        tally.step("lints of the library's package", &mut lint);
    }
}

/// Compares the library's interface with that of a revision, by `cargo-semver-checks`, which it installs.
pub(crate) fn semver(tally: &mut Tally, revision: &str) {
    if there(&mut cargo("semver-checks --version"))
        || tally.step(
            "install cargo-semver-checks",
            &mut cargo("install cargo-semver-checks --locked --debug --quiet"),
        )
    {
        let mut compare = cargo("semver-checks --package siltstone --all-features --baseline-rev");
        tally.step("the interface is that of the revision, or more", compare.arg(revision));
    }
}

/// Licences, sources and known vulnerabilities of what we link (row 26).
fn supply_chain(tally: &mut Tally) {
    // It runs for a second: what counts is how long it takes to compile.
    if !there(&mut cargo("deny --version"))
        && !tally.step("install cargo-deny", &mut cargo("install cargo-deny --locked --debug --quiet"))
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

/// The interleavings of what threads share, all of them up to each model's bound (row 22). Not of whole databases, nor of
/// what loom takes for other than it is.
pub(crate) fn interleavings(tally: &mut Tally) -> bool {
    let mut run = models(&["--skip", "db::model::", "--skip", "schedule::threads"]);
    run.env("SILTSTONE_CHECKER", "loom");
    tally.tests("row 22: models under loom", &mut run)
}

/// Schedules of the same and of whole databases, drawn at random (row 22). A failure prints the seed of its schedule; with
/// that in `SHUTTLE_RANDOM_SEED` the model runs it first.
pub(crate) fn schedules(tally: &mut Tally, seed: u64, times: u32) -> bool {
    // What readers walk without locks is for loom alone.
    let mut run = models(&["--skip", "memory::model"]);
    run.env("SILTSTONE_CHECKER", "shuttle").env("SILTSTONE_SEED", seed.to_string());
    run.env("SILTSTONE_SCHEDULES_TIMES", times.to_string());
    tally.tests(&format!("row 22: models under shuttle (seed {seed}, {times} times the schedules)"), &mut run)
}

/// The unit tests named `model`, in the one build that has both checkers.
fn models(skip: &[&str]) -> Command {
    let mut run = cargo("test --quiet --profile models -p siltstone --lib -- ::model::");
    run.args(skip)
        .env("RUSTFLAGS", "--cfg models")
        .env("CARGO_TARGET_DIR", root().join("target").join("models"))
        .env_remove(WRAPPER);
    run
}

/// The engine's unit tests under the address sanitizer, on the stable toolchain (row 23). Not those of the simulation:
/// it has no bytes of keys and values and no unsafe code, and 100 TB of it take ten minutes there.
pub(crate) fn sanitize(tally: &mut Tally) -> bool {
    let target = root().join("target").join("asan");
    let args = "test --quiet -p siltstone --features testing --lib --target x86_64-unknown-linux-gnu \
                -- --skip simulate::";
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

/// Whether the command can be run and ends with 0.
fn there(command: &mut Command) -> bool {
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}
