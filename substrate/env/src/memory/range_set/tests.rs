//! Compares the set with a plain one.

use std::collections::BTreeSet;

use super::RangeSet;
use crate::SplitMix;

#[test]
fn random_operations_agree_with_a_plain_set() {
    for seed in 0..200 {
        let mut random = SplitMix::new(seed);
        let (mut set, mut model) = (RangeSet::default(), BTreeSet::new());
        for _ in 0..60 {
            let start = random.below(60);
            let end = start + random.below(20);
            assert_eq!(
                set.missing(start, end),
                (start..end).filter(|unit| !model.contains(unit)).count() as u64
            );
            if random.percent(55) {
                set.insert(start, end);
                model.extend(start..end);
            } else {
                set.remove(start, end);
                model.retain(|unit| !(start..end).contains(unit));
            }
            assert_eq!(set.count(), model.len() as u64);
            let members: BTreeSet<u64> = set.ranges.iter().flat_map(|(&from, &to)| from..to).collect();
            assert_eq!(members, model);
            let ends = set.ranges.values();
            assert!(ends.zip(set.ranges.keys().skip(1)).all(|(end, next)| end < next), "{set:?}");
        }
    }
}

#[test]
fn huge_ranges_cost_nothing() {
    let mut set = RangeSet::default();
    set.insert(0, u64::MAX);
    set.remove(10, u64::MAX);
    assert_eq!(set.count(), 10);
}
