//! The page of a folder (`//!` of its `mod.rs`, `lib.rs` or `main.rs`) names each of its modules.

use super::Finding;
use super::sources::Source;

/// Pages for users, which say nothing of modules: ARCHITECTURE.md lists those.
const FOR_USERS: &str = "engine/src/lib.rs";

pub(super) fn find(sources: &[Source<'_>]) -> Vec<Finding> {
    sources.iter().filter(|source| is_page(source)).flat_map(unnamed).collect()
}

fn is_page(source: &Source<'_>) -> bool {
    let of_tests = source.path.iter().any(|part| part == "tests" || part == "it")
        && !source.path.iter().any(|part| part == "src");
    let pages = ["mod.rs", "lib.rs", "main.rs"];
    !of_tests && pages.iter().any(|page| source.path.ends_with(page)) && !source.path.ends_with(FOR_USERS)
}

fn unnamed(source: &Source<'_>) -> Vec<Finding> {
    let page = source.text.lines().filter_map(|line| line.strip_prefix("//!"));
    let words: Vec<&str> =
        page.flat_map(|line| line.split(|c: char| !c.is_alphanumeric() && c != '_')).collect();
    let unnamed = source.modules.iter().filter(|module| !words.contains(*module));
    let says = |module: &&str| Finding {
        file: source.name(),
        what: format!("{}: its page does not say what `{module}` is", source.name()),
    };
    unnamed.map(says).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn a_module_that_the_page_does_not_name_is_found() {
        let text = "//! Books: `read` and\n//! `write.rs`.\n\nmod read;\nmod write;\npub mod reader; // reader\n\
                    #[cfg(test)]\nmod tests;\n";
        let wrong = |path: &str| find(&[Source::new(Path::new(path), text)]);
        for page in ["a/src/b/mod.rs", "a/src/lib.rs", "tests/src/main.rs"] {
            let found: Vec<String> = wrong(page).into_iter().map(|finding| finding.what).collect();
            assert_eq!(found, [format!("{page}: its page does not say what `reader` is")]);
        }
        for none in ["a/src/b.rs", "a/tests/it/main.rs", FOR_USERS] {
            assert_eq!(wrong(none), []);
        }
    }
}
