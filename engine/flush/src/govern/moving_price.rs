//! Price of moving the values of a keyspace (decision 0053).

use testudo_contract::Tree;
use testudo_values::LargeValues;

/// Minimum cost difference, in bytes, before the values of a small keyspace move.
const LEAST_PRICE: u64 = 1 << 20;

/// Values longer than this on average stay outside: scans read pages for them either way, and they would make
/// a part of the tree too large.
const LONG_BYTES: u64 = 4 << 10;

/// Cost difference at which the values move; `None` if they do not move.
pub fn price_of_moving(tree: &dyn Tree, present: LargeValues) -> Option<u64> {
    let price = match present {
        LargeValues::Outside => {
            let staying = tree.value_segments()?.staying();
            if staying.values == 0 || staying.bytes / staying.values > LONG_BYTES {
                return None;
            }
            staying.cost + 2 * bytes_of_runs(tree)
        }
        // Moving values out costs nothing by itself, but moving them back in reads and writes the whole
        // keyspace.
        LargeValues::WithKeys => 2 * tree.stats().stored_bytes,
    };
    Some(price.max(LEAST_PRICE))
}

/// Bytes of a tree without its separated values.
pub fn bytes_of_runs(tree: &dyn Tree) -> u64 {
    let outside = tree.value_segments().map_or(0, |segments| segments.totals().device_bytes);
    tree.stats().stored_bytes.saturating_sub(outside)
}
