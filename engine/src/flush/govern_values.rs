//! Where keyspaces with moving thresholds have the values of large pairs (decision 0053).
//!
//! Scans pay for values outside, merges for values beside their keys; both count what they pay, and what the
//! same work would have cost the other way (`testudo_values::ValueCosts`). Once the present way has cost more
//! than the other one by as much as moving costs, the values move.
//!
//! **Invariants**
//! - Called between flushes, by whoever flushes. Nothing is decided while a keyspace moves.

use testudo_base::{ErrorKind, Result};
use testudo_contract::Tree;
use testudo_values::LargeValues;

use crate::store::{Store, view::KeyspaceCore};

/// What a small keyspace must have paid at least before its values go outside again.
const LEAST_PRICE: u64 = 1 << 20;

/// By how much the present way must have cost more than the other one before the values move.
pub(crate) fn price_of_moving(tree: &dyn Tree, present: LargeValues) -> u64 {
    match present {
        LargeValues::Outside => {
            tree.value_segments().map_or(0, testudo_values::SegmentSet::cost_of_bringing_back)
        }
        // Going outside costs nothing by itself. But to come back from there would, as much as all of it
        // has to be read and written.
        LargeValues::WithKeys => (2 * tree.stats().stored_bytes).max(LEAST_PRICE),
    }
}

impl Store {
    /// Moves the values of keyspaces for which that has become worth it.
    ///
    /// Errors: those of an edit, which also poison the store. Where there is no space nothing moves.
    pub(crate) fn govern_values(&self) -> Result<()> {
        for keyspace in self.keyspaces() {
            let Some(large_values) = better_place(&keyspace) else { continue };
            match self.set_large_values(&keyspace, large_values) {
                Err(error) if matches!(error.kind(), ErrorKind::OutOfSpace | ErrorKind::Invalid) => {}
                outcome => outcome?,
            }
        }
        Ok(())
    }
}

/// Whether scans have paid as much for values that are still outside as it costs to write everything anew:
/// who changes the tree while values come back may leave some behind.
fn are_strays_dear(tree: &dyn Tree, paid: u64) -> bool {
    paid > 0
        && tree.value_segments().is_some_and(|segments| {
            let cost = segments.cost_of_bringing_back();
            cost > 0 && paid >= cost + 2 * tree.stats().stored_bytes
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
    if present == LargeValues::WithKeys && are_strays_dear(&*view.tree, costs.of_strays()) {
        return Some(present);
    }
    (excess > 0 && excess >= price_of_moving(&*view.tree, present)).then_some(match present {
        LargeValues::Outside => LargeValues::WithKeys,
        LargeValues::WithKeys => LargeValues::Outside,
    })
}
