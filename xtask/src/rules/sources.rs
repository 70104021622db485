//! The Rust files of the workspace, in tokens: enough of Rust's grammar to find modules and imports, without
//! a parser to build.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Folders with Rust of ours.
const FOLDERS: [&str; 11] = [
    "bench",
    "bindings",
    "cli",
    "compactor",
    "engine",
    "examples",
    "fuzz",
    "server",
    "storage-object",
    "tests",
    "xtask",
];

/// A file as it was read.
pub(super) struct Text {
    /// Relative to the root.
    pub(super) path: PathBuf,
    pub(super) text: String,
}

/// All Rust files of the workspace, by path.
pub(super) fn read(root: &Path) -> Vec<Text> {
    let mut found = Vec::new();
    FOLDERS.iter().for_each(|folder| walk(root, &root.join(folder), &mut found));
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

fn walk(root: &Path, dir: &Path, found: &mut Vec<Text>) {
    let Ok(entries) = std::fs::read_dir(dir) else { return };
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        if path.is_dir() && !path.ends_with("target") {
            walk(root, &path, found);
        } else if path.extension().is_some_and(|e| e == "rs")
            && let (Ok(text), Ok(relative)) = (std::fs::read_to_string(&path), path.strip_prefix(root))
        {
            found.push(Text { path: relative.to_path_buf(), text });
        }
    }
}

/// A file in tokens, without what only tests and models build.
pub(super) struct Source<'a> {
    pub(super) path: &'a Path,
    pub(super) text: &'a str,
    pub(super) tokens: Vec<&'a str>,
    /// Modules that it declares and that are files of their own.
    pub(super) modules: Vec<&'a str>,
    /// Modules that only tests and models build; none of `modules`.
    pub(super) test_modules: BTreeSet<&'a str>,
}

impl<'a> Source<'a> {
    pub(super) fn new(path: &'a Path, text: &'a str) -> Self {
        let (tokens, test_modules) = without_tests(tokens(text));
        let modules = declared(&tokens);
        Self { path, text, tokens, modules, test_modules }
    }

    pub(super) fn name(&self) -> String {
        self.path.display().to_string()
    }
}

/// Words, numbers, `::`, and single signs. No comments, strings and lifetimes.
fn tokens(text: &str) -> Vec<&str> {
    let bytes = text.as_bytes();
    let is_word = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || !b.is_ascii();
    let from = |at: usize, end: &str| text[at..].find(end).map_or(text.len(), |found| at + found + end.len());
    let (mut found, mut at) = (Vec::new(), 0);
    while let Some(&byte) = bytes.get(at) {
        let rest = &text[at..];
        if rest.starts_with("//") {
            at = from(at, "\n");
        } else if rest.starts_with("/*") {
            at = from(at, "*/");
        } else if byte == b'"' {
            at = string_end(bytes, at);
        } else if byte == b'\'' {
            at = match rest.chars().nth(1) {
                Some('\\') => from((at + 3).min(text.len()), "'"),
                Some(c) if rest[1 + c.len_utf8()..].starts_with('\'') => at + 2 + c.len_utf8(),
                _ => at + 1 + bytes[at + 1..].iter().take_while(|b| is_word(**b)).count(),
            };
        } else if is_word(byte) {
            let end = at + bytes[at..].iter().take_while(|b| is_word(**b)).count();
            let hashes = bytes[end..].iter().take_while(|b| **b == b'#').count();
            match &text[at..end] {
                "r" | "br" | "cr" if bytes.get(end + hashes) == Some(&b'"') => {
                    at = from(end + hashes + 1, &format!("\"{}", "#".repeat(hashes)));
                }
                word => {
                    found.push(word);
                    at = end;
                }
            }
        } else if rest.starts_with("::") {
            found.push("::");
            at += 2;
        } else {
            if !byte.is_ascii_whitespace() {
                found.push(&text[at..=at]);
            }
            at += 1;
        }
    }
    found
}

/// The end of the string that begins there.
fn string_end(bytes: &[u8], mut at: usize) -> usize {
    at += 1;
    while let Some(byte) = bytes.get(at) {
        at += match byte {
            b'"' => return at + 1,
            b'\\' => 2,
            _ => 1,
        };
    }
    bytes.len()
}

/// Takes out what an attribute `cfg` leaves to tests and models alone; the modules among that.
fn without_tests(tokens: Vec<&str>) -> (Vec<&str>, BTreeSet<&str>) {
    let (mut left, mut modules, mut at) = (Vec::with_capacity(tokens.len()), BTreeSet::new(), 0);
    while at < tokens.len() {
        let attribute = tokens[at..].starts_with(&["#", "[", "cfg", "("]);
        if !attribute || condition(&tokens[at + 4..closing(&tokens, at + 3)]).0 {
            left.push(tokens[at]);
            at += 1;
            continue;
        }
        let behind = closing(&tokens, at + 1) + 1;
        at = item_end(&tokens, behind);
        modules.extend(declared(&tokens[behind..at]));
    }
    (left, modules)
}

/// Whether a condition of `cfg` can be true, and whether it can be false, where neither tests nor models are
/// built.
fn condition(tokens: &[&str]) -> (bool, bool) {
    match tokens {
        ["test" | "models"] => (false, true),
        ["not", "(", inside @ .., ")"] => {
            let (may, may_not) = condition(inside);
            (may_not, may)
        }
        [of @ ("all" | "any"), "(", inside @ .., ")"] => {
            let parts = parts(inside).map(condition).collect::<Vec<_>>();
            let (all, any) = (parts.iter().all(|part| part.0), parts.iter().any(|part| part.0));
            let (all_not, any_not) = (parts.iter().all(|part| part.1), parts.iter().any(|part| part.1));
            if *of == "all" { (all, any_not) } else { (any, all_not) }
        }
        _ => (true, true),
    }
}

/// The texts between commas that are in no bracket.
fn parts<'t, 'a>(tokens: &'t [&'a str]) -> impl Iterator<Item = &'t [&'a str]> {
    let mut depth = 0;
    let split = tokens.split(move |token| {
        depth += i32::from(["(", "{"].contains(token)) - i32::from([")", "}"].contains(token));
        depth == 0 && *token == ","
    });
    split.filter(|part| !part.is_empty())
}

/// The end of the bracket that opens there.
pub(super) fn closing(tokens: &[&str], open: usize) -> usize {
    let mut depth = 0;
    for (at, token) in tokens.iter().enumerate().skip(open) {
        match *token {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" if depth == 1 => return at,
            ")" | "]" | "}" => depth -= 1,
            _ => {}
        }
    }
    tokens.len() - 1
}

/// The end of the item, statement, field or variant that begins there.
fn item_end(tokens: &[&str], begin: usize) -> usize {
    let mut at = begin;
    // Commas stand in types of functions and between fields.
    let mut is_item = false;
    while at < tokens.len() {
        match tokens[at] {
            "fn" | "impl" | "mod" | "struct" | "enum" | "trait" | "use" | "type" => is_item = true,
            "(" | "[" => at = closing(tokens, at),
            "{" => return closing(tokens, at) + 1,
            ";" => return at + 1,
            "," if !is_item => return at + 1,
            "}" => return at,
            _ => {}
        }
        at += 1;
    }
    at
}

/// The modules that are declared there and are files of their own.
fn declared<'a>(tokens: &[&'a str]) -> Vec<&'a str> {
    tokens.windows(3).filter(|three| three[0] == "mod" && three[2] == ";").map(|three| three[1]).collect()
}

/// A path that the code names.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Named<'a> {
    pub(super) path: Vec<&'a str>,
    /// The name it has from then on, where it is imported; `*` for all that is there.
    pub(super) import: Option<&'a str>,
    /// Modules within the file that it stands in.
    pub(super) depth: usize,
}

/// The imports of the code, and paths in it that begin with `crate`, `self`, `super` or one of these modules.
pub(super) fn named<'a>(tokens: &[&'a str], modules: &[&str]) -> Vec<Named<'a>> {
    let (mut found, mut at, mut inside) = (Vec::new(), 0, Vec::new());
    while at < tokens.len() {
        inside.retain(|end| at < *end);
        let (token, depth) = (tokens[at], inside.len());
        let before = if at == 0 { "" } else { tokens[at - 1] };
        let is_path = tokens.get(at + 1) == Some(&"::") && !["::", ".", "in"].contains(&before);
        if token == "mod" && tokens.get(at + 2) == Some(&"{") {
            inside.push(closing(tokens, at + 2));
        } else if token == "use" && tokens.get(at + 1) != Some(&"<") {
            let end = at + tokens[at..].iter().position(|t| *t == ";").unwrap_or(tokens.len() - at);
            expand(&tokens[at + 1..end], &[], depth, &mut found);
            at = end;
        } else if is_path && (["crate", "self", "super"].contains(&token) || modules.contains(&token)) {
            let mut path = vec![token];
            while tokens.get(at + 1) == Some(&"::") && tokens.get(at + 2).is_some_and(|t| is_name(t)) {
                path.push(tokens[at + 2]);
                at += 2;
            }
            found.push(Named { path, import: None, depth });
        }
        at += 1;
    }
    found
}

fn is_name(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// The single imports of a tree of them.
fn expand<'a>(tree: &[&'a str], before: &[&'a str], depth: usize, found: &mut Vec<Named<'a>>) {
    let open = tree.iter().position(|token| *token == "{");
    let mut path = before.to_vec();
    let Some(open) = open else {
        let (names, alias) = match tree.iter().position(|token| *token == "as") {
            Some(at) => (&tree[..at], tree.get(at + 1).copied()),
            None => (tree, None),
        };
        path.extend(names.iter().filter(|name| is_name(name) || **name == "*"));
        if path.len() > 1 && path.last() == Some(&"self") {
            path.pop();
        }
        if let Some(last) = path.last().copied() {
            found.push(Named { path, import: alias.or(Some(last)), depth });
        }
        return;
    };
    path.extend(tree[..open].iter().filter(|name| is_name(name)));
    parts(&tree[open + 1..closing(tree, open)]).for_each(|part| expand(part, &path, depth, found));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_strings_and_lifetimes_are_no_tokens() {
        let text = "a /* b */ 'x' '\\'' 'é' // c\n\"d \\\" e\" r#\"f \" g\"# b\"h\" <'i> ::j('\"', k)";
        assert_eq!(tokens(text), ["a", "b", "<", ">", "::", "j", "(", ",", "k", ")"]);
    }

    #[test]
    fn what_only_tests_build_is_left_out() {
        let text = "
            mod a;
            #[cfg(test)] mod tests;
            #[cfg(all(models, test))] #[path = \"x\"] pub(crate) mod model;
            #[cfg(not(test))] use b::c;
            #[cfg(any(test, feature = \"x\"))] mod h;
            #[cfg(all(test, not(any(models, x))))] mod more_tests;
            #[cfg(test)] fn f<A, B>(x: [u8; 2]) { use d; }
            struct S { #[cfg(test)] x: (A, B), y: u8 }
            #[cfg(test)] mod inline { mod e; }
            #[cfg(unix)] mod g;
        ";
        let source = Source::new(Path::new("x.rs"), text);
        assert_eq!(source.modules, ["a", "h", "g"]);
        assert_eq!(source.test_modules, BTreeSet::from(["tests", "model", "more_tests", "e"]));
        let left = source.tokens.join(" ");
        assert!(
            left.contains("use b :: c ;") && left.contains("{ y : u8 }") && !left.contains("use d"),
            "{left}"
        );
    }

    #[test]
    fn imports_and_paths_are_found() {
        let text = "
            use crate::{a, b::{self, C as D}, e::*};
            pub(in crate::no) fn f(x: super::G) -> child::H { std::no::no(self.no, $crate::i!()) }
            mod inline { use super::j; }
        ";
        let found = named(&tokens(text), &["child"]);
        let text: Vec<String> = found
            .iter()
            .map(|n| format!("{} {} {}", n.path.join("::"), n.import.unwrap_or("-"), n.depth))
            .collect();
        assert_eq!(
            text,
            [
                "crate::a a 0",
                "crate::b b 0",
                "crate::b::C D 0",
                "crate::e::* * 0",
                "super::G - 0",
                "child::H - 0",
                "crate::i - 0",
                "super::j j 1",
            ]
        );
    }
}
