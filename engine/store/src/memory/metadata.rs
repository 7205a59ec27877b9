//! Metadata: memory that a store uses whether its data is read or not. The caches shrink by it, and by the
//! memory of flushes, open iterators, log buffers beyond the usual number and value logs. Where values are
//! separated, they also shrink by the extra memory of merges and scans.
//!
//! Runs are counted exactly. Nodes follow from the bytes of their objects, and a keyspace counts as a
//! constant: both are measured, including overhead of the allocator and of ordered maps. So is the memory of
//! flushes.
//!
//! **Invariants**
//! - Counting reads a few counters, however large the store is.

use testudo_base::{num::u64_of, planted, sync::atomic::Ordering::Relaxed};
use testudo_contract::Tree;

use crate::{
    Store,
    keyspace::{KeyspaceCore, View, WriteBuffer},
    memory::rebalance::rebalance_memory,
};

/// Bytes of a keyspace without its tree: its state, names, entries of catalogue and manifest.
const KEYSPACE_BYTES: usize = size_of::<KeyspaceCore>() + size_of::<View>() + size_of::<WriteBuffer>() + 512;
/// Bytes of an object in the manifest and its tree structures, in addition to its payload.
const OBJECT_BYTES: u64 = 300;
/// Copies of an object's payload in memory: the payload itself, and a node, which takes about twice as much.
const OBJECT_COPIES: u64 = 3;
/// Bytes that flushes need per keyspace beyond the first few: its part of an edit, and fragmentation of the
/// allocator's heaps.
const FLUSH_BYTES: u64 = 2 << 10;
/// Where values are separated, a merge writes three sequences of runs instead of one, and reads a chunk of
/// each transient segment; a scan holds the values it has read ahead. Measured with two threads …
pub const SEPARATION_BYTES: u64 = 4 << 20;
/// … but at most this fraction of the budget …
const SEPARATION_PARTS: u64 = 8;
/// … above a small one, which cannot hold that anyway.
const SMALL_BUDGET: u64 = 32 << 20;
/// Number of keyspaces that the reserve covers.
const FEW_KEYSPACES: u64 = 128;

/// Bytes of memory that metadata uses now.
pub fn metadata_bytes(store: &Store) -> u64 {
    let of_objects = |count: usize, bytes: u64| u64_of(count) * OBJECT_BYTES + bytes * OBJECT_COPIES;
    store.data.run_memory_bytes()
        + store.gap_bytes.load(Relaxed)
        + keyspace_count(store) * u64_of(KEYSPACE_BYTES)
        + store.manifest.with_state(|state| of_objects(state.objects.len(), state.object_bytes()))
}

/// Additional bytes of memory that flushes need; 0 before the first flush.
fn flush_bytes(store: &Store) -> u64 {
    let has_flushed = store.counters.flushes.load(Relaxed) > 0;
    u64::from(has_flushed) * keyspace_count(store).saturating_sub(FEW_KEYSPACES) * FLUSH_BYTES
}

/// Records properties of a published tree.
pub fn note_tree(store: &Store, tree: &dyn Tree) {
    if tree.value_segments().is_some_and(|segments| !segments.is_empty()) {
        store.has_separated_values.store(true, Relaxed);
    }
}

/// Bytes of memory that merges and scans need for separated values.
fn separated_bytes(store: &Store) -> u64 {
    let has_any = store.has_separated_values.load(Relaxed);
    let beyond_small = store.memory.total().saturating_sub(SMALL_BUDGET);
    u64::from(has_any) * SEPARATION_BYTES.min(beyond_small / SEPARATION_PARTS)
}

fn keyspace_count(store: &Store) -> u64 {
    u64_of(store.catalogue.read().by_id.len())
}

/// Adjusts the caches to the memory of metadata and log buffers. REQUIRES: no lock of the store is held
/// except `flush_lock`.
pub fn fit_caches(store: &Store) {
    let log_buffers = store.log.wal.as_ref().map_or(0, |wal| wal.extra_buffer_bytes());
    let log_buffers = log_buffers + store.value_logs.memory_bytes() + separated_bytes(store);
    let metadata = metadata_bytes(store) + flush_bytes(store) + store.iterators.bytes();
    if store.memory.note_metadata(metadata, log_buffers) && !planted!("metadata-not-made-room-for") {
        rebalance_memory(store);
    }
}
