//! Metadata: what a store has in memory whether it is used or not, and how caches make room for it; for what
//! flushes need beside it, and open iterators; and for log buffers beyond the usual few, and those of value
//! logs, while they are there. So they do for what merges and scans need beside all that where values lie
//! outside the trees.
//!
//! Runs are counted exactly. Nodes follow from the bytes of their objects, and for a keyspace there is a
//! constant: both as measured, with what an allocator and ordered maps take. So is what flushes need.
//!
//! **Invariants**
//! - Counting is a matter of a few numbers, however large the store is.

use testudo_base::{num::u64_of, planted, sync::atomic::Ordering::Relaxed};
use testudo_contract::Tree;

use crate::{
    Store,
    keyspace::{KeyspaceCore, View, WriteBuffer},
    memory::rebalance::rebalance_memory,
};

/// A keyspace without its tree: itself, names, entries of catalogue and manifest.
const KEYSPACE_BYTES: usize = size_of::<KeyspaceCore>() + size_of::<View>() + size_of::<WriteBuffer>() + 512;
/// An object of the manifest, and what it becomes in a tree, beside its bytes.
const OBJECT_BYTES: u64 = 300;
/// The bytes of an object are in memory as they are, and again as a node, which takes about twice as many.
const OBJECT_COPIES: u64 = 3;
/// What flushes of many keyspaces need for each: its part of an edit, and what they leave unused in the heaps
/// of the allocator.
const FLUSH_BYTES: u64 = 2 << 10;
/// Where values lie outside, a merge writes three sequences of runs in the place of one, and reads a piece of
/// each transient segment; a scan has the values that it has taken ahead. As measured, in two threads …
pub const OUTSIDE_BYTES: u64 = 4 << 20;
/// … but no more than this part of what a budget has …
const OUTSIDE_PARTS: u64 = 8;
/// … beyond one that cannot hold that anyway.
const SMALL_BUDGET: u64 = 32 << 20;
/// For so many keyspaces the reserve has room.
const FEW_KEYSPACES: u64 = 128;

/// Bytes of memory that metadata takes now.
pub fn metadata_bytes(store: &Store) -> u64 {
    let of_objects = |count: usize, bytes: u64| u64_of(count) * OBJECT_BYTES + bytes * OBJECT_COPIES;
    store.data.run_memory_bytes()
        + store.gap_bytes.load(Relaxed)
        + keyspace_count(store) * u64_of(KEYSPACE_BYTES)
        + store.manifest.with_state(|state| of_objects(state.objects.len(), state.object_bytes()))
}

/// Bytes of memory that flushes need beside that; nothing before the first one.
fn flush_bytes(store: &Store) -> u64 {
    let has_flushed = store.counters.flushes.load(Relaxed) > 0;
    u64::from(has_flushed) * keyspace_count(store).saturating_sub(FEW_KEYSPACES) * FLUSH_BYTES
}

/// Takes note of a tree that is published.
pub fn note_tree(store: &Store, tree: &dyn Tree) {
    if tree.value_segments().is_some_and(|segments| !segments.is_empty()) {
        store.has_values_outside.store(true, Relaxed);
    }
}

/// Bytes of memory that merges and scans need for values outside.
fn outside_bytes(store: &Store) -> u64 {
    let has_any = store.has_values_outside.load(Relaxed);
    let beyond_small = store.memory.total().saturating_sub(SMALL_BUDGET);
    u64::from(has_any) * OUTSIDE_BYTES.min(beyond_small / OUTSIDE_PARTS)
}

fn keyspace_count(store: &Store) -> u64 {
    u64_of(store.catalogue.read().by_id.len())
}

/// Lets the caches follow what metadata and log buffers take. REQUIRES: of the locks of the store none is
/// held but `flush_lock`.
pub fn fit_caches(store: &Store) {
    let log_buffers = store.log.wal.as_ref().map_or(0, |wal| wal.extra_buffer_bytes());
    let log_buffers = log_buffers + store.value_logs.memory_bytes() + outside_bytes(store);
    let metadata = metadata_bytes(store) + flush_bytes(store) + store.iterators.bytes();
    if store.memory.note_metadata(metadata, log_buffers) && !planted!("metadata-not-made-room-for") {
        rebalance_memory(store);
    }
}
