//! The runs in a tree's objects, without opening any: which keys of which run count.
//!
//! For salvage, which reads the runs itself and does not require them to be valid.
//!
//! **Invariants**
//! - Of two runs that count for a key, the one with the greater newest seqno, then id, has the newer entry.

use std::collections::BTreeMap;

use testudo_base::{ObjectId, RunId, codec::Damage, sync::Arc};
use testudo_contract::{PartUse, RunUse};
use testudo_run::{KeyBounds, RunRef};
use testudo_sequence::{Fence, decode_buffer};

use crate::{
    trunk::node_format::{
        ROOT_POINTER, RootPointer, StoredChild, StoredNode, decode_node, decode_root_pointer,
    },
    update::plan::MAX_HEIGHT,
};

/// Returns the runs of the tree that `objects` describe.
///
/// Errors: [`Damage`] if the objects contradict each other.
pub fn read_layout(mut objects: BTreeMap<ObjectId, Arc<[u8]>>) -> Result<Vec<PartUse>, Damage> {
    let mut uses = BTreeMap::new();
    if let Some(pointer) = objects.remove(&ROOT_POINTER) {
        let RootPointer { root, buffer, .. } = decode_root_pointer(&pointer)?;
        collect(&mut objects, root, 0, &mut uses)?;
        // Entries of the compaction buffer are in the leaves as well, and count there.
        if let Some(id) = buffer {
            let bytes = objects.remove(&id).ok_or(Damage("a compaction buffer is missing"))?;
            for reference in decode_buffer(&bytes)?.runs {
                let unread = |reference| RunUse { reference, counts_in: Vec::new() };
                uses.entry(reference.id).or_insert_with(|| unread(reference));
            }
        }
    }
    if objects.is_empty() {
        Ok(uses.into_values().map(PartUse::Run).collect())
    } else {
        Err(Damage("a node is unreachable"))
    }
}

fn collect(
    objects: &mut BTreeMap<ObjectId, Arc<[u8]>>,
    id: ObjectId,
    depth: u32,
    uses: &mut BTreeMap<RunId, RunUse>,
) -> Result<(), Damage> {
    if depth > MAX_HEIGHT {
        return Err(Damage("a tree is impossibly deep"));
    }
    // Objects are removed, so a node that is its own descendant is reported as missing.
    let bytes = objects.remove(&id).ok_or(Damage("a node is missing"))?;
    let node = decode_node(&bytes)?;
    let bounds: Vec<KeyBounds> = (0..node.pivots.len()).map(|pivot| bounds_of(&node, pivot)).collect();
    for tier in node.tiers {
        for (share, bounds) in tier.shares.iter().zip(&bounds) {
            let Some(share) = share else { continue };
            let from = KeyBounds { low: share.from.clone(), high: None };
            let active = bounds.intersection(&from);
            for (at, (low, run)) in tier.runs.iter().enumerate() {
                let next = tier.runs.get(at + 1).map(|(next, _)| next);
                let is_behind = active.high.as_deref().is_some_and(|high| !low.is_less_than(high));
                let is_before =
                    active.low.as_deref().zip(next).is_some_and(|(low, next)| next.is_at_most(low));
                if !is_behind && !is_before {
                    note(uses, run, &active);
                }
            }
        }
    }
    for ((_, child), bounds) in node.pivots.into_iter().zip(bounds) {
        match child {
            StoredChild::Node(child) => collect(objects, child, depth + 1, uses)?,
            StoredChild::Leaf(Some(run)) => note(uses, &run, &bounds),
            StoredChild::Leaf(None) => {}
        }
    }
    Ok(())
}

fn bounds_of(node: &StoredNode, pivot: usize) -> KeyBounds {
    let high = node.pivots.get(pivot + 1).map(|(low, _)| low).or(node.high.as_ref());
    KeyBounds { low: node.pivots[pivot].0.as_low().map(|low| low.to_vec()), high: high.map(Fence::to_vec) }
}

/// Records that a run counts in `bounds`, if it has keys there.
fn note(uses: &mut BTreeMap<RunId, RunUse>, run: &RunRef, bounds: &KeyBounds) {
    let before = bounds.high.as_deref().is_some_and(|high| run.keys.begin_at_or_after(high));
    let after = bounds.low.as_deref().is_some_and(|low| run.keys.end_before(low));
    if before || after || bounds.is_empty() {
        return;
    }
    let entry = uses.entry(run.id);
    let found = entry.or_insert_with(|| RunUse { reference: run.clone(), counts_in: Vec::new() });
    match found.counts_in.last_mut() {
        Some(last) if last.high.is_some() && last.high == bounds.low => last.high.clone_from(&bounds.high),
        _ => found.counts_in.push(bounds.clone()),
    }
}
