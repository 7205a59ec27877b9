//! Two neighbouring nodes as one.
//!
//! What their tiers hold is disjoint, so tiers of equal age stand side by side, unless a run on one side
//! reaches beyond what is left of it into the other; then they stay two tiers.
//!
//! **Invariants**
//! - Tiers follow each other by age: a merge of neighbours takes the age of the newest, and no run may say
//!   that it is newer than what shadows it.

use std::cmp::Ordering;
use testudo_sequence::FencedRun;

use crate::{
    scan::scan_charges::ScanCharges,
    trunk::node::{Node, Tier},
};

/// `right` follows `left`. The node keeps the id of `left`.
pub(crate) fn concatenate(left: &Node, right: &Node) -> Node {
    debug_assert_eq!(left.height, right.height, "children of one node");
    debug_assert!(left.high.as_ref() == Some(&right.pivots[0].low), "neighbours");
    let border = Border { left, right };
    let mut tiers: Vec<Tier> = tiers_by_age(left, right).flat_map(|pair| border.put_beside(pair)).collect();
    tiers.retain(Tier::is_active);
    debug_assert!(tiers.is_sorted_by(|a, b| a.newest_seqno() >= b.newest_seqno()), "newest first");
    let pivots = left.pivots.iter().chain(&right.pivots).cloned().collect();
    Node {
        id: left.id,
        height: left.height,
        pivots,
        high: right.high.clone(),
        tiers,
        scan_charges: ScanCharges::default(),
        overwrites: left.overwrites,
    }
}

/// A tier of the left node and one of the right node, as old as each other; one of them may be missing.
type Pair<'n> = (Option<&'n Tier>, Option<&'n Tier>);

/// The tiers of both nodes, newest first.
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

/// Where the two nodes meet.
struct Border<'n> {
    left: &'n Node,
    right: &'n Node,
}

impl Border<'_> {
    /// Two tiers of equal age as one tier of the node, or as two where they do not fit beside each other.
    fn put_beside(&self, (tier, beside): Pair<'_>) -> Vec<Tier> {
        let mut tier = tier.cloned().unwrap_or_else(|| empty_tier(self.left));
        let mut beside = beside.cloned().unwrap_or_else(|| empty_tier(self.right));
        // A run that reached into both nodes is one run again.
        let is_shared = is_same_run(tier.runs.last(), beside.runs.first());
        if is_shared {
            beside.runs.remove(0);
        } else if self.is_crossed(tier.runs.last(), beside.runs.first()) {
            tier.shares.extend(empty_tier(self.right).shares);
            let shares = std::mem::replace(&mut beside.shares, empty_tier(self.left).shares);
            beside.shares.extend(shares);
            return vec![tier, beside];
        } else if let Some(first) = beside.runs.first_mut() {
            // Where nothing reaches over the border, that is a fence as good as any.
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

/// A tier of the node that holds nothing.
fn empty_tier(node: &Node) -> Tier {
    Tier { runs: Vec::new(), shares: vec![None; node.pivots.len()] }
}

fn is_same_run(a: Option<&FencedRun>, b: Option<&FencedRun>) -> bool {
    a.zip(b).is_some_and(|(a, b)| a.run.reference().id == b.run.reference().id)
}
