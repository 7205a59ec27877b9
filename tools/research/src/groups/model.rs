//! The mapping from a key to its page within a group: the group's line in integer arithmetic.
//!
//! **Invariants**
//! - Pages ascend with keys, whatever the line. Writes and reads compute the page of a record in exactly the
//!   same way, so that rounding cannot misplace it.

use crate::groups::{key_numbers::KeyNumbers, line_fit::Line};

/// Fractional bits of a page position.
const PAGE_PARTS: u32 = 16;
/// Bits of a slope.
const SLOPE_BITS: i32 = 40;

/// The model of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Model {
    numbers: KeyNumbers,
    /// Fixed-point pages per step of a number, shifted by `shift`.
    slope: u64,
    shift: u32,
    /// Fixed-point position of the number 0.
    intercept: i64,
    pages: u32,
}

impl Model {
    /// Creates the model of a group with `pages`. `line`: the byte offset of records by number.
    #[expect(clippy::cast_possible_truncation, reason = "saturates at the first or last page")]
    #[expect(clippy::cast_sign_loss, reason = "a slope is not negative")]
    pub(crate) fn new(numbers: KeyNumbers, line: &Line, goal_bytes: u64, pages: u32) -> Self {
        let parts = f64::from(1 << PAGE_PARTS) / goal_bytes as f64;
        let slope = line.slope.max(0.0) * parts;
        let shift = if slope > 0.0 { (SLOPE_BITS - slope.log2().floor() as i32).clamp(0, 100) } else { 0 };
        let intercept = (line.offset - line.slope.max(0.0) * line.position) * parts;
        Self {
            numbers,
            slope: (slope * 2f64.powi(shift)) as u64,
            shift: shift.unsigned_abs(),
            intercept: intercept.floor() as i64,
            pages,
        }
    }

    /// Returns the page that has the key, or would have it.
    #[inline]
    pub(crate) fn page_of(&self, key: &[u8]) -> u32 {
        let parts = (u128::from(self.numbers.number(key)) * u128::from(self.slope)) >> self.shift;
        let place = i128::try_from(parts).unwrap_or(i128::MAX).saturating_add(i128::from(self.intercept));
        u32::try_from((place >> PAGE_PARTS).max(0)).unwrap_or(u32::MAX).min(self.pages - 1)
    }

    /// Number of pages in the group.
    pub(crate) fn pages(&self) -> u32 {
        self.pages
    }
}
