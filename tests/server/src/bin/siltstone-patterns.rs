//! Patterns of filters beside another RE2, Go's `regexp` (`tests/patterns`): both refuse the same, and match
//! the same values.
//!
//! Go's knows characters instead of bytes, so each byte is shown to it as a character of Latin-1. Where it
//! differs from RE2 by design is in [`differs`]; unit tests of the server say what RE2 does there.

use clap::Parser;
use siltstone::Rng;
use siltstone_server::testing::matches_of_pattern;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

/// Parts of patterns, each before a value that it matches (`∅`: none).
const ATOMS: &str = r"
    a a  K K  s s  z z  0 0  _ _  - -  } }  ] ]  ,: ,:  { {  {,2} {,2}  {x} {x}  {01} {01}  {2, {2,
    ª ª  µ µ  É É  × ×  ß ß  é é  ÿ ÿ  . x  ^ ∅  $ ∅  \A ∅  \z ∅  \b ∅  \B ∅
    \. .  \\ \  \- -  \_ _  \{ {  \f x  \x41 A  \xE9 é  \x{e9} é  \x{0000ff} ÿ  \101 A  \377 ÿ  \0 0
    \x{a} x  \Qa.b{2}\E a.b{2}  \Q\E ∅  \Q\\E \  \d 7  \D x  \s x  \S x  \w K  \W é
    \pL é  \PL 1  \pN ½  \p{Lu} É  \P{Lu} a  \p{^Ll} A  \P{^Ll} µ  \p{Po} ¿  \pS ×  \pP «  \pZ -  \p{Cc} -
    \p{Nd} 0  \p{No} ²  \p{Sm} ÷  \p{Latin} ÿ  \p{Common} µ  \p{Greek} µ  \P{Cyrillic} x  \p{Any} x
    (?i) ∅  (?-i) ∅  (?s) ∅  (?m) ∅  (?-ms) ∅  (?) ∅  () ∅";

/// Parts for which a pattern is refused, wherever they stand outside of classes.
const WRONG: &str = r"
    \1 \8 \u \Z \E \x \xg0 \x{} \x{e9 \é \p{Nope} \pQ (?R) (?=a) (?<!a) (?i-) (?P<>a) (?P<a-b>c) (?P=n) x**
    x*+ x{2}{3} x{1001} x{2,1} [z-a] [[:nope:]] [a (a a) (*a) (a|+) ((x{20}){10}){6}";

/// Items of classes in brackets.
const ITEMS: &str = r"
    a K s a-f A-Z 0-9 +-- - [ ^ && ~ { . µ É à-ÿ À-ß \] \\ \- \n \x{e0}-\x{ef} \xb5 \101 \d \D \s \S \w \W
    \pL \P{Lu} \p{^Nd} \p{Greek} [:alpha:] [:^digit:] [:word:] [:^word:] [:ascii:] [:punct:] [:space:]
    [:upper:] [:^lower:] [:xdigit:] [:graph:] [:print:] [:cntrl:] [:blank:] [:alnum:] [: :]";

/// What begins a group, and what a class.
const GROUPS: &str = "( (?: (?i: (?s: (?m: (?U: (?i-s: (?-i: (?P<n> (?<n2> (?sm-iU:";
const CLASSES: &str = "[ [ [^ [] [^]";

/// Operators of repetition, each before how often what stands before it is there.
const REPEATED: &str =
    "* 2 *? 0 + 3 +? 1 ? 0 ?? 1 {2} 2 {1}? 1 {1,3} 2 {0,1} 1 {2,} 3 {0,} 1 {40} 40 {0,1000} 4";

/// Pieces of any order, most of which together are no pattern.
const PIECES: &str = r"
    a z é 1 2 ( ) [ ] [^ { } , * + ? | ^ $ . - : [: :] \ (? (?P< < > i s = ! \Q \E \x 7f \d \b \pL
    \p{Lu} alpha";

/// Bytes of values that no pattern made.
const BYTES: &[u8] = b"aAkKsSzZxX019_- \n\0\t{}.,:\x07\x80\xaa\xb5\xc9\xd7\xdf\xe9\xf7\xff";

/// Bytes of a value, at most.
const VALUE_MAX: usize = 3_000;
/// Values for each pattern.
const VALUES: usize = 8;
/// From so many patterns on it is asked whether enough of each kind were met.
const LEAST: u64 = 2_000;

/// Compare patterns with Go's.
#[derive(Parser)]
struct Arguments {
    /// The program that is built from `tests/patterns`
    peer: PathBuf,
    /// Patterns
    #[arg(long)]
    count: u64,
    /// Where it begins, to run a failing case again
    #[arg(long)]
    seed: Option<u64>,
}

/// The tables as bytes.
struct Tables {
    atoms: Vec<[Vec<u8>; 2]>,
    wrong: Vec<Vec<u8>>,
    items: Vec<Vec<u8>>,
    groups: Vec<Vec<u8>>,
    classes: Vec<Vec<u8>>,
    repeated: Vec<(Vec<u8>, usize)>,
    pieces: Vec<Vec<u8>>,
}

impl Tables {
    fn new() -> Self {
        let bytes =
            |word: &str| word.chars().filter_map(|c| u8::try_from(u32::from(c)).ok()).collect::<Vec<u8>>();
        let all = |text: &str| text.split_ascii_whitespace().map(bytes).collect::<Vec<_>>();
        let pairs = |text: &'static str| {
            let words: Vec<&str> = text.split_ascii_whitespace().collect();
            words.chunks(2).map(|pair| [pair[0], pair[1]]).collect::<Vec<_>>()
        };
        Self {
            atoms: pairs(ATOMS).into_iter().map(|pair| pair.map(bytes)).collect(),
            wrong: all(WRONG),
            items: all(ITEMS),
            groups: all(GROUPS),
            classes: all(CLASSES),
            repeated: pairs(REPEATED)
                .into_iter()
                .map(|[operator, times]| (bytes(operator), times.parse().expect("a number")))
                .collect(),
            pieces: all(PIECES),
        }
    }
}

/// A pattern, and a value that it may match.
struct Made<'a> {
    tables: &'a Tables,
    pattern: Vec<u8>,
    value: Vec<u8>,
}

impl<'a> Made<'a> {
    fn new(tables: &'a Tables, random: &mut Rng) -> Self {
        let mut made = Self { tables, pattern: Vec::new(), value: Vec::new() };
        if random.chance(20) {
            for _ in 0..=random.index(8) {
                made.pattern.extend_from_slice(random.pick::<Vec<u8>>(&tables.pieces));
            }
        } else {
            made.alternatives(random, 3);
        }
        made
    }

    fn alternatives(&mut self, random: &mut Rng, depth: u32) {
        let count = if random.chance(25) { 2 + random.index(2) } else { 1 };
        let chosen = random.index(count);
        for n in 0..count {
            if n > 0 {
                self.pattern.push(b'|');
            }
            let before = self.value.len();
            for _ in 0..random.index(4) + usize::from(count == 1) {
                self.repeated(random, depth);
            }
            if n != chosen {
                self.value.truncate(before);
            }
        }
    }

    fn repeated(&mut self, random: &mut Rng, depth: u32) {
        let before = self.value.len();
        self.part(random, depth);
        if random.chance(30) {
            let (operator, times) = match random.one_in(100) {
                true => (&b"{1000}"[..], 1_000),
                false => {
                    let (operator, times) = random.pick(&self.tables.repeated);
                    (&operator[..], *times)
                }
            };
            self.pattern.extend_from_slice(operator);
            // What a group in the part repeats may have cut the value before where the part began.
            let once = self.value.split_off(before.min(self.value.len()));
            self.value.extend_from_slice(&once.repeat(times));
            self.value.truncate(VALUE_MAX);
        }
    }

    fn part(&mut self, random: &mut Rng, depth: u32) {
        match random.index(100) {
            0..15 if depth > 0 => {
                self.pattern.extend_from_slice(random.pick::<Vec<u8>>(&self.tables.groups));
                self.alternatives(random, depth - 1);
                self.pattern.push(b')');
            }
            15..35 => {
                self.pattern.extend_from_slice(random.pick::<Vec<u8>>(&self.tables.classes));
                for _ in 0..=random.index(3) {
                    self.pattern.extend_from_slice(random.pick::<Vec<u8>>(&self.tables.items));
                }
                self.pattern.push(b']');
                self.value.push(*random.pick(BYTES));
            }
            35 => self.pattern.extend_from_slice(random.pick::<Vec<u8>>(&self.tables.wrong)),
            36..45 => {
                let byte = *random.pick(BYTES);
                self.pattern.push(byte);
                self.value.push(byte);
            }
            _ => {
                let [atom, value] = random.pick(&self.tables.atoms);
                self.pattern.extend_from_slice(atom);
                self.value.extend_from_slice(value);
            }
        }
    }

    /// The value, some that are nearly it, and others.
    fn values(&self, random: &mut Rng) -> Vec<Vec<u8>> {
        let mut values = vec![self.value.clone(), Vec::new()];
        while values.len() < VALUES {
            let mut value = if random.chance(70) { self.value.clone() } else { Vec::new() };
            for _ in 0..=random.index(3) {
                let at = random.index(value.len() + 1);
                match value.get_mut(at) {
                    Some(byte) if random.chance(30) => *byte ^= 0x20,
                    Some(byte) if random.chance(30) => *byte = *random.pick(BYTES),
                    Some(_) if random.chance(40) => {
                        value.remove(at);
                    }
                    _ => value.insert(at, *random.pick(BYTES)),
                }
            }
            values.push(value);
        }
        values
    }
}

/// What stands behind each place where this does.
fn behind<'a>(pattern: &'a [u8], what: &'static [u8]) -> impl Iterator<Item = &'a [u8]> {
    let ends = pattern.windows(what.len()).enumerate().filter(move |(_, text)| *text == what);
    ends.map(move |(at, text)| &pattern[at + text.len()..])
}

/// The number that a text begins with.
fn number(text: &[u8], base: u32, most: usize) -> u32 {
    let digits = text.iter().map_while(|byte| char::from(*byte).to_digit(base));
    digits.take(most).fold(0, |number: u32, digit| number.saturating_mul(base).saturating_add(digit))
}

/// Whether Go's `regexp` may say something else of a pattern than RE2 does of bytes in Latin-1. It also takes
/// more names of Unicode's classes, in any case, and knows no `\C`: they are in no table.
fn differs(pattern: &[u8]) -> bool {
    let before_digits = || behind(pattern, b"{").chain(behind(pattern, b","));
    let mut names = behind(pattern, b"(?P<").chain(behind(pattern, b"(?<"));
    // Go takes characters beyond Latin-1.
    behind(pattern, br"\x{").any(|text| number(text, 16, usize::MAX) > 0xff)
        || behind(pattern, br"\").any(|text| number(text, 8, 3) > 0xff)
        // A number of ten digits is none for RE2, and so the brace is only itself.
        || before_digits().any(|text| text.iter().take_while(|byte| byte.is_ascii_digit()).count() > 9)
        // Within what is repeated no times Go does not count copies.
        || behind(pattern, b"{0").any(|text| text.starts_with(b"}") || text.starts_with(b",0}"))
        // Only RE2 takes letters beyond ASCII in names of groups.
        || names.any(|text| text.iter().take_while(|byte| **byte != b'>').any(|byte| !byte.is_ascii()))
}

/// The other program, which is asked line by line.
struct Peer {
    questions: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Peer {
    fn ask(&mut self, pattern: &[u8], values: &[Vec<u8>]) -> std::io::Result<String> {
        let mut line = String::new();
        let add = |line: &mut String, bytes: &[u8]| {
            bytes.iter().for_each(|byte| write!(line, "{byte:02x}").expect("a string takes all"));
        };
        add(&mut line, pattern);
        for value in values {
            line.push(',');
            add(&mut line, value);
        }
        line.push('\n');
        self.questions.write_all(line.as_bytes())?;
        let mut answer = String::new();
        self.answers.read_line(&mut answer)?;
        Ok(answer.trim_end().to_string())
    }
}

/// What was met.
#[derive(Debug, Default)]
struct Met {
    refused: u64,
    matched: u64,
    not_matched: u64,
    too_large: u64,
    differing: u64,
}

fn compare(made: &Made<'_>, values: &[Vec<u8>], peer: &mut Peer, met: &mut Met) -> Result<(), String> {
    let pattern = &made.pattern;
    if differs(pattern) {
        met.differing += 1;
        return Ok(());
    }
    let answer = peer.ask(pattern, values).map_err(|e| format!("the other program: {e}"))?;
    let shown = pattern.escape_ascii();
    match matches_of_pattern(pattern, values) {
        Err(None) => met.too_large += 1,
        Err(Some(_)) if answer.starts_with("refused") => met.refused += 1,
        Err(Some(why)) => return Err(format!("{shown} is refused here alone: {why}")),
        Ok(_) if answer.starts_with("refused") => {
            return Err(format!("{shown} is taken here alone: {answer}"));
        }
        Ok(matches) if matches.len() != answer.len() => {
            return Err(format!("{shown}: {} values, and the answer is \"{answer}\"", matches.len()));
        }
        Ok(matches) => {
            for ((matches, other), value) in matches.into_iter().zip(answer.bytes()).zip(values) {
                if matches != (other == b'1') {
                    let value = value.escape_ascii();
                    return Err(format!("{shown} matches \"{value}\" here: {matches}, and there not so"));
                }
                let count = if matches { &mut met.matched } else { &mut met.not_matched };
                *count += 1;
            }
        }
    }
    Ok(())
}

fn run(arguments: &Arguments, seed: u64) -> Result<Met, String> {
    let failed = |e: std::io::Error| format!("{}: {e}", arguments.peer.display());
    let mut command = Command::new(&arguments.peer);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(failed)?;
    let (Some(questions), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
        return Err("the other program has no pipes".into());
    };
    let mut peer = Peer { questions, answers: BufReader::new(answers) };
    let (tables, mut random, mut met) = (Tables::new(), Rng::new(seed), Met::default());
    let result = (0..arguments.count).try_for_each(|_| {
        let made = Made::new(&tables, &mut random);
        let values = made.values(&mut random);
        compare(&made, &values, &mut peer, &mut met)
    });
    drop(peer);
    child.wait().map_err(failed)?;
    result?;
    let few = arguments.count / 20;
    if arguments.count >= LEAST && [met.refused, met.matched, met.not_matched].iter().any(|n| *n < few) {
        return Err(format!("too little was met: {met:?}"));
    }
    if arguments.count >= LEAST && met.too_large + met.differing > arguments.count / 4 {
        return Err(format!("too much was left out: {met:?}"));
    }
    Ok(met)
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let seed = arguments.seed.unwrap_or(now);
    println!("seed {seed}, {} patterns", arguments.count);
    match run(&arguments, seed) {
        Ok(met) => {
            println!("held: {met:?}");
            ExitCode::SUCCESS
        }
        Err(said) => {
            println!("FAILED with seed {seed}: {said}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_left_out_only_where_the_two_differ_by_design() {
        let cases: [(&[u8], bool); 12] = [
            (br"\x{100}", true),
            (br"[\x{000ff}]", false),
            (br"\400", true),
            (br"\377", false),
            (b"x{1234567890}", true),
            (b"x{2,123456789}", false),
            (b"(x{9}){0}", true),
            (b"(x{9}){0,0}", true),
            (b"(x{9}){0,1}", false),
            (b"(?<n\xe9>a)", true),
            (b"(?P<n>\xe9)", false),
            (br"(a)\1", false),
        ];
        for (pattern, expected) in cases {
            assert_eq!(differs(pattern), expected, "{}", pattern.escape_ascii());
        }
    }

    #[test]
    fn a_value_that_was_made_for_a_pattern_often_matches_it() {
        let (tables, mut random) = (Tables::new(), Rng::new(1));
        let mut taken = 0;
        let mut matched = 0;
        for _ in 0..1_000 {
            let made = Made::new(&tables, &mut random);
            let Ok(matches) = matches_of_pattern(&made.pattern, std::slice::from_ref(&made.value)) else {
                continue;
            };
            taken += 1;
            matched += usize::from(matches == [true]);
        }
        assert!(taken > 500 && matched > taken / 5, "{taken} of 1000 were taken, {matched} matched");
    }
}
