use super::*;

#[test]
fn value_identifies_record_and_version() {
    for bytes in [16, 100, 1024] {
        let mut value = vec![0; bytes];
        for version in 0..VERSIONS {
            write(123_456_789, version, &mut value);
            assert_eq!(read(&value, Lengths::Same(bytes)), Ok((123_456_789, version)));
        }
    }
}

#[test]
fn damaged_bytes_and_wrong_length_are_detected() {
    let mut value = vec![0; 100];
    write(7, 3, &mut value);
    for position in 0..value.len() {
        value[position] ^= 0x10;
        assert!(read(&value, Lengths::Same(100)).is_err(), "byte {position}");
        value[position] ^= 0x10;
    }
    assert!(read(&value[..99], Lengths::Same(100)).is_err());
}

#[test]
fn mix_lengths_have_the_configured_shares() {
    let lengths = Lengths::of_flags(100, Some(Mix::Sd));
    let mut counts = [0u64; 3];
    for record in 0..10_000 {
        let length = lengths.of(record);
        let mut value = vec![0; length];
        write(record, 3, &mut value);
        assert_eq!(read(&value, lengths), Ok((record, 3)));
        value.push(0);
        assert!(read(&value, lengths).is_err(), "wrong length");
        counts[MIXED_BYTES.iter().position(|bytes| *bytes == length).expect("one of three")] += 1;
    }
    let of_all = |count: u64| count.div_ceil(100);
    assert!((58..=62).contains(&of_all(counts[0])), "{counts:?}");
    assert!((18..=22).contains(&of_all(counts[2])), "{counts:?}");
    assert_eq!(lengths.mean(), (60 * 9 + 20 * 104 + 20 * 1004) / 100);
}
