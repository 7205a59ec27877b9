//! How much of what comes in replaces something, as the last merges have shown.
//!
//! **Invariants**
//! - It is advice, kept in memory only: losing it costs time or space, never an answer.

use testudo_base::num::low64;

/// A share in 256ths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overwrites(Option<u64>);

/// All of it.
const ALL: u64 = 256;

impl Overwrites {
    /// Nothing was seen yet.
    pub const UNKNOWN: Self = Self(None);

    /// After `incoming` bytes, or entries, of which `replacing` replaced something.
    pub fn after(self, incoming: u64, replacing: u64) -> Self {
        if incoming == 0 {
            return self;
        }
        debug_assert!(self.0.is_none_or(|share| share <= ALL), "a share is no more than all");
        let seen = low64(u128::from(replacing.min(incoming)) * u128::from(ALL) / u128::from(incoming));
        Self(Some(self.0.map_or(seen, |before| u64::midpoint(before, seen))))
    }

    /// What is sure of it: none up to a half, from there on more and more, all if it is all. What waits for a
    /// leaf is known by estimate only, and an estimate that is too high looks as if something was replaced.
    pub fn surely(self) -> Self {
        Self(Some((self.0.unwrap_or(0) * 2).saturating_sub(ALL)))
    }

    /// Whether at least half replaced something.
    pub fn is_half(self) -> bool {
        self.0.is_some_and(|share| share >= ALL / 2)
    }

    /// What lies between `if_none` and `if_all` as the share lies between none and all; the middle of them if
    /// it is not known.
    pub fn between(self, if_none: u64, if_all: u64) -> u64 {
        let share = self.0.unwrap_or(ALL / 2);
        let sum = u128::from(if_none) * u128::from(ALL - share) + u128::from(if_all) * u128::from(share);
        low64(sum / u128::from(ALL))
    }
}
