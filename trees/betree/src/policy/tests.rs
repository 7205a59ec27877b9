use super::*;

const OPTIONS: BeTreeOptions =
    BeTreeOptions { leaf_bytes: 3200, max_pivots: 8, ..BeTreeOptions::new(Policy::Turtle) };

#[test]
fn tier_runs_are_parts_of_a_leaf_unless_tiny_or_all_new_in_turtle() {
    let of_leaf = |policy, leaf_bytes, replacing| {
        let overwrites = Overwrites::UNKNOWN.after(100, replacing);
        BeTreeOptions { policy, leaf_bytes, ..OPTIONS }.tier_run_bytes(overwrites)
    };
    for (policy, replacing) in [(Policy::Splinter, 0), (Policy::Splinter, 100), (Policy::Turtle, 100)] {
        let of_leaf = |leaf_bytes| of_leaf(policy, leaf_bytes, replacing);
        assert_eq!([2 << 20, 128 << 10, 4 << 10].map(of_leaf), [512 << 10, 64 << 10, 4 << 10]);
    }
    assert_eq!(of_leaf(Policy::Turtle, 2 << 20, 0), 2 << 20);
}

#[test]
fn scanned_buffers_are_flushed_once_scans_cost_as_much() {
    let options = BeTreeOptions::new(Policy::Turtle);
    assert!(!options.reads_are_worth_a_flush(1023, 1), "a few scans are no evidence");
    assert!(options.reads_are_worth_a_flush(1024, 1 << 20));
    assert!(!options.reads_are_worth_a_flush(4095, 4 << 20));
    assert!(options.reads_are_worth_a_flush(4096, 4 << 20));
}

#[test]
fn scanned_tiers_are_merged_once_the_savings_cover_the_cost() {
    let is_worth = |charged_kib, tiers: &[u64]| {
        BeTreeOptions::new(Policy::Turtle).reads_are_worth_a_merge(charged_kib, tiers)
    };
    let equal = [4 << 20; 4];
    // Reads of three of four tiers are saved.
    let price_kib = (16 << 10) * 4 / 3;
    assert!(!is_worth(price_kib, &equal));
    assert!(is_worth(price_kib + 1, &equal));
    assert!(!is_worth(u64::from(u32::MAX), &equal[..1]), "one tier stays one");
    assert!(!is_worth(u64::from(u32::MAX), &[]));
    assert!(!is_worth(1023, &[1, 1]), "a few scans are no evidence");
    assert!(is_worth(1024, &[1, 1]));
    // A small tier next to a large one costs scans little.
    assert!(!is_worth(price_kib * 10, &[1 << 16, 16 << 20]));
}

#[test]
fn excess_after_a_policy_change_is_flushed_gradually() {
    let mut pending = [20_000u64; 8];
    let leaf_bytes = [Some(100_000); 8];
    let mut rounds = 0;
    while pending.iter().sum::<u64>() > OPTIONS.leaf_bytes * 7 {
        pending.iter_mut().for_each(|bytes| *bytes += 1000);
        let (incoming, overwrites) = (8000, Overwrites::UNKNOWN);
        let load = NodeLoad { incoming, pending: &pending, leaf_bytes: &leaf_bytes, overwrites };
        let chosen = OPTIONS.pivots_to_flush(&load);
        let before_last: u64 = chosen.iter().rev().skip(1).map(|&pivot| pending[pivot]).sum();
        assert!(before_last < 2 * incoming, "{pending:?} {chosen:?}");
        chosen.iter().for_each(|&pivot| pending[pivot] = 0);
        rounds += 1;
    }
    assert!((5..=12).contains(&rounds), "{rounds} rounds");
}

#[test]
fn under_even_load_adjacent_pivots_are_flushed_in_turn() {
    let leaf_bytes = [Some(3200u64); 32];
    let mut random = testudo_env::SplitMix::new(5);
    for policy in [Policy::Turtle, Policy::Splinter] {
        let options = BeTreeOptions { leaf_bytes: 3200, ..BeTreeOptions::new(policy) };
        let mut pending: Vec<u64> = (0..32).map(|_| random.below(3000)).collect();
        let (mut flushes, mut behind_another) = (0, 0);
        for round in 0..400 {
            pending.iter_mut().for_each(|bytes| *bytes += 190 + random.below(20));
            let overwrites = Overwrites::UNKNOWN;
            let load = NodeLoad { incoming: 6400, pending: &pending, leaf_bytes: &leaf_bytes, overwrites };
            for pivot in options.pivots_to_flush(&load) {
                let flushed = std::mem::take(&mut pending[pivot]);
                if round >= 200 {
                    flushes += 1;
                    behind_another += u32::from(pending[(pivot + 31) % 32] * 8 < flushed);
                }
            }
        }
        // In random order it would be one in eight.
        assert!(behind_another * 3 >= flushes * 2, "{policy:?}: {behind_another} of {flushes}");
    }
}
