use super::*;

#[test]
fn elements_survive_growth_from_box_to_mappings() {
    let mut grown = LargeVec::new();
    for number in 0..100_000_u64 {
        grown.push(number);
    }
    assert!(grown.iter().copied().eq(0..100_000));
    assert!(grown.room_bytes() >= 800_000 && grown.room_bytes() < 2_200_000, "{}", grown.room_bytes());
    let mut sorted = grown;
    sorted.sort_unstable_by_key(|number| std::cmp::Reverse(*number));
    assert_eq!(sorted[..2], [99_999, 99_998]);
    sorted.clear();
    assert!(sorted.is_empty());
    sorted.extend_from_slice(&[5, 6]);
    assert_eq!(*sorted, [5, 6]);
}

#[test]
fn slices_of_any_length_are_appended() {
    let mut bytes = LargeVec::new();
    let mut expected = Vec::new();
    for length in [0, 1, 255, 256, 257, 40_000, 3, 100_000] {
        let more: Vec<u8> = (0..length).map(|at: u32| (at % 251) as u8).collect();
        bytes.extend_from_slice(&more);
        expected.extend_from_slice(&more);
        assert_eq!(*bytes, *expected);
    }
    let collected: LargeVec<[u64; 2]> = (0..10).map(|number| [number, number * 2]).collect();
    assert_eq!(collected[9], [9, 18]);
}
