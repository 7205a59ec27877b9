//! A tree with updates on top of it that nothing is merged with: cheap to write, and of use to readers only.
//!
//! **Invariants**
//! - Updates become one tier of the root, newer than all others; everything below is shared.

use testudo_base::Result;
use testudo_contract::{Updates, Work};
use testudo_sequence::write_updates;

use crate::{
    BeTreeOptions,
    trunk::node::{Node, Share, Tier},
};

/// `root` with `updates` in front of its tiers.
pub(crate) fn stack(
    root: &Node,
    work: &Work,
    updates: &dyn Updates,
    options: &BeTreeOptions,
) -> Result<Node> {
    let runs = write_updates(work, updates, options.tier_run_bytes(root.overwrites))?;
    let mut node = root.clone();
    if !runs.is_empty() {
        let bytes = runs.iter().map(|fenced| fenced.run.reference().user_bytes).sum::<u64>();
        let share = Share { from: None, bytes: bytes / testudo_base::num::u64_of(node.pivots.len()) };
        let shares = vec![Some(share); node.pivots.len()];
        node.tiers.insert(0, Tier { runs, shares });
    }
    Ok(node)
}
