use super::{VERSIONS, read, write};

#[test]
fn a_value_tells_record_and_version() {
    for bytes in [16, 100, 1024] {
        let mut value = vec![0; bytes];
        for version in 0..VERSIONS {
            write(123_456_789, version, &mut value);
            assert_eq!(read(&value, bytes), Ok((123_456_789, version)));
        }
    }
}

#[test]
fn every_damaged_byte_and_another_length_are_noticed() {
    let mut value = vec![0; 100];
    write(7, 3, &mut value);
    for position in 0..value.len() {
        value[position] ^= 0x10;
        assert!(read(&value, 100).is_err(), "byte {position}");
        value[position] ^= 0x10;
    }
    assert!(read(&value[..99], 100).is_err());
}
