//! Comments fit in a screen's width, as code does, and the first sentence of a doc comment has a subject.

use super::Finding;
use super::sources::Source;

/// Columns of a comment: `max_width` in rustfmt.toml, which does not check comments.
const COLUMNS_MAX: usize = 110;
/// A doc comment that begins so has its subject in another comment, or none.
const OPENINGS: [&str; 5] = ["Of", "The same", "That", "Those", "As"];

/// Lines of comments that are too long. Rows of tables, and words that are too long alone, cannot be broken.
pub(super) fn wide(sources: &[Source<'_>]) -> Vec<Finding> {
    let in_file = |source: &Source<'_>| {
        let file = source.name();
        let wide = source.text.lines().enumerate().filter(|(_, line)| is_wide(line));
        let says = |(at, _)| Finding {
            what: format!("{file}:{}: a comment of over {COLUMNS_MAX} columns", at + 1),
            file: file.clone(),
        };
        wide.map(says).collect::<Vec<_>>()
    };
    sources.iter().flat_map(in_file).collect()
}

fn is_wide(line: &str) -> bool {
    let code = line.trim_start();
    let says = code.trim_start_matches(['/', '!']).trim_start();
    let may_be = says.starts_with('|') || !says.contains(' ');
    code.starts_with("//") && !may_be && line.chars().count() > COLUMNS_MAX
}

/// Doc comments whose first sentence has no subject.
pub(super) fn openings(sources: &[Source<'_>]) -> Vec<Finding> {
    let in_file = |source: &Source<'_>| {
        let file = source.name();
        let says = |(at, opening): (usize, &str)| Finding {
            what: format!("{file}:{at}: a doc comment begins with {opening}: it needs a subject"),
            file: file.clone(),
        };
        without_subject(source.text).map(says).collect::<Vec<_>>()
    };
    sources.iter().flat_map(in_file).collect()
}

/// Lines on which such a doc comment begins, with how.
fn without_subject(text: &str) -> impl Iterator<Item = (usize, &'static str)> {
    let doc = |line: &str| ["///", "//!"].into_iter().find(|mark| line.trim_start().starts_with(mark));
    let mut before = None;
    text.lines().enumerate().filter_map(move |(at, line)| {
        let mark = doc(line);
        let begins = mark.filter(|_| before != mark);
        before = mark;
        let says = line.trim_start().strip_prefix(begins?)?.trim_start();
        let is_whole = |opening: &str| {
            says.strip_prefix(opening).is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric()))
        };
        OPENINGS.into_iter().find(|opening| is_whole(opening)).map(|opening| (at + 1, opening))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_that_are_too_wide_are_found() {
        let wide = |begins: &str| is_wide(&format!("{begins}{}", "word ".repeat(22)));
        assert!(wide("    // a ") && wide("/// a ") && wide("//! a "));
        assert!(!is_wide(&format!("// {}", "x".repeat(COLUMNS_MAX - 3))));
        assert!(!wide("/// | a | ") && !wide("let a = "));
        assert!(!is_wide(&format!("// https://{}", "x".repeat(COLUMNS_MAX))));
        assert!(!is_wide(&format!("// {} a", "é".repeat(COLUMNS_MAX - 5))), "columns, not bytes");
    }

    #[test]
    fn doc_comments_without_a_subject_are_found() {
        let lines = [
            "//! As ever.",
            "//! Of the second line nothing is asked.",
            "",
            "/// Asked for.",
            "/// That is.",
            "fn a() {}",
            "/// The same for `b`.",
            "fn b() {}",
            "/// Offers.",
            "fn c() {}",
            "    /// Those.",
            "    // Of no doc comment.",
        ];
        let found: Vec<_> = without_subject(&lines.join("\n")).collect();
        assert_eq!(found, [(1, "As"), (7, "The same"), (11, "Those")]);
    }
}
