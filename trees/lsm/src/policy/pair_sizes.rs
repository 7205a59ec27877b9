//! Two sizes for each level (Parallax §3): of what the level has itself, and of the pairs that it is about.
//!
//! Above the bottom values of medium pairs lie outside, at the bottom they are with their keys. Levels that
//! are compared by what they have hold as many times more pairs as a reference is shorter than a pair. Where
//! a placement wants it, how large levels should be, and how many there are, is said of pairs instead; how
//! far a level is emptied is always said of the bytes that it has. What is moved into the bottom at once is
//! said of pairs under any placement, for that is what will be written.
//!
//! One factor stands for all levels above the bottom, which is about what most of their bytes have.
//!
//! **Invariants**
//! - It is advice, kept in memory only: losing it costs time or space, never an answer.

use testudo_base::num::low64;
use testudo_contract::Work;

/// How many times as large pairs are as what levels above the bottom have of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PairSizes {
    /// In 256ths.
    times: u64,
    /// Levels are sized by pairs.
    size_levels: bool,
}

const ONE: u64 = 256;
/// No reference is so much shorter than its pair.
const TIMES_MAX: u64 = ONE << 24;

impl PairSizes {
    /// Every pair is in the levels, with its value.
    pub const WHOLE: Self = Self { times: ONE, size_levels: false };

    /// Of levels above the bottom that have so many bytes, while values of so many bytes lie outside until
    /// their keys come to the bottom.
    pub fn of(level_bytes: u64, outside_bytes: u64) -> Self {
        let (own, pairs) = (u128::from(level_bytes), u128::from(level_bytes) + u128::from(outside_bytes));
        let times = (pairs * u128::from(ONE)).checked_div(own).unwrap_or_default();
        Self { times: low64(times.clamp(ONE.into(), TIMES_MAX.into())), size_levels: false }
    }

    /// The same where levels are sized by them, if `size_levels`.
    #[must_use]
    pub fn sizing_levels(self, size_levels: bool) -> Self {
        Self { size_levels, ..self }
    }

    /// Of levels that `work` has changed, which have so many bytes now.
    pub(crate) fn within(work: &Work, level_bytes: u64) -> Self {
        work.values.as_ref().map_or(Self::WHOLE, |values| {
            Self::of(level_bytes, values.returning_bytes()).sizing_levels(values.sizes_levels_by_pairs())
        })
    }

    /// How large pairs are as far as levels are sized by them.
    pub(crate) fn of_levels(self) -> Self {
        if self.size_levels { self } else { Self::WHOLE }
    }

    /// The pairs to which so many bytes of levels belong.
    pub(crate) fn pairs_of(self, bytes: u64) -> u64 {
        low64(u128::from(bytes) * u128::from(self.times) / u128::from(ONE))
    }

    /// What levels have themselves of pairs of so many bytes.
    pub(crate) fn own_of(self, bytes: u64) -> u64 {
        low64(u128::from(bytes) * u128::from(ONE) / u128::from(self.times))
    }
}

#[cfg(test)]
mod tests;
