//! House rules that no compiler checks (`cargo xtask rules`).
//!
//! `sources` reads the Rust files. On it stand `order` (which folder of the engine may import which),
//! `circles` (none inside a folder), `pages` (what a folder's page says of its modules), `size` (of files,
//! functions and structs) and `comments` (their width, and how they begin). `documents` is about Markdown.
//! `exceptions` has what breaks a rule and may, for now.

mod circles;
mod comments;
mod documents;
mod exceptions;
mod order;
mod pages;
mod size;
mod sources;

use crate::run::{Tally, root};
use sources::Source;
use std::path::Path;

/// A violation of a rule.
#[derive(Debug, PartialEq, Eq)]
struct Finding {
    /// The file whose count in the rule's list it adds to.
    file: String,
    what: String,
}

/// A rule.
struct Rule {
    says: &'static str,
    /// The name of its list of exceptions, if it may have any.
    list: Option<&'static str>,
    find: fn(&Path, &[Source<'_>]) -> Vec<Finding>,
}

const RULES: [Rule; 10] = [
    Rule { says: "engine folders import one way", list: None, find: |_, sources| order::imports(sources) },
    Rule {
        says: "ARCHITECTURE.md lists the engine's modules in their order",
        list: None,
        find: |root, _| {
            order::listed(&std::fs::read_to_string(root.join("ARCHITECTURE.md")).unwrap_or_default())
        },
    },
    Rule {
        says: "files of a folder import in no circle",
        list: Some("circles"),
        find: |_, sources| circles::find(sources),
    },
    Rule {
        says: "the page of a folder names its modules",
        list: Some("pages"),
        find: |_, sources| pages::find(sources),
    },
    Rule { says: "files are short and finished", list: None, find: |_, sources| size::files(sources) },
    Rule { says: "what is large says why", list: Some("size"), find: |_, sources| size::items(sources) },
    Rule {
        says: "comments fit a screen",
        list: Some("comment-width"),
        find: |_, sources| comments::wide(sources),
    },
    Rule {
        says: "doc comments have a subject",
        list: Some("openings"),
        find: |_, sources| comments::openings(sources),
    },
    Rule { says: "documents name what exists", list: None, find: documents::find },
    Rule { says: "documents are short", list: None, find: |root, _| documents::long(root) },
];

/// How many steps the rules are.
pub(crate) const COUNT: usize = RULES.len();

/// Checks all rules and nothing else.
pub(crate) fn alone(tally: &mut Tally) {
    tally.steps(COUNT);
    step(tally);
}

/// Checks all rules.
pub(crate) fn step(tally: &mut Tally) {
    each(tally, exceptions::check);
}

/// Writes the lists of exceptions anew, where they allow too much or files have moved.
pub(crate) fn shrink(tally: &mut Tally) {
    tally.steps(COUNT);
    each(tally, exceptions::shrink);
}

fn each(tally: &mut Tally, against: fn(&str, &[Finding]) -> Vec<String>) {
    let root = root();
    let texts = sources::read(&root);
    let sources: Vec<_> = texts.iter().map(|file| Source::new(&file.path, &file.text)).collect();
    for rule in RULES {
        tally.check(&format!("rule: {}", rule.says), || {
            let found = (rule.find)(&root, &sources);
            match rule.list {
                Some(list) => against(list, &found),
                None => found.into_iter().map(|finding| finding.what).collect(),
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_list_of_exceptions_is_that_of_a_rule() {
        for entry in std::fs::read_dir(root().join("xtask/exceptions")).into_iter().flatten() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let list = name.strip_suffix(".txt");
            assert!(RULES.iter().any(|rule| rule.list == list && list.is_some()), "{name}");
        }
    }
}
