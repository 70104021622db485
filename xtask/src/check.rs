//! The checks to run while one works: formatting, house rules, and lints and unit tests of the packages that
//! differ from the main branch, or that have changes which are not committed. Not of those that build on
//! them: `cargo xtask test` has them.

use crate::run::{Tally, cargo, command, root};
use crate::tools::on_many_threads;
use crate::{rules, steps};
use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

/// Folders outside of the packages that they are built with.
const ELSEWHERE: [(&str, &str); 2] = [("bindings/speed", "bindings/c"), ("examples", "cli")];
/// Files that concern all packages.
const OF_ALL: [&str; 3] = ["Cargo.toml", "Cargo.lock", "rust-toolchain.toml"];

pub(crate) fn step(tally: &mut Tally) {
    let base = base();
    let files = changed(&base);
    let packages = packages(&members(), &files);
    let names: Vec<&str> = packages.iter().map(|package| &*package.name).collect();
    let says = if names.is_empty() { "no package".into() } else { names.join(", ") };
    println!("changed since {}: {says}", base.get(..12).unwrap_or(&base));
    if let Some(file) = files.iter().find(|file| OF_ALL.contains(&&***file)) {
        println!("{file} has changed, which concerns all packages: see also cargo xtask test");
    }
    let tested: Vec<&Package> = packages.iter().filter(|package| package.has_unit_tests).collect();
    let lints = if packages.is_empty() { 0 } else { 1 };
    let tests = if tested.is_empty() { 0 } else { 2 };
    tally.steps(1 + rules::COUNT + lints + tests);
    steps::formatting(tally);
    rules::step(tally);
    let all: Vec<&Package> = packages.iter().collect();
    if !all.is_empty() {
        let mut lint = of("clippy --all-targets", &all);
        tally.step(&format!("lints of {says}"), lint.args(["--", "-D", "warnings"]));
    }
    if !tested.is_empty() {
        let names = tested.iter().map(|package| &*package.name).collect::<Vec<_>>().join(", ");
        let lib = if tested.iter().any(|package| package.has_library) { "--lib" } else { "" };
        let unit_tests = format!("test --bins {lib}");
        let mut build = of(&unit_tests, &tested);
        if tally.step(&format!("build of the unit tests of {names}"), build.arg("--no-run")) {
            let mut run = of(&unit_tests, &tested);
            run.args(["--no-fail-fast", "--", "--quiet"]);
            tally.tests(&format!("unit tests of {names}"), on_many_threads(&mut run));
        }
    }
}

/// Where this branch left the main one; the last commit, where there is none.
fn base() -> String {
    let merge_base = |main: &str| {
        let mut ask = command("git", "merge-base HEAD");
        let answer = ask.arg(main).output().ok().filter(|answer| answer.status.success())?;
        Some(String::from_utf8_lossy(&answer.stdout).trim().to_string())
    };
    merge_base("origin/main").or_else(|| merge_base("main")).unwrap_or_else(|| "HEAD".into())
}

/// Files that differ from that commit, new ones too.
fn changed(base: &str) -> BTreeSet<String> {
    let lines = |mut ask: Command| {
        let answer = ask.output().map(|answer| answer.stdout).unwrap_or_default();
        String::from_utf8_lossy(&answer).lines().map(str::to_string).collect::<Vec<_>>()
    };
    let differ = lines(command("git", &format!("diff --name-only --no-renames {base}")));
    let new = lines(command("git", "ls-files --others --exclude-standard"));
    differ.into_iter().chain(new).collect()
}

/// A package of the workspace.
struct Package {
    name: String,
    /// Its features for tests.
    features: Vec<String>,
    has_library: bool,
    has_unit_tests: bool,
}

/// The folders of all packages.
fn members() -> Vec<String> {
    let text = fs::read_to_string(root().join("Cargo.toml")).unwrap_or_default();
    let list = text.lines().find_map(|line| line.strip_prefix("members = ")).unwrap_or_default();
    list.split('"').skip(1).step_by(2).map(str::to_string).collect()
}

/// The packages, of those in these folders, that have one of the files.
fn packages(members: &[String], files: &BTreeSet<String>) -> Vec<Package> {
    let folders: BTreeSet<&str> = files.iter().filter_map(|file| folder_of(members, file)).collect();
    let read = |folder: &str| fs::read_to_string(root().join(folder).join("Cargo.toml")).ok();
    folders
        .into_iter()
        .filter_map(|folder| {
            let has_library = root().join(folder).join("src/lib.rs").exists();
            Package::of(&read(folder)?, has_library)
        })
        .collect()
}

/// The folder of the package that a file belongs to.
fn folder_of<'a>(members: &'a [String], file: &str) -> Option<&'a str> {
    let elsewhere = ELSEWHERE.iter().find(|(folder, _)| is_in(file, folder)).map(|(_, package)| *package);
    let of = |folder: &&String| elsewhere.map_or_else(|| is_in(file, folder), |package| *folder == package);
    members.iter().filter(of).max_by_key(|folder| folder.len()).map(String::as_str)
}

fn is_in(file: &str, folder: &str) -> bool {
    file.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
}

impl Package {
    /// By its manifest.
    fn of(manifest: &str, has_library: bool) -> Option<Self> {
        let name = manifest.lines().find_map(|line| line.strip_prefix("name = "))?.trim_matches('"');
        let has = |feature: &&str| manifest.lines().any(|line| line.starts_with(&format!("{feature} = [")));
        let features = ["testing", "strict"].into_iter().filter(has);
        Some(Self {
            name: name.to_string(),
            features: features.map(|feature| format!("{name}/{feature}")).collect(),
            has_library,
            // What is for other languages is tested in them.
            has_unit_tests: !manifest.lines().any(|line| line == "test = false"),
        })
    }
}

/// A cargo command for these packages, with their features for tests.
fn of(args: &str, packages: &[&Package]) -> Command {
    let mut command = cargo(args);
    packages.iter().for_each(|package| _ = command.args(["--package", &package.name]));
    let features: Vec<&str> =
        packages.iter().flat_map(|package| &package.features).map(String::as_str).collect();
    if !features.is_empty() {
        command.args(["--features", &features.join(",")]);
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_belongs_to_the_package_in_the_innermost_folder() {
        let members = members();
        assert!(members.len() > 10, "{members:?}");
        for (file, folder) in [
            ("tests/src/lib.rs", Some("tests")),
            ("tests/server/src/main.rs", Some("tests/server")),
            ("bindings/speed/calls.rs", Some("bindings/c")),
            ("examples/packages.rs", Some("cli")),
            ("engine/src/db/mod.rs", Some("engine")),
            ("enginex/src/lib.rs", None),
            ("docs/open.md", None),
        ] {
            assert_eq!(folder_of(&members, file), folder, "{file}");
        }
    }

    #[test]
    fn a_manifest_says_what_to_test_with_which_features() {
        let files = ["engine/src/lib.rs", "bindings/c/src/lib.rs", "xtask/src/main.rs"].map(String::from);
        let packages = packages(&members(), &files.into_iter().collect());
        let says: Vec<_> = packages
            .iter()
            .map(|p| (&*p.name, p.features.join(","), p.has_library, p.has_unit_tests))
            .collect();
        assert_eq!(
            says,
            [
                ("siltstone-c", "siltstone-c/testing".into(), true, false),
                ("siltstone", "siltstone/testing,siltstone/strict".into(), true, true),
                ("xtask", String::new(), false, true),
            ]
        );
    }
}
