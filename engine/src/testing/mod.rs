//! Test support for this crate and others: kill points and planted bugs (`hooks`), and every decoder.
//!
//! A decoder turns bytes from disk or text from people into values. Each is a function of bytes that must not
//! panic, hang or take much memory for any input. The package `siltstone-fuzz` calls them.
//!
//! `elsewhere` runs compactions behind a pipe, as a compaction server would.

mod elsewhere;

use crate::compaction::{Expected, Totals, Verifier};
#[doc(hidden)]
pub use crate::hooks::*;
use crate::offload::{AnswerOf, CompactionAnswer, CompactionSpec, StepAnswer};
use crate::options::FamilyOptions;
use crate::shape::Shape;
use crate::sstable::Compression;
use crate::strategy::StrategyOptions;
use crate::types::KeyRange;
pub use elsewhere::{CompactionFault, Elsewhere, serve_compactions};
use std::sync::Arc;

/// Every decoder.
pub fn all() -> Vec<Target> {
    [
        crate::wal::forge::TARGETS,
        crate::version::manifest::forge::TARGETS,
        crate::sstable::forge::TARGETS,
        crate::backup::forge::TARGETS,
        crate::stream::forge::TARGETS,
        TEXTS,
    ]
    .concat()
}

const TEXTS: &[Target] = &[
    Target { name: "events", seeds: event_seeds, sign: sign_lines, decode: events },
    Target { name: "family-options", seeds: option_seeds, sign: |_| {}, decode: options },
    Target { name: "strategy", seeds: strategy_seeds, sign: |_| {}, decode: strategy },
    Target { name: "shape", seeds: shape_seeds, sign: |_| {}, decode: shape },
    Target { name: "compression", seeds: compression_seeds, sign: |_| {}, decode: compression },
    Target { name: "compaction-spec", seeds: compaction_seeds, sign: sign_lines, decode: compaction },
    Target { name: "compaction-answer", seeds: answer_seeds, sign: sign_lines, decode: answer },
];

fn lines(texts: &[&str]) -> Vec<Vec<u8>> {
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

fn event_seeds() -> Vec<Vec<u8>> {
    let line =
        r#"{"at_us":17,"kind":"memtable-freeze","family":"f","reason":"because","numbers":{"bytes":12}}"#;
    let mut bytes = format!("00000000 {line}\n00000000 {line}\n").into_bytes();
    sign_lines(&mut bytes);
    vec![bytes]
}

/// Fixes the checksum at the beginning of each line: events, and serialized compactions.
#[allow(clippy::ptr_arg, reason = "signers share one function type, and some of them grow the input")]
pub fn sign_lines(bytes: &mut Vec<u8>) {
    for line in bytes.split_mut(|b| *b == b'\n') {
        if let Some((sum, json)) = line.split_at_mut_checked(9) {
            sum.copy_from_slice(format!("{:08x} ", crc32c::crc32c(json)).as_bytes());
        }
    }
}

fn events(bytes: &[u8]) {
    crate::event::parse(bytes).iter().for_each(|event| drop(event.to_string()));
}

fn option_seeds() -> Vec<Vec<u8>> {
    let all = serde_json::to_vec(&FamilyOptions::default()).unwrap_or_default();
    let mut seeds = lines(&[
        "{}",
        r#"{"timestamps":"explicit","versions":3,"compression":"zstd:7","merge_operator":"sum"}"#,
    ]);
    seeds.push(all);
    seeds
}

fn options(bytes: &[u8]) {
    if let Ok(options) = serde_json::from_slice::<FamilyOptions>(bytes) {
        let _ = options.validate();
    }
}

fn strategy_seeds() -> Vec<Vec<u8>> {
    lines(&["leveled", "leveled{multiplier=8, sstable_bytes=32MiB, defer_below=0.4}"])
}

fn strategy(bytes: &[u8]) {
    if let Ok(strategy) = String::from_utf8_lossy(bytes).parse::<StrategyOptions>() {
        let again = strategy.to_string().parse::<StrategyOptions>();
        assert_eq!(again.as_ref(), Ok(&strategy), "a strategy is printed as it is parsed");
    }
}

fn shape_seeds() -> Vec<Vec<u8>> {
    lines(&["L0 #7: 12:[a,m) 64M, 13:[m,..) 64M tomb 20000\nL5 #3: 4:[a,c) 32M clip b 10M, 5:[c,f) 64M", ""])
}

fn shape(bytes: &[u8]) {
    if let Ok(shape) = String::from_utf8_lossy(bytes).parse::<Shape>() {
        let _ = (shape.to_string(), shape.check(), shape.live_bytes());
    }
}

fn sample() -> CompactionSpec {
    crate::compaction::sample::spec("a", "z", 30)
}

fn compaction_seeds() -> Vec<Vec<u8>> {
    sample().to_bytes().into_iter().collect()
}

/// Does what a compaction server does with a spec before it begins.
fn compaction(bytes: &[u8]) {
    let Ok(spec) = CompactionSpec::from_bytes(bytes) else { return };
    let _ = (spec.input_bytes(), spec.log_bytes(), spec.cells(), spec.table_dir(), spec.first_output());
    let again = spec.to_bytes().and_then(|bytes| CompactionSpec::from_bytes(&bytes));
    assert_eq!(again.ok(), Some(spec), "a compaction is written down as it is");
}

fn answer_seeds() -> Vec<Vec<u8>> {
    let mut output = sample().inputs[0][0].clone();
    (output.id, output.range) = (sample().output.id, KeyRange::new("a", "c"));
    let totals = Totals { taken: 30, kept: 30, ..Totals::default() };
    let step = |upto: Option<&str>| StepAnswer {
        outputs: vec![output.clone()],
        upto: upto.map(|key| key.as_bytes().to_vec()),
    };
    let steps = [None, Some(step(Some("k"))), Some(step(None))];
    let of = AnswerOf::first(&sample());
    steps.map(|step| CompactionAnswer { of, totals, step }.to_bytes()).to_vec()
}

/// Does what a database does with an answer.
fn answer(bytes: &[u8]) {
    let Ok(answer) = CompactionAnswer::from_bytes(bytes) else { return };
    let outputs: Vec<_> = answer.outputs().iter().cloned().map(Arc::new).collect();
    if let Some(step) = &answer.step {
        let _ = Verifier::new(&sample()).step(&outputs, step.upto.as_deref(), &answer.totals, &Expected::ANY);
    }
}

fn compression_seeds() -> Vec<Vec<u8>> {
    lines(&["none", "lz4", "zstd", "zstd:22"])
}

fn compression(bytes: &[u8]) {
    let _ = String::from_utf8_lossy(bytes).parse::<Compression>();
}
