//! Merges report their drops: all input, and everything that merges made, is in the tree or was dropped.

use testudo_treebed::drops_of_random_run;

use super::*;

#[test]
fn every_byte_added_or_made_is_stored_or_dropped() {
    for (seed, options) in [turtle(4096, 4), turtle(16 << 10, 8), splinter(4096, 4)].into_iter().enumerate() {
        for operator in [Some("append"), None] {
            let drops = drops_of_random_run(seed as u64, options, operator);
            assert!(drops.dropped_entries > 1_000 && drops.made_entries > 100, "{drops:?}");
        }
    }
}
