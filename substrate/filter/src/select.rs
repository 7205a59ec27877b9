//! Selection of the n-th set bit of a word, portable and without tables.

const EACH_BYTE: u64 = 0x0101_0101_0101_0101;

/// Position of the `rank`-th set bit of `word`, counted from 0 at the lowest, or `None` if fewer bits are
/// set.
#[inline]
pub(crate) fn select(word: u64, rank: u32) -> Option<u32> {
    let pairs = word - ((word >> 1) & 0x5555_5555_5555_5555);
    let nibbles = (pairs & 0x3333_3333_3333_3333) + ((pairs >> 2) & 0x3333_3333_3333_3333);
    let bytes = (nibbles + (nibbles >> 4)) & 0x0f0f_0f0f_0f0f_0f0f;
    // Byte i of `sums` is the number of set bits in bytes 0..=i, at most 64.
    let sums = bytes.wrapping_mul(EACH_BYTE);
    if u64::from(rank) >= sums >> 56 {
        return None;
    }
    // The high bit of byte i stays set where sums[i] <= rank; the number of these bytes is the index of the
    // byte.
    let reached = ((u64::from(rank) * EACH_BYTE) | (EACH_BYTE << 7)) - sums;
    let shift = (((reached >> 7) & EACH_BYTE).wrapping_mul(EACH_BYTE) >> 56) * 8;
    let before = ((sums << 8) >> shift) & 0xff;
    let mut rest = word >> shift;
    for _ in before..u64::from(rank) {
        rest &= rest - 1;
    }
    let position = testudo_base::num::low32(shift) + rest.trailing_zeros();
    debug_assert!(position < u64::BITS && word >> position & 1 == 1, "a set bit of the word");
    Some(position)
}

#[cfg(test)]
mod tests;
