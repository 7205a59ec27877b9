//! The fraction of incoming data that overwrites existing entries, as measured by recent merges.
//!
//! **Invariants**
//! - It is a hint, in memory only: losing it costs time or space, never an answer.

use testudo_base::num::low64;

/// A fraction in 256ths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overwrites(Option<u64>);

/// The fraction 1.
const ALL: u64 = 256;

impl Overwrites {
    /// No merge was measured yet.
    pub const UNKNOWN: Self = Self(None);

    /// Returns the estimate after a merge of `incoming` bytes, or entries, of which `replacing` were
    /// overwrites.
    pub fn after(self, incoming: u64, replacing: u64) -> Self {
        if incoming == 0 {
            return self;
        }
        debug_assert!(self.0.is_none_or(|share| share <= ALL), "a share is no more than all");
        let seen = low64(u128::from(replacing.min(incoming)) * u128::from(ALL) / u128::from(incoming));
        debug_assert!(seen <= ALL, "a share is no more than all");
        Self(Some(self.0.map_or(seen, |before| u64::midpoint(before, seen))))
    }

    /// Returns the greater of two estimates; the known one if the other is unknown.
    pub fn or_more(self, other: Self) -> Self {
        Self(self.0.max(other.0))
    }

    /// Returns a conservative estimate: 0 up to one half, then rising linearly to 1. The bytes that wait for
    /// a leaf are only estimated, and an overestimate looks like overwrites.
    pub fn surely(self) -> Self {
        Self(Some((self.0.unwrap_or(0) * 2).saturating_sub(ALL)))
    }

    /// Whether at least half were overwrites.
    pub fn is_half(self) -> bool {
        self.0.is_some_and(|share| share >= ALL / 2)
    }

    /// Interpolates between `if_none` and `if_all` by the fraction; the midpoint if it is unknown.
    pub fn between(self, if_none: u64, if_all: u64) -> u64 {
        let share = self.0.unwrap_or(ALL / 2);
        let sum = u128::from(if_none) * u128::from(ALL - share) + u128::from(if_all) * u128::from(share);
        let between = low64(sum / u128::from(ALL));
        debug_assert!((if_none.min(if_all)..=if_none.max(if_all)).contains(&between), "between the two");
        between
    }
}
