//! The systematic sweep: every file of a small fixture cut to every length, and every bit of every byte flipped.
//!
//! `rot` draws one bit of each byte of a large store, and lengths by a stride; here nothing is drawn but the store.

use super::{Damage, Report, Size, each, fixture, verdict};
use crate::campaign::Row;

/// Row 6: every length and every bit. A case is one store and uses two threads of its own.
pub const EVERY_BIT: Row = Row::new("every-bit", "damages", 400_000, |seed| {
    let report = every_bit(seed);
    verdict(report.damages, &report.violations)
});

/// Makes every cut and every flip, one at a time.
pub fn every_bit(seed: u64) -> Report {
    let fixture = fixture(seed, Size::Small);
    let bytes = fixture.bytes();
    each(&fixture, seed, 9 * bytes, &|i| match i.checked_sub(bytes) {
        None => {
            let (file, to) = fixture.place(i);
            Damage::Cut { file, to }
        }
        Some(bit) => {
            let (file, at) = fixture.place(bit / 8);
            Damage::Flip { file, at, xor: 1 << (bit % 8) }
        }
    })
}
