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
fn a_length_beyond_the_bytes_is_damage_not_an_allocation() {
    let mut out = Vec::new();
    put_u32(&mut out, u32::MAX);
    assert!(Reader::new(&out).bytes(usize::MAX).is_err());
    assert!(Reader::new(&out).bytes(16).is_err());
    assert!(Reader::new(&[0xff; 11]).varint().is_err());
}
