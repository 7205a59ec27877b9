use super::{Format, Role, compact};

fn shown(format: Format, bytes: &[u8], role: Role) -> String {
    let mut out = Vec::new();
    format.show(&mut out, bytes, role).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn printed_output_round_trips_in_every_format() {
    let all: Vec<u8> = (0..=255).collect();
    let cases: [(Format, &[u8]); 6] = [
        (Format::Escaped, &all),
        (Format::Hex, &all),
        (Format::Text, "grün\\x".as_bytes()),
        (Format::U64, &[0, 1, 2, 3, 4, 5, 6, 255]),
        (Format::Json, br#"{"a":[1,"b\" \\"]}"#),
        (Format::Escaped, b""),
    ];
    for (format, bytes) in cases {
        for role in [Role::Key, Role::Value] {
            let text = shown(format, bytes, role);
            assert_eq!(format.parse(text.as_bytes(), role).unwrap(), bytes, "{format:?} {text}");
        }
    }
}

#[test]
fn u64_is_big_endian_in_keys_and_little_endian_in_values() {
    assert_eq!(Format::U64.parse(b"258", Role::Key).unwrap(), [0, 0, 0, 0, 0, 0, 1, 2]);
    assert_eq!(Format::U64.parse(b"258", Role::Value).unwrap(), [2, 1, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn errors_name_the_offending_character() {
    let wrong = |format: Format, text: &[u8]| format.parse(text, Role::Key).unwrap_err();
    let cases: [(Format, &[u8], &[&str]); 12] = [
        (Format::Escaped, "grü\\q".as_bytes(), &["'\\q'", "character 4"]),
        (Format::Escaped, b"ab\\", &["backslash", "character 3"]),
        (Format::Escaped, b"\\x1z", &["'z'", "character 4"]),
        (Format::Escaped, b"\\x1", &["\\x", "character 1"]),
        (Format::Text, b"a\xff", &["0xff", "character 2"]),
        (Format::Hex, b"00zz", &["'z'", "character 3"]),
        (Format::Hex, b"abc", &["odd"]),
        (Format::U64, "12ü".as_bytes(), &["'ü'", "character 3"]),
        (Format::U64, b"", &["a number"]),
        (Format::U64, b"18446744073709551616", &["larger than 18446744073709551615"]),
        (Format::Json, b"[1,]", &["character 4 of line 1"]),
        (Format::Json, b"{} x", &["character 4"]),
    ];
    for (format, text, things) in cases {
        let message = wrong(format, text);
        for thing in things {
            assert!(message.contains(thing), "{format:?}: '{thing}' is not in: {message}");
        }
    }
    let mut out = Vec::new();
    assert!(Format::U64.show(&mut out, b"abc", Role::Value).unwrap_err().contains("3 bytes, not 8"));
    assert!(Format::Text.show(&mut out, b"\xff", Role::Value).unwrap_err().contains("0xff"));
    assert!(Format::Json.show(&mut out, b"{", Role::Value).is_err());
    assert!(out.is_empty(), "nothing is printed");
}

#[test]
fn json_loses_only_white_space_between_tokens() {
    assert_eq!(
        compact(b" { \"a b\\\\\" :\n [ 1.50, \"c\\\" d\" ] } ").unwrap(),
        r#"{"a b\\":[1.50,"c\" d"]}"#
    );
}
