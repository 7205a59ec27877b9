use super::*;

const REFERENCE: ValueReference = ValueReference { segment: RunId(1 << 40), number: 300, length: 7 };

#[test]
fn references_round_trip_and_leave_trailing_bytes() {
    let mut bytes = Vec::new();
    REFERENCE.encode(&mut bytes);
    assert_eq!(ValueReference::of(Kind::Reference, &bytes), Ok(Some(REFERENCE)));
    bytes.extend_from_slice(b"1234567");
    assert_eq!(ValueReference::split_referred(&bytes), Ok((REFERENCE, &b"1234567"[..])));
    assert_eq!(ValueReference::of(Kind::UnmergedReference, &bytes), Ok(Some(REFERENCE)));
    assert_eq!(ValueReference::of(Kind::Value, &bytes), Ok(None));
}

#[test]
fn invalid_references_are_damage() {
    let mut bytes = Vec::new();
    REFERENCE.encode(&mut bytes);
    for end in 0..bytes.len() {
        assert!(ValueReference::split(&bytes[..end]).is_err(), "cut at {end}");
    }
    assert!(ValueReference::of(Kind::Reference, &[&bytes[..], b"x"].concat()).is_err());
    assert!(ValueReference::split_referred(&[&bytes[..], b"123456"].concat()).is_err());
    let mut large = Vec::new();
    put_varint(&mut large, 1);
    put_varint(&mut large, 1 << 32);
    put_varint(&mut large, 0);
    assert!(ValueReference::split(&large).is_err(), "a number of more than 32 bits");
}
