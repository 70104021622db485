//! Numbers for people.

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_grouped_by_three() {
        let text = |n| grouped(n);
        assert_eq!([text(0), text(999), text(1000), text(1234567)], ["0", "999", "1,000", "1,234,567"]);
        assert_eq!((count(1, "row"), count(1200, "row")), ("1 row".into(), "1,200 rows".into()));
    }
}
