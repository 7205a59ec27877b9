//! Estimates of space and gain are pure.

use testudo_sequence::Overwrites;

use super::*;
use crate::Policy;

fn options(leaf_bytes: u64) -> BeTreeOptions {
    BeTreeOptions { leaf_bytes, ..BeTreeOptions::new(Policy::Turtle) }
}

#[test]
fn pivots_with_much_gain_are_flushed_whatever_their_first_leaf_gains() {
    let kib = |gain: u64, written: u64| (gain << 10, written << 10);
    let of_pivots = [kib(20, 100), kib(15, 20), kib(90, 500), kib(20, 32 * 20), kib(20, 32 * 20 + 40)];
    let limits = ReclaimLimits { space_bytes: 0, least_gain: LeastGain::Worthwhile, but: &[] };
    assert_eq!(promising(&of_pivots, &ReclaimChoice::new(&limits, 2 << 20)), [2, 0, 3]);
}

#[test]
fn space_on_top_grows_with_the_buffer_not_with_small_leaves() {
    for leaf_bytes in [4 << 10, 16 << 10, 64 << 10, 2 << 20] {
        let on_top = |bytes| on_top_bytes(bytes, &options(leaf_bytes));
        let sizes = [0, 1, 100 << 10, 1 << 20, 16 << 20];
        assert!(sizes.is_sorted_by(|&a, &b| on_top(a) < on_top(b)), "leaves of {leaf_bytes} bytes");
        assert!(on_top(1 << 20) < 4 << 20, "leaves of {leaf_bytes} bytes");
    }
    assert_eq!(on_top_bytes(1 << 20, &options(4 << 10)), on_top_bytes(1 << 20, &options(64 << 10)));
}

#[test]
fn short_space_enlarges_small_leaves_only() {
    assert_eq!(options(4 << 10).sparing().leaf_bytes, 64 << 10);
    assert_eq!(options(2 << 20).sparing(), options(2 << 20));
}

/// Space on top, with the tree's settings.
fn on_top_bytes(memory_bytes: u64, options: &BeTreeOptions) -> u64 {
    testudo_sequence::on_top_bytes(memory_bytes, options.sparing().tier_run_bytes(Overwrites::UNKNOWN))
}
