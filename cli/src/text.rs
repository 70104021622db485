//! Numbers and times for people.

use std::time::{Duration, SystemTime};

/// `1234567` as `1,234,567`.
pub(crate) fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 row`, `2 rows`.
pub(crate) fn count(n: u64, what: &str) -> String {
    format!("{} {what}{}", grouped(n), if n == 1 { "" } else { "s" })
}

/// Microseconds since 1970 as `2026-11-23T16:10:00.000000Z`.
pub(crate) fn moment(us: u64) -> String {
    let at = SystemTime::UNIX_EPOCH.checked_add(Duration::from_micros(us));
    // The format ends with the year 9999.
    let at = at.filter(|_| us < 253_402_300_800_000_000);
    at.map_or_else(|| format!("{us} us since 1970"), |at| humantime::format_rfc3339_micros(at).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_dates() {
        assert_eq!(moment(1_700_000_000_000_001), "2023-11-14T22:13:20.000001Z");
        assert!(moment(u64::MAX).ends_with("us since 1970"));
    }

    #[test]
    fn digits_are_grouped_by_three() {
        let text = |n| grouped(n);
        assert_eq!([text(0), text(999), text(1000), text(1234567)], ["0", "999", "1,000", "1,234,567"]);
        assert_eq!((count(1, "row"), count(1200, "row")), ("1 row".into(), "1,200 rows".into()));
    }
}
