//! Two sizes for each level (Parallax §3): its own bytes, and those of its pairs, with separated values.
//!
//! Above the bottom, medium values are separated; at the bottom they are with their keys. If levels
//! are compared by their own bytes, they hold more pairs, by the ratio of a pair to a reference. If a
//! placement requires it, the sizes and number of levels are computed from pairs instead. The progress of
//! emptying is always computed from own bytes. A move into the bottom is always sized by pairs, because those
//! are written.
//!
//! One factor is used for all levels above the bottom, an average weighted by bytes.
//!
//! **Invariants**
//! - It is a hint, in memory only: losing it costs time or space, never an answer.

use testudo_base::num::low64;
use testudo_contract::Work;

/// Size ratio of pairs to the bytes that levels above the bottom have of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PairSizes {
    /// In 256ths.
    times: u64,
    /// Levels are sized by pairs.
    size_levels: bool,
}

const ONE: u64 = 256;
/// Upper limit of the ratio.
const TIMES_MAX: u64 = ONE << 24;

impl PairSizes {
    /// All values are in the levels.
    pub const WHOLE: Self = Self { times: ONE, size_levels: false };

    /// Ratio for levels above the bottom with `level_bytes`, while `separated_bytes` of values are separated
    /// until their keys reach the bottom.
    pub fn of(level_bytes: u64, separated_bytes: u64) -> Self {
        let (own, pairs) = (u128::from(level_bytes), u128::from(level_bytes) + u128::from(separated_bytes));
        let times = (pairs * u128::from(ONE)).checked_div(own).unwrap_or_default();
        Self { times: low64(times.clamp(ONE.into(), TIMES_MAX.into())), size_levels: false }
    }

    /// Returns the same ratio; levels are sized by it if `size_levels`.
    #[must_use]
    pub fn sizing_levels(self, size_levels: bool) -> Self {
        Self { size_levels, ..self }
    }

    /// Ratio after a change by `work`; `level_bytes` is the new size of the levels.
    pub(crate) fn within(work: &Work, level_bytes: u64) -> Self {
        work.values.as_ref().map_or(Self::WHOLE, |values| {
            Self::of(level_bytes, values.returning_bytes()).sizing_levels(values.sizes_levels_by_pairs())
        })
    }

    /// Returns the ratio by which levels are sized.
    pub(crate) fn of_levels(self) -> Self {
        if self.size_levels { self } else { Self::WHOLE }
    }

    /// Converts bytes of levels to bytes of pairs.
    pub(crate) fn pairs_of(self, bytes: u64) -> u64 {
        low64(u128::from(bytes) * u128::from(self.times) / u128::from(ONE))
    }

    /// Converts bytes of pairs to bytes of levels.
    pub(crate) fn own_of(self, bytes: u64) -> u64 {
        debug_assert!(
            (ONE..=TIMES_MAX).contains(&self.times),
            "pairs are no smaller than what levels have of them"
        );
        low64(u128::from(bytes) * u128::from(ONE) / u128::from(self.times))
    }
}

#[cfg(test)]
mod tests;
