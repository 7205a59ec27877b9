//! Compaction of a range of keys: a flush of its writes, then jobs of the tree, in key order.
//!
//! **Invariants**
//! - It terminates under concurrent writes: each installed job shortens the rest of the range, or the part
//!   before it of a run that is on both sides of its beginning.
//! - Everything that was committed before the call reaches the bottom; later commits may be above it.

use testudo_base::{
    Error, Result, Seqno, planted,
    sync::{Arc, Weak},
};
use testudo_run::KeyBounds;
use testudo_store::{
    Store,
    keyspace::{KeyspaceCore, WriteBuffer},
};

use crate::{
    jobs::{
        catch_up::behind_bytes,
        range::{RangeProgress, run_range_job},
        run_job_of,
    },
    seal::{begin_value_log::prepare_value_log, seal_buffers::seal_one},
    space::reclaim::flush_or_reclaim,
};

/// Compacts `range` of a keyspace.
pub fn compact_range(store: &Store, keyspace: &Arc<KeyspaceCore>, range: KeyBounds) -> Result<()> {
    store.check_writable()?;
    store.wal()?;
    if range.is_empty() {
        return check_present(keyspace);
    }
    if has_buffered(keyspace, &range) && !planted!("range-compacted-below-buffers") {
        flush_keyspace(store, keyspace)?;
    }
    let mut rest = range;
    while !rest.is_empty() {
        store.check_writable()?;
        check_present(keyspace)?;
        help_tree(store, keyspace)?;
        match run_range_job(store, keyspace, &rest)? {
            RangeProgress::Done | RangeProgress::DoneBelow(None) => break,
            RangeProgress::DoneBelow(_) if planted!("range-compacted-by-one-job") => break,
            RangeProgress::DoneBelow(end) => {
                debug_assert!(end >= rest.low, "jobs proceed in key order");
                rest.low = end;
            }
            RangeProgress::Unknown => {}
        }
    }
    check_present(keyspace)
}

/// Maximum number of the tree's own jobs between two steps.
const JOBS_BETWEEN: usize = 8;

/// Runs jobs of a tree that a flush waits for: while ranges are compacted, it has no others, and each step
/// would find more data above the bottom than the one before.
fn help_tree(store: &Store, keyspace: &Arc<KeyspaceCore>) -> Result<()> {
    for _ in 0..JOBS_BETWEEN {
        if behind_bytes(store, keyspace) == 0 || !run_job_of(store, keyspace)? {
            break;
        }
    }
    Ok(())
}

fn check_present(keyspace: &KeyspaceCore) -> Result<()> {
    if keyspace.is_dropped() {
        return Err(Error::invalid(format!("the keyspace {:?} was dropped", keyspace.name)));
    }
    Ok(())
}

/// Whether a write buffer has entries of the range.
fn has_buffered(keyspace: &KeyspaceCore, range: &KeyBounds) -> bool {
    let (low, high) = (range.low.as_deref().unwrap_or_default(), range.high.as_deref());
    let view = keyspace.view.load();
    view.buffers().any(|buffer| buffer.table.first_newer(low, high, Seqno(0)).is_some())
}

/// Flushes the buffers with what was committed to the keyspace before the call.
fn flush_keyspace(store: &Store, keyspace: &Arc<KeyspaceCore>) -> Result<()> {
    // A round takes one buffer of a keyspace: those that are already sealed come first. A buffer sealed
    // meanwhile is the active one of before.
    flush_sealed_of(store, keyspace)?;
    prepare_value_log(store, keyspace)?;
    seal_one(store, keyspace);
    flush_sealed_of(store, keyspace)
}

/// Flushes the buffers of the keyspace that are sealed at the call.
fn flush_sealed_of(store: &Store, keyspace: &KeyspaceCore) -> Result<()> {
    let awaited: Vec<Weak<WriteBuffer>> = keyspace.view.load().sealed.iter().map(Arc::downgrade).collect();
    let waits = |buffer: &Weak<WriteBuffer>| {
        let Some(buffer) = buffer.upgrade() else { return false };
        keyspace.view.load().sealed.iter().any(|sealed| Arc::ptr_eq(sealed, &buffer))
    };
    while !keyspace.is_dropped() && awaited.iter().any(waits) && flush_or_reclaim(store)? {}
    Ok(())
}
