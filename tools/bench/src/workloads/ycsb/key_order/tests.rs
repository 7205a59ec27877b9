use std::collections::{HashMap, HashSet};

use testudo_env::SplitMix;

use super::{KeyOrder, STRETCH_RECORDS};
use crate::workloads::ycsb::keys::KeyMaker;

#[test]
fn stretches_are_consecutive_in_key_order() {
    let keys = KeyMaker::new(24).unwrap();
    for records in [1, 31, 32, 3_200, 5_003] {
        let order = KeyOrder::new(keys, records);
        let mut sorted: Vec<u64> = (0..records).collect();
        sorted.sort_by_key(|record| keys.position(*record));
        let stretches: HashSet<&[u64]> = sorted.chunks(STRETCH_RECORDS).collect();
        let mut random = SplitMix::new(5);
        let mut picked = HashSet::new();
        for _ in 0..3_000 {
            let stretch = order.pick_stretch(&mut random);
            picked.insert(stretch.iter().map(|record| u64::from(*record)).collect::<Vec<_>>());
        }
        assert_eq!(picked.len(), stretches.len(), "each is picked");
        assert!(picked.iter().all(|stretch| stretches.contains(&stretch[..])), "{records} records");
    }
}

#[test]
fn stretches_are_picked_evenly() {
    let order = KeyOrder::new(KeyMaker::new(24).unwrap(), 3_200);
    let mut random = SplitMix::new(6);
    let mut counts = HashMap::new();
    for _ in 0..100_000 {
        *counts.entry(order.pick_stretch(&mut random)[0]).or_insert(0u32) += 1;
    }
    assert_eq!(counts.len(), 100);
    assert!(counts.values().all(|count| (850..1_150).contains(count)), "{counts:?}");
}
