//! Changes of span references between two trunks, and the objects of an edit.

use std::{collections::BTreeMap, sync::Arc};

use testudo_base::{ExtentSpan, KeyspaceId, ObjectId};
use testudo_run::Run;
use testudo_sequence::{CompactionBuffer, encode_buffer};
use testudo_storage::Change;

use crate::trunk::{
    assemble::Assembly,
    node::Node,
    node_format::{ROOT_POINTER, RootPointer, encode_node, encode_root_pointer},
};

/// Adds `by` for every span of every run that the node refers to.
fn count_node(deltas: &mut BTreeMap<ExtentSpan, i32>, node: &Node, by: i32) {
    node.runs().for_each(|run| count_run(deltas, run, by));
}

/// Adds `by` once for every run of a compaction buffer, in addition to other references to it.
fn count_buffer(deltas: &mut BTreeMap<ExtentSpan, i32>, buffer: Option<&CompactionBuffer>, by: i32) {
    let runs = buffer.map(CompactionBuffer::runs).unwrap_or_default();
    runs.into_values().for_each(|run| count_run(deltas, run, by));
}

fn count_run(deltas: &mut BTreeMap<ExtentSpan, i32>, run: &Arc<Run>, by: i32) {
    for span in &run.reference().spans {
        *deltas.entry(*span).or_default() += by;
    }
}

/// The compaction buffers of the leaves before an edit, as persisted in the manifest, and after it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Buffers<'a> {
    pub(crate) old: Option<&'a CompactionBuffer>,
    pub(crate) new: Option<&'a CompactionBuffer>,
}

/// Returns the manifest changes from the old trunk to the new one.
pub(crate) fn changes_of(
    assembly: &Assembly,
    keyspace: KeyspaceId,
    root: ObjectId,
    buffers: Buffers<'_>,
) -> Vec<Change> {
    let Buffers { old, new } = buffers;
    debug_assert!(
        assembly.put.keys().all(|id| *id != ROOT_POINTER && id.0 < assembly.next_object),
        "object ids are taken from `next_object`"
    );
    debug_assert!(assembly.put.iter().all(|(id, node)| *id == node.id), "nodes are put by their ids");
    let mut deltas = BTreeMap::new();
    count_buffer(&mut deltas, old, -1);
    count_buffer(&mut deltas, new, 1);
    for node in &assembly.replaced {
        count_node(&mut deltas, node, -1);
    }
    for node in assembly.put.values() {
        count_node(&mut deltas, node, 1);
    }
    // Releases come first: a new, shorter span may start at the page of an old one.
    let mut changes = Vec::new();
    let (back, taken): (Vec<_>, Vec<_>) =
        deltas.into_iter().filter(|(_, delta)| *delta != 0).partition(|(_, delta)| *delta < 0);
    changes.extend(back.into_iter().chain(taken).map(|(span, delta)| Change::References(span, delta)));
    for node in &assembly.replaced {
        if !assembly.put.contains_key(&node.id) {
            changes.push(Change::DeleteObject(keyspace, node.id));
        }
    }
    for node in assembly.put.values() {
        changes.push(Change::PutObject(keyspace, node.id, encode_node(node)));
    }
    // Buffers are immutable: a different id means a different buffer.
    let (old_id, new_id) = (old.map(|buffer| buffer.id), new.map(|buffer| buffer.id));
    if old_id != new_id {
        changes.extend(old_id.map(|id| Change::DeleteObject(keyspace, id)));
        changes.extend(new.map(|buffer| Change::PutObject(keyspace, buffer.id, encode_buffer(buffer))));
    }
    let pointer = RootPointer { root, next_object: assembly.next_object, buffer: new_id };
    changes.push(Change::PutObject(keyspace, ROOT_POINTER, encode_root_pointer(&pointer)));
    changes
}

/// Returns the changes that release all runs below `root` and of `buffer`, and delete all objects.
pub(crate) fn deletions_of(
    root: &Arc<Node>,
    buffer: Option<&CompactionBuffer>,
    keyspace: KeyspaceId,
) -> Vec<Change> {
    let (mut deltas, mut ids) = (BTreeMap::new(), vec![ROOT_POINTER]);
    count_buffer(&mut deltas, buffer, -1);
    ids.extend(buffer.map(|buffer| buffer.id));
    visit(root, &mut |node| {
        count_node(&mut deltas, node, -1);
        ids.push(node.id);
    });
    debug_assert!(deltas.values().all(|delta| *delta < 0), "a deletion only releases space");
    let references = deltas.into_iter().map(|(span, delta)| Change::References(span, delta));
    references.chain(ids.into_iter().map(|id| Change::DeleteObject(keyspace, id))).collect()
}

fn visit(node: &Arc<Node>, act: &mut dyn FnMut(&Node)) {
    act(node);
    node.child_nodes().for_each(|child| visit(child, act));
}

/// Collects every run below `node`, once per reference.
pub(crate) fn all_runs(node: &Arc<Node>, out: &mut Vec<Arc<Run>>) {
    out.extend(node.runs().cloned());
    for child in node.child_nodes() {
        all_runs(child, out);
    }
}
