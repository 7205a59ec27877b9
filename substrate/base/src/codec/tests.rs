use super::*;

#[test]
fn varints_round_trip_at_every_width() {
    for bits in 0..=64u32 {
        for value in
            [1u64.checked_shl(bits).unwrap_or(0), 1u64.checked_shl(bits).unwrap_or(0).wrapping_sub(1)]
        {
            let mut out = Vec::new();
            put_varint(&mut out, value);
            assert_eq!(out.len(), varint_bytes(value));
            let mut written = [0; 10];
            let length = write_varint(&mut written, value);
            assert_eq!(written[..length], out);
            let mut reader = Reader::new(&out);
            assert_eq!(reader.varint(), Ok(value));
            assert_eq!(reader.finish(), Ok(()));
        }
    }
}

#[test]
fn oversized_length_is_damage_without_allocation() {
    let mut out = Vec::new();
    put_u32(&mut out, u32::MAX);
    assert!(Reader::new(&out).bytes(usize::MAX).is_err());
    assert!(Reader::new(&out).bytes(16).is_err());
    assert!(Reader::new(&[0xff; 11]).varint().is_err());
}

#[test]
fn prefix_compressed_bytes_round_trip_within_their_limit() {
    for (before, bytes) in
        [("", ""), ("abc", "abd"), ("abc", "abc"), ("abc", "abcdef"), ("abc", "x"), ("abc", "")]
    {
        let mut out = Vec::new();
        put_bytes_after(&mut out, before.as_bytes(), bytes.as_bytes());
        let read = |limit| Reader::new(&out).bytes_after(before.as_bytes(), limit);
        assert_eq!(read(bytes.len()).as_deref(), Ok(bytes.as_bytes()));
        assert!(bytes.is_empty() || read(bytes.len() - 1).is_err());
        assert!(
            bytes.is_empty()
                || before == bytes
                || Reader::new(&out[..out.len() - 1]).bytes_after(b"abc", 9).is_err()
        );
    }
    let mut out = Vec::new();
    put_bytes_after(&mut out, b"abc", b"abcd");
    assert!(Reader::new(&out).bytes_after(b"ab", 9).is_err());
}
