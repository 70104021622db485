//! RE2 patterns over bytes.

use crate::budget::Lease;
use crate::work::Work;
use regex::bytes::{Regex, RegexBuilder};
use regex_automata::hybrid::dfa::DFA;
use regex_automata::nfa::thompson;
use regex_automata::util::syntax;
use regex_automata::{Anchored, Input};
use std::sync::{Arc, OnceLock};
use tonic::Status;

/// Patterns of a filter that are regular expressions, at most.
const PATTERNS_MAX: usize = 1_000;
/// Memory that one compiled pattern may take in one form, and all of a filter in all forms: more is refused.
const COMPILED_MAX: usize = 1 << 20;
const ALL_COMPILED_MAX: usize = 6 << 20;
/// Forms of a pattern: for both directions, and for long values.
const FORMS: usize = 3;
/// The least that a compiled pattern is given, and from which on twice as much is tried.
const COMPILED_LEAST: usize = 2 << 10;
/// Memory of what is found out while patterns are applied: of one in one direction, and of all of a filter.
const STATES_MAX: usize = 128 << 10;
const ALL_STATES_MAX: usize = 2 << 20;
/// Values longer than this are matched step by step, as somebody may stop waiting for it.
const LONG_BYTES: usize = 64 << 10;
/// Bytes of such a step.
const STEP_BYTES: usize = 64;
/// How much more it takes to match a byte than to copy it.
const BYTE_STEPS: usize = 8;

/// What all patterns of a filter may take.
pub(crate) struct Patterns {
    /// Bytes that are left for those that are not compiled yet.
    left: usize,
    /// Bytes of states of each.
    states: usize,
}

impl Patterns {
    /// Of so many.
    pub(crate) fn of(count: usize) -> Result<Self, Status> {
        if count > PATTERNS_MAX {
            let message = format!("filter: {count} patterns, the limit is {PATTERNS_MAX}");
            return Err(Status::invalid_argument(message));
        }
        let states = (ALL_STATES_MAX / 2 / count.max(1)).min(STATES_MAX);
        Ok(Self { left: ALL_COMPILED_MAX, states })
    }

    /// Compiles one, as long as somebody waits for it, with the memory that it may take.
    pub(crate) fn compile(&mut self, what: &str, pattern: &[u8], work: &mut Work) -> Result<Pattern, Status> {
        if pattern.is_empty() {
            return Err(Status::invalid_argument(format!("filter: the pattern of {what} is empty")));
        }
        if Pattern::is_exact(pattern) {
            return Ok(Pattern::Exact(pattern.to_vec()));
        }
        let refused = |why: &str| {
            let pattern = pattern.escape_ascii();
            Status::invalid_argument(format!("filter: the pattern of {what}, \"{pattern}\": {why}"))
        };
        let translated = translated(pattern).ok_or_else(|| refused("a `)` closes nothing"))?;
        let mut limit = COMPILED_LEAST;
        // How much it takes is known only by trying.
        loop {
            let is_unbounded = siltstone::planted_bug!(WorkInPlace);
            if limit * FORMS > self.left && !is_unbounded {
                let why = format!("all patterns of the filter take over {ALL_COMPILED_MAX} bytes");
                return Err(refused(&why));
            }
            let mut builder = RegexBuilder::new(&translated);
            let built = builder.unicode(false).size_limit(limit).dfa_size_limit(self.states).build();
            match built {
                Ok(regex) => {
                    self.left = self.left.saturating_sub(limit * FORMS);
                    work.count_cell(limit * FORMS)?;
                    let bytes = if is_unbounded { 0 } else { limit * FORMS + self.states * 2 };
                    let _lease = work.lend(bytes)?;
                    let (states, long) = (self.states, OnceLock::new());
                    let expression = Expression { regex, text: translated, limit, states, long, _lease };
                    return Ok(Pattern::Regex(Arc::new(expression)));
                }
                Err(regex::Error::CompiledTooBig(_)) if limit < COMPILED_MAX => limit *= 2,
                Err(e) => return Err(refused(e.to_string().lines().last().unwrap_or_default())),
            }
        }
    }
}

/// A pattern that must match the whole.
#[derive(Clone, Debug)]
pub(crate) enum Pattern {
    /// It has no special characters.
    Exact(Vec<u8>),
    Regex(Arc<Expression>),
}

/// A compiled regular expression.
#[derive(Debug)]
pub(crate) struct Expression {
    regex: Regex,
    text: String,
    limit: usize,
    states: usize,
    /// The same for long values, once there was one; `None` for what cannot be matched so (words by Unicode).
    long: OnceLock<Option<DFA>>,
    _lease: Option<Arc<Lease>>,
}

impl Expression {
    fn long(&self) -> Option<&DFA> {
        let build = || {
            let syntax = syntax::Config::new().unicode(false).utf8(false);
            let thompson = thompson::Config::new().nfa_size_limit(Some(self.limit));
            let states = DFA::config().cache_capacity(self.states).skip_cache_capacity_check(true);
            DFA::builder().syntax(syntax).thompson(thompson).configure(states).build(&self.text).ok()
        };
        self.long.get_or_init(build).as_ref()
    }

    /// Matches a long value, as long as somebody waits for it.
    fn matches_long(&self, dfa: &DFA, bytes: &[u8], work: &mut Work) -> Result<bool, Status> {
        let failed = |e: &dyn std::fmt::Display| Status::internal(format!("a pattern's match: {e}"));
        let mut cache = dfa.create_cache();
        let input = Input::new(bytes).anchored(Anchored::Yes);
        let mut state = dfa.start_state_forward(&mut cache, &input).map_err(|e| failed(&e))?;
        for step in bytes.chunks(STEP_BYTES) {
            work.count_cell(step.len() * BYTE_STEPS)?;
            for &byte in step {
                state = dfa.next_state(&mut cache, state, byte).map_err(|e| failed(&e))?;
                if state.is_dead() {
                    return Ok(false);
                }
            }
        }
        let end = dfa.next_eoi_state(&mut cache, state).map_err(|e| failed(&e))?;
        Ok(end.is_match())
    }
}

impl Pattern {
    /// Whether it matches itself alone, as it has no special characters.
    pub(crate) fn is_exact(pattern: &[u8]) -> bool {
        let is_special =
            |b: &u8| b.is_ascii() && !b.is_ascii_alphanumeric() && !b"_-:/ ,;@#%&=~'\"<>!".contains(b);
        !pattern.iter().any(is_special)
    }

    pub(crate) fn matches(&self, bytes: &[u8]) -> bool {
        match self {
            Self::Exact(exact) => exact == bytes,
            Self::Regex(expression) => expression.regex.is_match(bytes),
        }
    }

    /// The same, counted; of a long value step by step.
    ///
    /// # Errors
    /// Nobody waits for it any more.
    pub(crate) fn matches_counted(&self, bytes: &[u8], work: &mut Work) -> Result<bool, Status> {
        if let Self::Regex(expression) = self
            && bytes.len() > LONG_BYTES
            && let Some(dfa) = expression.long()
        {
            return expression.matches_long(dfa, bytes, work);
        }
        work.count_cell(bytes.len() * BYTE_STEPS)?;
        Ok(self.matches(bytes))
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
    use crate::work::Caller;

    fn work() -> Work {
        Work::unbounded(Caller::default())
    }

    fn compiled(pattern: &[u8]) -> Result<Pattern, Status> {
        Patterns::of(1).unwrap().compile("test", pattern, &mut work())
    }

    #[track_caller]
    fn check(pattern: &[u8], yes: &[&[u8]], no: &[&[u8]]) {
        let pattern = compiled(pattern).unwrap();
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
            let refused = compiled(wrong).unwrap_err();
            assert_eq!(refused.code(), tonic::Code::InvalidArgument, "{wrong:?}");
        }
    }

    #[test]
    fn all_patterns_of_a_filter_share_one_limit_and_the_one_that_is_over_it_is_named() {
        let mut patterns = Patterns::of(300).unwrap();
        let large = |n: usize| format!(".{{9000}}x{n}").into_bytes();
        let refused = (0..300).find_map(|n| patterns.compile("value", &large(n), &mut work()).err()).unwrap();
        assert_eq!(refused.code(), tonic::Code::InvalidArgument);
        assert!(refused.message().contains("pattern of value, \".{9000}x"), "{refused}");
        let mut patterns = Patterns::of(PATTERNS_MAX).unwrap();
        for n in 0..PATTERNS_MAX {
            patterns.compile("value", format!("v{n}.*").as_bytes(), &mut work()).unwrap();
        }
        assert!(Patterns::of(PATTERNS_MAX + 1).is_err());
    }

    #[test]
    fn what_takes_other_engines_for_ever_is_matched_in_linear_time() {
        check(b"(a+)+$", &[], &[&[&[b'a'; 100_000][..], b"b"].concat()]);
    }

    #[test]
    fn long_values_are_matched_as_short_ones_are_and_only_as_long_as_somebody_waits() {
        let long = |end: &[u8]| [&vec![b'a'; LONG_BYTES][..], end].concat();
        let cases: [(&[u8], &[u8], bool); 9] = [
            (b"a*", b"a", true),
            (b"a*", b"b", false),
            (b"a+|a+b", b"b", true),
            (br"(?:a|ab)*?\C", b"\xff", true),
            (b".*", b"\n", false),
            (br"a+\bb", b"b", false),
            (br"a*\b.*", b" b", true),
            (br"[^\x00-\x7f]*", b"a", false),
            (b"(a*)*c", b"a", false),
        ];
        for (pattern, end, expected) in cases {
            let compiled = compiled(pattern).unwrap();
            let value = long(end);
            assert_eq!(compiled.matches(&value), expected, "{pattern:?}");
            assert_eq!(compiled.matches_counted(&value, &mut work()).unwrap(), expected, "{pattern:?}");
            let given_up = compiled.matches_counted(&value, &mut Work::unbounded(Caller::gone()));
            assert!(given_up.is_err() || !expected, "{pattern:?}");
        }
    }
}
