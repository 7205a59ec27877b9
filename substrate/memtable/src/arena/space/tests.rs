//! Sizes of chunks.

use super::*;

#[test]
fn small_chunks_fit_the_records_and_parts_of_the_index() {
    // Records of 152 bytes, parts of the index, larger records.
    let sizes = |bytes: usize| {
        [0, 8_000, 16_000, 24_000, 30_000].map(|before| chunk_bytes_after(before, bytes, false))
    };
    assert_eq!(sizes(152), [768, 1536, 2304, 3072, 3840]);
    assert_eq!(sizes(192), [768, 1536, 2304, 3072, 3840]);
    assert_eq!(sizes(384), [768, 1536, 2304, 3072, 3840]);
    assert_eq!(sizes(2056), [2304, 2304, 2304, 3072, 3840]);
    assert_eq!(sizes(4000), [4096; 5]);
}

#[test]
fn large_chunks_are_multiples_of_fragments_or_powers_of_two() {
    let after = |before| chunk_bytes_after(before, 152, false);
    assert_eq!(after(40 << 10), 8 << 10);
    assert_eq!(after(100 << 10), 16 << 10);
    assert_eq!(after(500 << 10), 64 << 10);
    assert_eq!(after(600 << 10), 128 << 10);
    assert_eq!(after(100 << 20), CHUNK_BYTES);
    assert_eq!(chunk_bytes_after(0, 20_000, false), 20 << 10);
    assert_eq!(chunk_bytes_after(0, 152, true), CHUNK_BYTES);
    assert_eq!(chunk_bytes_after(0, CHUNK_BYTES + 8, true), 2 * CHUNK_BYTES);
}
