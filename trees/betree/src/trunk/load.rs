//! Loading a tree's nodes from their objects in the manifest. No page is read.
//!
//! **Invariants**
//! - Objects that contradict each other or the live extents are reported as `Corruption`.

use std::{collections::BTreeMap, sync::Arc};

use testudo_base::{Error, KeyspaceId, ObjectId, Result, codec::Damage};
use testudo_run::Run;
use testudo_sequence::{FencedRun, Overwrites};
use testudo_storage::DataFile;

use crate::{
    read_charges::ReadCharges,
    trunk::{
        node::{Child, Node, Pivot, Tier},
        node_format::{StoredChild, decode_node},
    },
    update::plan::MAX_HEIGHT,
};

pub(crate) fn damaged(keyspace: KeyspaceId, object: ObjectId, why: &str) -> Error {
    Error::corruption("manifest", 0, format!("object {object} of keyspace {keyspace}: {why}"))
}

/// Loads the node `id` with all descendants, and removes them from `objects`.
pub(crate) fn load_node(
    data: &Arc<DataFile>,
    keyspace: KeyspaceId,
    objects: &mut BTreeMap<ObjectId, Arc<[u8]>>,
    id: ObjectId,
    depth: u32,
) -> Result<Arc<Node>> {
    // Objects are removed, so a node that is its own descendant is reported as missing.
    let bytes = objects.remove(&id).ok_or_else(|| damaged(keyspace, id, "is missing"))?;
    let stored = decode_node(&bytes).map_err(|Damage(why)| damaged(keyspace, id, why))?;
    if depth > MAX_HEIGHT || stored.height == 0 {
        return Err(damaged(keyspace, id, "is too deep"));
    }
    let open = |reference| Run::open(Arc::clone(data), reference);
    let mut pivots = Vec::with_capacity(stored.pivots.len());
    for (low, child) in stored.pivots {
        let child = match child {
            StoredChild::Leaf(run) => Child::Leaf(run.map(open).transpose()?),
            StoredChild::Node(child) => {
                let child = load_node(data, keyspace, objects, child, depth + 1)?;
                if child.height + 1 != stored.height || child.pivots[0].low != low {
                    return Err(damaged(keyspace, child.id, "does not fit its parent"));
                }
                Child::Node(child)
            }
        };
        pivots.push(Pivot { low, child });
    }
    for (at, Pivot { child, .. }) in pivots.iter().enumerate() {
        let end = pivots.get(at + 1).map(|next| &next.low).or(stored.high.as_ref());
        if let Child::Node(child) = child
            && child.high.as_ref() != end
        {
            return Err(damaged(keyspace, child.id, "does not end where its parent says"));
        }
    }
    let mut tiers = Vec::with_capacity(stored.tiers.len());
    for tier in stored.tiers {
        // `collect` would reuse the allocation of the references, which is three times as large.
        let mut runs = Vec::with_capacity(tier.runs.len());
        for (low, reference) in tier.runs {
            runs.push(FencedRun { low, run: open(reference)? });
        }
        tiers.push(Tier { runs, shares: tier.shares });
    }
    let node = Node {
        id,
        height: stored.height,
        pivots,
        high: stored.high,
        tiers,
        read_charges: ReadCharges::default(),
        overwrites: Overwrites::UNKNOWN,
    };
    Ok(Arc::new(node.with_shared_starts()))
}
