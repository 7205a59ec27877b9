use super::{fill, matches};

#[test]
fn every_bit_flip_is_detected_at_every_length() {
    for length in [0, 1, 7, 8, 9, 16, 88, 100] {
        let mut bytes = vec![0; length];
        fill(7, &mut bytes);
        assert!(matches(7, &bytes));
        for position in 0..length {
            for bit in 0..8 {
                bytes[position] ^= 1 << bit;
                assert!(!matches(7, &bytes), "length {length}, byte {position}, bit {bit}");
                bytes[position] ^= 1 << bit;
            }
        }
    }
}

#[test]
fn different_seeds_yield_different_bytes() {
    let mut bytes = [0; 100];
    fill(1, &mut bytes);
    assert!(!matches(2, &bytes));
}
