//! Checksums of any part of some bytes, each in time that hardly depends on the part's length.
//!
//! Behind an unreadable record of a manifest a readable one is looked for at every byte, and whoever wrote
//! those bytes may have made each of them look like a length. With a checksum computed anew at each, the work
//! would grow with the square of the bytes. So the checksum of everything before is kept for every 64th byte.
//! A checksum of a part follows from two of those, as a checksum is a remainder of polynomials: what stands
//! before the part weighs as much as that, times x to the part's length.

/// CRC-32C's polynomial, lowest power first.
const POLYNOMIAL: u32 = 0x82f6_3b78;
/// x to the eighth in the same notation, which shifts by a byte.
const BYTE: u32 = 1 << 23;
/// Bytes between two checksums that are kept.
const EVERY: usize = 64;

/// Checksums of the beginnings of some bytes, from which one of any part follows; see the page above.
pub(super) struct Sums<'a> {
    bytes: &'a [u8],
    /// The checksums of the first 0, 64, 128 ... bytes.
    before: Vec<u32>,
    /// x to the power of 8 times 1, 2, 4 ... bytes.
    shifts: [u32; 64],
}

impl<'a> Sums<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        let mut before = vec![0];
        for part in bytes.chunks_exact(EVERY) {
            before.push(crc32c::crc32c_append(before[before.len() - 1], part));
        }
        let mut shifts = [BYTE; 64];
        for n in 1..shifts.len() {
            shifts[n] = multiply(shifts[n - 1], shifts[n - 1]);
        }
        Self { bytes, before, shifts }
    }

    /// The value of `crc32c_append(start, &bytes[from..to])`.
    pub(super) fn append(&self, start: u32, from: usize, to: usize) -> u32 {
        self.shift(start ^ self.of_first(from), to - from) ^ self.of_first(to)
    }

    fn of_first(&self, len: usize) -> u32 {
        let whole = len / EVERY;
        crc32c::crc32c_append(self.before[whole], &self.bytes[whole * EVERY..len])
    }

    /// What a checksum weighs in front of so many bytes.
    fn shift(&self, sum: u32, bytes: usize) -> u32 {
        let powers = self.shifts.iter().enumerate().filter(|(n, _)| bytes >> n & 1 != 0);
        powers.fold(sum, |sum, (_, power)| multiply(*power, sum))
    }
}

/// The product of two remainders.
fn multiply(a: u32, mut b: u32) -> u32 {
    let mut product = 0;
    for n in (0..32).rev() {
        if a >> n & 1 != 0 {
            product ^= b;
        }
        b = (b >> 1) ^ if b & 1 != 0 { POLYNOMIAL } else { 0 };
    }
    product
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parts_checksum_is_that_of_its_bytes() {
        assert_eq!(multiply(1 << 31, 0x1234_5678), 0x1234_5678);
        let bytes: Vec<u8> = (0..1_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let sums = Sums::new(&bytes);
        let ends = [0, 1, 63, 64, 65, 127, 128, 500, 999, 1_000];
        for from in ends {
            for to in ends.into_iter().filter(|to| *to >= from) {
                let right = crc32c::crc32c_append(0xdead_beef, &bytes[from..to]);
                assert_eq!(sums.append(0xdead_beef, from, to), right, "{from}..{to}");
            }
        }
    }
}
