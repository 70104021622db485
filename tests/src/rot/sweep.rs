//! The systematic sweep: every file of a small fixture cut to every length, and every bit of every byte
//! flipped.
//!
//! `rot` draws one bit of each byte of a large store, and lengths by a stride; here nothing is drawn but the
//! store.

use super::{Damage, PARTS, Size, each, fixture, part, verdict};
use crate::campaign::Row;

/// Row 6: every length and every bit. A case makes a part of all cuts and flips of one store, one at a time,
/// and uses two threads of its own.
pub const EVERY_BIT: Row = Row::new("every-bit", "damages", 80_000, |seed| {
    let fixture = fixture(seed / PARTS, Size::Small);
    let bytes = fixture.bytes();
    let report = each(&fixture, seed / PARTS, part(seed, 9 * bytes), &|i| match i.checked_sub(bytes) {
        None => {
            let (file, to) = fixture.place(i);
            Damage::Cut { file, to }
        }
        Some(bit) => {
            let (file, at) = fixture.place(bit / 8);
            Damage::Flip { file, at, xor: 1 << (bit % 8) }
        }
    });
    verdict(report.damages, &report.violations)
});
