//! Conversions between integer widths, explicit about overflow.
//!
//! The store runs only on 64-bit machines, so `usize` and `u64` convert freely. Narrowing a number computed
//! by the store panics on overflow; a number read from disk goes through `try_from` at the caller.

const _: () = assert!(usize::BITS == 64, "Testudo needs a 64-bit machine");

/// `u64` to `usize`, exact on the 64-bit machines that the store supports.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "usize has 64 bits, asserted above")]
pub const fn usize_of(value: u64) -> usize {
    value as usize
}

/// `usize` to `u64`, always exact.
#[inline]
pub const fn u64_of(value: usize) -> u64 {
    value as u64
}

/// `usize` to `u32`; panics if the number does not fit, which is a bug in the store.
#[inline]
pub fn u32_of(value: usize) -> u32 {
    u32::try_from(value).expect("fits in 32 bits")
}

/// `usize` to `u16`; panics if the number does not fit, which is a bug in the store.
#[inline]
pub fn u16_of(value: usize) -> u16 {
    u16::try_from(value).expect("fits in 16 bits")
}

/// The low 32 bits.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "taking the low bits is the purpose")]
pub const fn low32(value: u64) -> u32 {
    value as u32
}

/// The low 64 bits.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "taking the low bits is the purpose")]
pub const fn low64(value: u128) -> u64 {
    value as u64
}

/// The high 32 bits.
#[inline]
pub const fn high32(value: u64) -> u32 {
    low32(value >> 32)
}

/// Maps a 32-bit hash evenly to `0..count` without a division.
#[inline]
pub const fn scale32(hash: u32, count: u32) -> u32 {
    high32(hash as u64 * count as u64)
}

/// Rounds up to the next multiple of `unit`, a power of two.
#[inline]
pub const fn round_up(value: u64, unit: u64) -> u64 {
    debug_assert!(unit.is_power_of_two(), "the unit is a power of two");
    (value + unit - 1) & !(unit - 1)
}
