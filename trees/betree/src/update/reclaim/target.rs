//! The target of a reclaim step, which the engine passes from picking to executing it.
//!
//! **Invariants**
//! - Only trees of this family create and interpret it.

use testudo_base::{ObjectId, RunId, Seqno};
use testudo_sequence::ReclaimTarget;

/// Data that a step rewrites.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// A leaf, merged with its buffered entries.
    Leaf {
        /// Pivot to take in each node.
        path: Vec<usize>,
        /// Approximate bytes of buffered entries to flush, the first in key order.
        waiting_max: u64,
    },
    /// This many adjacent leaves from the path's end on, joined into one.
    Leaves(Vec<usize>, usize),
    /// The tiers of these nodes within the range of seqnos, merged into one per node.
    Tiers { nodes: Vec<ObjectId>, newest: Seqno, oldest: Seqno },
    /// A run of tiers, without its garbage.
    Run(RunId),
    /// Nothing: drops data that is only in the compaction buffer.
    Retained,
}

impl ReclaimTarget for Target {
    fn is_merge(&self) -> bool {
        matches!(self, Self::Leaf { .. })
    }
}
