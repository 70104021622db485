//! The modules of the engine stand on each other in one order, which ARCHITECTURE.md lists.

use super::Finding;
use super::sources::{Source, named};
use std::collections::BTreeSet;

/// All modules of the engine, lowest first: each imports only what stands before it. The files of `testing`
/// build on anything; `tests` and `model` folders may use anything below `db`.
const ORDER: &[&str] = &[
    "error",
    "types",
    "hooks",
    "sync",
    "latency",
    "metrics",
    "operator",
    "storage",
    "stream",
    "schedule",
    "shape",
    "cache",
    "wal",
    "memtable",
    "sstable",
    "version",
    "strategy",
    "simulate",
    "options",
    "event",
    "snapshot",
    "context",
    "lease",
    "compaction",
    "offload",
    "commit",
    "catalog",
    "work",
    "repair",
    "backup",
    "db",
    "testing",
];

/// Imports against the order.
pub(super) fn imports(sources: &[Source<'_>]) -> Vec<Finding> {
    let place = |module: &str| ORDER.iter().position(|one| *one == module);
    let mut wrong = Vec::new();
    for source in sources {
        let Ok(inside) = source.path.strip_prefix("engine/src") else { continue };
        let Some(first) = inside.components().next() else { continue };
        let name = first.as_os_str().to_string_lossy();
        let module = name.strip_suffix(".rs").unwrap_or(&name);
        if module == "lib" {
            continue;
        }
        let mut says = |what: String| wrong.push(Finding { file: source.name(), what });
        let Some(own) = place(module) else {
            says(format!("{} is of no module in the list", source.name()));
            continue;
        };
        let mut folders = inside.components().map(|c| c.as_os_str().to_string_lossy());
        let is_test = folders.any(|c| c.contains("tests") || c.starts_with("model"));
        let limit = if is_test { place("db").unwrap_or(own).max(own + 1) } else { own + 1 };
        for used in uses(source) {
            if place(used).is_some_and(|at| at >= limit) {
                says(format!("{} imports crate::{used}", source.name()));
            }
        }
    }
    wrong
}

/// The modules that follow `crate::` in the code.
fn uses<'a>(source: &Source<'a>) -> BTreeSet<&'a str> {
    let named = named(&source.tokens, &[]).into_iter();
    named.filter(|name| name.path[0] == "crate").filter_map(|name| name.path.get(1).copied()).collect()
}

/// The differences of the list in ARCHITECTURE.md.
pub(super) fn listed(architecture: &str) -> Vec<Finding> {
    let says = |what: String| vec![Finding { file: "ARCHITECTURE.md".into(), what }];
    let Some((_, list)) = architecture.split_once("\nThe modules of the engine, lowest first.") else {
        return says("ARCHITECTURE.md has no list of \"The modules of the engine, lowest first.\"".into());
    };
    let lines = list.lines().skip_while(|line| !line.starts_with("    "));
    let lines = lines.take_while(|line| line.starts_with("    "));
    let listed: Vec<&str> = lines.filter_map(|line| line.split_whitespace().next()).collect();
    let differs = ORDER.iter().zip(&listed).find(|(a, b)| a != b);
    match (differs, ORDER.len(), listed.len()) {
        (Some((module, other)), ..) => says(format!(
            "ARCHITECTURE.md lists {other} where the order (xtask/src/rules/order.rs) has {module}"
        )),
        (None, modules, lines) if modules != lines => {
            says(format!("ARCHITECTURE.md lists {lines} modules of the engine, and there are {modules}"))
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn an_import_against_the_order_is_found_and_one_with_it_is_not() {
        let wrong = |path: &str, text: &str| imports(&[Source::new(Path::new(path), text)]).len();
        assert_eq!(wrong("engine/src/types/key.rs", "use crate::wal::Wal;"), 1);
        assert_eq!(wrong("engine/src/types/key.rs", "use crate::{error::Result, wal};"), 1);
        assert_eq!(wrong("engine/src/types/key.rs", "use crate::error::Result;\n// crate::db"), 0);
        assert_eq!(wrong("engine/src/strategy/a.rs", "use crate::compaction::Output;"), 1);
        assert_eq!(wrong("engine/src/strategy/a.rs", "use crate::shape::{Run, Shape};"), 0);
        assert_eq!(wrong("engine/src/compaction/retention.rs", "fn f(x: crate::db::Db) {}"), 1);
        assert_eq!(wrong("engine/src/cache/mod.rs", "use crate::sstable::Sstable;"), 1);
        assert_eq!(
            wrong("engine/src/cache/mod.rs", "#[cfg(test)] mod tests { use crate::sstable::Sstable; }"),
            0
        );
        assert_eq!(wrong("engine/src/cache/tests.rs", "use crate::sstable::Sstable;"), 0);
        assert_eq!(wrong("engine/src/db/get.rs", "use crate::compaction::Output;"), 0);
        assert_eq!(wrong("engine/src/event.rs", "use crate::options::Options;"), 0);
        assert_eq!(wrong("engine/src/other.rs", ""), 1, "not in the list");
    }

    #[test]
    fn a_list_in_the_document_that_is_another_is_found() {
        let page = |modules: &[&str]| {
            let lines: String = modules.iter().map(|module| format!("    {module}  what it is\n")).collect();
            format!("# A\n\nThe modules of the engine, lowest first. Each\nimports some.\n\n{lines}\nMore.\n")
        };
        assert_eq!(listed(&page(ORDER)).len(), 0);
        assert_eq!(listed(&page(&ORDER[1..])).len(), 1);
        assert_eq!(listed(&page(&ORDER[..5])).len(), 1);
        assert_eq!(listed("# A\n").len(), 1);
    }
}
