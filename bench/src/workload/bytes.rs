//! The bytes of keys and values.
//!
//! A key is a number written in one of two forms. *Ordered*, as in db_bench: eight bytes, the most
//! significant first, filled up with '0', so that numbers in order are keys in order. *Scattered*: the same
//! of the number's image under a bijection of 64 bits, so that neighbours in number (and in popularity) lie
//! far apart; with room for it, as in YCSB, "user" and twenty digits.
//!
//! A value is cut from a megabyte made once, whose pieces of 100 bytes are random in the first half and
//! repeat it in the second: cut at the start of a piece, it compresses about 2:1. Its first eight bytes are
//! replaced by the key's number, here and where the piece repeats them, so that a read can tell a right
//! answer from a wrong one.

use super::random::{Rng, mix};

/// How keys are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Ordered,
    Scattered,
}

/// Writes keys of one form and length.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keys {
    pub(crate) form: Form,
    pub(crate) bytes: usize,
}

impl Keys {
    /// Replaces `out` by the key of `number`.
    #[inline]
    pub(crate) fn write(&self, number: u64, out: &mut Vec<u8>) {
        out.clear();
        match self.form {
            Form::Ordered => out.extend_from_slice(&number.to_be_bytes()),
            Form::Scattered if self.bytes < 24 => out.extend_from_slice(&mix(number).to_be_bytes()),
            Form::Scattered => {
                out.extend_from_slice(b"user00000000000000000000");
                let mut rest = mix(number);
                for at in (4..24).rev() {
                    out[at] = b'0' + (rest % 10) as u8;
                    rest /= 10;
                }
            }
        }
        out.resize(self.bytes, b'0');
    }

    /// Replaces `out` by the key of a row's column: that of the row and a digit.
    #[inline]
    pub(crate) fn write_column(&self, number: u64, column: usize, out: &mut Vec<u8>) {
        self.write(number, out);
        out.push(b'0' + column as u8);
    }

    /// Replaces `out` by a key beside that of `number` which no number has.
    #[inline]
    pub(crate) fn write_missing(&self, number: u64, out: &mut Vec<u8>) {
        self.write(number, out);
        out.push(b'.');
    }
}

/// Bytes that values are cut from.
pub(crate) struct Values {
    pool: Vec<u8>,
}

const POOL: usize = 1 << 20;
const PIECE: usize = 100;

impl Values {
    /// `longest`: bytes of the longest value there will be.
    pub(crate) fn new(seed: u64, longest: usize) -> Self {
        let mut rng = Rng::new(seed, "values", 0);
        let mut pool = Vec::with_capacity(POOL + longest + PIECE);
        while pool.len() < POOL + longest + PIECE {
            let start = pool.len();
            (0..PIECE / 2).for_each(|_| pool.push(rng.next() as u8));
            pool.extend_from_within(start..);
        }
        Values { pool }
    }

    /// Replaces `out` by the value of `len` bytes that `salt` names, for the key of `number`. The columns of
    /// a row follow one another in the pool, so that it compresses as a value of its length does.
    #[inline]
    pub(crate) fn write(&self, number: u64, salt: u32, column: usize, len: usize, out: &mut Vec<u8>) {
        let at = salt as usize % (POOL / PIECE) * PIECE + column * len % PIECE;
        out.clear();
        out.extend_from_slice(&self.pool[at..at + len]);
        for half in out.chunks_mut(PIECE / 2).take(2) {
            if let Some(head) = half.first_chunk_mut() {
                *head = number.to_le_bytes();
            }
        }
    }

    /// Whether `value` is one that was written for the key of `number`, as far as eight bytes tell.
    #[inline]
    pub(crate) fn belongs(number: u64, value: &[u8]) -> bool {
        value.first_chunk().is_none_or(|head| *head == number.to_le_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordered_keys_keep_the_order_of_numbers_and_scattered_ones_do_not() {
        let key = |form, bytes, number| {
            let mut out = Vec::new();
            Keys { form, bytes }.write(number, &mut out);
            assert_eq!(out.len(), bytes);
            out
        };
        assert!((0..1000).all(|i| key(Form::Ordered, 16, i) < key(Form::Ordered, 16, i + 1)));
        let risen =
            (0..1000).filter(|&i| key(Form::Scattered, 8, i) < key(Form::Scattered, 8, i + 1)).count();
        assert!((400..600).contains(&risen), "{risen}");
        assert!(key(Form::Scattered, 24, 5).starts_with(b"user"));
        assert_eq!(&key(Form::Scattered, 24, 5)[4..], format!("{:020}", mix(5)).as_bytes());
    }

    #[test]
    fn a_missing_key_lies_between_two_keys() {
        let keys = Keys { form: Form::Ordered, bytes: 16 };
        let [mut below, mut missing, mut above] = [const { Vec::new() }; 3];
        keys.write(41, &mut below);
        keys.write_missing(41, &mut missing);
        keys.write(42, &mut above);
        assert!(below < missing && missing < above);
    }

    #[test]
    fn the_columns_of_a_row_have_keys_of_their_own_and_compress_together() {
        let (keys, values) = (Keys { form: Form::Scattered, bytes: 24 }, Values::new(1, 25));
        let (mut key, mut value, mut block) = (Vec::new(), Vec::new(), Vec::new());
        let mut seen = std::collections::HashSet::new();
        for number in 0..40u64 {
            for column in 0..4 {
                keys.write_column(number, column, &mut key);
                values.write(number, mix(number) as u32, column, 25, &mut value);
                assert!(Values::belongs(number, &value) && seen.insert(key.clone()));
                block.extend_from_slice(&value);
            }
        }
        let ratio = lz4_flex::compress(&block).len() as f64 / block.len() as f64;
        assert!((0.45..0.65).contains(&ratio), "{ratio}");
    }

    #[test]
    fn values_compress_to_about_half() {
        let values = Values::new(1, 1000);
        let mut block = Vec::new();
        let mut value = Vec::new();
        for number in 0..40u64 {
            values.write(number, mix(number) as u32, 0, 100, &mut value);
            assert!(Values::belongs(number, &value) && !Values::belongs(number + 1, &value));
            block.extend_from_slice(&value);
        }
        let ratio = lz4_flex::compress(&block).len() as f64 / block.len() as f64;
        assert!((0.50..0.60).contains(&ratio), "{ratio}");
    }
}
