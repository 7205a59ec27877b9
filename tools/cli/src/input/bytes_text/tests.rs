use super::{escape, from_hex, to_hex, unescape};

#[test]
fn escape_and_hex_round_trip_every_byte() {
    let all: Vec<u8> = (0..=255).collect();
    assert_eq!(unescape(escape(&all).as_bytes()).unwrap(), all);
    assert_eq!(from_hex(to_hex(&all).as_bytes()).unwrap(), all);
    for first in 0..=255u8 {
        for second in 0..=255u8 {
            let pair = [first, second];
            assert_eq!(unescape(escape(&pair).as_bytes()).unwrap(), pair);
        }
    }
}

#[test]
fn text_is_literal_and_other_bytes_are_escaped() {
    assert_eq!(escape("grün".as_bytes()), "grün");
    assert_eq!(escape(b"a\tb\nc\\d\0"), "a\\tb\\nc\\\\d\\x00");
    assert_eq!(escape(b"\xff\xc3"), "\\xff\\xc3");
    assert_eq!(escape("\u{9b}".as_bytes()), "\\xc2\\x9b");
}

#[test]
fn invalid_escapes_and_hex_are_rejected() {
    assert!(unescape(b"\\").is_err());
    assert!(unescape(b"\\q").is_err());
    assert!(unescape(b"\\x1").is_err());
    assert!(unescape(b"\\xzz").is_err());
    assert!(from_hex(b"abc").is_err());
    assert!(from_hex(b"zz").is_err());
}
