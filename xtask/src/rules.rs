//! House rules that no compiler checks: which folder may import which, how long a file may be, words that stay out,
//! and that the documents name only files and tests that exist, in lines that fit a screen.

use crate::run::{Tally, root};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// All modules of the engine, lowest first: each imports only what stands before it. The files of `testing` build on
/// anything; `tests` and `model` folders may use anything below `db`.
const ORDER: &[&str] = &[
    "error", "types", "hooks", "sync", "latency", "metrics", "operator", "storage", "schedule", "shape",
    "cache", "log", "memory", "table", "version", "strategy", "simulate", "options", "event", "snapshot",
    "merge", "offload", "commit", "catalog", "work", "repair", "backup", "db", "testing",
];

/// Lines of documents are at most this long.
const COLUMNS_MAX: usize = 120;
/// Files of Rust are at most this long.
const LINES_MAX: usize = 800;
/// Structs of the engine have at most so many fields, and its functions so many lines, but where a comment says why.
const FIELDS_MAX: usize = 15;
const FUNCTION_LINES_MAX: usize = 70;
/// Words that stay out of the sources. Written in two parts, so that this file may be checked too.
const BANNED: &[&str] =
    &[concat!("todo", "!("), concat!("unimplemented", "!("), concat!("#[", "ignore"), concat!("dbg", "!(")];

pub(crate) fn step(tally: &mut Tally) {
    let root = root();
    let sources = sources(&root);
    tally.check("rule: engine folders import one way", || imports(&sources));
    tally.check("rule: files are short and finished", || sources.iter().flat_map(length_and_words).collect());
    tally.check("rule: what is large in the engine says why", || {
        let engine = sources.iter().filter(|source| source.path.starts_with("engine/src"));
        engine
            .flat_map(|source| {
                let name = source.path.display().to_string();
                large(&source.text).into_iter().map(move |what| format!("{name}: {what}"))
            })
            .collect()
    });
    tally.check("rule: documents name what exists", || documents(&root, &sources));
}

struct Source {
    /// Relative to the root.
    path: PathBuf,
    text: String,
}

/// All Rust files of the workspace.
fn sources(root: &Path) -> Vec<Source> {
    let mut found = Vec::new();
    for folder in ["engine", "cli", "tests", "fuzz", "xtask", "bench", "server", "compactor"] {
        walk(root, &root.join(folder), &mut found);
    }
    found
}

fn walk(root: &Path, dir: &Path, found: &mut Vec<Source>) {
    let Ok(entries) = std::fs::read_dir(dir) else { return };
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        if path.is_dir() && !path.ends_with("target") {
            walk(root, &path, found);
        } else if path.extension().is_some_and(|e| e == "rs")
            && let (Ok(text), Ok(relative)) = (std::fs::read_to_string(&path), path.strip_prefix(root))
        {
            found.push(Source { path: relative.to_path_buf(), text });
        }
    }
}

fn imports(sources: &[Source]) -> Vec<String> {
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
        let Some(own) = place(module) else {
            wrong.push(format!("{} is of no module in the list", source.path.display()));
            continue;
        };
        // Tests may build on anything below the database.
        let code = source.text.split("mod tests {").next().unwrap_or_default();
        let code = code.split("mod model {").next().unwrap_or_default();
        let mut folders = inside.components().map(|c| c.as_os_str().to_string_lossy());
        let is_test = folders.any(|c| c.contains("tests") || c.starts_with("model"));
        let limit = if is_test { place("db").unwrap_or(own).max(own + 1) } else { own + 1 };
        for used in uses(code) {
            if place(&used).is_some_and(|at| at >= limit) {
                wrong.push(format!("{} imports crate::{used}", source.path.display()));
            }
        }
    }
    wrong
}

/// The modules that follow `crate::` in the text.
fn uses(text: &str) -> BTreeSet<String> {
    let lines = text.lines().map(str::trim_start).filter(|line| !line.starts_with("//"));
    let after = lines.flat_map(|line| line.split("crate::").skip(1));
    let words = after.map(|rest| rest.split(|c: char| !c.is_alphanumeric() && c != '_').next());
    words.flatten().map(str::to_string).collect()
}

fn length_and_words(source: &Source) -> Vec<String> {
    let mut wrong = Vec::new();
    let lines = source.text.lines().count();
    if lines > LINES_MAX {
        wrong.push(format!("{} has {lines} lines, the limit is {LINES_MAX}", source.path.display()));
    }
    for (at, line) in source.text.lines().enumerate() {
        if let Some(word) = BANNED.iter().find(|word| line.contains(**word)) {
            wrong.push(format!("{}:{}: {word}", source.path.display(), at + 1));
        }
    }
    wrong
}

/// Structs and functions that are too large, and have no comment right above them that begins with `Over`.
fn large(text: &str) -> Vec<String> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let code = line.trim_start();
        let indent = &line[..line.len() - code.len()];
        let is = |word: &str| {
            let before = code.split(word).next().filter(|_| code.contains(word))?;
            let modifier = |w: &str| w.starts_with("pub") || ["const", "unsafe", "in", "super)"].contains(&w);
            before.split_whitespace().all(modifier).then_some(())
        };
        let (is_struct, is_function) = (is("struct ").is_some(), is("fn ").is_some());
        if !(is_struct || is_function) || code.ends_with(';') || code.ends_with('}') {
            continue;
        }
        let end = format!("{indent}}}");
        let Some(length) = lines[at..].iter().position(|line| *line == end) else { continue };
        let inside = &lines[at + 1..at + length];
        let is_field = |line: &&&str| {
            let code = line.trim_start();
            !code.starts_with("//") && line.len() - code.len() == indent.len() + 4 && code.contains(": ")
        };
        let fields = if is_struct { inside.iter().filter(is_field).count() } else { 0 };
        let says_why = lines[..at].last().is_some_and(|line| line.trim_start().starts_with("// Over "));
        let name = code.split(['(', '{', '<']).next().unwrap_or(code).trim();
        if is_struct && fields > FIELDS_MAX && !says_why {
            found.push(format!(
                "{name} has {fields} fields, and no comment \"Over {FIELDS_MAX} fields: ...\""
            ));
        }
        if is_function && length + 1 > FUNCTION_LINES_MAX && !says_why {
            let lines = length + 1;
            found.push(format!(
                "{name} has {lines} lines, and no comment \"Over {FUNCTION_LINES_MAX} lines: ...\""
            ));
        }
    }
    found
}

/// In the documents, whatever is in backticks and looks like a file of ours, or like the name of a test, must exist.
fn documents(root: &Path, sources: &[Source]) -> Vec<String> {
    let mut functions = BTreeSet::new();
    for source in sources {
        functions.extend(source.text.split("fn ").skip(1).filter_map(|rest| rest.split(['(', '<']).next()));
    }
    let mut pages = vec![root.join("README.md"), root.join("ARCHITECTURE.md"), root.join("CHANGELOG.md")];
    markdown(&root.join("docs"), &mut pages);
    let mut wrong = Vec::new();
    for page in pages {
        let name = page.strip_prefix(root).unwrap_or(&page).display().to_string();
        match std::fs::read_to_string(&page) {
            Ok(text) => {
                wrong.extend(
                    overlong(&text).map(|line| format!("{name} line {line}: over {COLUMNS_MAX} columns")),
                );
                wrong.extend(quoted(&text).filter_map(|word| {
                    let missing = if is_file(word) {
                        let anywhere = !word.contains('/') && sources.iter().any(|s| s.path.ends_with(word));
                        !anywhere
                            && !["", "engine/src", "docs"]
                                .iter()
                                .any(|base| root.join(base).join(word).exists())
                    } else {
                        is_test_name(word) && !functions.contains(word)
                    };
                    missing.then(|| format!("{name} names `{word}`, which is not there"))
                }));
            }
            Err(e) => wrong.push(format!("{name}: {e}")),
        }
    }
    wrong
}

/// The documents in a folder and those below it.
fn markdown(dir: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(dir) else { return };
    let mut paths: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            markdown(&path, found);
        } else if path.extension().is_some_and(|e| e == "md") {
            found.push(path);
        }
    }
}

/// Lines of a document that are too long, by number. Tables, code and images are as long as they are, and so is a command.
fn overlong(text: &str) -> impl Iterator<Item = usize> {
    let mut in_code = false;
    let mut is_long = move |line: &str| {
        in_code ^= line.trim_start().starts_with("```");
        let plain = line.trim_start().trim_start_matches('(');
        let may_be =
            in_code || line.starts_with("    ") || ["|", "!", "`"].iter().any(|b| plain.starts_with(b));
        !may_be && line.chars().count() > COLUMNS_MAX
    };
    text.lines().enumerate().filter(move |(_, line)| is_long(line)).map(|(at, _)| at + 1)
}

/// What stands between single backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    let prose = text.split("```").step_by(2);
    prose.flat_map(|part| part.lines()).flat_map(|line| line.split('`').skip(1).step_by(2))
}

fn is_file(word: &str) -> bool {
    let plain = word.chars().all(|c| c.is_alphanumeric() || "/._-".contains(c));
    plain && [".rs", ".md", ".toml"].iter().any(|end| word.ends_with(end)) && word.len() > 3
}

/// Names of tests are claims: at least four words.
fn is_test_name(word: &str) -> bool {
    word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        && word.matches('_').count() >= 3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_structs_and_functions_are_found_unless_they_say_why() {
        let fields: String =
            (0..16).map(|n| format!("    /// Of x: y.\n    pub(crate) f{n}: u8,\n")).collect();
        let of = |above: &str| format!("{above}pub(crate) struct Much {{\n{fields}}}\n");
        assert_eq!(large(&of("")).len(), 1);
        assert_eq!(large(&of("// Over 15 fields: as an example.\n")).len(), 0);
        let body = "        x();\n".repeat(69);
        let function = format!("    pub(super) fn long(&self) {{\n{body}    }}\n");
        assert_eq!(large(&function).len(), 1);
        assert_eq!(large(&function.replacen("        x();\n", "", 1)).len(), 0);
    }

    fn source(path: &str, text: &str) -> Source {
        Source { path: path.into(), text: text.into() }
    }

    #[test]
    fn an_import_against_the_order_is_found_and_one_with_it_is_not() {
        let wrong = |path: &str, text: &str| imports(&[source(path, text)]).len();
        assert_eq!(wrong("engine/src/types/key.rs", "use crate::log::Log;"), 1);
        assert_eq!(wrong("engine/src/types/key.rs", "use crate::error::Result;\n// crate::db"), 0);
        assert_eq!(wrong("engine/src/strategy/a.rs", "use crate::merge::Merge;"), 1);
        assert_eq!(wrong("engine/src/strategy/a.rs", "use crate::shape::{Run, Shape};"), 0);
        assert_eq!(wrong("engine/src/merge/keep.rs", "fn f(x: crate::db::Db) {}"), 1);
        assert_eq!(wrong("engine/src/cache/mod.rs", "use crate::table::Table;"), 1);
        assert_eq!(wrong("engine/src/cache/tests.rs", "use crate::table::Table;"), 0);
        assert_eq!(wrong("engine/src/db/get.rs", "use crate::merge::Merge;"), 0);
        assert_eq!(wrong("engine/src/event.rs", "use crate::options::Options;"), 0);
        assert_eq!(wrong("engine/src/other.rs", ""), 1, "not in the list");
    }

    #[test]
    fn long_files_and_unfinished_code_are_found() {
        assert_eq!(length_and_words(&source("a.rs", &"x\n".repeat(LINES_MAX + 1))).len(), 1);
        let unfinished = format!("fn f() {{ {}) }}", BANNED[0]);
        assert_eq!(length_and_words(&source("a.rs", &unfinished)), [format!("a.rs:1: {}", BANNED[0])]);
    }

    #[test]
    fn backticked_files_and_test_names_are_told_from_other_words() {
        let text = "`a/b.rs` and `x`\n```\n`not.rs`\n```\n`one_two_three_four` `f()` `*.rs`";
        let words: Vec<&str> = quoted(text).collect();
        assert_eq!(words, ["a/b.rs", "x", "one_two_three_four", "f()", "*.rs"]);
        assert_eq!(
            words.iter().map(|w| is_file(w) || is_test_name(w)).collect::<Vec<_>>(),
            [true, false, true, false, false]
        );
    }
}
