//! Made-up values: bytes that follow from a seed, so that any value can be checked without keeping it.

use testudo_base::{checksum::hash_key, num::usize_of};
use testudo_env::SplitMix;

/// `length` bytes that follow from `seed`.
pub(super) fn value(seed: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    SplitMix::new(seed).fill(&mut bytes);
    bytes
}

/// Whether `bytes` are the value of `seed` with that length.
pub(super) fn is_value(bytes: &[u8], seed: u64, length: usize) -> bool {
    bytes.len() == length && bytes == value(seed, length)
}

/// The key of record `number` of the synthetic part: 24 bytes, in no order.
pub(super) fn scattered_key(number: u64) -> [u8; 24] {
    let mut key = *b"record-0000000000000000~";
    let scattered = SplitMix::new(number).next_u64();
    for (digit, shift) in key[7..23].iter_mut().zip((0..64).step_by(4).rev()) {
        *digit = b"0123456789abcdef"[usize_of(scattered >> shift & 15)];
    }
    key
}

/// A seed that follows from a key and a number.
pub(super) fn seed_of(key: &[u8], number: u64) -> u64 {
    hash_key(key) ^ number.rotate_left(32)
}
