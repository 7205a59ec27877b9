use super::{Key, Value};

#[test]
fn keys_round_trip_through_text() {
    let keys = [
        Key::of(""),
        Key::of("user/12_a-B"),
        Key::of([0, 255, b'%', b'+', b' ', b'@']),
        Key::padded("", 7),
        Key::padded("k", 65_535),
        Key { tail: b"t+/".to_vec(), ..Key::padded("k", 300) },
        Key { tail: vec![0], ..Key::of("") },
    ];
    for key in keys {
        assert_eq!(key.to_string().parse(), Ok(key));
    }
}

#[test]
fn invalid_keys_and_values_are_rejected() {
    for text in ["", "+3", "a b", "%zz", "%0", "a+x", "a+1+ ", "%é"] {
        assert!(text.parse::<Key>().is_err(), "{text:?}");
    }
    for text in ["", "7", "7:x", ":", "-1:4"] {
        assert!(text.parse::<Value>().is_err(), "{text:?}");
    }
}

#[test]
fn values_have_their_length_and_differ_by_seed() {
    let value = Value { seed: 3, length: 20 };
    assert_eq!(value.bytes().len(), 20);
    assert_ne!(value.bytes(), Value { seed: 4, length: 20 }.bytes());
    assert_ne!(value.after(None), value.after(Some(b"")));
    assert_ne!(value.after(Some(b"a")), value.after(Some(b"b")));
    assert_eq!(value.to_string().parse(), Ok(value));
}
