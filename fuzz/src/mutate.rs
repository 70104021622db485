//! Input `n` for a decoder.

use siltstone::storage::sim::Rng;
use siltstone::testing::Target;

/// Longer ones are cut: what a decoder does with length shows well before.
const INPUT_BYTES_MAX: usize = 64 << 10;
/// Numbers at which lengths, counts and offsets go wrong.
const NUMBERS: [u64; 16] = [
    0,
    1,
    2,
    7,
    127,
    128,
    255,
    256,
    65_535,
    65_536,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    0x7fff_ffff_ffff_ffff,
    0x8000_0000_0000_0000,
    u64::MAX,
];

/// Makes inputs of one decoder.
#[derive(Debug)]
pub struct Maker {
    target: Target,
    seeds: Vec<Vec<u8>>,
    seed: u64,
}

impl Maker {
    /// For that decoder and seed.
    pub fn new(target: Target, seed: u64) -> Self {
        let name =
            target.name.bytes().fold(seed, |hash, b| (hash ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
        Self { target, seeds: (target.seeds)(), seed: name }
    }

    /// Puts input `n` into `out`.
    pub fn make(&self, n: u64, out: &mut Vec<u8>) {
        let mut rng = Rng::new(self.seed.wrapping_add(n.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        out.clear();
        if rng.one_in(200) {
            // Noise, which a checksum may make an input of.
            let len = rng.index(200);
            out.extend(rng.bytes(len));
        } else {
            out.extend_from_slice(&self.seeds[rng.index(self.seeds.len())]);
            for _ in 0..rng.range(1..5) {
                self.change(&mut rng, out);
            }
        }
        out.truncate(INPUT_BYTES_MAX);
        if !rng.one_in(8) {
            (self.target.sign)(out);
        }
    }

    fn change(&self, rng: &mut Rng, out: &mut Vec<u8>) {
        // Heads and tails hold the lengths.
        let place = |rng: &mut Rng| match rng.range(0..4) {
            0 => rng.index(out.len().clamp(1, 40)),
            1 => out.len().saturating_sub(1 + rng.index(40)),
            _ => rng.index(out.len().max(1)),
        };
        let (at, other) = (place(rng), place(rng));
        let longest = if rng.one_in(4) { 200 } else { 8 };
        let len = 1 + rng.index(longest);
        let number = NUMBERS[rng.index(NUMBERS.len())];
        match rng.range(0..12) {
            0 | 1 if at < out.len() => out[at] ^= 1 << rng.range(0..8),
            2 if at < out.len() => out[at] = rng.next_u64() as u8,
            3 if at < out.len() => out[at] = out[at].wrapping_add(if rng.one_in(2) { 1 } else { 255 }),
            4 => write(out, at, &(number as u32).to_le_bytes()),
            5 => write(out, at, &number.to_le_bytes()),
            6 => {
                let at = at.min(out.len());
                let end = if rng.one_in(2) { at } else { (at + 1 + rng.index(4)).min(out.len()) };
                out.splice(at..end, varint(number));
            }
            7 => drop(out.drain(at.min(out.len())..(at + len).min(out.len()))),
            8 => {
                let piece = out[at.min(out.len())..(at + len).min(out.len())].to_vec();
                let other = other.min(out.len());
                out.splice(other..other, piece);
            }
            9 => {
                let seed = &self.seeds[rng.index(self.seeds.len())];
                let from = rng.index(seed.len().max(1));
                let piece = &seed[from.min(seed.len())..(from + len).min(seed.len())];
                write(out, at, piece);
            }
            10 => out.truncate(at),
            _ => {
                // Numbers in text.
                let text = if rng.one_in(3) { "\"[{,:-.\\u0000}]".to_string() } else { number.to_string() };
                let at = at.min(out.len());
                let digits = out[at..].iter().take_while(|b| b.is_ascii_digit()).count();
                out.splice(at..at + digits, text.into_bytes());
            }
        }
    }
}

fn write(out: &mut [u8], at: usize, bytes: &[u8]) {
    for (to, from) in out.iter_mut().skip(at).zip(bytes) {
        *to = *from;
    }
}

fn varint(mut number: u64) -> Vec<u8> {
    let mut out = Vec::new();
    while number >= 128 {
        out.push(number as u8 | 128);
        number >>= 7;
    }
    out.push(number as u8);
    out
}
