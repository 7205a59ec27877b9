//! Division of the memory budget among its users.

use crate::{Store, memory::log_bounds::bound_buffers};

/// Sizes caches, pools and write buffers by the memory budget.
pub fn rebalance_memory(store: &Store) {
    let _rebalancing = store.memory.rebalancing();
    let shares = store.memory.shares();
    store.merging.oversized_keys.set_value_bytes_max(store.memory.max_value_bytes());
    store.arena_pool.set_limit(shares.chunks());
    store.data.set_cache_bytes(shares.page_cache());
    bound_buffers(store);
    store.background.wake();
}
