//! Lists of what breaks a rule and may, for now: `xtask/exceptions/RULE.txt` has a line a file, with a count.
//! A list only shrinks: what is new is refused, and so is a line that allows more than there is.

use super::Finding;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::PathBuf;

/// Counts by file.
type Counts = BTreeMap<String, usize>;

/// The file with the rule's list.
fn file(rule: &str) -> PathBuf {
    crate::run::root().join(name(rule))
}

fn name(rule: &str) -> String {
    format!("xtask/exceptions/{rule}.txt")
}

/// The failures: findings that the rule's list does not allow, and lines of it that allow too much.
pub(super) fn check(rule: &str, found: &[Finding]) -> Vec<String> {
    let text = match fs::read_to_string(file(rule)) {
        Ok(text) => text,
        Err(e) if e.kind() == io::ErrorKind::NotFound => String::new(),
        Err(e) => return vec![format!("{}: {e}", name(rule))],
    };
    match parse(&text) {
        Ok(allowed) => compare(&name(rule), &allowed, found),
        Err(why) => vec![format!("{}: {why}", name(rule))],
    }
}

/// Writes the rule's list anew, as files move, unless it would allow more in all than before.
pub(super) fn shrink(rule: &str, found: &[Finding]) -> Vec<String> {
    let now = counts(found);
    let text = fs::read_to_string(file(rule));
    let before = text.as_deref().ok().map(parse);
    let (sum, name) = (now.values().sum::<usize>(), name(rule));
    match before {
        Some(Err(why)) => return vec![format!("{name}: {why}")],
        Some(Ok(before)) if sum > before.values().sum() => {
            let wrong = compare(&name, &before, found);
            return [wrong, vec![format!("{name} was not written: {sum} in all is more than before")]]
                .concat();
        }
        _ => {}
    }
    let text: String = now.iter().map(|(file, count)| format!("{file} {count}\n")).collect();
    let written = match sum {
        0 => fs::remove_file(file(rule)).or_else(|e| match e.kind() {
            io::ErrorKind::NotFound => Ok(()),
            _ => Err(e),
        }),
        _ => fs::write(file(rule), text),
    };
    written.err().map(|e| format!("{name}: {e}")).into_iter().collect()
}

fn counts(found: &[Finding]) -> Counts {
    let mut counts = Counts::new();
    found.iter().for_each(|finding| *counts.entry(finding.file.clone()).or_default() += 1);
    counts
}

fn parse(text: &str) -> Result<Counts, String> {
    let mut counts = Counts::new();
    for line in text.lines() {
        let pair = line.rsplit_once(' ').and_then(|(file, count)| Some((file, count.parse().ok()?)));
        let Some((file, count @ 1..)) = pair else {
            return Err(format!("`{line}` is not a file and a count"));
        };
        if counts.last_key_value().is_some_and(|(last, _)| &**last >= file) {
            return Err(format!("`{line}` is not in its place: lines are in the order of their files"));
        }
        counts.insert(file.to_string(), count);
    }
    Ok(counts)
}

fn compare(list: &str, allowed: &Counts, found: &[Finding]) -> Vec<String> {
    let now = counts(found);
    let files: BTreeSet<&String> = allowed.keys().chain(now.keys()).collect();
    let mut wrong = Vec::new();
    for file in files {
        let of = |counts: &Counts| counts.get(file).copied().unwrap_or(0);
        match (of(&now), of(allowed)) {
            (now, most) if now > most => {
                wrong.extend(found.iter().filter(|f| f.file == *file).map(|finding| finding.what.clone()));
                if most > 0 {
                    wrong.push(format!("{file}: {now} in all, and {list} allows {most} and may not grow"));
                }
            }
            (0, most) if most > 0 => wrong.push(format!("{list}: delete `{file} {most}`: it is not needed")),
            (now, most) if now < most => {
                wrong.push(format!("{list}: write `{file} {now}` instead of {most}: there are no more"));
            }
            _ => {}
        }
    }
    if wrong.iter().any(|line| line.starts_with(list)) {
        wrong.push("cargo xtask rules --shrink does that".into());
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[&str]) -> Vec<Finding> {
        files.iter().map(|file| Finding { file: (*file).into(), what: format!("{file} is wrong") }).collect()
    }

    fn compared(list: &str, files: &[&str]) -> Vec<String> {
        compare("list", &parse(list).unwrap(), &found(files))
    }

    #[test]
    fn what_is_new_or_more_is_refused() {
        assert_eq!(compared("", &["a"]), ["a is wrong"]);
        assert_eq!(
            compared("a 1\n", &["a", "a"]),
            ["a is wrong", "a is wrong", "a: 2 in all, and list allows 1 and may not grow"]
        );
        assert_eq!(compared("a 2\nb 1\n", &["a", "b", "a"]), [""; 0]);
    }

    #[test]
    fn a_line_that_allows_more_than_there_is_is_to_be_deleted_or_lowered() {
        let shrinks = "cargo xtask rules --shrink does that";
        assert_eq!(compared("a 1\n", &[]), ["list: delete `a 1`: it is not needed", shrinks]);
        assert_eq!(compared("a 3\n", &["a"]), ["list: write `a 1` instead of 3: there are no more", shrinks]);
    }

    #[test]
    fn a_list_is_in_order_and_has_counts() {
        for wrong in ["a", "a x", "a 0", "b 1\na 1", "a 1\na 1"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
