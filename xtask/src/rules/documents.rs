//! The documents name only files and tests that exist, in lines that fit a screen.

use super::Finding;
use super::sources::Source;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Lines of documents are at most this long.
const COLUMNS_MAX: usize = 120;

/// In the documents, whatever is in backticks and looks like a file of this repository, or like the name of a
/// test, must exist.
pub(super) fn find(root: &Path, sources: &[Source<'_>]) -> Vec<Finding> {
    let mut functions = BTreeSet::new();
    for source in sources {
        functions.extend(source.text.split("fn ").skip(1).filter_map(|rest| rest.split(['(', '<']).next()));
    }
    let pages = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"];
    let mut pages: Vec<PathBuf> = pages.iter().map(|page| root.join(page)).collect();
    markdown(&root.join("docs"), &mut pages);
    let mut wrong = Vec::new();
    for page in pages {
        let name = page.strip_prefix(root).unwrap_or(&page).display().to_string();
        let mut says = |what: String| wrong.push(Finding { file: name.clone(), what });
        let text = match std::fs::read_to_string(&page) {
            Ok(text) => text,
            Err(e) => {
                says(format!("{name}: {e}"));
                continue;
            }
        };
        overlong(&text).for_each(|line| says(format!("{name} line {line}: over {COLUMNS_MAX} columns")));
        for word in quoted(&text) {
            let missing = if is_file(word) {
                let anywhere = !word.contains('/') && sources.iter().any(|s| s.path.ends_with(word));
                let bases = ["", "engine/src", "docs"];
                !anywhere && !bases.iter().any(|base| root.join(base).join(word).exists())
            } else {
                is_test_name(word) && !functions.contains(word)
            };
            if missing {
                says(format!("{name} names `{word}`, which is not there"));
            }
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

/// Lines of a document that are too long, by number. Tables, code and images are as long as they are, and so
/// is a command.
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

/// The texts between single backticks.
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
