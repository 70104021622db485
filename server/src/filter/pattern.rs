//! RE2 patterns over bytes.

use regex::bytes::{Regex, RegexBuilder};
use tonic::Status;

/// Memory a compiled pattern may take: more is refused.
const COMPILED_MAX: usize = 1 << 20;

/// A pattern that must match the whole.
#[derive(Debug)]
pub(crate) enum Pattern {
    /// It has no special characters.
    Exact(Vec<u8>),
    Regex(Regex),
}

impl Pattern {
    pub(crate) fn new(what: &str, pattern: &[u8]) -> Result<Self, Status> {
        if pattern.is_empty() {
            return Err(Status::invalid_argument(format!("filter: the pattern of {what} is empty")));
        }
        if pattern
            .iter()
            .all(|b| !b.is_ascii() || b.is_ascii_alphanumeric() || b"_-:/ ,;@#%&=~'\"<>!".contains(b))
        {
            return Ok(Self::Exact(pattern.to_vec()));
        }
        let built = RegexBuilder::new(&translated(pattern)).unicode(false).size_limit(COMPILED_MAX).build();
        built.map(Self::Regex).map_err(|e| {
            let e = e.to_string();
            let last = e.lines().last().unwrap_or_default();
            let pattern = pattern.escape_ascii();
            Status::invalid_argument(format!("filter: the pattern of {what}, \"{pattern}\": {last}"))
        })
    }

    pub(crate) fn matches(&self, bytes: &[u8]) -> bool {
        match self {
            Self::Exact(exact) => exact == bytes,
            Self::Regex(regex) => regex.is_match(bytes),
        }
    }
}

/// In the words of the crate: bytes beyond ASCII as escapes, `\C` as any byte, the whole anchored.
fn translated(pattern: &[u8]) -> String {
    let mut out = String::from(r"\A(?:");
    let mut bytes = pattern.iter().peekable();
    while let Some(&byte) = bytes.next() {
        match (byte, bytes.peek()) {
            (b'\\', Some(b'C')) => {
                bytes.next();
                out.push_str("(?s:.)");
            }
            // An escaped byte beyond ASCII is itself.
            (b'\\', Some(next)) if next.is_ascii() => {
                out.push('\\');
                out.push(char::from(**next));
                bytes.next();
            }
            (b'\\', Some(_)) => {}
            (byte, _) if byte.is_ascii() => out.push(char::from(byte)),
            (byte, _) => out.push_str(&format!(r"\x{byte:02x}")),
        }
    }
    out.push_str(r")\z");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(pattern: &[u8], yes: &[&[u8]], no: &[&[u8]]) {
        let pattern = Pattern::new("test", pattern).unwrap();
        yes.iter().for_each(|bytes| assert!(pattern.matches(bytes), "{pattern:?} {bytes:?}"));
        no.iter().for_each(|bytes| assert!(!pattern.matches(bytes), "{pattern:?} {bytes:?}"));
    }

    #[test]
    fn patterns_match_the_whole_byte_by_byte() {
        check(b"abc", &[b"abc"], &[b"abcd", b"xabc", b"ab"]);
        check(b"a|bc", &[b"a", b"bc"], &[b"ac", b"abc"]);
        check(b"a.c", &[b"abc", b"a\xffc", b"a\0c"], &[b"a\nc"]);
        check(br"a\C*", &[b"a", b"a\n\xff\0"], &[b"b"]);
        check(b"\xe9+", &[b"\xe9\xe9"], &[b"\xc3\xa9"]);
        check(b"\\\xe9", &[b"\xe9"], &[b"\\\xe9"]);
        check(br"\x00\d{2}", &[b"\x0042"], &[b"42"]);
        check(br"[^\x00-\x7f]", &[b"\xff"], &[b"a"]);
        check(br"\.", &[b"."], &[b"a"]);
    }

    #[test]
    fn patterns_that_are_wrong_or_too_large_are_refused() {
        for wrong in [&b""[..], b"(", b"[z-a]", br"\", b"(?:a{1000}){1000}"] {
            let refused = Pattern::new("test", wrong).unwrap_err();
            assert_eq!(refused.code(), tonic::Code::InvalidArgument, "{wrong:?}");
        }
    }

    #[test]
    fn what_takes_other_engines_for_ever_is_matched_in_linear_time() {
        check(b"(a+)+$", &[], &[&[&[b'a'; 100_000][..], b"b"].concat()]);
    }
}
