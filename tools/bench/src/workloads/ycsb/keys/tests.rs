use std::collections::HashSet;

use testudo_base::num::usize_of;

use super::{KeyMaker, scramble};
use crate::report::size::floor;

fn key_of(keys: KeyMaker, number: u64) -> Vec<u8> {
    let mut key = Vec::new();
    keys.write(number, &mut key);
    key
}

#[test]
fn scrambling_is_a_bijection_at_every_width() {
    for bits in 1..=16 {
        let images: HashSet<u64> = (0..1 << bits).map(|number| scramble(number, bits)).collect();
        assert_eq!(images.len(), 1 << bits, "{bits} bits");
        assert!(images.iter().all(|image| *image < 1 << bits));
    }
}

#[test]
fn scrambling_of_64_bits_is_invertible() {
    fn inverse(factor: u64) -> u64 {
        // Newton's iteration doubles the number of correct bits each time.
        (0..6).fold(factor, |guess, _| guess.wrapping_mul(2u64.wrapping_sub(factor.wrapping_mul(guess))))
    }
    for number in (0..1_000_000u64).chain([u64::MAX, u64::MAX / 3]) {
        let mut mixed = scramble(number, 64);
        for factor in [0xd6e8_feb8_6659_fd93, 0x9fb2_1c65_1e98_df25] {
            mixed ^= mixed >> 32;
            mixed = mixed.wrapping_mul(inverse(factor));
        }
        assert_eq!(mixed ^ (mixed >> 32), number);
    }
}

#[test]
fn keys_have_equal_length_and_are_distinct() {
    for key_bytes in [8, 12, 16, 23, 24, 25, 48] {
        let keys = KeyMaker::new(key_bytes).unwrap();
        let count = keys.capacity().min(5_000);
        let made: HashSet<Vec<u8>> = (0..count).map(|number| key_of(keys, number)).collect();
        assert_eq!(made.len(), usize::try_from(count).unwrap());
        assert!(made.iter().all(|key| key.len() == key_bytes && key.starts_with(b"user")));
    }
    assert!(KeyMaker::new(7).is_err());
    assert!(KeyMaker::new(1 << 20).is_err());
}

#[test]
fn adjacent_records_have_consecutive_keys() {
    for (key_bytes, count) in [(24, 32), (9, 8), (24, 1)] {
        let keys = KeyMaker::new(key_bytes).unwrap().adjacent(count);
        let positions: HashSet<u64> = (0..4_000).map(|number| keys.position(number)).collect();
        assert_eq!(positions.len(), 4_000, "each number has its own");
        for number in (0..4_000).filter(|number| number % count > 0) {
            assert_eq!(keys.position(number), keys.position(number - 1) + 1, "{number} of {count}");
        }
        let begins = |number: &u64| keys.position(number + count) != keys.position(number + count - 1) + 1;
        assert!((0..4_000).step_by(usize_of(count)).filter(begins).count() > 3_900 / usize_of(count));
    }
}

#[test]
fn ordered_keys_ascend_and_scrambled_keys_are_uniform() {
    let keys = KeyMaker::new(24).unwrap();
    let ordered = keys.in_order();
    assert!((0..1_000).all(|number| key_of(ordered, number) < key_of(ordered, number + 1)));
    let mut counts = [0u32; 10];
    for number in 0..10_000 {
        counts[usize_of(floor(keys.fraction(number) * 10.0))] += 1;
    }
    assert!(counts.iter().all(|count| (850..1_150).contains(count)), "{counts:?}");
}

#[test]
fn absent_keys_sort_between_record_keys() {
    for key_bytes in [8, 24, 30] {
        let keys = KeyMaker::new(key_bytes).unwrap().in_order();
        let mut absent = Vec::new();
        for number in 0..1_000 {
            keys.write_absent(number, &mut absent);
            assert_eq!(absent.len(), key_bytes);
            assert!(key_of(keys, number) < absent && absent < key_of(keys, number / 10 * 10 + 10));
        }
    }
}

#[test]
fn boundaries_agree_with_fractions() {
    let keys = KeyMaker::new(24).unwrap();
    let mut boundary = Vec::new();
    keys.write_boundary(1, 4, &mut boundary);
    for number in 0..1_000 {
        assert_eq!(key_of(keys, number) < boundary, keys.fraction(number) < 0.25);
    }
}
