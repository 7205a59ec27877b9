//! Price of moving the values of a keyspace (decision 0053).

use testudo_contract::Tree;
use testudo_values::LargeValues;

/// Minimum cost difference, in bytes, before the values of a small keyspace move.
const LEAST_PRICE: u64 = 1 << 20;

/// Values longer than this on average stay separated: scans read pages for them either way, and they would
/// make a part of the tree too large.
const LONG_BYTES: u64 = 4 << 10;

/// Moving reads and writes the keyspace.
pub(crate) const PASSES_OF_MOVE: u64 = 2;

/// Cost difference at which the values move; `None` if they do not move.
pub fn price_of_moving(tree: &dyn Tree, present: LargeValues) -> Option<u64> {
    let price = match present {
        LargeValues::Separated => {
            let permanent = tree.value_segments()?.permanent();
            if permanent.values == 0 || permanent.bytes / permanent.values > LONG_BYTES {
                return None;
            }
            permanent.cost + PASSES_OF_MOVE * bytes_of_runs(tree)
        }
        // Moving values out costs nothing by itself, but moving them back in reads and writes the whole
        // keyspace.
        LargeValues::WithKeys => PASSES_OF_MOVE * tree.stats().stored_bytes,
    };
    Some(price.max(LEAST_PRICE))
}

/// Bytes of a tree without its separated values.
pub fn bytes_of_runs(tree: &dyn Tree) -> u64 {
    let separated = tree.value_segments().map_or(0, |segments| segments.totals().device_bytes);
    tree.stats().stored_bytes.saturating_sub(separated)
}
