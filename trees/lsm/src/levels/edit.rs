//! What an edit changes in the manifest: objects, and references to spans.
//!
//! **Invariants**
//! - Segments do not change: those that both states have are told apart by their ids alone.

use std::collections::{BTreeMap, BTreeSet};

use testudo_base::{ExtentSpan, KeyspaceId, ObjectId};
use testudo_storage::Change;

use crate::levels::{
    Levels,
    component::{Component, Held, Segment},
    levels_format::{ROOT, encode_root, encode_segment},
};

fn segments(levels: &Levels) -> impl Iterator<Item = &Segment> {
    levels.components().flat_map(Component::segments).map(|segment| &**segment)
}

fn count(deltas: &mut BTreeMap<ExtentSpan, i32>, runs: &[Held], by: i32) {
    for span in runs.iter().flat_map(|held| &held.run().reference().spans) {
        *deltas.entry(*span).or_default() += by;
    }
}

/// The manifest changes that lead from `old` to `new`. `is_stored`: the manifest knows the old state.
pub(crate) fn changes_between(
    old: &Levels,
    new: &Levels,
    is_stored: bool,
    keyspace: KeyspaceId,
) -> Vec<Change> {
    let old_ids: BTreeSet<ObjectId> = segments(old).map(|segment| segment.id).filter(|_| is_stored).collect();
    let new_ids: BTreeSet<ObjectId> = segments(new).map(|segment| segment.id).collect();
    let mut deltas = BTreeMap::new();
    if is_stored {
        segments(old)
            .filter(|segment| !new_ids.contains(&segment.id))
            .for_each(|segment| count(&mut deltas, &segment.runs, -1));
        count(&mut deltas, &old.witnesses, -1);
    }
    let put: Vec<&Segment> = segments(new).filter(|segment| !old_ids.contains(&segment.id)).collect();
    put.iter().for_each(|segment| count(&mut deltas, &segment.runs, 1));
    count(&mut deltas, &new.witnesses, 1);
    // Spans given back come first: a new, shorter span may start where an old one did.
    let (back, taken): (Vec<_>, Vec<_>) =
        deltas.into_iter().filter(|(_, delta)| *delta != 0).partition(|(_, delta)| *delta < 0);
    let references = back.into_iter().chain(taken);
    let mut changes: Vec<Change> = references.map(|(span, delta)| Change::References(span, delta)).collect();
    changes.extend(old_ids.difference(&new_ids).map(|id| Change::DeleteObject(keyspace, *id)));
    let put = put.into_iter().map(|segment| Change::PutObject(keyspace, segment.id, encode_segment(segment)));
    changes.extend(put);
    changes.push(Change::PutObject(keyspace, ROOT, encode_root(new)));
    changes
}

/// The changes that give back all runs of the levels and delete their objects.
pub(crate) fn deletions_of(levels: &Levels, keyspace: KeyspaceId) -> Vec<Change> {
    let mut deltas = BTreeMap::new();
    segments(levels).for_each(|segment| count(&mut deltas, &segment.runs, -1));
    count(&mut deltas, &levels.witnesses, -1);
    let references = deltas.into_iter().map(|(span, delta)| Change::References(span, delta));
    let ids = segments(levels).map(|segment| segment.id).chain([ROOT]);
    references.chain(ids.map(|id| Change::DeleteObject(keyspace, id))).collect()
}
