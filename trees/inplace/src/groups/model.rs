//! From a key to its page within a group: the line of the group, in whole numbers.
//!
//! **Invariants**
//! - Pages ascend with keys, whatever the line: where a record lies is decided by this very computation when
//!   it is written and when it is looked for, so that rounding cannot misplace it.

use crate::groups::{key_numbers::KeyNumbers, line_fit::Line};

/// Parts of a page that places are computed in.
const PAGE_PARTS: u32 = 16;
/// Bits of a slope.
const SLOPE_BITS: i32 = 40;

/// Which page of a group has a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Model {
    numbers: KeyNumbers,
    /// In parts of a page for each step of a number, shifted by `shift`.
    slope: u64,
    shift: u32,
    /// Where the number 0 would lie, in parts of a page.
    intercept: i64,
    pages: u32,
}

impl Model {
    /// That of a group of so many pages. `line`: where records begin, in bytes, by number.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "what is out of range ends at the first or last page"
    )]
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

    /// The page that has the key, or would have it.
    #[inline]
    pub fn page_of(&self, key: &[u8]) -> u32 {
        let parts = (u128::from(self.numbers.number(key)) * u128::from(self.slope)) >> self.shift;
        let place = i128::try_from(parts).unwrap_or(i128::MAX).saturating_add(i128::from(self.intercept));
        u32::try_from((place >> PAGE_PARTS).max(0)).unwrap_or(u32::MAX).min(self.pages - 1)
    }

    /// Pages of the group.
    pub fn pages(&self) -> u32 {
        self.pages
    }

    /// About how much memory it takes.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.numbers.heap_bytes()
    }
}
