//! Random keys and values: mostly short, sometimes empty or longer than a page.
//!
//! **Invariants**
//! - The same generator yields the same keys and values.

use testudo_env::SplitMix;

/// Returns one of 3000 short keys, or a key of up to 6000 bytes.
pub fn random_key(random: &mut SplitMix) -> Vec<u8> {
    match random.below(20) {
        0 => Vec::new(),
        1 => vec![b'z'; usize::try_from(random.below(6000)).unwrap()],
        _ => format!("key{:05}", random.below(3000)).into_bytes(),
    }
}

/// Returns a value of up to 30 000 bytes.
pub fn random_value(random: &mut SplitMix) -> Vec<u8> {
    let length = match random.below(100) {
        0 => 30_000,
        1..4 => 5000,
        4..10 => 0,
        _ => random.below(150),
    };
    vec![u8::try_from(random.below(256)).unwrap(); usize::try_from(length).unwrap()]
}
