use super::Share;

#[test]
fn a_part_is_never_empty_and_the_whole_is_complete() {
    assert_eq!([1, 10, 11].map(|whole| Share::Tenth.of(whole)), [1, 1, 2]);
    assert_eq!(Share::Whole.of(11), 11);
    assert_eq!((Share::Tenth.one_in(3), Share::Whole.one_in(3)), (30, 3));
    let of = |share: Share, first| share.some_of(0..7, 3, first).collect::<Vec<u64>>();
    assert_eq!((of(Share::Tenth, 0), of(Share::Tenth, 4)), (vec![0, 3, 6], vec![1, 4]));
    assert_eq!(of(Share::Whole, 4), (0..7).collect::<Vec<u64>>());
}
