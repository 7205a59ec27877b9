//! Spills flushed write buffers that are still held to disk when they use too much memory.
//!
//! Snapshots, iterators and value readers see versions that are in no tree. Each such buffer is written once,
//! with all versions that any holder needs, and all holders read that copy
//! (`engine/store/src/snapshots/spilled_buffer.rs`). There is no work per holder, so ten thousand cost no
//! more than one.
//!
//! **Invariants**
//! - Only buffers that were flushed, or dropped with their keyspace, are spilled, under `flush_lock`.
//! - Every possible reader of a buffer registered before its flush: no later reader finds it in a view.

use testudo_base::{Result, Seqno, planted, sync::Arc};
use testudo_contract::Progress;
use testudo_store::{
    Store,
    keyspace::KeyspaceCore,
    snapshots::{
        held_views::PinnedBuffer,
        spilled_buffer::{SpilledBuffer, Spilling},
    },
};

use crate::seal::seal_buffers::recount_sealed;

/// Flushed buffers may use this fraction of the write memory before they are spilled …
const PINNED_PART: u64 = 8;
/// … and this fraction after spilling: the smallest stay, since many of them amount to little.
const LEFT_PART: u64 = 16;

const _: () = assert!(LEFT_PART > PINNED_PART, "spilling frees memory");

/// Spills flushed buffers if they use too much memory; writers are throttled by its progress.
/// REQUIRES: `flush_lock` is held.
pub fn spill_held_buffers(store: &Store) {
    debug_assert!(store.is_flush_locked(), "nothing is flushed meanwhile");
    let mut pinned = store.snapshots.holdings.pinned();
    let mut bytes: u64 = pinned.iter().map(|pinned| pinned.bytes).sum();
    let write_buffers = store.backpressure.write_buffers();
    if bytes <= write_buffers / PINNED_PART || planted!("flushed-buffers-kept") {
        return;
    }
    pinned.sort_unstable_by_key(|pinned| pinned.bytes);
    let progress = Arc::new(Progress::default());
    store.backpressure.spill_started(Arc::clone(&progress), bytes);
    let readers = store.snapshots.seqnos();
    debug_assert!(readers.is_sorted_by(|a, b| a < b), "seqnos of readers, each once");
    while bytes > write_buffers / LEFT_PART
        && let Some(largest) = pinned.pop()
    {
        // A buffer that could not be written stays in memory; the next round retries.
        if spill(store, &largest, &readers).is_err() {
            break;
        }
        debug_assert!(bytes >= largest.bytes, "the buffer was counted");
        bytes -= largest.bytes;
        progress.advance(largest.bytes);
    }
    store.backpressure.flush_ended(&*store.env);
}

fn spill(store: &Store, pinned: &PinnedBuffer, readers: &[Seqno]) -> Result<()> {
    let write = |readers| {
        let (data, run_ids, sealed_at) = (&store.data, &*store.run_ids, pinned.sealed_at);
        SpilledBuffer::write(&pinned.table, &Spilling { data, run_ids, readers, sealed_at })
    };
    if planted!("neighbours-do-not-share") {
        // Writes a separate copy for each reader.
        readers.chunks(1).try_for_each(|reader| write(reader).map(std::mem::forget))?;
    }
    pinned.buffer.spill(write(readers)?);
    Ok(())
}

/// Treats the buffers of a dropped keyspace as flushed for their holders.
/// REQUIRES: `flush_lock` is held; the keyspace is not in the catalogue, so that no commit chooses them.
pub fn retire_buffers(store: &Store, keyspace: &KeyspaceCore) {
    debug_assert!(store.is_flush_locked() && keyspace.is_dropped(), "no commit writes to them");
    store.commits.wait_for(store.last_seqno());
    let view = keyspace.view.load();
    let held = || view.buffers().filter(|buffer| buffer.is_held());
    held().for_each(|buffer| buffer.table.freeze());
    store.snapshots.holdings.record_flushed(held().cloned());
}

/// Stops counting flushed buffers that are still held as write memory.
pub fn end_relief(store: &Store) {
    if store.snapshots.holdings.end_awaiting() {
        let commit = store.commits.lock();
        recount_sealed(store);
        drop(commit);
        store.backpressure.wake_writers();
    }
}
