//! XXH3, for checksums of stored bytes and for hashes of keys.
//!
//! Checksums detect damage; they do not authenticate. The seed ties bytes to their store, so that a file
//! moved in from another store fails its checksum.

use xxhash_rust::xxh3;

/// Returns a 64-bit checksum of `bytes` under `seed`.
#[inline]
pub fn checksum64(bytes: &[u8], seed: u64) -> u64 {
    xxh3::xxh3_64_with_seed(bytes, seed)
}

/// Hash of a key, shared by the filter, the write stripes and the caches.
#[inline]
pub fn hash_key(key: &[u8]) -> u64 {
    xxh3::xxh3_64(key)
}

/// Computes the same checksum for bytes that arrive in chunks.
#[derive(Clone)]
pub struct StreamChecksum(xxh3::Xxh3);

impl StreamChecksum {
    /// Starts a checksum under `seed`.
    pub fn new(seed: u64) -> Self {
        Self(xxh3::Xxh3::with_seed(seed))
    }

    /// Adds the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Checksum of everything so far; equal to [`checksum64`] of the concatenated chunks.
    pub fn value(&self) -> u64 {
        self.0.digest()
    }
}

impl std::fmt::Debug for StreamChecksum {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "StreamChecksum({:#x})", self.value())
    }
}

#[cfg(test)]
mod tests;
