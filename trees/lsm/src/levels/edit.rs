//! The manifest changes of an edit: objects, and references to spans.
//!
//! **Invariants**
//! - Compaction buffers are immutable: their ids alone identify those that both states have. So are the
//!   objects of segments; those of runs are written again for each version.
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
    levels_format::{ROOT, encode_root, encode_run_object, encode_segment},
};

fn segments(levels: &Levels) -> impl Iterator<Item = &Arc<Segment>> {
    levels.components().flat_map(Component::segments)
}

fn buffers(levels: &Levels) -> impl Iterator<Item = &CompactionBuffer> {
    levels.components().filter_map(Component::buffer).map(|buffer| &**buffer)
}

/// Ids of all objects but the root.
fn object_ids(levels: &Levels) -> impl Iterator<Item = ObjectId> {
    let of_segment = |segment: &Arc<Segment>| {
        let runs = segment.runs.iter().filter_map(|level_run| level_run.object);
        runs.chain([segment.id]).collect::<Vec<_>>()
    };
    segments(levels).flat_map(of_segment).chain(buffers(levels).map(|buffer| buffer.id))
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
    debug_assert!(
        object_ids(new).all(|id| id != ROOT && id.0 < new.next_object),
        "object ids are taken from `next_object`"
    );
    debug_assert_eq!(
        object_ids(new).collect::<BTreeSet<_>>().len(),
        object_ids(new).count(),
        "each object has its own id"
    );
    let by_id = |levels| segments(levels).map(|segment| (segment.id, segment)).collect();
    let old_segments: BTreeMap<ObjectId, &Arc<Segment>> =
        if is_stored { by_id(old) } else { BTreeMap::new() };
    let new_segments: BTreeMap<ObjectId, &Arc<Segment>> = by_id(new);
    let buffer_ids = |levels| buffers(levels).map(|buffer| buffer.id).collect();
    let old_buffers: BTreeSet<ObjectId> = if is_stored { buffer_ids(old) } else { BTreeSet::new() };
    let new_buffers: BTreeSet<ObjectId> = buffer_ids(new);
    let mut deltas = BTreeMap::new();
    if is_stored {
        count(&mut deltas, &old.witnesses, -1);
        count_each(&mut deltas, old.retained_runs().into_values(), -1);
    }
    // Objects of the old state, with their runs, that are not known to be in the new one.
    let mut gone: BTreeMap<ObjectId, Option<&LevelRun>> =
        old_buffers.difference(&new_buffers).map(|id| (*id, None)).collect();
    let is_in = |segments: &BTreeMap<ObjectId, &Arc<Segment>>, segment: &Arc<Segment>| {
        segments.get(&segment.id).is_some_and(|other| Arc::ptr_eq(other, segment))
    };
    for segment in old_segments.values().filter(|segment| !is_in(&new_segments, segment)) {
        count(&mut deltas, &segment.runs, -1);
        gone.extend(segment.runs.iter().filter_map(|level_run| Some((level_run.object?, Some(level_run)))));
        if !new_segments.contains_key(&segment.id) {
            gone.insert(segment.id, None);
        }
    }
    let mut put: Vec<(ObjectId, Vec<u8>)> = Vec::new();
    for segment in new_segments.values().filter(|segment| !is_in(&old_segments, segment)) {
        count(&mut deltas, &segment.runs, 1);
        if !old_segments.contains_key(&segment.id) {
            put.push((segment.id, encode_segment(segment)));
        }
        for level_run in &segment.runs {
            let Some(object) = level_run.object else { continue };
            let stored = gone.remove(&object).flatten();
            let is_current =
                |stored: &LevelRun| stored.is_stored_as(level_run) || planted!("run-object-not-written");
            if !stored.is_some_and(is_current) {
                put.push((object, encode_run_object(level_run)));
            }
        }
    }
    count(&mut deltas, &new.witnesses, 1);
    if !planted!("retained-extent-freed") {
        count_each(&mut deltas, new.retained_runs().into_values(), 1);
    }
    // Releases come first: a new, shorter span may start at the page of an old one.
    let (back, taken): (Vec<_>, Vec<_>) =
        deltas.into_iter().filter(|(_, delta)| *delta != 0).partition(|(_, delta)| *delta < 0);
    let references = back.into_iter().chain(taken);
    let mut changes: Vec<Change> = references.map(|(span, delta)| Change::References(span, delta)).collect();
    changes.extend(gone.into_keys().map(|id| Change::DeleteObject(keyspace, id)));
    changes.extend(put.into_iter().map(|(id, bytes)| Change::PutObject(keyspace, id, bytes)));
    let put = buffers(new).filter(|buffer| !old_buffers.contains(&buffer.id));
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
    let ids = object_ids(levels).chain([ROOT]);
    references.chain(ids.map(|id| Change::DeleteObject(keyspace, id))).collect()
}
