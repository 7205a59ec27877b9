//! Remnants of tiers under skew.

use super::*;

fn key(number: u64) -> Vec<u8> {
    format!("user{number:020}").into_bytes()
}

/// Maximum number of tiers of a node.
fn most_tiers(bed: &Bed) -> usize {
    let lines = bed.tree.outline();
    let nodes = lines.split(|line| line.what == "node");
    nodes.map(|below| below.iter().take_while(|line| line.what == "tier").count()).max().unwrap_or(0)
}

#[test]
fn tier_remnants_for_cold_pivots_are_merged() {
    const RECORDS: u64 = 3000;
    let value = |round: u64| Some(vec![b'a' + (round % 26) as u8; 100]);
    let mut bed = Bed::new(turtle(16 << 10, 16));
    bed.apply((0..RECORDS).map(|n| (key(n), value(0))).collect());
    let mut random = SplitMix::new(7);
    let mut most = 0;
    for round in 1..120 {
        // The last eighth of the keys gets one record per round, and none of its leaves fills.
        let mut updates: BTreeMap<_, _> =
            (0..600).map(|_| (key(random.below(RECORDS / 8 * 7)), value(round))).collect();
        updates.insert(key(RECORDS - 1 - random.below(RECORDS / 8)), value(round));
        bed.apply(updates);
        most = most_tiers(&bed).max(most);
    }
    assert!((4..=12).contains(&most), "{most} tiers");
    bed.check(&mut random);
}
