//! The tree's own share of its pairs' bytes, when long values are separated, and the resulting buffer
//! sizes.
//!
//! A buffered entry that overwrites another one keeps the old value live, though it will never be read. With
//! separated values, that value is far longer than the entries, which are cheap to rewrite. Let r be the
//! tree's share of all bytes and w the fraction of a leaf that waits in buffers for it. The space lost is
//! about w/2, and rewriting leaves costs r/w per incoming byte. Cleaning segments with a garbage fraction k
//! costs 1/(2k). The marginal costs of space are equal if w is proportional to k √r. So the buffer size is
//! that of a tree with all of its values inside, times the root of r (decision 0045).
//!
//! **Invariants**
//! - It is a hint, in memory only: losing it costs time or space, never an answer.

use testudo_base::num::low64;
use testudo_contract::Work;

/// A tree's share of its pairs' bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeShare {
    /// Square root of the share, in 256ths.
    root: u64,
}

/// The root of the share 1.
const ALL: u64 = 256;
/// Minimum ratio of 1 to the root of a minor share.
const MINOR_ROOTS: u64 = 3;

impl TreeShare {
    /// All values are in the tree.
    pub const ALL: Self = Self { root: ALL };

    /// Share of a tree with `tree_bytes` and `separated_bytes` of separated values. Counts as all if it is
    /// more than a ninth: rewriting such a tree is too expensive.
    pub fn of(tree_bytes: u64, separated_bytes: u64) -> Self {
        let (own, all) = (u128::from(tree_bytes), u128::from(tree_bytes) + u128::from(separated_bytes));
        let share = (own * u128::from(ALL * ALL)).checked_div(all);
        let root = share.map_or(ALL, |share| low64(share).isqrt()).max(1);
        if root * MINOR_ROOTS <= ALL { Self { root } } else { Self::ALL }
    }

    /// Share of a tree after a change by `work`; `tree_bytes` is its new size.
    pub fn within(work: &Work, tree_bytes: impl FnOnce() -> u64) -> Self {
        work.values.as_ref().map_or(Self::ALL, |values| Self::of(tree_bytes(), values.permanent_bytes()))
    }

    /// Whether most bytes are separated, so that buffered entries cost more than rewriting the tree.
    pub fn is_minor(self) -> bool {
        self != Self::ALL
    }

    /// Scales the buffer size `bytes`, if every entry is an overwrite.
    pub fn waiting(self, bytes: u64) -> u64 {
        debug_assert!((1..=ALL).contains(&self.root), "a share is not zero, and no more than all");
        low64(u128::from(bytes) * u128::from(self.root) / u128::from(ALL))
    }

    /// Scales the buffer size `bytes`, if no overwrites are known: halfway to the size with all values in the
    /// tree, because buffering costs no space yet. But it would once overwriting begins.
    pub fn waiting_if_new(self, bytes: u64) -> u64 {
        u64::midpoint(bytes, self.waiting(bytes))
    }
}

impl Default for TreeShare {
    fn default() -> Self {
        Self::ALL
    }
}

#[cfg(test)]
mod tests;
