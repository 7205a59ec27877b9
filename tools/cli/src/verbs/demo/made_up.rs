//! Synthetic values: bytes derived from a seed, so that a value can be checked without storing it.

use testudo_base::{checksum::hash_key, num::usize_of};
use testudo_env::SplitMix;

/// Derives `length` bytes from `seed`.
pub(super) fn value(seed: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    SplitMix::new(seed).fill(&mut bytes);
    bytes
}

/// Whether `bytes` is the value of `seed` with this length.
pub(super) fn is_value(bytes: &[u8], seed: u64, length: usize) -> bool {
    bytes.len() == length && bytes == value(seed, length)
}

/// Key of record `number` in the synthetic part: 24 bytes, in random order.
pub(super) fn scattered_key(number: u64) -> [u8; 24] {
    let mut key = *b"record-0000000000000000~";
    let scattered = SplitMix::new(number).next_u64();
    for (digit, shift) in key[7..23].iter_mut().zip((0..64).step_by(4).rev()) {
        *digit = b"0123456789abcdef"[usize_of(scattered >> shift & 15)];
    }
    key
}

/// Derives a seed from a key and a number.
pub(super) fn seed_of(key: &[u8], number: u64) -> u64 {
    hash_key(key) ^ number.rotate_left(32)
}
