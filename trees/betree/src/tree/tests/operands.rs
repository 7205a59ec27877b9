//! Operands on their way down a tree: returned together with their base, merged where it is known, never
//! lost.

use testudo_base::merge_operator::MergeOperators;
use testudo_treebed::{apply_operands, check_operands};

use super::*;

#[test]
fn operands_are_returned_with_their_base_at_any_height() {
    const KEYS: u64 = 1_500;
    for name in [Some("append"), None] {
        let mut bed = Bed::new(turtle(4096, 4));
        bed.work.full_merge = MergeOperators::default().full_merge("k", name);
        let mut random = SplitMix::new(11);
        for round in 0..60 {
            apply_operands(&mut bed, &mut random, KEYS);
            if round % 20 == 19 {
                bed.run_jobs();
                bed.cool(1 << 20);
                check_operands(&bed, KEYS);
            }
        }
        assert!(bed.tree.stats().height > 1);
        bed.tree.check_invariants(true).unwrap();
        // Once the operator is known, kept operands are merged.
        bed.work.full_merge = MergeOperators::default().full_merge("k", Some("append"));
        for _ in 0..10 {
            apply_operands(&mut bed, &mut random, KEYS);
        }
        check_operands(&bed, KEYS);
    }
}
