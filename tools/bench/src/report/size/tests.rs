use super::{human_bytes, human_count, parse, parse_positive};

#[test]
fn suffixes_are_binary_with_i_and_decimal_without() {
    let cases = [
        ("0", 0),
        ("17", 17),
        ("20M", 20_000_000),
        ("4k", 4_000),
        ("1_000", 1_000),
        ("256MiB", 256 << 20),
        ("256 mib", 256 << 20),
        ("1.5GiB", 3 << 29),
        ("64Ki", 64 << 10),
        ("2GB", 2_000_000_000),
        ("12b", 12),
    ];
    for (text, expected) in cases {
        assert_eq!(parse(text), Ok(expected), "{text}");
    }
}

#[test]
fn invalid_sizes_are_rejected_with_the_reason() {
    for text in ["", ".", "MiB", "-1", "1e3", "5 apples", "1.2.3", "99999999999999999999", "20000000TiB"] {
        assert!(parse(text).is_err(), "{text}");
    }
    assert!(parse("5 apples").unwrap_err().contains("suffix"));
    assert!(parse_positive("0").unwrap_err().contains("at least 1"));
}

#[test]
fn human_readable_sizes_and_counts() {
    assert_eq!(human_bytes(1 << 28), "256.0 MiB");
    assert_eq!(human_bytes(100), "100 B");
    assert_eq!(human_count(1_250_000.0), "1.25 M");
    assert_eq!(human_count(403_000.0), "403.0 k");
    assert_eq!(human_count(900.0), "900");
}
