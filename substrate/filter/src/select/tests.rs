use super::select;

#[test]
fn select_agrees_with_counting_bits_one_by_one() {
    let mut word = 0x9e37_79b9_7f4a_7c15_u64;
    for round in 0..2000 {
        word = word.wrapping_mul(0xd134_2543_de82_ef95).wrapping_add(round);
        let sample = match round % 4 {
            0 => word,
            1 => word & word.rotate_left(7) & word.rotate_left(23),
            2 => word | word.rotate_left(11),
            _ => word << (round % 64),
        };
        let set: Vec<u32> = (0..64).filter(|bit| sample >> bit & 1 == 1).collect();
        for rank in 0..70 {
            assert_eq!(select(sample, rank), set.get(rank as usize).copied(), "{sample:#x} rank {rank}");
        }
    }
}

#[test]
fn select_handles_the_empty_and_the_full_word() {
    assert_eq!(select(0, 0), None);
    assert_eq!(select(u64::MAX, 0), Some(0));
    assert_eq!(select(u64::MAX, 63), Some(63));
    assert_eq!(select(u64::MAX, 64), None);
}
