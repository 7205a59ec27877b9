//! Where keyspaces with moving thresholds have the values of large pairs (decision 0053).
//!
//! Scans pay for values outside, merges for values beside their keys; both count what they pay, and what the
//! same work would have cost the other way (`testudo_values::ValueCosts`). Once the present way has cost more
//! than the other one by as much as moving costs, the values move.
//!
//! **Invariants**
//! - Called between flushes, by whoever flushes. Nothing is decided while a keyspace moves.

use testudo_base::{Result, sync::Arc};
use testudo_contract::Tree;
use testudo_store::{Store, keyspace::KeyspaceCore};
use testudo_values::LargeValues;

use crate::govern::{
    keyspace_settings::set_large_values,
    moving_price::{bytes_of_runs, price_of_moving},
};

/// Values that stayed outside are worth a second way through the keyspace if their cost is such a part of it.
const STRAY_PARTS: u64 = 16;
/// None move where the device would have less than this left of what is free.
const FREE_PARTS: u64 = 4;

/// Moves the values of keyspaces for which that has become worth it.
///
/// Errors: those that also poison the store. Where there is no space nothing moves.
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
        // Nobody has asked for it: what does not fail for good is tried again, or told by who reads.
        let outcome = set_large_values(store, &keyspace, large_values);
        outcome.or_else(|error| if store.has_failed() { Err(error) } else { Ok(()) })?;
    }
    Ok(())
}

/// Whether the device has space for the keyspace with its values beside those outside, most of which die
/// late: they lie in the order in which they came.
fn has_space_for(store: &Store, keyspace: &KeyspaceCore) -> bool {
    let view = keyspace.view.load();
    let staying = view.tree.value_segments().map_or(0, |segments| segments.staying().bytes);
    let needed = staying + bytes_of_runs(&*view.tree);
    let free = store.env.free_bytes(&store.directory).unwrap_or(0);
    needed < free - free / FREE_PARTS
}

/// Whether scans have paid as much for values that are still outside as it costs to write everything anew:
/// who changes the tree while values come back may leave some behind.
fn are_strays_dear(tree: &dyn Tree, paid: u64) -> bool {
    paid > 0
        && tree.value_segments().is_some_and(|segments| {
            let (cost, all) = (segments.staying().cost, 2 * tree.stats().stored_bytes);
            cost * STRAY_PARTS >= all && paid >= cost + all
        })
}

/// Where the values of a keyspace should be, if not where they are.
fn better_place(keyspace: &KeyspaceCore) -> Option<LargeValues> {
    let view = keyspace.view.load();
    let costs = view.tree.value_costs()?;
    let present = view.options.large_values();
    if view.options.moving_from().is_some() || keyspace.is_dropped() {
        return None;
    }
    let excess = costs.settle(present);
    if excess == 0 && costs.of_strays() == 0 {
        // As nearly always. The price is a sum over the whole tree.
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
        LargeValues::Outside => LargeValues::WithKeys,
        LargeValues::WithKeys => LargeValues::Outside,
    })
}
