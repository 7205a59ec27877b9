//! Concatenation of two adjacent nodes.
//!
//! The data of their tiers is disjoint, so tiers of equal age become one. If a run on one side extends beyond
//! its remaining share into the other side, they stay two tiers.
//!
//! **Invariants**
//! - Tiers are ordered by age: a merge of adjacent ones takes the age of the newest, and no run may claim to
//!   be newer than a run that shadows it.

use std::cmp::Ordering;
use testudo_sequence::FencedRun;

use crate::{
    read_charges::ReadCharges,
    trunk::node::{Node, Tier},
};

/// Concatenates two nodes; `right` follows `left`. The result keeps the id of `left`.
pub(crate) fn concatenate(left: &Node, right: &Node) -> Node {
    debug_assert_eq!(left.height, right.height, "children of one node");
    debug_assert!(left.high.as_ref() == Some(&right.pivots[0].low), "neighbours");
    let border = Border { left, right };
    let mut tiers: Vec<Tier> = tiers_by_age(left, right).flat_map(|pair| border.put_beside(pair)).collect();
    tiers.retain(Tier::is_active);
    debug_assert!(
        tiers.iter().all(|tier| tier.shares.len() == left.pivots.len() + right.pivots.len()),
        "a tier has one share per pivot of both nodes"
    );
    debug_assert!(tiers.is_sorted_by(|a, b| a.newest_seqno() >= b.newest_seqno()), "newest first");
    let pivots = left.pivots.iter().chain(&right.pivots).cloned().collect();
    Node {
        id: left.id,
        height: left.height,
        pivots,
        high: right.high.clone(),
        tiers,
        read_charges: ReadCharges::default(),
        overwrites: left.overwrites,
    }
}

/// Tiers of equal age of the left and the right node; one of them may be missing.
type Pair<'n> = (Option<&'n Tier>, Option<&'n Tier>);

/// Pairs up the tiers of both nodes, newest first.
fn tiers_by_age<'n>(left: &'n Node, right: &'n Node) -> impl Iterator<Item = Pair<'n>> {
    let (mut lefts, mut rights) = (left.tiers.iter().peekable(), right.tiers.iter().peekable());
    std::iter::from_fn(move || {
        let age_left = lefts.peek().map(|tier| tier.newest_seqno());
        let age_right = rights.peek().map(|tier| tier.newest_seqno());
        match age_left.cmp(&age_right) {
            Ordering::Equal => age_left.map(|_| (lefts.next(), rights.next())),
            Ordering::Greater => Some((lefts.next(), None)),
            Ordering::Less => Some((None, rights.next())),
        }
    })
}

/// The border between the two nodes.
struct Border<'n> {
    left: &'n Node,
    right: &'n Node,
}

impl Border<'_> {
    /// Returns two tiers of equal age as one tier of the node, or as two if they conflict.
    fn put_beside(&self, (tier, beside): Pair<'_>) -> Vec<Tier> {
        let mut tier = tier.cloned().unwrap_or_else(|| empty_tier(self.left));
        let mut beside = beside.cloned().unwrap_or_else(|| empty_tier(self.right));
        // A run that is in both nodes becomes one run again.
        let is_shared = is_same_run(tier.runs.last(), beside.runs.first());
        if is_shared {
            beside.runs.remove(0);
        } else if self.is_crossed(tier.runs.last(), beside.runs.first()) {
            tier.shares.extend(empty_tier(self.right).shares);
            let shares = std::mem::replace(&mut beside.shares, empty_tier(self.left).shares);
            beside.shares.extend(shares);
            return vec![tier, beside];
        } else if let Some(first) = beside.runs.first_mut() {
            // If no run crosses the border, the border is a valid fence.
            first.low = self.right.pivots[0].low.clone().max(first.low.clone());
        }
        tier.runs.extend(beside.runs);
        tier.shares.extend(beside.shares);
        vec![tier]
    }

    /// Whether the last run on the left or the first on the right may hold keys of the other side: those were
    /// flushed long ago and must not count again.
    fn is_crossed(&self, last: Option<&FencedRun>, first: Option<&FencedRun>) -> bool {
        let border = self.right.pivots[0].low.to_vec();
        let reaches_right = last.is_some_and(|last| !last.run.reference().keys.end_before(&border));
        let reaches_left = first.is_some_and(|first| {
            first.low.is_less_than(&border) && !first.run.reference().keys.begin_at_or_after(&border)
        });
        reaches_right || reaches_left
    }
}

/// Returns an empty tier of the node.
fn empty_tier(node: &Node) -> Tier {
    Tier { runs: Vec::new(), shares: vec![None; node.pivots.len()] }
}

fn is_same_run(a: Option<&FencedRun>, b: Option<&FencedRun>) -> bool {
    a.zip(b).is_some_and(|(a, b)| a.run.reference().id == b.run.reference().id)
}
