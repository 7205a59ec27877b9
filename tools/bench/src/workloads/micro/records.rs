//! Records of the workloads' size, for benchmarks of single components.
//!
//! **Invariants**
//! - Record `n` has the same key in every run.

use testudo_base::checksum::hash_key;

/// Bytes of a key.
pub(crate) const KEY_BYTES: usize = 24;
/// A value.
pub(crate) const VALUE: [u8; 100] = [7; 100];

/// Returns the key of record `number`; keys are not in numerical order.
pub(crate) fn key(number: u64) -> [u8; KEY_BYTES] {
    let mut key = *b"user....................";
    let mut hash = hash_key(&number.to_le_bytes());
    for byte in key[8..].iter_mut().rev() {
        *byte = b"0123456789abcdef"[testudo_base::num::usize_of(hash & 15)];
        hash >>= 4;
    }
    key
}

/// Returns the keys of records `0..count`.
pub(crate) fn keys(count: u64) -> Vec<[u8; KEY_BYTES]> {
    (0..count).map(key).collect()
}
