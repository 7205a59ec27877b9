//! How much of the incoming data overwrites leaves, from a few keys of each batch of updates.
//!
//! Rewritten leaves tell that exactly ([`Overwrites`]), but late: a tree that buffers as much as its leaves
//! hold rewrites none before. All of what came in until then is garbage, or makes garbage of as much in the
//! leaves. So a few incoming keys, one per leaf of bytes, are looked up in the filters of their leaves.
//!
//! **Invariants**
//! - It is a hint: a filter that cannot be read counts for nothing.

use std::sync::Arc;

use testudo_base::{
    checksum::hash_key,
    num::{u64_of, usize_of},
    planted,
};
use testudo_contract::Updates;
use testudo_run::{Access, Lookup};
use testudo_sequence::Overwrites;

use crate::{BeTreeOptions, trunk::node::Node};

/// Maximum number of keys looked up, each at the cost of one or two page reads.
const KEYS_MAX: u64 = 16;

/// Returns the estimate of `options` after `updates` to the tree below `root`. Looks up one key per leaf of
/// bytes, so small batches do not change it.
pub(crate) fn inflow_after(root: &Arc<Node>, options: &BeTreeOptions, updates: &dyn Updates) -> Overwrites {
    let count = (updates.bytes() / options.leaf_bytes.max(1)).min(KEYS_MAX);
    if count == 0 || planted!("overwrites-seen-late") {
        return options.inflow;
    }
    let borders = updates.borders();
    let step = borders.len().div_ceil(usize_of(count)).max(1);
    let mut keys = borders.iter().step_by(step).peekable();
    let (mut bytes, mut replacing) = (0, 0);
    let mut cursor = updates.cursor();
    while let Some(border) = keys.next() {
        let next = keys.peek().map(|next| next.as_slice());
        if cursor.seek(border).is_err() {
            continue;
        }
        let Some(entry) = cursor.entry() else { continue };
        let Some(is_known) = is_in_leaf(root, entry.key) else { continue };
        // Borders are at equal distances, not at equal numbers of entries.
        let weight = updates.bytes_between(Some(border), next);
        bytes += weight;
        replacing += weight * u64::from(is_known);
    }
    debug_assert!(u64_of(borders.len().div_ceil(step)) <= count, "at most this many lookups");
    options.inflow.after(bytes, replacing)
}

/// Whether the leaf of `key` has it, by its filter; `None` if that cannot be read.
fn is_in_leaf(root: &Arc<Node>, key: &[u8]) -> Option<bool> {
    let Some(leaf) = root.leaf_of(key) else { return Some(false) };
    let found = leaf.get_unless_known(key, hash_key(key), Access::Blocking, || Some(Lookup::Waiting));
    found.ok().map(|found| found != Lookup::Absent)
}
