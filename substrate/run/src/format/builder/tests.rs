use testudo_base::Kind;
use testudo_env::SplitMix;

use super::*;

/// Lengths in pages of the blocks that entries with values of these lengths come to, the last one left out.
fn blocks_of(value_bytes: impl Iterator<Item = usize>, mut builder: BlockBuilder) -> Vec<(usize, usize)> {
    let mut blocks = Vec::new();
    let mut out = vec![0; 64 * PAGE_SIZE];
    let value = vec![7; 64 << 10];
    let mut user_bytes = 0;
    for (number, value_bytes) in value_bytes.enumerate() {
        let key = format!("user{number:020}");
        let entry = Entry { key: key.as_bytes(), kind: Kind::Value, value: &value[..value_bytes] };
        if !builder.push(&entry) {
            let expected = builder.payload_bytes();
            let length = builder.encode_into(&mut out);
            assert!(length <= expected);
            blocks.push(((length + PAGE_HEADER_BYTES).div_ceil(PAGE_SIZE), user_bytes));
            user_bytes = 0;
            assert!(builder.push(&entry), "an empty block takes any entry");
        }
        user_bytes += key.len() + value_bytes;
    }
    blocks
}

/// Bytes of blocks for each byte of users.
fn space(blocks: &[(usize, usize)]) -> f64 {
    let pages: usize = blocks.iter().map(|(pages, _)| pages).sum();
    let bytes: usize = blocks.iter().map(|(_, bytes)| bytes).sum();
    (pages * PAGE_SIZE) as f64 / bytes as f64
}

#[test]
fn small_entries_come_to_blocks_of_one_page_as_in_a_builder_that_knows_no_others() {
    for value_bytes in [0, 10, 100, 200, 400, 450] {
        let sizes = || std::iter::repeat_n(value_bytes, 1000);
        let blocks = blocks_of(sizes(), BlockBuilder::of_data());
        assert!(blocks.iter().all(|(pages, _)| *pages == 1), "{value_bytes}");
        assert_eq!(blocks, blocks_of(sizes(), BlockBuilder::default()));
    }
}

#[test]
fn blocks_of_entries_alike_leave_little_empty() {
    for value_bytes in (300..3_600).step_by(13) {
        let blocks = blocks_of(std::iter::repeat_n(value_bytes, 400), BlockBuilder::of_data());
        let bound = if blocks[0].0 == 1 { 1.17 } else { 1.09 };
        assert!(space(&blocks) <= bound, "{value_bytes}: {} in {:?}", space(&blocks), blocks[0]);
        assert!(blocks.iter().all(|(pages, _)| *pages <= 8));
    }
    for value_bytes in [1000, 2150, 3072] {
        let blocks = blocks_of(std::iter::repeat_n(value_bytes, 400), BlockBuilder::of_data());
        assert!(space(&blocks) <= 1.075, "{value_bytes}: {}", space(&blocks));
    }
}

#[test]
fn blocks_of_mixed_entries_leave_little_empty() {
    for seed in 0..20 {
        let mut random = SplitMix::new(seed);
        let mut length = |_| 300 + usize_of(random.below(3_200));
        let sizes: Vec<usize> = (0..3000).map(&mut length).collect();
        let blocks = blocks_of(sizes.into_iter(), BlockBuilder::of_data());
        assert!(space(&blocks) <= 1.12, "{seed}: {}", space(&blocks));
    }
}

#[test]
fn an_entry_that_no_block_of_several_has_room_for_comes_alone() {
    let sizes = [100, 40_000, 100, 40_000, 100, 10].into_iter();
    let blocks = blocks_of(sizes, BlockBuilder::of_data());
    assert_eq!(blocks.iter().map(|(pages, _)| *pages).collect::<Vec<_>>(), [1, 10, 1, 10]);
}
