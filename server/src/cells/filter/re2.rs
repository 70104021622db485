//! RE2's syntax over bytes (Latin-1), read into what the engines of `regex-automata` compile.
//!
//! Patterns that RE2 accepts mean the same here, and those that it refuses are refused in its words; only
//! groups may not nest as deep. Which of several matches is preferred (`*?`, the flag `U`) says nothing where
//! the whole must match. Case is folded as Unicode has it within Latin-1.

use super::classes::{Set, other_case, perl_class, posix_class, unicode_class};
use regex_syntax::hir::{Dot, Hir, HirKind, Look, Repetition};
use std::mem;

/// Groups within groups, at most: they are compiled by functions that call themselves.
const GROUPS_MAX: usize = 200;
/// Copies that counted repetitions, also within each other, make of anything, at most.
const COPIES_MAX: u32 = 1_000;
/// Bytes of a pattern that are shown, at most.
const SHOWN_MAX: usize = 200;

const BAD_RANGE: &str = "invalid character class range";

/// The part that was read, or why the pattern is refused.
type Parsed<T> = Result<T, String>;

/// Reads a pattern that must match the whole of what it is shown.
pub(super) fn whole(pattern: &[u8]) -> Parsed<Hir> {
    let inside = Parser::new(pattern).parse()?;
    Ok(Hir::concat(vec![Hir::look(Look::Start), inside, Hir::look(Look::End)]))
}

/// Bytes of a pattern for people to read.
pub(super) fn shown(bytes: &[u8]) -> String {
    let mut text = String::new();
    for &byte in bytes.iter().take(SHOWN_MAX) {
        match byte {
            b' '..=b'~' => text.push(char::from(byte)),
            _ => text.push_str(&format!("\\x{byte:02x}")),
        }
    }
    if bytes.len() > SHOWN_MAX {
        text.push_str("...");
    }
    text
}

fn refused<T>(why: &str, what: &[u8]) -> Parsed<T> {
    Err(format!("{why}: {}", shown(what)))
}

#[derive(Clone, Copy, Default)]
struct Flags {
    /// `i`
    folds_case: bool,
    /// `m`: `^` and `$` are at lines, too.
    by_line: bool,
    /// `s`: `.` is also the end of a line.
    dot_is_all: bool,
}

/// A part of the pattern.
struct Part {
    hir: Hir,
    /// Copies that repetitions make of what is in it, at most.
    copies: u32,
}

/// A group that is open, or the whole.
#[derive(Default)]
struct Group {
    /// Flags for what follows it.
    flags: Flags,
    /// Alternatives that ended with a `|`.
    alternatives: Vec<Part>,
    /// Parts of the one that has not ended.
    parts: Vec<Part>,
}

impl Group {
    fn end_alternative(&mut self) {
        let parts = mem::take(&mut self.parts);
        self.alternatives.push(joined(parts, Hir::concat));
    }

    fn end(mut self) -> Part {
        self.end_alternative();
        joined(self.alternatives, Hir::alternation)
    }
}

fn joined(parts: Vec<Part>, join: fn(Vec<Hir>) -> Hir) -> Part {
    let copies = parts.iter().map(|part| part.copies).max().unwrap_or(1);
    Part { hir: join(parts.into_iter().map(|part| part.hir).collect()), copies }
}

/// What is repeated. Stars, pluses and question marks of each other become one, as in RE2: they may follow
/// each other behind flags or an empty quote, and would nest as deep as a pattern is long.
fn repetition(hir: Hir, min: u32, max: Option<u32>) -> Hir {
    let is_simple = |min, max| matches!((min, max), (0 | 1, None) | (0, Some(1)));
    match hir.kind() {
        HirKind::Repetition(inner) if is_simple(inner.min, inner.max) && is_simple(min, max) => {
            let (min, max) = if (inner.min, inner.max) == (min, max) { (min, max) } else { (0, None) };
            Hir::repetition(Repetition { min, max, greedy: true, sub: inner.sub.clone() })
        }
        _ => Hir::repetition(Repetition { min, max, greedy: true, sub: Box::new(hir) }),
    }
}

struct Parser<'a> {
    pattern: &'a [u8],
    /// What is read next.
    at: usize,
    flags: Flags,
    /// The innermost group, and those around it.
    group: Group,
    outer: Vec<Group>,
    /// The last place where a name such as `[:alpha:]` may end.
    names_end: Option<usize>,
}

impl<'a> Parser<'a> {
    fn new(pattern: &'a [u8]) -> Self {
        let names_end = pattern.windows(2).rposition(|two| two == b":]");
        let (flags, group) = (Flags::default(), Group::default());
        Self { pattern, at: 0, flags, group, outer: Vec::new(), names_end }
    }

    fn parse(mut self) -> Parsed<Hir> {
        // Where the repetition begins that was read last, if nothing came since.
        let mut last_repetition = None;
        while let Some(byte) = self.read() {
            let begin = self.at - 1;
            let before = last_repetition.take();
            match byte {
                b'(' if self.peek() == Some(b'?') => self.perl_group(begin)?,
                b'(' => self.open()?,
                b')' => self.close()?,
                b'|' => self.group.end_alternative(),
                b'^' if self.flags.by_line => self.push(Hir::look(Look::StartLF)),
                b'^' => self.push(Hir::look(Look::Start)),
                b'$' if self.flags.by_line => self.push(Hir::look(Look::EndLF)),
                b'$' => self.push(Hir::look(Look::End)),
                b'.' if self.flags.dot_is_all => self.push(Hir::dot(Dot::AnyByte)),
                b'.' => self.push(Hir::dot(Dot::AnyByteExceptLF)),
                b'[' => {
                    let class = self.class(begin)?;
                    self.push(class);
                }
                b'\\' => self.escape(begin)?,
                b'*' | b'+' | b'?' | b'{' => {
                    let counts = match byte {
                        b'*' => Some((0, None)),
                        b'+' => Some((1, None)),
                        b'?' => Some((0, Some(1))),
                        _ => self.counts(),
                    };
                    match counts {
                        Some((min, max)) => {
                            self.repeat(begin, before, min, max)?;
                            last_repetition = Some(begin);
                        }
                        None => self.literal(byte),
                    }
                }
                byte => self.literal(byte),
            }
        }
        if !self.outer.is_empty() {
            return refused("missing )", self.pattern);
        }
        Ok(self.group.end().hir)
    }

    fn peek(&self) -> Option<u8> {
        self.pattern.get(self.at).copied()
    }

    fn read(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        Some(byte)
    }

    /// Reads this byte, if it is the next.
    fn skip(&mut self, byte: u8) -> bool {
        let is_next = self.peek() == Some(byte);
        self.at += usize::from(is_next);
        is_next
    }

    fn push(&mut self, hir: Hir) {
        self.group.parts.push(Part { hir, copies: 1 });
    }

    fn literal(&mut self, byte: u8) {
        let hir = match other_case(byte) {
            Some(other) if self.flags.folds_case => {
                let mut set = Set::default();
                set.add(byte, byte);
                set.add(other, other);
                set.hir()
            }
            _ => Hir::literal([byte]),
        };
        self.push(hir);
    }

    // ---- repetitions

    /// Reads `n}`, `n,}` or `n,m}`. What is none of them is left, and the `{` before it is only itself.
    fn counts(&mut self) -> Option<(u32, Option<u32>)> {
        let (min, rest) = number(&self.pattern[self.at..])?;
        let (max, rest) = match rest.strip_prefix(b",") {
            None => (Some(min), rest),
            Some(rest) => number(rest).map_or((None, rest), |(max, rest)| (Some(max), rest)),
        };
        let rest = rest.strip_prefix(b"}")?;
        self.at = self.pattern.len() - rest.len();
        Some((min, max))
    }

    /// Repeats what was read last. The operator is at `begin`, and one at `before` came right before it.
    fn repeat(&mut self, begin: usize, before: Option<usize>, min: u32, max: Option<u32>) -> Parsed<()> {
        self.skip(b'?');
        let pattern = self.pattern;
        let operator = &pattern[begin..self.at];
        if let Some(before) = before {
            return refused("bad repetition operator", &pattern[before..self.at]);
        }
        if max.is_some_and(|max| max < min) || max.unwrap_or(min) > COPIES_MAX {
            return refused("invalid repetition size", operator);
        }
        let Some(Part { hir, copies }) = self.group.parts.pop() else {
            return refused("no argument for repetition operator", operator);
        };
        let copies = copies.saturating_mul(max.unwrap_or(min).max(1));
        if copies > COPIES_MAX {
            return refused("invalid repetition size", operator);
        }
        self.group.parts.push(Part { hir: repetition(hir, min, max), copies });
        Ok(())
    }

    // ---- groups

    fn open(&mut self) -> Parsed<()> {
        if self.outer.len() == GROUPS_MAX {
            return Err(format!("groups within groups, the limit is {GROUPS_MAX}"));
        }
        let group = Group { flags: self.flags, ..Group::default() };
        self.outer.push(mem::replace(&mut self.group, group));
        Ok(())
    }

    fn close(&mut self) -> Parsed<()> {
        let Some(outer) = self.outer.pop() else { return refused("unexpected )", self.pattern) };
        let group = mem::replace(&mut self.group, outer);
        self.flags = group.flags;
        self.group.parts.push(group.end());
        Ok(())
    }

    /// Reads what begins with `(?`: a group that has a name or flags, or flags for the rest of the group.
    fn perl_group(&mut self, begin: usize) -> Parsed<()> {
        let pattern = self.pattern;
        let rest = &pattern[begin..];
        for around in [&b"(?="[..], b"(?!", b"(?<=", b"(?<!"] {
            if rest.starts_with(around) {
                return refused("invalid perl operator", around);
            }
        }
        for before_name in [&b"(?P<"[..], b"(?<"] {
            if let Some(named) = rest.strip_prefix(before_name).filter(|named| !named.is_empty()) {
                let Some(len) = named.iter().position(|byte| *byte == b'>') else {
                    return refused("invalid named capture group", rest);
                };
                self.at = begin + before_name.len() + len + 1;
                if len == 0 || !named[..len].iter().all(|byte| is_of_name(*byte)) {
                    return refused("invalid named capture group", &pattern[begin..self.at]);
                }
                return self.open();
            }
        }
        self.at = begin + 2;
        let (mut flags, mut is_on, mut has_any) = (self.flags, true, false);
        let is_group = loop {
            match self.read() {
                Some(b'i') => flags.folds_case = is_on,
                Some(b'm') => flags.by_line = is_on,
                Some(b's') => flags.dot_is_all = is_on,
                Some(b'U') => {}
                Some(b'-') if is_on => {
                    (is_on, has_any) = (false, false);
                    continue;
                }
                Some(end @ (b':' | b')')) if is_on || has_any => break end == b':',
                _ => return refused("invalid perl operator", &pattern[begin..self.at]),
            }
            has_any = true;
        };
        if is_group {
            self.open()?;
        }
        self.flags = flags;
        Ok(())
    }

    // ---- escapes

    /// Reads an escape whose `\` is at `begin`.
    fn escape(&mut self, begin: usize) -> Parsed<()> {
        let hir = match self.peek() {
            Some(b'A') => Hir::look(Look::Start),
            Some(b'z') => Hir::look(Look::End),
            Some(b'b') => Hir::look(Look::WordAscii),
            Some(b'B') => Hir::look(Look::WordAsciiNegate),
            Some(b'C') => Hir::dot(Dot::AnyByte),
            Some(b'Q') => {
                self.at += 1;
                self.quoted();
                return Ok(());
            }
            _ => {
                let mut set = Set::default();
                if self.named_class(begin, &mut set)? {
                    if self.flags.folds_case {
                        set.fold_case();
                    }
                    self.push(set.hir());
                } else {
                    let byte = self.escaped_byte(begin)?;
                    self.literal(byte);
                }
                return Ok(());
            }
        };
        self.at += 1;
        self.push(hir);
        Ok(())
    }

    /// Reads up to `\E`, or to the end.
    fn quoted(&mut self) {
        while let Some(byte) = self.read() {
            if byte == b'\\' && self.skip(b'E') {
                return;
            }
            self.literal(byte);
        }
    }

    /// Reads the rest of an escape that stands for a byte.
    fn escaped_byte(&mut self, begin: usize) -> Parsed<u8> {
        let Some(byte) = self.read() else { return Err("trailing \\".into()) };
        let value = match byte {
            b'0'..=b'7' => self.octal(),
            b'x' => self.hexadecimal(),
            b'a' => Some(0x07),
            b'f' => Some(0x0c),
            b'n' => Some(b'\n'),
            b'r' => Some(b'\r'),
            b't' => Some(b'\t'),
            b'v' => Some(0x0b),
            byte if byte.is_ascii() && !byte.is_ascii_alphanumeric() => Some(byte),
            _ => None,
        };
        match value {
            Some(value) => Ok(value),
            None => refused("invalid escape sequence", &self.pattern[begin..self.at]),
        }
    }

    /// Reads an octal number of up to three digits, of which the first was read.
    fn octal(&mut self) -> Option<u8> {
        let digits = &self.pattern[self.at - 1..];
        let len = digits.iter().take(3).take_while(|digit| matches!(digit, b'0'..=b'7')).count();
        // A single digit would be what a group matched before.
        if len == 1 && digits[0] != b'0' {
            return None;
        }
        self.at += len - 1;
        let value = digits[..len].iter().fold(0, |value: u16, digit| value * 8 + u16::from(digit - b'0'));
        u8::try_from(value).ok()
    }

    /// Reads two digits, or any number of them in braces.
    fn hexadecimal(&mut self) -> Option<u8> {
        let digit = |byte: u8| char::from(byte).to_digit(16);
        if !self.skip(b'{') {
            let (high, low) = (self.read()?, self.read()?);
            return u8::try_from(digit(high)? * 16 + digit(low)?).ok();
        }
        let mut value: Option<u8> = None;
        loop {
            let byte = self.read()?;
            let Some(digit) = digit(byte) else { return value.filter(|_| byte == b'}') };
            value = Some(u8::try_from(u32::from(value.unwrap_or(0)) * 16 + digit).ok()?);
        }
    }

    // ---- classes

    /// Reads a class in brackets, of which the first was read.
    fn class(&mut self, begin: usize) -> Parsed<Hir> {
        let pattern = self.pattern;
        let is_not = self.skip(b'^');
        let first = self.at;
        let mut set = Set::default();
        loop {
            let at = self.at;
            let Some(byte) = self.read() else { return refused("missing ]", &pattern[begin..]) };
            if byte == b']' && at > first {
                break;
            }
            let is_named = match byte {
                b'[' => self.posix_class(at, &mut set)?,
                b'\\' => self.named_class(at, &mut set)?,
                _ => false,
            };
            if is_named {
                continue;
            }
            self.at = at;
            let from = self.byte_of_class(begin)?;
            let mut to = from;
            if let [b'-', next, ..] = &pattern[self.at..]
                && *next != b']'
            {
                self.at += 1;
                to = self.byte_of_class(begin)?;
            }
            if to < from {
                return refused(BAD_RANGE, &pattern[at..self.at]);
            }
            set.add(from, to);
        }
        if self.flags.folds_case {
            set.fold_case();
        }
        if is_not {
            set.negate();
        }
        Ok(set.hir())
    }

    fn byte_of_class(&mut self, begin: usize) -> Parsed<u8> {
        match self.read() {
            None => refused("missing ]", &self.pattern[begin..]),
            Some(b'\\') => self.escaped_byte(self.at - 1),
            Some(byte) => Ok(byte),
        }
    }

    /// Reads a class of POSIX whose `[` is at `begin`. Returns whether there was one.
    fn posix_class(&mut self, begin: usize, set: &mut Set) -> Parsed<bool> {
        let pattern = self.pattern;
        let Some(inside) = pattern[begin..].strip_prefix(b"[:") else { return Ok(false) };
        // Otherwise each of many beginnings would be looked through up to the end.
        if self.names_end < Some(begin + 2) {
            return Ok(false);
        }
        let Some(len) = inside.windows(2).position(|two| two == b":]") else { return Ok(false) };
        self.at = begin + len + 4;
        let (name, is_not) = negated(&inside[..len]);
        let Some(class) = posix_class(name) else { return refused(BAD_RANGE, &pattern[begin..self.at]) };
        set.join(class, is_not, self.flags.folds_case);
        Ok(true)
    }

    /// Reads a class of Perl or Unicode whose `\` is at `begin`. Returns whether there was one.
    fn named_class(&mut self, begin: usize, set: &mut Set) -> Parsed<bool> {
        let pattern = self.pattern;
        let folds_case = self.flags.folds_case;
        let Some(letter) = self.peek() else { return Ok(false) };
        if let Some((class, is_not)) = perl_class(letter) {
            self.at += 1;
            set.join(class, is_not, folds_case);
            return Ok(true);
        }
        if !matches!(letter, b'p' | b'P') {
            return Ok(false);
        }
        let rest = &pattern[self.at + 1..];
        let (name, len) = match rest {
            [b'{', inside @ ..] => match inside.iter().position(|byte| *byte == b'}') {
                Some(len) => (&inside[..len], len + 2),
                None => return refused(BAD_RANGE, &pattern[begin..]),
            },
            _ => (&rest[..rest.len().min(1)], rest.len().min(1)),
        };
        self.at += 1 + len;
        let (name, is_not) = negated(name);
        let Some(class) = unicode_class(name, folds_case) else {
            return refused(BAD_RANGE, &pattern[begin..self.at]);
        };
        set.join(class, is_not != (letter == b'P'), folds_case);
        Ok(true)
    }
}

/// A name without the `^` that may stand before it, and whether it did.
fn negated(name: &[u8]) -> (&[u8], bool) {
    name.strip_prefix(b"^").map_or((name, false), |name| (name, true))
}

/// A decimal number, and what follows it. With a zero before it, or more than nine digits, it is none.
fn number(text: &[u8]) -> Option<(u32, &[u8])> {
    let len = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (digits, rest) = text.split_at(len);
    let is_number = matches!(digits, [_]) || (len <= 9 && matches!(digits, [b'1'..=b'9', ..]));
    let value = || digits.iter().fold(0, |value, digit| value * 10 + u32::from(digit - b'0'));
    is_number.then(|| (value(), rest))
}

/// Whether a group's name may have it: letters, digits and what joins them.
fn is_of_name(byte: u8) -> bool {
    let is_letter = matches!(byte, 0xaa | 0xb5 | 0xba | 0xc0..=0xd6 | 0xd8..=0xf6 | 0xf8..=0xff);
    byte == b'_' || byte.is_ascii_alphanumeric() || is_letter
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_refused_is_refused_in_the_words_of_re2() {
        let cases: &[(&[u8], &str)] = &[
            (b"(a", "missing ): (a"),
            (b"a)|(?:b", "unexpected ): a)|(?:b"),
            (b"[a", "missing ]: [a"),
            (b"x[]", "missing ]: []"),
            (b"x[a-", "missing ]: [a-"),
            (b"[[:alpha:]", "missing ]: [[:alpha:]"),
            (b"[z-a]", "invalid character class range: z-a"),
            (br"[\x{20}-\x1f]", r"invalid character class range: \x{20}-\x1f"),
            (b"[a-[:digit:]]", "invalid character class range: a-["),
            (b"[[:nope:]]", "invalid character class range: [:nope:]"),
            (b"[[:^^alpha:]]", "invalid character class range: [:^^alpha:]"),
            (br"[a-\d]", r"invalid escape sequence: \d"),
            (br"\p{Nope}", r"invalid character class range: \p{Nope}"),
            (br"\p{greek}", r"invalid character class range: \p{greek}"),
            (br"\pQ", r"invalid character class range: \pQ"),
            (br"\p{Lu", r"invalid character class range: \p{Lu"),
            (br"\", r"trailing \"),
            (br"[\", r"trailing \"),
            (br"a\1", r"invalid escape sequence: \1"),
            (br"\8", r"invalid escape sequence: \8"),
            (br"\400", r"invalid escape sequence: \400"),
            (br"\x{100}", r"invalid escape sequence: \x{100"),
            (br"\x{}", r"invalid escape sequence: \x{}"),
            (br"\x{4", r"invalid escape sequence: \x{4"),
            (br"\x4", r"invalid escape sequence: \x4"),
            (br"\xg0", r"invalid escape sequence: \xg0"),
            (br"\u0041", r"invalid escape sequence: \u"),
            (br"\Z", r"invalid escape sequence: \Z"),
            (br"\E", r"invalid escape sequence: \E"),
            (br"[\C]", r"invalid escape sequence: \C"),
            (b"\\\xe9", r"invalid escape sequence: \\xe9"),
            (b"*a", "no argument for repetition operator: *"),
            (b"a|+?", "no argument for repetition operator: +?"),
            (b"({2})", "no argument for repetition operator: {2}"),
            (b"a**", "bad repetition operator: **"),
            (b"a*+", "bad repetition operator: *+"),
            (b"a+?{2}?", "bad repetition operator: +?{2}?"),
            (b"x{1001}", "invalid repetition size: {1001}"),
            (b"x{1,2000}", "invalid repetition size: {1,2000}"),
            (b"x{1001,}", "invalid repetition size: {1001,}"),
            (b"x{2,1}?", "invalid repetition size: {2,1}?"),
            (b"(a{100}){100}", "invalid repetition size: {100}"),
            (b"(?R)a", "invalid perl operator: (?R"),
            (b"(?i-)a", "invalid perl operator: (?i-)"),
            (b"(?i", "invalid perl operator: (?i"),
            (b"(?P=n)", "invalid perl operator: (?P"),
            (b"(?<!a)", "invalid perl operator: (?<!"),
            (b"(?=a)", "invalid perl operator: (?="),
            (b"(?P<n", "invalid named capture group: (?P<n"),
            (b"(?<a b>c)", "invalid named capture group: (?<a b>"),
        ];
        for (pattern, why) in cases {
            assert_eq!(whole(pattern).unwrap_err(), *why, "{}", shown(pattern));
        }
    }

    #[test]
    fn counted_repetitions_multiply_along_the_way_down_and_only_there() {
        for taken in [
            "(a{10}){100}",
            "((a{10}b){10}c{100}){10}",
            "(a{1000}b{1000})*",
            "(a{600}){1}",
            "x{1000,}",
            "(a{0}){1000}",
        ] {
            assert!(whole(taken.as_bytes()).is_ok(), "{taken}");
        }
        for refused in ["(a{10}){101}", "((a{11}){10}){10}", "(b|(a{2})+){501}", "(a{1000,}){2}"] {
            let why = whole(refused.as_bytes()).unwrap_err();
            assert!(why.starts_with("invalid repetition size"), "{refused}: {why}");
        }
    }

    #[test]
    fn patterns_take_time_in_proportion_to_their_length() {
        let began = std::time::Instant::now();
        for piece in ["[[:", "{", "{1", "(?P<", r"\p{", "[a", r"\Q", "[:]", r"\D", "(a", "|"] {
            let pattern = piece.repeat(200_000 / piece.len());
            let _ = whole(pattern.as_bytes());
            let _ = whole(["[", &pattern].concat().as_bytes());
        }
        // By the square of the length it would take minutes.
        assert!(began.elapsed() < std::time::Duration::from_secs(30));
    }

    #[test]
    fn groups_are_refused_where_they_nest_too_deep() {
        let nested = |depth: usize| ["(".repeat(depth), ")".repeat(depth)].concat();
        assert!(whole(nested(GROUPS_MAX).as_bytes()).is_ok());
        assert!(whole(nested(GROUPS_MAX + 1).as_bytes()).unwrap_err().contains("the limit is 200"));
        assert!(whole("()".repeat(5_000).as_bytes()).is_ok());
    }
}
