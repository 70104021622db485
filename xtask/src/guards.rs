//! Checks that need not run for every change: they have passed with exactly these sources before.
//! `xtask/guards.txt` has a line a check, with the hash of the files that it guards as they were when it last
//! passed; a change of one of these files makes it run again. Of the planted bugs a change draws twelve.
//! `soak` runs all, always.

use crate::run::{Tally, root};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

/// A check, and what it guards.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Guard {
    /// The unit tests under the address sanitizer: files of the engine with unsafe code.
    Sanitizer,
    /// Models of interleavings: files of the engine with models, or with what models replace.
    Models,
    /// Models of the protocol of shared databases: these alone.
    Protocol,
    /// Instructions of operations: the engine, and what counts them.
    Instructions,
    /// Planted bugs that are drawn are found: files where bugs are planted, and the campaigns.
    Planted,
}

impl Guard {
    fn name(self) -> &'static str {
        match self {
            Guard::Sanitizer => "sanitizer",
            Guard::Models => "models",
            Guard::Protocol => "protocol",
            Guard::Instructions => "instructions",
            Guard::Planted => "planted",
        }
    }

    fn guards(self, path: &Path, text: &str) -> bool {
        let campaigns = path.components().next().is_some_and(|first| first.as_os_str() == "tests");
        let of_engine = path.starts_with("engine");
        match self {
            Guard::Sanitizer => of_engine && text.contains("unsafe"),
            Guard::Models => {
                of_engine && ["crate::sync", "cfg(models)", "model"].iter().any(|word| text.contains(word))
            }
            Guard::Protocol => path.starts_with("tests/models"),
            Guard::Instructions => of_engine || path.starts_with("tests/instructions"),
            Guard::Planted => {
                let campaigns = campaigns && !path.starts_with("tests/models");
                let plants = ["planted!", "planted_bug!", "enum Bug"];
                campaigns || plants.iter().any(|plants| text.contains(plants))
            }
        }
    }
}

/// Runs the check unless it has passed with these sources.
pub(crate) fn run(tally: &mut Tally, guard: Guard, check: impl FnOnce(&mut Tally) -> bool) {
    if recorded(guard).as_deref() == Some(&fingerprint(guard)) {
        println!("--- {}: what it guards has not changed since it passed, NOT RUN", guard.name());
        return;
    }
    run_now(tally, guard, check);
}

/// Runs the check, and records with which sources it passed.
pub(crate) fn run_now(tally: &mut Tally, guard: Guard, check: impl FnOnce(&mut Tally) -> bool) {
    let print = fingerprint(guard);
    if !check(tally) {
        return;
    }
    let kept = lines().into_iter().filter(|(name, _)| name != guard.name());
    let mut kept: Vec<_> = kept.chain([(guard.name().to_string(), print)]).collect();
    kept.sort();
    let text: String = kept.into_iter().map(|(name, print)| format!("{name} {print}\n")).collect();
    if let Err(e) = std::fs::write(file(), text) {
        println!("{}: {e}", file().display());
    }
}

fn file() -> PathBuf {
    root().join("xtask/guards.txt")
}

fn lines() -> Vec<(String, String)> {
    let text = std::fs::read_to_string(file()).unwrap_or_default();
    let pair = |line: &str| line.split_once(' ').map(|(name, print)| (name.to_string(), print.to_string()));
    text.lines().filter_map(pair).collect()
}

fn recorded(guard: Guard) -> Option<String> {
    lines().into_iter().find(|(name, _)| name == guard.name()).map(|(_, print)| print)
}

/// A hash of the names and contents of all that is guarded.
fn fingerprint(guard: Guard) -> String {
    let mut files = Vec::new();
    let folders = [
        "engine/src",
        "server/src",
        "compactor/src",
        "tests/src",
        "tests/server/src",
        "tests/instructions/src",
        "tests/models/src",
    ];
    for folder in folders {
        sources(&root().join(folder), &mut files);
    }
    files.sort();
    let mut hasher = DefaultHasher::new();
    for path in files {
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let name = path.strip_prefix(root()).unwrap_or(&path).to_path_buf();
        if guard.guards(&name, &text) {
            (name, text).hash(&mut hasher);
        }
    }
    format!("{:016x}", hasher.finish())
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        match path.is_dir() {
            true => sources(&path, found),
            false => found.extend(path.extension().is_some_and(|e| e == "rs").then_some(path)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_check_guards_its_own_files() {
        let guards = |guard: Guard, path: &str, text: &str| guard.guards(Path::new(path), text);
        assert!(guards(Guard::Sanitizer, "engine/src/memtable/arena.rs", "unsafe { at(1) }"));
        assert!(!guards(Guard::Sanitizer, "engine/src/memtable/mod.rs", "mod arena;"));
        assert!(guards(Guard::Planted, "tests/src/power.rs", ""));
        assert!(guards(Guard::Planted, "engine/src/db/get.rs", "if planted!(Bug::ReadPointBeforeVersion)"));
        assert!(guards(
            Guard::Planted,
            "server/src/services/bigtable.rs",
            "siltstone::planted_bug!(WorkInPlace)"
        ));
        assert!(!guards(Guard::Sanitizer, "tests/src/power.rs", "unsafe"));
        assert!(guards(Guard::Models, "engine/src/wal/queue.rs", "use crate::sync::Mutex;"));
        assert!(!guards(Guard::Models, "engine/src/sstable/block.rs", "fn read() {}"));
        assert!(guards(Guard::Instructions, "engine/src/sstable/block.rs", ""));
        assert!(guards(Guard::Instructions, "tests/instructions/src/main.rs", ""));
        assert!(guards(Guard::Protocol, "tests/models/src/stream.rs", ""));
        assert!(!guards(Guard::Planted, "tests/models/src/stream.rs", ""));
        assert!(!guards(Guard::Instructions, "server/src/services/bigtable.rs", ""));
        assert!(!guards(Guard::Planted, "engine/src/db/scan.rs", ""));
        assert_ne!(fingerprint(Guard::Sanitizer), fingerprint(Guard::Planted));
    }
}
