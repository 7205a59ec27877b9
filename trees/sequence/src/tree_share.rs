//! How much of its pairs a tree has itself, where long values lie outside, and what follows for what waits.
//!
//! An entry that waits above the one that it replaces keeps a value alive that nobody will read. Where values
//! lie outside that value is far longer than the entries, and these cost little to write anew. Let r be the
//! tree's share of all bytes and w the part of a leaf that waits for it: the space lost is about w / 2, and
//! writing leaves anew costs r / w for each byte that comes in. Cleaning segments of which a part k is dead
//! costs 1 / 2k. The last byte of space costs equally much both ways if w is in proportion to k √r. So what
//! may wait is that of a tree with all of its values, times the root of r (decision 0045).
//!
//! **Invariants**
//! - It is advice, kept in memory only: losing it costs time or space, never an answer.

use testudo_base::num::low64;
use testudo_contract::Work;

/// A tree's share of its pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeShare {
    /// The root of it, in 256ths.
    root: u64,
}

/// The root of everything.
const ALL: u64 = 256;
/// How many times the root of a share that counts is in that, at least.
const MINOR_ROOTS: u64 = 3;

impl TreeShare {
    /// Every value is in the tree.
    pub const ALL: Self = Self { root: ALL };

    /// Of a tree with so many bytes, to whose entries values of so many bytes outside belong. It counts as
    /// all if it is more than a ninth: writing such a tree anew is too dear.
    pub fn of(tree_bytes: u64, outside_bytes: u64) -> Self {
        let (own, all) = (u128::from(tree_bytes), u128::from(tree_bytes) + u128::from(outside_bytes));
        let share = (own * u128::from(ALL * ALL)).checked_div(all);
        let root = share.map_or(ALL, |share| low64(share).isqrt()).max(1);
        if root * MINOR_ROOTS <= ALL { Self { root } } else { Self::ALL }
    }

    /// Of a tree that `work` has changed, which has so many bytes now.
    pub fn within(work: &Work, tree_bytes: impl FnOnce() -> u64) -> Self {
        work.values.as_ref().map_or(Self::ALL, |values| Self::of(tree_bytes(), values.staying_bytes()))
    }

    /// Whether most bytes are outside, so that it matters more what waits in the tree than what it writes.
    pub fn is_minor(self) -> bool {
        self != Self::ALL
    }

    /// What may wait in the place of so many bytes, if everything replaces something.
    pub fn waiting(self, bytes: u64) -> u64 {
        low64(u128::from(bytes) * u128::from(self.root) / u128::from(ALL))
    }

    /// The same if nothing is known to replace anything: halfway to what waits where all values are in the
    /// tree, for it costs no space yet. But when overwriting begins it is in the way.
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
