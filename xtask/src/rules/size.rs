//! Files, functions and structs are short, or say why not; and files are finished.

use super::Finding;
use super::sources::Source;

/// Files have at most so many lines.
const LINES_MAX: usize = 800;
/// Structs have at most so many fields, and functions so many lines, but where a comment says why.
const FIELDS_MAX: usize = 15;
const FUNCTION_LINES_MAX: usize = 70;
/// Words that stay out of the sources. Written in two parts, so that this file may be checked too.
const BANNED: &[&str] =
    &[concat!("todo", "!("), concat!("unimplemented", "!("), concat!("#[", "ignore"), concat!("dbg", "!(")];

/// Files that are too long, and words of unfinished work.
pub(super) fn files(sources: &[Source<'_>]) -> Vec<Finding> {
    sources.iter().flat_map(|source| length_and_words(&source.name(), source.text)).collect()
}

fn length_and_words(name: &str, text: &str) -> Vec<Finding> {
    let (mut wrong, lines) = (Vec::new(), text.lines().count());
    let mut says = |what: String| wrong.push(Finding { file: name.to_string(), what });
    if lines > LINES_MAX {
        says(format!("{name} has {lines} lines, the limit is {LINES_MAX}"));
    }
    for (at, line) in text.lines().enumerate() {
        if let Some(word) = BANNED.iter().find(|word| line.contains(**word)) {
            says(format!("{name}:{}: {word}", at + 1));
        }
    }
    wrong
}

/// Structs and functions that are too large, and have no comment right above them that begins with `Over`.
pub(super) fn items(sources: &[Source<'_>]) -> Vec<Finding> {
    let in_file = |source: &Source<'_>| {
        let file = source.name();
        let says = |what: String| Finding { what: format!("{file}: {what}"), file: file.clone() };
        large(source.text).into_iter().map(says).collect::<Vec<_>>()
    };
    sources.iter().flat_map(in_file).collect()
}

fn large(text: &str) -> Vec<String> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let code = line.trim_start();
        let indent = &line[..line.len() - code.len()];
        let (is_struct, is_function) = (begins(code, "struct "), begins(code, "fn "));
        if !(is_struct || is_function) || code.ends_with(';') || code.ends_with('}') {
            continue;
        }
        let end = format!("{indent}}}");
        let Some(length) = lines[at..].iter().position(|line| *line == end) else { continue };
        if says_why(&lines[..at]) {
            continue;
        }
        let fields = lines[at + 1..at + length].iter().filter(|line| is_field(line, indent)).count();
        let word = if is_struct { "struct " } else { "fn " };
        let (_, name) = code.split_once(word).unwrap_or_default();
        let name = name.split(['(', '{', '<']).next().unwrap_or_default().trim();
        if is_struct && fields > FIELDS_MAX {
            found.push(format!(
                "{name} has {fields} fields, and no comment \"Over {FIELDS_MAX} fields: ...\""
            ));
        }
        if is_function && length + 1 > FUNCTION_LINES_MAX {
            let lines = length + 1;
            found.push(format!(
                "{name} has {lines} lines, and no comment \"Over {FUNCTION_LINES_MAX} lines: ...\""
            ));
        }
    }
    found
}

/// Whether such an item begins there: only modifiers stand before the word.
fn begins(code: &str, word: &str) -> bool {
    let modifiers = ["async", "const", "default", "extern", "\"C\"", "in", "super)", "unsafe"];
    let is_modifier = |word: &str| word.starts_with("pub") || modifiers.contains(&word);
    code.split_once(word).is_some_and(|(before, _)| before.split_whitespace().all(is_modifier))
}

fn is_field(line: &str, indent: &str) -> bool {
    let code = line.trim_start();
    let is_code = !code.starts_with("//") && !code.starts_with('#');
    is_code && line.len() - code.len() == indent.len() + 4 && code.contains(": ")
}

/// Whether a comment right above, or above the attributes there, begins with `Over`.
fn says_why(above: &[&str]) -> bool {
    let above = above.iter().rev().map(|line| line.trim_start());
    let mut near = above.take_while(|line| line.starts_with("//") || line.starts_with("#["));
    near.any(|line| line.starts_with("// Over "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_structs_are_found_unless_they_say_why() {
        let fields: String =
            (0..16).map(|n| format!("    /// Field x: y.\n    pub(crate) f{n}: u8,\n")).collect();
        let of = |above: &str| format!("{above}pub(crate) struct Much {{\n{fields}}}\n");
        assert_eq!(large(&of("")).len(), 1);
        assert_eq!(large(&of("// Over 15 fields: as an example.\n")).len(), 0);
        assert_eq!(large(&of("// Over 15 fields: as an\n// example.\n#[derive(Debug)]\n")).len(), 0);
        assert_eq!(large(&of("// Over 15 fields: of another.\n\n")).len(), 1);
    }

    #[test]
    fn large_functions_are_found_async_ones_too() {
        let body = "        x();\n".repeat(69);
        for head in [
            "pub(super) fn long(&self)",
            "async fn long()",
            "pub async fn long()",
            "pub unsafe extern \"C\" fn long()",
        ] {
            let function = format!("    {head} {{\n{body}    }}\n");
            assert_eq!(large(&function).len(), 1, "{head}");
            assert_eq!(large(&function.replacen("        x();\n", "", 1)).len(), 0, "{head}");
        }
    }

    #[test]
    fn long_files_and_unfinished_code_are_found() {
        assert_eq!(length_and_words("a.rs", &"x\n".repeat(LINES_MAX + 1)).len(), 1);
        let unfinished = format!("fn f() {{ {}) }}", BANNED[0]);
        let found = length_and_words("a.rs", &unfinished);
        assert_eq!(found, [Finding { file: "a.rs".into(), what: format!("a.rs:1: {}", BANNED[0]) }]);
    }
}
