//! Sizes as text.

/// Bytes from text: `4096`, `64M`, `64MiB` (both powers of two) or `100TB` (powers of ten).
pub fn parse_size(text: &str) -> Result<u64, String> {
    let wrong =
        || format!("`{text}` is no size; examples: 4096, 64MiB, 64M (the same), 100TB (powers of ten)");
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let scale = match unit.trim_start().to_ascii_uppercase().as_str() {
        "" | "B" => 1.0,
        "K" | "KIB" => 1024f64,
        "M" | "MIB" => 1024f64.powi(2),
        "G" | "GIB" => 1024f64.powi(3),
        "T" | "TIB" => 1024f64.powi(4),
        "KB" => 1e3,
        "MB" => 1e6,
        "GB" => 1e9,
        "TB" => 1e12,
        "PB" => 1e15,
        _ => return Err(wrong()),
    };
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(scale as u64).ok_or_else(wrong);
    }
    let bytes = number.parse::<f64>().map_err(|_| wrong())? * scale;
    if bytes < u64::MAX as f64 { Ok(bytes as u64) } else { Err(wrong()) }
}

/// Bytes as text: three digits and a binary unit.
pub fn size_text(bytes: u64) -> String {
    let (mut value, mut unit) = (bytes as f64, 0);
    while value >= 1023.5 {
        value /= 1024.0;
        unit += 1;
    }
    let unit = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"][unit];
    let digits = if value >= 99.95 || value.fract() == 0.0 { 0 } else { 1 };
    format!("{value:.digits$} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_written_with_units() {
        assert_eq!(parse_size("64M"), Ok(64 << 20));
        assert_eq!(parse_size("1.5GiB"), Ok(3 << 29));
        assert_eq!(parse_size("100TB"), Ok(100_000_000_000_000));
        for wrong in ["", "M", "1X", "1e3", "99999999999T", "-1"] {
            assert!(parse_size(wrong).is_err(), "{wrong}");
        }
        assert_eq!(size_text(64 << 20), "64 MiB");
        assert_eq!(size_text(1500), "1.5 KiB");
        assert_eq!(size_text(u64::MAX), "16 EiB");
    }
}
