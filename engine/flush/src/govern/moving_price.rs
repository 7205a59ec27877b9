//! Price of moving the values of a keyspace (decision 0053).

use testudo_contract::Tree;
use testudo_values::LargeValues;

/// What a small keyspace must have paid at least before its values move.
const LEAST_PRICE: u64 = 1 << 20;

/// Values that are longer than this on average stay outside: scans read pages for them one way or the other,
/// and a piece of the tree would become too large by them.
const LONG_BYTES: u64 = 4 << 10;

/// By how much the present way must have cost more than the other one before the values move; `None` if they
/// do not.
pub fn price_of_moving(tree: &dyn Tree, present: LargeValues) -> Option<u64> {
    let price = match present {
        LargeValues::Outside => {
            let staying = tree.value_segments()?.staying();
            if staying.values == 0 || staying.bytes / staying.values > LONG_BYTES {
                return None;
            }
            staying.cost + 2 * bytes_of_runs(tree)
        }
        // Going outside costs nothing by itself. But to come back from there would, as much as all of it
        // has to be read and written.
        LargeValues::WithKeys => 2 * tree.stats().stored_bytes,
    };
    Some(price.max(LEAST_PRICE))
}

/// Bytes of a tree without the values outside it.
pub fn bytes_of_runs(tree: &dyn Tree) -> u64 {
    let outside = tree.value_segments().map_or(0, |segments| segments.totals().device_bytes);
    tree.stats().stored_bytes.saturating_sub(outside)
}
