//! RE2 patterns over bytes.

use super::re2;
use crate::net::budget::Lease;
use crate::net::work::Work;
use regex_automata::hybrid::dfa::DFA;
use regex_automata::meta::Regex;
use regex_automata::nfa::thompson;
use regex_automata::{Anchored, Input};
use std::sync::{Arc, OnceLock};
use tonic::Status;

/// Patterns of a filter that are regular expressions, at most.
const PATTERNS_MAX: usize = 1_000;
/// Memory that one compiled pattern may take in one form, and all of a filter in all forms: more is refused.
const COMPILED_MAX: usize = 1 << 20;
const ALL_COMPILED_MAX: usize = 6 << 20;
/// What RE2 says then.
pub(crate) const TOO_LARGE: &str = "pattern too large - compile failed";
/// Forms of a pattern: for both directions, and for long values.
const FORMS: usize = 3;
/// The least that a compiled pattern is given, and from which on twice as much is tried.
const COMPILED_LEAST: usize = 2 << 10;
/// Memory of what is found out while patterns are applied: of one in one direction, and of all of a filter.
const STATES_MAX: usize = 128 << 10;
const ALL_STATES_MAX: usize = 2 << 20;
/// Values longer than this are matched step by step, as somebody may stop waiting for it.
pub(crate) const LONG_BYTES: usize = 64 << 10;
/// Bytes of such a step.
const STEP_BYTES: usize = 64;
/// How much more it takes to match a byte than to copy it.
const BYTE_STEPS: usize = 8;

/// The memory limit of all patterns of a filter.
pub(crate) struct Patterns {
    /// Bytes that are left for those that are not compiled yet.
    left: usize,
    /// Bytes of states of each.
    states: usize,
}

impl Patterns {
    /// Room for so many.
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
        if Pattern::is_exact(pattern) {
            return Ok(Pattern::Exact(pattern.to_vec()));
        }
        let refused = |why: &str| {
            let pattern = re2::shown(pattern);
            Status::invalid_argument(format!("filter: the pattern of {what}, \"{pattern}\": {why}"))
        };
        let hir = re2::whole(pattern).map_err(|why| refused(&why))?;
        let mut limit = COMPILED_LEAST;
        // How much it takes is known only by trying.
        loop {
            let is_unbounded = siltstone::planted_bug!(WorkInPlace);
            if limit * FORMS > self.left && !is_unbounded {
                let why = format!("all patterns of the filter take over {ALL_COMPILED_MAX} bytes");
                return Err(refused(&why));
            }
            let config = Regex::config().utf8_empty(false).nfa_size_limit(Some(limit));
            let config = config.hybrid_cache_capacity(self.states);
            match Regex::builder().configure(config).build_from_hir(&hir) {
                Ok(regex) => {
                    self.left = self.left.saturating_sub(limit * FORMS);
                    work.count_cell(limit * FORMS)?;
                    let bytes = if is_unbounded { 0 } else { limit * FORMS + self.states * 2 };
                    let _lease = work.lend(bytes)?;
                    let (states, long, pattern) = (self.states, OnceLock::new(), pattern.to_vec());
                    let expression = Expression { regex, pattern, limit, states, long, _lease };
                    return Ok(Pattern::Regex(Arc::new(expression)));
                }
                Err(e) if e.size_limit().is_none() => return Err(refused(&e.to_string())),
                Err(_) if limit < COMPILED_MAX => limit *= 2,
                Err(_) => return Err(refused(TOO_LARGE)),
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
    pattern: Vec<u8>,
    limit: usize,
    states: usize,
    /// An engine for long values, once there was one; `None` if it cannot be made.
    long: OnceLock<Option<DFA>>,
    _lease: Option<Arc<Lease>>,
}

impl Expression {
    fn long(&self) -> Option<&DFA> {
        let build = || {
            let hir = re2::whole(&self.pattern).ok()?;
            let limits = thompson::Config::new().utf8(false).nfa_size_limit(Some(self.limit));
            let nfa = thompson::Compiler::new().configure(limits).build_from_hir(&hir).ok()?;
            let states = DFA::config().cache_capacity(self.states).skip_cache_capacity_check(true);
            DFA::builder().configure(states).build_from_nfa(nfa).ok()
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
        !pattern.iter().any(|byte| br"\.+*?()|[{^$".contains(byte))
    }

    pub(crate) fn matches(&self, bytes: &[u8]) -> bool {
        match self {
            Self::Exact(exact) => exact == bytes,
            Self::Regex(expression) => expression.regex.is_match(bytes),
        }
    }

    /// Whether it matches, counted as work; of a long value step by step.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::work::Caller;

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
    fn escapes_and_classes_are_of_bytes() {
        check(br"\x{80}", &[b"\x80"], &[b"\xc2\x80", b"\x81"]);
        check(br"[\x{e0}-\x{ef}]+", &[b"\xe0\xe9\xef"], &[b"\xdf", b"\xf0", b"\xc3\xa0"]);
        check(br"\x{00e9}\351\xe9", &[b"\xe9\xe9\xe9"], &[b"\xe9\xe9"]);
        check(br"\a\f\n\r\t\v", &[b"\x07\x0c\n\r\t\x0b"], &[b"afnrtv"]);
        check(b"\\\0\\_\\-", &[b"\0_-"], &[b"\\\0_-"]);
        check(br"[\d-z]+", &[b"1-z"], &[b"a", b"\\"]);
        check(b"[a-c-e]+", &[b"b-e"], &[b"d"]);
        check(b"[^a-]", &[b"b", b"\n", b"\xff"], &[b"-", b"a", b""]);
        check(b"[--/]", &[b"-", b".", b"/"], &[b"0"]);
        check(br"[^\D5]", &[b"4"], &[b"5", b"x"]);
        check(b"[[:word:][:^ascii:]]+", &[b"a_\x80\xff"], &[b"-"]);
        check(b"[[:]+", &[b":[["], &[b"]", b"a"]);
    }

    #[test]
    fn braces_that_begin_no_repetition_are_themselves() {
        check(b"foo{bar}", &[b"foo{bar}"], &[b"foobar"]);
        check(b"x{,2}", &[b"x{,2}"], &[b"xx", b"x"]);
        check(b"x{2,", &[b"x{2,"], &[b"xx"]);
        check(b"x{02}{-1}", &[b"x{02}{-1}"], &[b"xx"]);
        check(b"{", &[b"{"], &[b""]);
        check(b"x{1234567890}", &[b"x{1234567890}"], &[b"x"]);
        check(b"x{2}y{1,}z{0,1}", &[b"xxyyz", b"xxy"], &[b"xyz", b"x{2}yz"]);
        check(b"a*{+", &[b"aa{{", b"{"], &[b"a"]);
        check(b"}]", &[b"}]"], &[b"}"]);
    }

    #[test]
    fn case_is_folded_within_latin_1() {
        check(br"(?i)[\xc9]", &[b"\xc9", b"\xe9"], &[b"e", b"\xc3\x89"]);
        check(b"(?i)\xe9K[^s]", &[b"\xc9kx", b"\xe9Kk"], &[b"\xc9ks", b"\xc9kS"]);
        // Their other case is beyond Latin-1, or they have none.
        check(b"(?i)\xb5\xdf\xff\xd7\xf7", &[b"\xb5\xdf\xff\xd7\xf7"], &[b"\xb5\xff\xdf\xf7\xd7"]);
        check(b"(?i)[\xd0-\xdf]", &[b"\xd7", b"\xdf", b"\xf0", b"\xfe"], &[b"\xf7", b"\xff"]);
        check(br"(?i)[[:^lower:]]", &[b"1", b"\xe9"], &[b"a", b"A"]);
        check(br"(?i)\W", &[b"-", b"\xe9"], &[b"k", b"S"]);
        check(br"(?i)\p{Lu}+", &[b"aA\xe9\xb5\xdf\xff"], &[b"1", b"\xaa"]);
        check(br"(?i)\P{Lu}+", &[b"1\xaa"], &[b"a", b"\xb5"]);
        check(br"(?i)\p{Greek}", &[b"\xb5"], &[b"m"]);
        check(br"a(?i)b(?-i)c", &[b"abc", b"aBc"], &[b"Abc", b"abC"]);
        check(br"(a(?i)b|c)d", &[b"aBd", b"Cd"], &[b"ABd", b"aBD"]);
        check(br"(?i:a\Qb.\E)c", &[b"AB.c"], &[b"ABxc", b"ab.C"]);
    }

    #[test]
    fn classes_of_unicode_have_what_latin_1_has_of_them() {
        check(br"\pL+", &[b"aZ\xaa\xb5\xff"], &[b"1", b"\xd7", b"\xb9"]);
        check(br"\p{Nd}\pN\PN", &[b"1\xbda", b"22-"], &[b"\xbd1a"]);
        check(br"[^\p{Lu}\d]+", &[b"a\xe9-"], &[b"\xc9", b"1"]);
        check(br"\p{^Lu}\P{^Lu}", &[b"aA"], &[b"Aa"]);
        check(br"\p{Latin}\p{Common}", &[b"\xe91", b"a\xb5"], &[b"\xb5a"]);
        check(br"\p{Greek}|\p{Han}|\p{Zl}|[^\p{Any}]", &[], &[b"a", b"\xb5", b""]);
        check(br"[\p{Po}\p{Sm}]+", &[b"!?@\\\xbf+|\xd7"], &[b"-", b"$"]);
    }

    #[test]
    fn flags_lines_and_words() {
        check(b"(?s).|(?-s).x", &[b"\n", b"ax"], &[b"\nx"]);
        check(b"(?s:.)(.)", &[b"\na"], &[b"a\n"]);
        check(b"a$\n^b", &[], &[b"a\nb"]);
        check(b"(?m)a$\n^b", &[b"a\nb"], &[b"ab"]);
        check(br"(?m)a\z\n|\Ab", &[b"b"], &[b"a\n"]);
        check(br"a\b-\bb\B\w*", &[b"a-bc"], &[b"a-b"]);
        check(b"\xe9\\bx", &[b"\xe9x"], &[]);
        check(b"(?U)a+?(?P<name>b)(?<other>c)", &[b"aabc"], &[b"bc"]);
        check(b"^*a(?)$?", &[b"a"], &[b""]);
        check(b"()|(?:)|x", &[b"", b"x"], &[b"y"]);
    }

    #[test]
    fn no_pattern_matches_the_empty_value_alone() {
        check(b"", &[b""], &[b"a", b"\0"]);
        check(br"\Q\E", &[b""], &[b"Q"]);
    }

    #[test]
    fn groups_nest_as_deep_as_is_taken() {
        let nested = ["(?:a|b".repeat(200), "c".into(), "d)+".repeat(200)].concat();
        let inside = ["b".repeat(200), "c".into(), "d".repeat(200)].concat();
        check(nested.as_bytes(), &[b"a", b"aa", inside.as_bytes()], &[b"", b"c", &inside.as_bytes()[1..]]);
    }

    #[test]
    fn repetitions_of_repetitions_nest_no_deeper() {
        for between in ["(?)", r"\Q\E", "(?i)"] {
            for operators in [["*", "*"], ["+", "+"], ["?", "?"], ["*", "?"], ["{0,}", "{1,}"]] {
                let repeated = operators.map(|operator| [operator, between].concat()).concat().repeat(2_500);
                let pattern = ["a", &repeated, "b"].concat();
                compiled(pattern.as_bytes()).unwrap();
                check(pattern.as_bytes(), &[b"ab"], &[b"a", b"bb"]);
            }
        }
        let cases = [
            ("a*(?)*", [true, true, true]),
            ("a+(?)+", [false, true, true]),
            ("a?(?)?", [true, true, false]),
        ];
        let mixed =
            [("a+(?)?", [true, true, true]), ("a?(?)+", [true, true, true]), ("a*(?)?", [true, true, true])];
        for (pattern, matches) in cases.into_iter().chain(mixed) {
            for (value, is_match) in [&b""[..], b"a", b"aa"].into_iter().zip(matches) {
                let (found, others): (&[&[u8]], &[&[u8]]) =
                    if is_match { (&[value], &[]) } else { (&[], &[value]) };
                check(pattern.as_bytes(), found, others);
            }
        }
    }

    #[test]
    fn patterns_that_are_wrong_or_too_large_are_refused_by_name() {
        let large = ["(?:", &"[ab].".repeat(40), "){1000}"].concat();
        let cases: [(&[u8], &str); 4] = [
            (b"(", "\"(\": missing ): ("),
            (br"(a)\1", r#""(a)\1": invalid escape sequence: \1"#),
            (b"(?:a{1000}){1000}", "invalid repetition size: {1000}"),
            (large.as_bytes(), TOO_LARGE),
        ];
        for (wrong, why) in cases {
            let refused = compiled(wrong).unwrap_err();
            assert_eq!(refused.code(), tonic::Code::InvalidArgument, "{wrong:?}");
            assert!(refused.message().ends_with(why), "{refused}");
            assert!(refused.message().starts_with("filter: the pattern of test, "), "{refused}");
        }
        // The error of a long pattern fits into a trailer.
        let long = [&vec![0xff; 20_000][..], b"("].concat();
        assert!(compiled(&long).unwrap_err().message().len() < 2_000);
    }

    #[test]
    fn all_patterns_of_a_filter_share_one_limit_and_the_one_that_is_over_it_is_named() {
        let mut patterns = Patterns::of(300).unwrap();
        let large = |n: usize| format!(".{{1000}}.{{1000}}x{n}").into_bytes();
        let refused = (0..300).find_map(|n| patterns.compile("value", &large(n), &mut work()).err()).unwrap();
        assert_eq!(refused.code(), tonic::Code::InvalidArgument);
        assert!(refused.message().contains("pattern of value, \".{1000}.{1000}x"), "{refused}");
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
