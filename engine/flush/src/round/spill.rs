//! Flushed write buffers that somebody still holds go to disk when they take too much memory.
//!
//! A snapshot, an iterator or a reader of values sees versions that no tree has. Each such buffer is written
//! once, with what any of them needs, and they all read it from there (`store/spilled_buffer.rs`). Nothing is
//! done for each of them, so that ten thousand cost no more than one.
//!
//! **Invariants**
//! - Only what was flushed, or was dropped with its keyspace, is spilled, under `flush_lock`.
//! - Who may read a buffer was registered before it was flushed: no later reader finds it in a view.

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

use crate::seal::seal_buffers::recount_buffers;

/// Flushed buffers may take this part of the write memory before they are spilled …
const PINNED_PART: u64 = 8;
/// … and this part after that: the smallest ones stay, of which many would be little.
const LEFT_PART: u64 = 16;

/// Spills flushed buffers, if those take too much memory; writers are delayed by how far that is.
/// REQUIRES: `flush_lock` is held.
pub fn spill_held_buffers(store: &Store) {
    debug_assert!(store.flush_lock.is_locked(), "nothing is flushed meanwhile");
    let mut pinned = store.snapshots.holdings.pinned();
    let mut bytes: u64 = pinned.iter().map(|pinned| pinned.bytes).sum();
    let write_buffers = store.backpressure.write_buffers();
    if bytes <= write_buffers / PINNED_PART || planted!("flushed-buffers-kept") {
        return;
    }
    pinned.sort_unstable_by_key(|pinned| pinned.bytes);
    let progress = Arc::new(Progress::default());
    store.backpressure.catch_up_started(&*store.env, Arc::clone(&progress), bytes);
    let readers = store.snapshots.seqnos();
    while bytes > write_buffers / LEFT_PART
        && let Some(largest) = pinned.pop()
    {
        // What could not be written stays in memory; the next round tries again.
        if spill(store, &largest, &readers).is_err() {
            break;
        }
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
        // For each reader one of its own.
        readers.chunks(1).try_for_each(|reader| write(reader).map(std::mem::forget))?;
    }
    pinned.buffer.spill(write(readers)?);
    Ok(())
}

/// The buffers of a keyspace that was dropped are as good as flushed for those who hold them.
/// REQUIRES: `flush_lock` is held; the keyspace is not in the catalogue, so that no commit chooses them.
pub fn retire_buffers(store: &Store, keyspace: &KeyspaceCore) {
    debug_assert!(store.flush_lock.is_locked() && keyspace.is_dropped(), "nobody writes into them");
    store.commits.in_flight.wait_for(store.last_seqno());
    let view = keyspace.view.load();
    let held = || view.buffers().filter(|buffer| buffer.is_held());
    held().for_each(|buffer| buffer.table.freeze());
    store.snapshots.holdings.record_flushed(held().cloned());
}

/// What is still held of flushed buffers counts as write memory no more.
pub fn end_relief(store: &Store) {
    if store.snapshots.holdings.end_awaiting() {
        let commit = store.commits.lock();
        recount_buffers(store);
        drop(commit);
        store.backpressure.wake_writers();
    }
}
