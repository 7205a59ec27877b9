//! Bytes that can be verified from their seed: a stream of mixed words.
//!
//! **Invariants**
//! - The word at a position depends only on the seed and the position. So the processor can compute words in
//!   parallel, and 100 bytes cost a few nanoseconds.

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
const FACTOR: u64 = 0xd6e8_feb8_6659_fd93;

#[inline]
fn word(seed: u64, index: u64) -> u64 {
    let mixed = seed.wrapping_add(index.wrapping_mul(STEP));
    let mixed = (mixed ^ (mixed >> 32)).wrapping_mul(FACTOR);
    mixed ^ (mixed >> 29)
}

/// Fills `bytes` with the stream of `seed`.
#[inline]
pub(crate) fn fill(seed: u64, bytes: &mut [u8]) {
    let mut index = 0;
    let (words, tail) = bytes.as_chunks_mut::<8>();
    for chunk in words {
        *chunk = word(seed, index).to_le_bytes();
        index += 1;
    }
    tail.copy_from_slice(&word(seed, index).to_le_bytes()[..tail.len()]);
}

/// Whether `bytes` are a prefix of the stream of `seed`.
#[inline]
pub(crate) fn matches(seed: u64, bytes: &[u8]) -> bool {
    let (words, tail) = bytes.as_chunks::<8>();
    let mut difference = 0;
    let mut index = 0;
    for chunk in words {
        difference |= word(seed, index) ^ u64::from_le_bytes(*chunk);
        index += 1;
    }
    difference == 0 && *tail == word(seed, index).to_le_bytes()[..tail.len()]
}

#[cfg(test)]
mod tests;
