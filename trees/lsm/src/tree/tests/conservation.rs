//! Merges report their drops: all input, and everything that merges made, is in the tree or was dropped.

use testudo_treebed::drops_of_random_run;

use super::*;

#[test]
fn every_byte_added_or_made_is_stored_or_dropped() {
    let all = [options(4096, 2, 1), options(16 << 10, 4, 2), updating(4096, 2, 1), updating(32 << 10, 4, 2)];
    for (seed, options) in all.into_iter().enumerate() {
        for operator in [Some("append"), None] {
            let drops = drops_of_random_run(seed as u64, options, operator);
            assert!(drops.dropped_entries > 1_000 && drops.made_entries > 100, "{drops:?}");
        }
    }
}
