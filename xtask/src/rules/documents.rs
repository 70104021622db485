//! The documents name only files and tests that exist, in lines that fit a screen; those in `docs` are short
//! enough to be read.

use super::Finding;
use super::sources::Source;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Lines of documents are at most this long.
const COLUMNS_MAX: usize = 120;

/// Words of all documents in `docs` together. Who adds to one shortens what is said twice, or is out of date.
const WORDS_MAX: usize = 40_000;

/// What documents name.
const ENDINGS: [&str; 3] = [".rs", ".md", ".toml"];

/// In the documents, whatever is in backticks and looks like a file must fit one of this repository and no
/// other; what looks like the name of a test must exist, as a function or a public field.
pub(super) fn find(root: &Path, sources: &[Source<'_>]) -> Vec<Finding> {
    let mut names = BTreeSet::new();
    for source in sources {
        names.extend(source.text.split("fn ").skip(1).filter_map(|rest| rest.split(['(', '<']).next()));
        names.extend(source.text.split("pub ").skip(1).filter_map(|rest| rest.split(':').next()));
    }
    let files = files(root);
    let pages = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"];
    let mut wrong = Vec::new();
    for page in pages.iter().map(Path::new).chain(below_docs(&files)) {
        let name = page.display().to_string();
        let mut says = |what: String| wrong.push(Finding { file: name.clone(), what });
        let text = match std::fs::read_to_string(root.join(page)) {
            Ok(text) => text,
            Err(e) => {
                says(format!("{name}: {e}"));
                continue;
            }
        };
        overlong(&text).for_each(|line| says(format!("{name} line {line}: over {COLUMNS_MAX} columns")));
        for word in quoted(&text) {
            let fault = if is_file(word) {
                fault(word, &files)
            } else {
                (is_test_name(word) && !names.contains(word)).then(|| MISSING.to_owned())
            };
            if let Some(fault) = fault {
                says(format!("{name} names `{word}`, which {fault}"));
            }
        }
    }
    wrong
}

/// Whether `docs` has too many words.
pub(super) fn long(root: &Path) -> Vec<Finding> {
    let files = files(root);
    let texts = below_docs(&files).filter_map(|page| std::fs::read_to_string(root.join(page)).ok());
    too_long(&texts.collect::<Vec<_>>())
}

fn too_long(texts: &[String]) -> Vec<Finding> {
    let words: usize = texts.iter().map(|text| text.split_whitespace().count()).sum();
    let what = format!("docs has {words} words, over {WORDS_MAX}");
    (words > WORDS_MAX).then_some(Finding { file: "docs".to_owned(), what }).into_iter().collect()
}

const MISSING: &str = "is not there";

/// What is wrong with the name of a file. It must be a path from the root, or the end of one path alone.
fn fault(name: &str, files: &[PathBuf]) -> Option<String> {
    if files.iter().any(|file| file == Path::new(name)) {
        return None;
    }
    let mut fit = files.iter().filter(|file| file.ends_with(name));
    match (fit.next(), fit.next()) {
        (None, _) => Some(MISSING.to_owned()),
        (Some(_), None) => None,
        (Some(one), Some(other)) => Some(format!("may be {} or {}", one.display(), other.display())),
    }
}

/// The files of the repository that documents may name, by their paths from the root.
fn files(root: &Path) -> Vec<PathBuf> {
    let (mut found, mut dirs) = (Vec::new(), vec![root.to_path_buf()]);
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
            let is_ours = !name.starts_with('.') && name != "target";
            if path.is_dir() && is_ours {
                dirs.push(path);
            } else if is_file(&name) {
                found.extend(path.strip_prefix(root).map(Path::to_path_buf));
            }
        }
    }
    found.sort();
    found
}

/// The documents in `docs`.
fn below_docs(files: &[PathBuf]) -> impl Iterator<Item = &Path> {
    let is_page = |file: &&PathBuf| file.starts_with("docs") && file.extension().is_some_and(|e| e == "md");
    files.iter().filter(is_page).map(PathBuf::as_path)
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
    plain && ENDINGS.iter().any(|end| word.ends_with(end)) && word.len() > 3
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

    #[test]
    fn a_name_fits_one_file_alone() {
        let files =
            ["README.md", "c/src/options.rs", "docs/README.md", "e/src/options/mod.rs", "e/src/x/mod.rs"]
                .map(PathBuf::from);
        for fits in ["README.md", "docs/README.md", "options.rs", "options/mod.rs", "e/src/x/mod.rs"] {
            assert_eq!(fault(fits, &files), None, "{fits}");
        }
        for missing in ["ptions.rs", "e/options.rs", "src/README.md", "src/mod.rs"] {
            assert_eq!(fault(missing, &files).as_deref(), Some(MISSING), "{missing}");
        }
        assert_eq!(fault("mod.rs", &files).as_deref(), Some("may be e/src/options/mod.rs or e/src/x/mod.rs"));
    }

    #[test]
    fn words_of_all_documents_count_together() {
        let mut texts = vec!["two\n words ".repeat(WORDS_MAX / 4); 2];
        assert_eq!(too_long(&texts), []);
        texts.push("| one".to_owned());
        assert_eq!(too_long(&texts)[0].what, "docs has 40002 words, over 40000");
    }

    #[test]
    fn the_files_of_this_repository_are_found() {
        let files = files(&crate::run::root());
        for file in ["README.md", "xtask/src/rules/documents.rs", "docs/decisions/README.md"] {
            assert!(files.contains(&PathBuf::from(file)), "{file}");
        }
        assert!(below_docs(&files).any(|file| file == Path::new("docs/decisions/README.md")));
        assert_eq!(fault("rules/documents.rs", &files), None);
        assert!(fault("lib.rs", &files).is_some_and(|fault| fault.starts_with("may be ")));
    }
}
