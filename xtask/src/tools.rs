//! Tools that many steps need: the one build, and programs from Debian packages.

use crate::run::{cargo, command};
use std::process::{Command, Stdio};

/// Builds all that tests, campaigns and clients run: another choice of packages would compile most of it
/// again.
pub(crate) fn build() -> Command {
    cargo("test --workspace --all-targets --no-run")
}

/// Has tests run on twice as many threads as there are processors: many wait for a disk, a clock or another
/// process.
pub(crate) fn on_many_threads(tests: &mut Command) -> &mut Command {
    let threads = 2 * std::thread::available_parallelism().map_or(1, usize::from);
    tests.env("RUST_TEST_THREADS", threads.to_string())
}

/// Whether the program is there, from the Debian package if need be.
pub(crate) fn install(program: &str, version: &str, package: &str) -> bool {
    let install = || there(&mut command("apt-get", &format!("install --yes --quiet {package}")));
    let update = || there(&mut command("apt-get", "update --quiet"));
    there(&mut command(program, version)) || install() || (update() && install())
}

/// Whether the command can be run and ends with 0.
pub(crate) fn there(command: &mut Command) -> bool {
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}
