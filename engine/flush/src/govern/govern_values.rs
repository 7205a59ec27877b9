//! Decides where keyspaces with adaptive thresholds store large values (decision 0053).
//!
//! Scans pay for separated values, merges for inline values. Both count what they pay, and what the same work
//! would have cost with the other placement (`testudo_values::ValueCosts`). The values move once the present
//! placement has cost more than the other by the cost of moving.
//!
//! **Invariants**
//! - Called between flushes, by the flushing thread. No decision is made while a keyspace moves.

use testudo_base::{Result, sync::Arc};
use testudo_contract::Tree;
use testudo_store::{Store, keyspace::KeyspaceCore};
use testudo_values::LargeValues;

use crate::govern::{
    keyspace_settings::set_large_values,
    moving_price::{PASSES_OF_MOVE, bytes_of_runs, price_of_moving},
};

/// Values that stayed separated are worth a second pass if their cost is this fraction of the keyspace.
const STRAY_PARTS: u64 = 16;
/// No values move if the device would then have less than this fraction of its free space left.
const FREE_PARTS: u64 = 4;

/// Moves the values of keyspaces for which moving now pays off.
///
/// Errors: those that also poison the store. Values do not move inline if the device lacks the space.
pub fn govern_values(store: &Store) -> Result<()> {
    if store.nearly_full.is_on() || store.space.is_short() {
        return Ok(());
    }
    let better = |keyspace: &Arc<KeyspaceCore>| {
        better_place(keyspace).map(|large_values| (Arc::clone(keyspace), large_values))
    };
    let moving: Vec<_> = store.catalogue.read().by_id.values().filter_map(better).collect();
    for (keyspace, large_values) in moving {
        if large_values == LargeValues::WithKeys && !has_space_for(store, &keyspace) {
            continue;
        }
        // No caller requested this: a transient failure is retried, and readers report any other.
        let outcome = set_large_values(store, &keyspace, large_values);
        outcome.or_else(|error| if store.has_failed() { Err(error) } else { Ok(()) })?;
    }
    Ok(())
}

/// Whether the device has space for the keyspace with inline values in addition to the separated ones. Most
/// of those become garbage late, since they are stored in commit order.
fn has_space_for(store: &Store, keyspace: &KeyspaceCore) -> bool {
    let view = keyspace.view.load();
    let permanent = view.tree.value_segments().map_or(0, |segments| segments.permanent().bytes);
    let needed = permanent + bytes_of_runs(&*view.tree);
    let free = store.env.free_bytes(&store.directory).unwrap_or(0);
    needed < free - free / FREE_PARTS
}

/// Whether scans have paid as much for stray separated values as rewriting the keyspace costs. A tree change
/// while values move inline can leave strays behind.
fn are_strays_dear(tree: &dyn Tree, paid: u64) -> bool {
    paid > 0
        && tree.value_segments().is_some_and(|segments| {
            let (cost, all) = (segments.permanent().cost, PASSES_OF_MOVE * tree.stats().stored_bytes);
            cost * STRAY_PARTS >= all && paid >= cost + all
        })
}

/// Better placement for the values of a keyspace; `None` if the present one is best.
fn better_place(keyspace: &KeyspaceCore) -> Option<LargeValues> {
    let view = keyspace.view.load();
    let costs = view.tree.value_costs()?;
    let present = view.options.large_values();
    if view.options.moving_from().is_some() || keyspace.is_dropped() {
        return None;
    }
    let excess = costs.settle(present);
    if excess == 0 && costs.of_strays() == 0 {
        // The common case. Computing the price sums over the whole tree.
        return None;
    }
    let Some(price) = price_of_moving(&*view.tree, present) else {
        costs.forget();
        return None;
    };
    if present == LargeValues::WithKeys && are_strays_dear(&*view.tree, costs.of_strays()) {
        return Some(present);
    }
    (excess >= price).then_some(match present {
        LargeValues::Separated => LargeValues::WithKeys,
        LargeValues::WithKeys => LargeValues::Separated,
    })
}
