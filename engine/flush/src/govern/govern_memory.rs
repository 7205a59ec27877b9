//! Counters that feed the governor of write memory, and the steps that apply its decisions.
//!
//! **Invariants**
//! - Called between flushes, by the flushing thread; other threads only count.

use testudo_base::{chunks::Division, num::u64_of};
use testudo_memtable::Memtable;
use testudo_store::{
    Store,
    memory::{
        governor::{Counted, Writing},
        rebalance::rebalance_memory,
    },
};

/// Inputs of the governor's decision.
pub fn counted_for_governor(store: &Store) -> Counted {
    let division = store.arena_pool.division();
    Counted {
        written: store.counters.user_bytes.sum(),
        missed_pages: division.missed_pages(),
        missed_records: division.missed_records(),
    }
}

/// Moves memory between write buffers and caches if that saves I/O. Buffers larger than their new limit are
/// sealed next.
pub fn govern_memory(store: &Store) {
    let ghost_bytes = Division::ghost_bytes(store.arena_pool.limit_bytes());
    let counted = counted_for_governor(store);
    if store.memory.govern(counted, ghost_bytes, || cost_of_writing(store)) {
        rebalance_memory(store);
    }
}

/// Cost of writing over all trees, weighted by the bytes in their write buffers.
pub fn cost_of_writing(store: &Store) -> Writing {
    let (mut rewrites, mut keyspaces) = (0.0, 0.0);
    // Sealed buffers count too: right after sealing, the active ones are empty.
    let (mut held, mut squares) = (0.0, 0.0);
    for keyspace in store.catalogue.read().by_id.values() {
        let view = keyspace.view.load();
        let bytes: u64 = view.buffers().map(|buffer| bytes_of_records(&buffer.table)).sum();
        #[expect(clippy::cast_precision_loss, reason = "a weight needs no precision")]
        let bytes = bytes as f64;
        // With nothing buffered, all keyspaces weigh the same.
        rewrites += (bytes + 1.0) * view.tree.rewrites_per_doubling();
        keyspaces += 1.0;
        held += bytes;
        squares += bytes * bytes;
    }
    debug_assert!(rewrites >= 0.0 && squares >= 0.0, "sums of costs and of weights");
    let rewrites = if keyspaces > 0.0 { rewrites / (held + keyspaces) } else { 0.0 };
    Writing { rewrites, keyspaces: if squares > 0.0 { held * held / squares } else { 1.0 } }
}

/// Bytes of a memtable's records, without the memtable itself.
fn bytes_of_records(table: &Memtable) -> u64 {
    table.memory_bytes().saturating_sub(u64_of(size_of::<Memtable>()))
}
