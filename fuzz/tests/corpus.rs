//! What failed once does not fail again.

use siltstone_fuzz::mutate::Maker;
use siltstone_fuzz::run::{Memory, corpus, one, targets};
use std::collections::HashSet;

/// Memory is counted by the program alone, which has an allocator of its own.
struct Uncounted;

impl Memory for Uncounted {
    fn begin(&self) {}
    fn most(&self) -> usize {
        0
    }
}

#[test]
fn every_saved_input_and_every_valid_one_is_decoded_or_refused() {
    for target in targets("all") {
        for seed in (target.seeds)() {
            one(&target, &seed, &Uncounted)
                .unwrap_or_else(|why| panic!("{}, a valid input: {why}", target.name));
        }
        let Ok(saved) = std::fs::read_dir(corpus(target.name)) else { continue };
        for file in saved {
            let path = file.unwrap().path();
            let bytes = std::fs::read(&path).unwrap();
            one(&target, &bytes, &Uncounted).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
        }
    }
}

#[test]
fn no_two_decoders_have_one_name() {
    let mut names = HashSet::new();
    assert!(targets("all").iter().all(|target| names.insert(target.name)), "saved inputs lie by it");
}

#[test]
fn signing_leaves_a_valid_input_as_it_is() {
    for target in targets("all") {
        for seed in (target.seeds)() {
            let mut signed = seed.clone();
            (target.sign)(&mut signed);
            assert_eq!(signed, seed, "{}", target.name);
        }
    }
}

#[test]
fn inputs_differ_from_each_other_and_come_again_with_the_same_seed() {
    for target in targets("all") {
        let (one, again, other) = (Maker::new(target, 1), Maker::new(target, 1), Maker::new(target, 2));
        let make = |maker: &Maker, n| {
            let mut bytes = Vec::new();
            maker.make(n, &mut bytes);
            bytes
        };
        let inputs: HashSet<Vec<u8>> = (0..300).map(|n| make(&one, n)).collect();
        assert!(inputs.len() > 100, "{}: {} different inputs of 300", target.name, inputs.len());
        assert!((0..300).all(|n| make(&one, n) == make(&again, n)), "{}", target.name);
        assert!((0..300).any(|n| make(&one, n) != make(&other, n)), "{}", target.name);
    }
}
