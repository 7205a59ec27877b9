//! Counts for the governor of write memory, and what follows from its decisions.
//!
//! **Invariants**
//! - Called between flushes, by whoever flushes; others count, and nothing else.

use testudo_base::{chunks::Division, num::u64_of};
use testudo_memtable::Memtable;
use testudo_store::{
    Store,
    memory::{
        governor::{Counted, Writing},
        rebalance::rebalance_memory,
    },
};

/// What the governor decides by.
pub fn counted_for_governor(store: &Store) -> Counted {
    let division = store.arena_pool.division();
    Counted {
        written: store.counters.user_bytes.sum(),
        missed_pages: division.missed_pages(),
        missed_records: division.missed_records(),
    }
}

/// Moves memory between write buffers and caches if that saves something. Buffers that are larger than
/// what they may have from now on are sealed next.
pub fn govern_memory(store: &Store) {
    let ghost_bytes = Division::ghost_bytes(store.arena_pool.limit_bytes());
    let counted = counted_for_governor(store);
    if store.memory.govern(counted, ghost_bytes, || cost_of_writing(store)) {
        rebalance_memory(store);
    }
}

/// Of all trees, by what their write buffers hold.
pub fn cost_of_writing(store: &Store) -> Writing {
    let (mut rewrites, mut keyspaces) = (0.0, 0.0);
    // Those that are flushed included: right after a flush the others have nothing.
    let (mut held, mut squares) = (0.0, 0.0);
    for keyspace in store.catalogue.read().by_id.values() {
        let view = keyspace.view.load();
        let bytes: u64 = view.buffers().map(|buffer| bytes_of_records(&buffer.table)).sum();
        #[expect(clippy::cast_precision_loss, reason = "a weight")]
        let bytes = bytes as f64;
        // If nothing is held, all count the same.
        rewrites += (bytes + 1.0) * view.tree.rewrites_per_doubling();
        keyspaces += 1.0;
        held += bytes;
        squares += bytes * bytes;
    }
    let rewrites = if keyspaces > 0.0 { rewrites / (held + keyspaces) } else { 0.0 };
    Writing { rewrites, keyspaces: if squares > 0.0 { held * held / squares } else { 1.0 } }
}

/// What a memtable takes beside itself.
fn bytes_of_records(table: &Memtable) -> u64 {
    table.memory_bytes().saturating_sub(u64_of(size_of::<Memtable>()))
}
