//! What a step of reclaiming writes anew, which the engine carries from choosing it to doing it.
//!
//! **Invariants**
//! - Only trees of this family make and understand it.

use testudo_base::{ObjectId, RunId, Seqno};
use testudo_contract::Reclaim;

/// What a step writes anew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// A leaf, merged with what waits for it.
    Leaf {
        /// Which pivot of each node leads there.
        path: Vec<usize>,
        /// Of what waits, this many bytes or a little more go there, the first in key order.
        waiting_max: u64,
    },
    /// So many neighbouring leaves from there on, as one.
    Leaves(Vec<usize>, usize),
    /// The tiers of these nodes that are no newer and no older than that, as one in each node.
    Tiers { nodes: Vec<ObjectId>, newest: Seqno, oldest: Seqno },
    /// A run of tiers, without what is dead of it.
    Run(RunId),
    /// Nothing: what only the compaction buffer has is given up.
    Retained,
}

/// What `reclaim`, which a tree of this family chose, writes anew.
pub(crate) fn target_of(reclaim: &Reclaim) -> &Target {
    match reclaim.target.of() {
        Some(target) => target,
        None => panic!("{reclaim:?} was chosen by a tree of another family"),
    }
}
