//! Tests of the seeded generator.

use super::SplitMix;

#[test]
fn seed_produces_the_published_sequence() {
    // First outputs of splitmix64 for seed 1234567, as in its authors' reference code.
    let mut random = SplitMix::new(1_234_567);
    let numbers: Vec<u64> = (0..3).map(|_| random.next_u64()).collect();
    assert_eq!(numbers, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
}

#[test]
fn percentages_hold_at_the_extremes_and_in_between() {
    let mut random = SplitMix::new(7);
    assert!((0..1_000).all(|_| random.percent(100)));
    assert!(!(0..1_000).any(|_| random.percent(0)));
    let hits = (0..10_000).filter(|_| random.percent(30)).count();
    assert!((2_700..3_300).contains(&hits), "{hits}");
}

#[test]
fn fill_reaches_every_byte() {
    let mut bytes = [0; 13];
    let mut seen = [false; 13];
    let mut random = SplitMix::new(3);
    for _ in 0..20 {
        random.fill(&mut bytes);
        for (seen, byte) in seen.iter_mut().zip(bytes) {
            *seen |= byte != 0;
        }
    }
    assert_eq!(seen, [true; 13]);
}
