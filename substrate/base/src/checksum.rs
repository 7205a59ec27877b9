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

/// The same sixty-four bits for bytes that come in pieces.
#[derive(Clone)]
pub struct StreamChecksum(xxh3::Xxh3);

impl StreamChecksum {
    /// Starts under `seed`.
    pub fn new(seed: u64) -> Self {
        Self(xxh3::Xxh3::with_seed(seed))
    }

    /// Takes the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The checksum of everything so far; equal to [`checksum64`] of it in one piece.
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
