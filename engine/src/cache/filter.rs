//! One partition of an SSTable's Bloom filter, blocked by cache line: a key's bits all lie in one line of 64
//! bytes, so a probe costs one cache miss. The upper half of the key's hash chooses the line, the lower half,
//! stirred by a multiplication for each bit, the bits.

use crate::types::codec::{Decoded, Malformed};

const LINE_BYTES: usize = 64;
const LINE_BITS: u32 = 512;
const PROBES_MAX: u32 = 16;
const STIR: u32 = 0x9e37_79b1;

/// A filter partition in memory: lines, then one byte with the number of bits a key sets.
#[derive(Debug)]
pub(crate) struct Filter {
    bytes: Vec<u8>,
    lines: u32,
    probes: u32,
}

impl Filter {
    /// The partition's bytes over these key hashes.
    pub(crate) fn build(hashes: &[u64], bits_per_key: u32) -> Vec<u8> {
        let bits = hashes.len() as u64 * u64::from(bits_per_key);
        let lines = bits.div_ceil(u64::from(LINE_BITS)).clamp(1, u64::from(u32::MAX) / 64) as u32;
        // 0.69 bits per key would be best for one large filter; crowded lines do better with a little less.
        let probes = (bits_per_key * 6 / 10).clamp(1, PROBES_MAX);
        let mut bytes = vec![0; lines as usize * LINE_BYTES + 1];
        bytes[lines as usize * LINE_BYTES] = probes as u8;
        for &hash in hashes {
            let line = line_of(hash, lines) * LINE_BYTES;
            for bit in bits_of(hash, probes) {
                bytes[line + bit / 8] |= 1 << (bit % 8);
            }
        }
        bytes
    }

    pub(crate) fn new(bytes: Vec<u8>) -> Decoded<Self> {
        let (probes, lines) = bytes.split_last().ok_or(Malformed("filter is empty"))?;
        let probes = u32::from(*probes);
        if lines.is_empty() || lines.len() % LINE_BYTES != 0 {
            return Err(Malformed("filter is not made of whole lines"));
        }
        if probes == 0 || probes > PROBES_MAX {
            return Err(Malformed("filter's number of probes out of range"));
        }
        let lines = u32::try_from(lines.len() / LINE_BYTES).map_err(|_| Malformed("filter too large"))?;
        Ok(Self { bytes, lines, probes })
    }

    /// False only if no key with this hash was added.
    #[inline]
    pub(crate) fn may_contain(&self, hash: u64) -> bool {
        if planted!(Bug::FilterFalseNegative) && hash.is_multiple_of(16) {
            return false;
        }
        let line = line_of(hash, self.lines) * LINE_BYTES;
        let Some(line) = self.bytes[line..].first_chunk::<LINE_BYTES>() else { return true };
        bits_of(hash, self.probes).all(|bit| line[bit / 8] & (1 << (bit % 8)) != 0)
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.bytes.capacity()
    }
}

#[inline]
fn line_of(hash: u64, lines: u32) -> usize {
    (((hash >> 32) * u64::from(lines)) >> 32) as usize
}

#[inline]
fn bits_of(hash: u64, probes: u32) -> impl Iterator<Item = usize> {
    let mut state = hash as u32;
    (0..probes).map(move |_| {
        state = state.wrapping_mul(STIR);
        (state >> (32 - LINE_BITS.trailing_zeros())) as usize
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::hash;

    #[test]
    fn no_key_is_lost_and_about_one_in_a_hundred_others_passes() {
        let hashes: Vec<u64> = (0..20_000u32).map(|n| hash(&n.to_be_bytes())).collect();
        let filter = Filter::new(Filter::build(&hashes, 10)).unwrap();
        assert!(hashes.iter().all(|&h| filter.may_contain(h)));
        let wrong = (20_000..220_000u32).filter(|n| filter.may_contain(hash(&n.to_be_bytes()))).count();
        assert!((500..3000).contains(&wrong), "{wrong} of 200000 absent keys pass");
    }

    #[test]
    fn forged_sizes_are_refused() {
        for bytes in [vec![], vec![6], vec![6; 64], vec![0; 65], vec![17; 65]] {
            assert!(Filter::new(bytes.clone()).is_err(), "{} bytes", bytes.len());
        }
        assert!(Filter::new(vec![6; 65]).is_ok());
    }
}
