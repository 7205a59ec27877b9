//! The manifest changes of an edit: objects, and references to spans.
//!
//! **Invariants**
//! - Segments and compaction buffers are immutable: their ids alone identify those that both states have.
//! - A run of compaction buffers has one reference for them, in addition to its other references.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use testudo_base::{ExtentSpan, KeyspaceId, ObjectId, planted};
use testudo_run::Run;
use testudo_sequence::{CompactionBuffer, encode_buffer};
use testudo_storage::Change;

use crate::levels::{
    Levels,
    component::{Component, LevelRun, Segment},
    levels_format::{ROOT, encode_root, encode_segment},
};

fn segments(levels: &Levels) -> impl Iterator<Item = &Segment> {
    levels.components().flat_map(Component::segments).map(|segment| &**segment)
}

fn buffers(levels: &Levels) -> impl Iterator<Item = &CompactionBuffer> {
    levels.components().filter_map(Component::buffer).map(|buffer| &**buffer)
}

fn count(deltas: &mut BTreeMap<ExtentSpan, i32>, runs: &[LevelRun], by: i32) {
    count_each(deltas, runs.iter().map(LevelRun::run), by);
}

fn count_each<'a>(deltas: &mut BTreeMap<ExtentSpan, i32>, runs: impl Iterator<Item = &'a Arc<Run>>, by: i32) {
    for span in runs.flat_map(|run| &run.reference().spans) {
        *deltas.entry(*span).or_default() += by;
    }
}

/// Returns the manifest changes from `old` to `new`. `is_stored`: the old state is persisted in the manifest.
pub(crate) fn changes_between(
    old: &Levels,
    new: &Levels,
    is_stored: bool,
    keyspace: KeyspaceId,
) -> Vec<Change> {
    let ids = |levels| -> BTreeSet<ObjectId> {
        segments(levels).map(|segment| segment.id).chain(buffers(levels).map(|buffer| buffer.id)).collect()
    };
    let old_ids = if is_stored { ids(old) } else { BTreeSet::new() };
    let new_ids = ids(new);
    debug_assert!(
        new_ids.iter().all(|id| *id != ROOT && id.0 < new.next_object),
        "object ids are taken from `next_object`"
    );
    debug_assert_eq!(
        new_ids.len(),
        segments(new).count() + buffers(new).count(),
        "each object has its own id"
    );
    let mut deltas = BTreeMap::new();
    if is_stored {
        segments(old)
            .filter(|segment| !new_ids.contains(&segment.id))
            .for_each(|segment| count(&mut deltas, &segment.runs, -1));
        count(&mut deltas, &old.witnesses, -1);
        count_each(&mut deltas, old.retained_runs().into_values(), -1);
    }
    let put: Vec<&Segment> = segments(new).filter(|segment| !old_ids.contains(&segment.id)).collect();
    put.iter().for_each(|segment| count(&mut deltas, &segment.runs, 1));
    count(&mut deltas, &new.witnesses, 1);
    if !planted!("retained-extent-freed") {
        count_each(&mut deltas, new.retained_runs().into_values(), 1);
    }
    // Releases come first: a new, shorter span may start at the page of an old one.
    let (back, taken): (Vec<_>, Vec<_>) =
        deltas.into_iter().filter(|(_, delta)| *delta != 0).partition(|(_, delta)| *delta < 0);
    let references = back.into_iter().chain(taken);
    let mut changes: Vec<Change> = references.map(|(span, delta)| Change::References(span, delta)).collect();
    changes.extend(old_ids.difference(&new_ids).map(|id| Change::DeleteObject(keyspace, *id)));
    let put = put.into_iter().map(|segment| Change::PutObject(keyspace, segment.id, encode_segment(segment)));
    changes.extend(put);
    let put = buffers(new).filter(|buffer| !old_ids.contains(&buffer.id));
    changes.extend(put.map(|buffer| Change::PutObject(keyspace, buffer.id, encode_buffer(buffer))));
    changes.push(Change::PutObject(keyspace, ROOT, encode_root(new)));
    changes
}

/// Returns the changes that release all runs of the levels and delete their objects.
pub(crate) fn deletions_of(levels: &Levels, keyspace: KeyspaceId) -> Vec<Change> {
    let mut deltas = BTreeMap::new();
    segments(levels).for_each(|segment| count(&mut deltas, &segment.runs, -1));
    count(&mut deltas, &levels.witnesses, -1);
    count_each(&mut deltas, levels.retained_runs().into_values(), -1);
    debug_assert!(deltas.values().all(|delta| *delta < 0), "a deletion only releases space");
    let references = deltas.into_iter().map(|(span, delta)| Change::References(span, delta));
    let ids = segments(levels).map(|segment| segment.id).chain(buffers(levels).map(|buffer| buffer.id));
    let ids = ids.chain([ROOT]);
    references.chain(ids.map(|id| Change::DeleteObject(keyspace, id))).collect()
}
