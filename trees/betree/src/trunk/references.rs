//! How the references to spans change between two trunks, and the objects of an edit.

use std::{collections::BTreeMap, sync::Arc};

use testudo_base::{ExtentSpan, KeyspaceId, ObjectId};
use testudo_run::Run;
use testudo_storage::Change;

use crate::trunk::{
    assemble::Assembly,
    node::Node,
    node_format::{ROOT_POINTER, encode_node, encode_root_pointer},
};

/// Adds `by` for every span of every run that the node refers to.
fn count_node(deltas: &mut BTreeMap<ExtentSpan, i32>, node: &Node, by: i32) {
    for run in node.runs() {
        for span in &run.reference().spans {
            *deltas.entry(*span).or_default() += by;
        }
    }
}

/// The manifest changes that lead from the old trunk to the new one.
pub(crate) fn changes_of(assembly: &Assembly, keyspace: KeyspaceId, root: ObjectId) -> Vec<Change> {
    let mut deltas = BTreeMap::new();
    for node in &assembly.replaced {
        count_node(&mut deltas, node, -1);
    }
    for node in assembly.put.values() {
        count_node(&mut deltas, node, 1);
    }
    // Spans given back come first: a new, shorter span may start where an old one did.
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
    let pointer = encode_root_pointer(root, assembly.next_object);
    changes.push(Change::PutObject(keyspace, ROOT_POINTER, pointer));
    changes
}

/// The changes that give back all runs below `root` and delete its objects.
pub(crate) fn deletions_of(root: &Arc<Node>, keyspace: KeyspaceId) -> Vec<Change> {
    let (mut deltas, mut ids) = (BTreeMap::new(), vec![ROOT_POINTER]);
    visit(root, &mut |node| {
        count_node(&mut deltas, node, -1);
        ids.push(node.id);
    });
    let references = deltas.into_iter().map(|(span, delta)| Change::References(span, delta));
    references.chain(ids.into_iter().map(|id| Change::DeleteObject(keyspace, id))).collect()
}

fn visit(node: &Arc<Node>, act: &mut dyn FnMut(&Node)) {
    act(node);
    node.child_nodes().for_each(|child| visit(child, act));
}

/// Every run below `node`, once per reference.
pub(crate) fn all_runs(node: &Arc<Node>, out: &mut Vec<Arc<Run>>) {
    out.extend(node.runs().cloned());
    for child in node.child_nodes() {
        all_runs(child, out);
    }
}
