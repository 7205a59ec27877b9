//! Settling: completes the work that trees owe now, even work that they would otherwise defer.
//!
//! An idle keyspace is settled completely. One under writes never would be, since flushes create new work as
//! fast as it is completed. Such a keyspace runs only the jobs owed at the call, in merged bytes. The same
//! holds for flushing: only the buffers present at the call are flushed.
//!
//! **Invariants**
//! - It terminates under concurrent writes: each job reduces the debt, even one that merges nothing.

use testudo_base::{
    Result, Seqno, planted,
    sync::{Arc, Weak},
};
use testudo_contract::Tree;
use testudo_store::{
    Store,
    keyspace::{KeyspaceCore, WriteBuffer},
};

use crate::{jobs::run_owed_job, space::reclaim::flush_or_reclaim};

/// Leaf bytes merged per byte buffered above them, for uniformly distributed keys.
const REWRITTEN: u64 = 16;
/// A job reduces the debt by at least this fraction of the total owed.
pub const SHARE_MIN: u64 = 256;

/// Compaction debt of a keyspace.
struct Owed<'a> {
    keyspace: &'a Arc<KeyspaceCore>,
    /// Flushed seqno of its tree at the call.
    flushed: Option<Seqno>,
    bytes: u64,
    left: u64,
}

impl<'a> Owed<'a> {
    fn of(store: &Store, keyspace: &'a Arc<KeyspaceCore>) -> Self {
        let bytes = owed_bytes(&*keyspace.view.load().tree);
        Self { keyspace, flushed: flushed_seqno(store, keyspace), bytes, left: bytes }
    }

    /// Whether to continue.
    fn is_open(&self, store: &Store) -> bool {
        let is_written_to = || flushed_seqno(store, self.keyspace) != self.flushed;
        !self.keyspace.is_dropped() && (self.left > 0 || planted!("settled-only-at-rest") || !is_written_to())
    }

    fn pay(&mut self, bytes: u64) {
        debug_assert!(self.left <= self.bytes, "the debt only shrinks");
        self.left = self.left.saturating_sub(bytes.max(self.bytes / SHARE_MIN).max(1));
    }
}

/// Estimated bytes that jobs merge until a tree has no pending work.
fn owed_bytes(tree: &dyn Tree) -> u64 {
    let stats = tree.stats();
    let waiting = stats.buffered_bytes;
    let of_values = stats.dead_value_bytes + stats.transient_value_bytes;
    let moving = stats.moving.map_or(0, |moving| moving.left_bytes);
    let on_the_way = waiting * (u64::from(stats.height) + 1);
    on_the_way + stats.leaf_bytes.min(waiting * REWRITTEN) + of_values + moving
}

fn flushed_seqno(store: &Store, keyspace: &KeyspaceCore) -> Option<Seqno> {
    store.manifest.with_state(|state| state.keyspaces.get(&keyspace.id).map(|keyspace| keyspace.flushed))
}

/// Runs the jobs that trees owe. Calls `between` after each.
pub fn settle_trees(store: &Store, mut between: impl FnMut()) -> Result<()> {
    for keyspace in &store.keyspaces() {
        let mut owed = Owed::of(store, keyspace);
        while owed.is_open(store)
            && let Some(bytes) = run_owed_job(store, keyspace)?
        {
            owed.pay(bytes);
            between();
        }
    }
    Ok(())
}

/// Flushes the buffers sealed at the call, and later ones only where they share a round.
pub fn flush_all_sealed(store: &Store) -> Result<()> {
    let mut awaited: Vec<(Arc<KeyspaceCore>, Weak<WriteBuffer>)> = Vec::new();
    for keyspace in store.keyspaces() {
        let view = keyspace.view.load_full();
        awaited.extend(view.sealed.iter().map(|buffer| (Arc::clone(&keyspace), Arc::downgrade(buffer))));
    }
    let waits = |(keyspace, buffer): &(Arc<KeyspaceCore>, Weak<WriteBuffer>)| {
        let is_sealed =
            |buffer| keyspace.view.load().sealed.iter().any(|sealed| Arc::ptr_eq(sealed, &buffer));
        !keyspace.is_dropped() && buffer.upgrade().is_some_and(is_sealed)
    };
    while awaited.iter().any(waits) && flush_or_reclaim(store)? {}
    Ok(())
}
