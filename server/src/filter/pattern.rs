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
        let Some(text) = translated(pattern) else {
            let pattern = pattern.escape_ascii();
            let message = format!("filter: the pattern of {what}, \"{pattern}\": a `)` closes nothing");
            return Err(Status::invalid_argument(message));
        };
        let built = RegexBuilder::new(&text).unicode(false).size_limit(COMPILED_MAX).build();
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

/// In the words of the crate, which differs from RE2 in what some escapes mean and in what is special within a class: bytes
/// that are only themselves become escapes by number, `\C` any byte, `\Q..\E` and octal numbers bytes; the whole is anchored.
fn translated(pattern: &[u8]) -> Option<String> {
    let mut out = String::from(r"\A(?:");
    let mut at = 0;
    // Where in a class, at which byte it could still begin with a `]` that does not end it.
    let mut class: Option<usize> = None;
    // Groups that are open. One that would end the group around the whole would let the rest match anywhere.
    let mut groups = 0_usize;
    let byte_alone = |out: &mut String, byte: u8| out.push_str(&format!(r"\x{byte:02x}"));
    while let Some(&byte) = pattern.get(at) {
        at += 1;
        match byte {
            b'\\' => {
                let Some(&next) = pattern.get(at) else {
                    out.push('\\');
                    break;
                };
                at += 1;
                match next {
                    b'C' if class.is_none() => out.push_str("(?s:.)"),
                    b'Q' if class.is_none() => {
                        let rest = &pattern[at..];
                        let len = rest.windows(2).position(|two| two == br"\E");
                        rest[..len.unwrap_or(rest.len())].iter().for_each(|byte| byte_alone(&mut out, *byte));
                        at += len.map_or(rest.len(), |len| len + 2);
                    }
                    b'0'..=b'7' => {
                        let digits =
                            pattern[at - 1..].iter().take(3).take_while(|b| (b'0'..=b'7').contains(*b));
                        let (count, value) =
                            digits.fold((0, 0u32), |(n, v), b| (n + 1, v * 8 + u32::from(b - b'0')));
                        at += count - 1;
                        byte_alone(&mut out, u8::try_from(value & 0xff).unwrap_or_default());
                    }
                    next if next.is_ascii_alphanumeric() => {
                        out.push('\\');
                        out.push(char::from(next));
                    }
                    next => byte_alone(&mut out, next),
                }
            }
            b'[' if class.is_none() => {
                out.push('[');
                if pattern.get(at) == Some(&b'^') {
                    out.push('^');
                    at += 1;
                }
                class = Some(at);
            }
            b']' if class.is_some_and(|begin| at - 1 > begin) => {
                out.push(']');
                class = None;
            }
            b'[' if pattern.get(at) == Some(&b':') => {
                let len = pattern[at..].windows(2).position(|two| two == b":]").map_or(0, |len| len + 2);
                out.push('[');
                out.push_str(&String::from_utf8_lossy(&pattern[at..at + len]));
                at += len;
            }
            b'(' if class.is_none() => {
                out.push('(');
                groups += 1;
            }
            b')' if class.is_none() => {
                out.push(')');
                groups = groups.checked_sub(1)?;
            }
            b'[' | b']' | b'&' | b'~' if class.is_some() => byte_alone(&mut out, byte),
            b'-' if class.is_some() && pattern[at - 2] == b'-' => byte_alone(&mut out, byte),
            byte if byte.is_ascii() => out.push(char::from(byte)),
            byte => byte_alone(&mut out, byte),
        }
    }
    out.push_str(r")\z");
    Some(out)
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
        check(br"a\<b\ c", &[b"a<b c"], &[b"ab c", b"a b c"]);
        check(br"[[a]", &[b"[", b"a"], &[b"]"]);
        check(br"[]a]+", &[b"]a"], &[b"["]);
        check(br"[a&&b]", &[b"a", b"b", b"&"], &[b"c"]);
        check(br"[^[:digit:]~]", &[b"a"], &[b"1", b"~"]);
        check(br"\Qa.*\E.", &[b"a.*b"], &[b"abbb"]);
        check(br"\101\0", &[b"A\0"], &[b"101"]);
    }

    #[test]
    fn patterns_that_are_wrong_or_too_large_are_refused() {
        for wrong in [&b""[..], b"(", b"a)|(?:b", b"a)|b(", b"[z-a]", br"\", b"(?:a{1000}){1000}"] {
            let refused = Pattern::new("test", wrong).unwrap_err();
            assert_eq!(refused.code(), tonic::Code::InvalidArgument, "{wrong:?}");
        }
    }

    #[test]
    fn what_takes_other_engines_for_ever_is_matched_in_linear_time() {
        check(b"(a+)+$", &[], &[&[&[b'a'; 100_000][..], b"b"].concat()]);
    }
}
