use super::{parse_size, show_count, show_size};

#[test]
fn sizes_with_and_without_units_are_understood() {
    assert_eq!(parse_size("0"), Ok(0));
    assert_eq!(parse_size("4096"), Ok(4096));
    assert_eq!(parse_size("64MiB"), Ok(64 << 20));
    assert_eq!(parse_size("64 mi"), Ok(64 << 20));
    assert_eq!(parse_size("2G"), Ok(2_000_000_000));
    assert_eq!(parse_size("5kB"), Ok(5000));
}

#[test]
fn nonsense_is_refused_with_the_reason() {
    assert!(parse_size("").unwrap_err().contains("not a size"));
    assert!(parse_size("-1").unwrap_err().contains("not a size"));
    assert!(parse_size("12parsec").unwrap_err().contains("parsec"));
    assert!(parse_size("99999999999999999999").unwrap_err().contains("largest"));
    assert!(parse_size("99999999999TiB").unwrap_err().contains("largest"));
}

#[test]
fn sizes_and_counts_are_shown_for_people() {
    assert_eq!(show_size(812), "812 B");
    assert_eq!(show_size(1536), "1.5 KiB");
    assert_eq!(show_size((1 << 20) - 1), "1.0 MiB");
    assert_eq!(show_size(64 << 20), "64.0 MiB");
    assert_eq!(show_count(7), "7");
    assert_eq!(show_count(1000), "1,000");
    assert_eq!(show_count(1_234_567), "1,234,567");
}
