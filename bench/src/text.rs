//! Sizes, and what goes to the cache, on the command line.

use siltstone::CacheFill;

/// A number of bytes: digits, and K, M or G for powers of 1024.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    let (digits, shift) = match text.to_ascii_uppercase().trim_end_matches("IB").trim_end_matches('B') {
        upper if upper.ends_with('K') => (upper.len() - 1, 10),
        upper if upper.ends_with('M') => (upper.len() - 1, 20),
        upper if upper.ends_with('G') => (upper.len() - 1, 30),
        upper => (upper.len(), 0),
    };
    let number: u64 =
        text[..digits].trim().parse().map_err(|_| format!("{text} is not a number of bytes"))?;
    number.checked_mul(1 << shift).ok_or_else(|| format!("{text} is too much"))
}

/// The name of a way to fill the cache.
pub(crate) fn cache_fill(text: &str) -> Result<CacheFill, String> {
    serde_json::from_value(text.into()).map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::size;

    #[test]
    fn sizes_are_digits_and_a_power_of_1024() {
        assert_eq!(size("4096"), Ok(4096));
        assert_eq!(size("64M"), Ok(64 << 20));
        assert_eq!(size("2GiB"), Ok(2 << 30));
        assert_eq!(size("8k"), Ok(8 << 10));
        assert!(size("M").is_err() && size("-1").is_err() && size("99999999999G").is_err());
    }
}
