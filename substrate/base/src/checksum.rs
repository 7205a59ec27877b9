//! XXH3, for checksums of what is stored and for hashes of keys.
//!
//! Checksums find damage, they do not authenticate. The seed ties bytes to their store, so that a file
//! moved in from another store fails its checksum.

use xxhash_rust::xxh3;

/// Sixty-four checksum bits of `bytes` under `seed`.
#[inline]
pub fn checksum64(bytes: &[u8], seed: u64) -> u64 {
    xxh3::xxh3_64_with_seed(bytes, seed)
}

/// The hash of a key: one for the filter, the write stripes and the caches.
#[inline]
pub fn hash_key(key: &[u8]) -> u64 {
    xxh3::xxh3_64(key)
}
