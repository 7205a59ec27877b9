use super::{StreamChecksum, checksum64};

#[test]
fn streamed_checksum_equals_whole_checksum() {
    let bytes: Vec<u8> = (0..10_000u32).map(|number| number.to_le_bytes()[0] ^ 0x5a).collect();
    for chunk in [1, 7, 240, 241, 1024, 9_999] {
        let mut stream = StreamChecksum::new(99);
        bytes.chunks(chunk).for_each(|chunk| stream.update(chunk));
        assert_eq!(stream.value(), checksum64(&bytes, 99), "chunks of {chunk}");
    }
    assert_eq!(StreamChecksum::new(3).value(), checksum64(&[], 3));
}
