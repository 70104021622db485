//! No circle of files inside a folder: to understand a file, one reads only the files that it builds on,
//! never itself again.
//!
//! A file builds on another where an import or a path names something of it, also where the folder's page
//! exports that. Seen from a folder, a folder in it is one file. The page itself (`mod.rs`) is in no circle:
//! it joins its files.

use super::Finding;
use super::sources::{Named, Source, named};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The names of a module, from the crate's root.
type Module<'a> = Vec<&'a str>;

/// A module's file, with what it names.
struct File<'a> {
    source: &'a Source<'a>,
    names: Vec<Named<'a>>,
    defines: BTreeSet<&'a str>,
}

/// The files of a crate.
#[derive(Default)]
struct Crate<'a> {
    files: BTreeMap<Module<'a>, File<'a>>,
    tests: BTreeSet<Module<'a>>,
}

/// An import of one file or folder by another of the same folder.
struct Import<'a> {
    from: &'a str,
    to: &'a str,
    /// Where it stands, and what it says.
    says: String,
}

pub(super) fn find(sources: &[Source<'_>]) -> Vec<Finding> {
    let mut crates: BTreeMap<PathBuf, Crate<'_>> = BTreeMap::new();
    let paths: BTreeSet<&Path> = sources.iter().map(|source| source.path).collect();
    for source in sources {
        let (root, module) = located(source.path, &paths);
        let one = crates.entry(root).or_default();
        one.tests.extend(source.test_modules.iter().map(|name| [&module[..], &[name]].concat()));
        let file = File {
            source,
            names: named(&source.tokens, &source.modules),
            defines: definitions(&source.tokens).collect(),
        };
        one.files.insert(module, file);
    }
    let mut found = Vec::new();
    for (root, mut one) in crates {
        let tests = std::mem::take(&mut one.tests);
        one.files.retain(|module, _| !(1..=module.len()).any(|n| tests.contains(&module[..n])));
        for (folder, imports) in one.imports() {
            let dir = folder.iter().fold(root.clone(), |dir, name| dir.join(name));
            for import in in_circles(&imports) {
                let file = dir.join(format!("{}.rs", import.from));
                let node = if paths.contains(&*file) { file } else { dir.join(import.from) };
                found.push(Finding {
                    file: node.display().to_string(),
                    what: format!("{}, and {} builds on {}", import.says, import.to, import.from),
                });
            }
        }
    }
    found
}

/// The crate that a file belongs to, by its root's folder or file, and its module there.
fn located<'a>(path: &'a Path, all: &BTreeSet<&Path>) -> (PathBuf, Module<'a>) {
    let parts: Vec<&str> = path.iter().filter_map(|part| part.to_str()).collect();
    let folders = &parts[..parts.len() - 1];
    let Some(root) = folders.iter().rposition(|part| ["src", "it"].contains(part)) else {
        return (path.to_path_buf(), Vec::new());
    };
    let dir: PathBuf = parts[..=root].iter().collect();
    let mut module = parts[root + 1..].to_vec();
    let is_own = module[0] == "bin" || module == ["main.rs"] && all.contains(&*dir.join("lib.rs"));
    if is_own {
        return (path.to_path_buf(), Vec::new());
    }
    let last = module.pop().and_then(|file| file.strip_suffix(".rs")).unwrap_or_default();
    let is_root = module.is_empty() && ["lib", "main"].contains(&last);
    if last != "mod" && !is_root {
        module.push(last);
    }
    (dir, module)
}

/// The names that a file gives to items of its own.
fn definitions<'a>(tokens: &[&'a str]) -> impl Iterator<Item = &'a str> {
    let kinds = ["fn", "struct", "enum", "trait", "type", "const", "static", "union"];
    tokens.windows(3).filter_map(move |three| match three {
        ["macro_rules", "!", name] => Some(*name),
        [kind, name, _] if kinds.contains(kind) => Some(name),
        _ => None,
    })
}

impl<'a> Crate<'a> {
    /// The imports between files of one folder, by folder.
    fn imports(&self) -> BTreeMap<Module<'a>, Vec<Import<'a>>> {
        let mut found: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (module, file) in &self.files {
            for name in &file.names {
                let Some(target) = self.target(module, name) else { continue };
                let same = module.iter().zip(&target).take_while(|(a, b)| a == b).count();
                // One of the two may be the page of the folder.
                if let (Some(from), Some(to)) = (module.get(same), target.get(same)) {
                    let says = format!("{} names {}", file.source.name(), name.path.join("::"));
                    found.entry(module[..same].to_vec()).or_default().push(Import { from, to, says });
                }
            }
        }
        found
    }

    /// The module that a name in this one leads to, if it is one of the crate.
    fn target(&self, module: &[&'a str], name: &Named<'a>) -> Option<Module<'a>> {
        let mut path = &name.path[..];
        // Modules within the file are as the file itself.
        for _ in 0..name.depth {
            match path.first() {
                Some(&"super") => path = &path[1..],
                Some(&"crate") => break,
                _ => return None,
            }
        }
        match (path.first()?, name.depth) {
            (&"crate" | &"self" | &"super", _) => self.resolve(module, path, 0),
            (first, 0) if self.files.contains_key(&[module, &[first]].concat()) => {
                self.resolve(module, path, 0)
            }
            // What the file's own modules take from beside them.
            (_, 1..) if path.len() < name.path.len() => self.resolve(module, path, 0),
            _ => None,
        }
    }

    /// The module whose file has what the path names. Exports are followed, so many of them at most.
    fn resolve(&self, module: &[&'a str], path: &[&'a str], followed: u32) -> Option<Module<'a>> {
        let (mut at, mut rest) = match *path.first()? {
            "crate" => (Vec::new(), &path[1..]),
            "self" => (module.to_vec(), &path[1..]),
            "super" => {
                let up = path.iter().take_while(|name| **name == "super").count();
                (module[..module.len().checked_sub(up)?].to_vec(), &path[up..])
            }
            _ => (module.to_vec(), path),
        };
        while let Some(next) = rest.first()
            && self.files.contains_key(&[&at[..], &[next]].concat())
        {
            at.push(next);
            rest = &rest[1..];
        }
        let file = self.files.get(&at)?;
        let item = match rest.first() {
            None | Some(&"*") => return Some(at),
            Some(item) if file.defines.contains(item) => return Some(at),
            Some(item) => item,
        };
        if followed == 8 {
            return None;
        }
        let imports = || file.names.iter().filter(|name| name.depth == 0 && name.import.is_some());
        let is_inside = |path: &[&str]| {
            ["crate", "self", "super"].contains(&path[0]) || file.source.modules.contains(&path[0])
        };
        if let Some(export) = imports().find(|name| name.import == Some(*item)) {
            return is_inside(&export.path).then(|| self.resolve(&at, &export.path, followed + 1)).flatten();
        }
        let all = imports().filter(|name| name.import == Some("*") && is_inside(&name.path));
        let from = all.filter_map(|name| {
            let path = [&name.path[..name.path.len() - 1], &[*item]].concat();
            self.resolve(&at, &path, followed + 1).filter(|target| *target != at)
        });
        let defines = |target: &Module<'_>| self.files.get(target).is_some_and(|f| f.defines.contains(item));
        Some(from.into_iter().find(defines).unwrap_or(at))
    }
}

/// The imports that are part of a circle, one for each two files.
fn in_circles<'a, 'i>(imports: &'i [Import<'a>]) -> impl Iterator<Item = &'i Import<'a>> {
    let mut after: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for import in imports {
        after.entry(import.from).or_default().insert(import.to);
    }
    let reach = |from: &'a str| {
        let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
        while let Some(one) = next.pop() {
            next.extend(after.get(one).into_iter().flatten().filter(|to| seen.insert(**to)));
        }
        seen
    };
    let reached: BTreeMap<&str, BTreeSet<&str>> = imports.iter().map(|i| (i.to, reach(i.to))).collect();
    let mut told = BTreeSet::new();
    imports.iter().filter(move |import| {
        reached[import.to].contains(import.from) && told.insert((import.from, import.to))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn circles(files: &[(&str, &str)]) -> Vec<(String, String)> {
        let sources: Vec<_> = files.iter().map(|(path, text)| Source::new(Path::new(path), text)).collect();
        find(&sources).into_iter().map(|finding| (finding.file, finding.what)).collect()
    }

    #[test]
    fn two_files_that_name_each_other_are_found() {
        let found = circles(&[
            ("a/src/lib.rs", "mod one; mod two; use one::f;"),
            ("a/src/one.rs", "use crate::two::g;"),
            ("a/src/two.rs", "fn g() { super::one::f() }"),
        ]);
        assert_eq!(
            found,
            [
                ("a/src/one.rs".into(), "a/src/one.rs names crate::two::g, and two builds on one".into()),
                ("a/src/two.rs".into(), "a/src/two.rs names super::one::f, and one builds on two".into()),
            ]
        );
    }

    #[test]
    fn a_circle_of_three_by_way_of_the_pages_exports_is_found() {
        let found = circles(&[
            ("a/src/lib.rs", "mod x;"),
            (
                "a/src/x/mod.rs",
                "mod one; mod two; mod three; pub(crate) use one::One; pub use two::*; use three::T as Three;",
            ),
            ("a/src/x/one.rs", "use super::Two; pub(crate) struct One {}"),
            ("a/src/x/two.rs", "use super::Three; pub(crate) struct Two {}"),
            ("a/src/x/three.rs", "pub(crate) struct T {} impl T { fn f(one: crate::x::One) {} }"),
        ]);
        let files: Vec<&str> = found.iter().map(|(file, _)| &**file).collect();
        assert_eq!(files, ["a/src/x/one.rs", "a/src/x/three.rs", "a/src/x/two.rs"]);
    }

    #[test]
    fn folders_are_files_of_the_folder_around_them() {
        let found = circles(&[
            ("a/src/main.rs", "mod x; mod y;"),
            ("a/src/x/mod.rs", "mod deep;"),
            ("a/src/x/deep.rs", "use crate::y::f;"),
            ("a/src/y.rs", "fn f() { crate::x::g() }"),
        ]);
        let files: Vec<&str> = found.iter().map(|(file, _)| &**file).collect();
        assert_eq!(files, ["a/src/x", "a/src/y.rs"]);
    }

    #[test]
    fn one_direction_pages_and_tests_are_no_circles() {
        let found = circles(&[
            ("a/src/lib.rs", "mod one; mod two; use two::g; struct Shared {}"),
            ("a/src/one.rs", "use crate::Shared; fn f() {} #[cfg(test)] mod tests { use crate::two::g; }"),
            (
                "a/src/two.rs",
                "use crate::one::f; use super::Shared; mod own { use super::f; } #[cfg(test)] mod tests;",
            ),
            ("a/src/two/tests.rs", "use crate::one::f;"),
            // Another crate, and a program beside a library.
            ("b/src/lib.rs", "mod one;"),
            ("b/src/main.rs", "mod one;"),
            ("b/src/one.rs", "use crate::two::g;"),
        ]);
        assert_eq!(found, []);
    }
}
