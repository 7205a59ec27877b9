//! Human-readable sizes and counts: `256MiB`, `1.5GiB`, `20M`, `4k`.
//!
//! **Invariants**
//! - Suffixes with `i` are powers of 1024, the others powers of 1000; a trailing `B` is ignored.

/// Suffixes without the trailing `B`, lower case, with their factors.
const SUFFIXES: [(&str, u64); 9] = [
    ("", 1),
    ("k", 1_000),
    ("m", 1_000_000),
    ("g", 1_000_000_000),
    ("t", 1_000_000_000_000),
    ("ki", 1 << 10),
    ("mi", 1 << 20),
    ("gi", 1 << 30),
    ("ti", 1 << 40),
];

/// Parses a size or a count; an error message lists the accepted forms.
pub(crate) fn parse(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_').unwrap_or(text.len());
    let (digits, suffix) = text.split_at(split);
    let digits: String = digits.chars().filter(|c| *c != '_').collect();
    let suffix = suffix.trim().to_ascii_lowercase();
    let suffix = suffix.strip_suffix('b').unwrap_or(&suffix);
    let Some((_, factor)) = SUFFIXES.iter().find(|(name, _)| *name == suffix) else {
        return Err(format!("unknown suffix {suffix:?}; use k, M, G or KiB, MiB, GiB"));
    };
    let too_large = || format!("{text} does not fit into 64 bits");
    if let Ok(whole) = digits.parse::<u64>() {
        return whole.checked_mul(*factor).ok_or_else(too_large);
    }
    let not_a_number = || format!("{text:?} is not a number with an optional suffix, such as 256MiB or 20M");
    if digits.is_empty() || digits.bytes().all(|byte| byte == b'.') {
        return Err(not_a_number());
    }
    let value = digits.parse::<f64>().map_err(|_| not_a_number())? * *factor as f64;
    if value < u64::MAX as f64 { Ok(floor(value)) } else { Err(too_large()) }
}

/// Parses a size or a count, rejecting zero.
///
/// # Errors
/// A message that lists the accepted forms.
pub fn parse_positive(text: &str) -> Result<u64, String> {
    match parse(text)? {
        0 => Err("must be at least 1".to_owned()),
        value => Ok(value),
    }
}

/// Rounds down; negative numbers become zero.
#[inline]
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "rounding down is the purpose")]
pub fn floor(value: f64) -> u64 {
    value as u64
}

/// Divides; `quotient(a, 0)` is zero.
pub fn quotient(dividend: f64, divisor: f64) -> f64 {
    if divisor > 0.0 { dividend / divisor } else { 0.0 }
}

/// Formats a size: `2.3 GiB`.
pub fn human_bytes(bytes: u64) -> String {
    let units = [("GiB", 1u64 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    match units.iter().find(|(_, unit)| bytes >= *unit) {
        Some((name, unit)) => format!("{:.1} {name}", bytes as f64 / *unit as f64),
        None => format!("{bytes} B"),
    }
}

/// Formats a count: `1.25 M`, `403.0 k`.
pub fn human_count(count: f64) -> String {
    match count {
        count if count >= 999_500.0 => format!("{:.2} M", count / 1e6),
        count if count >= 9_999.5 => format!("{:.1} k", count / 1e3),
        count => format!("{count:.0}"),
    }
}

#[cfg(test)]
mod tests;
