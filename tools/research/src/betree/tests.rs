use testudo_betree::Policy;

use super::*;

/// Costs of a load of new bytes, then of as many overwrites.
fn costs(policy: Policy, flush_bytes: u64) -> [SimulatedCosts; 2] {
    let mut tree = SimulatedTree::new(BeTreeOptions::new(policy));
    let load =
        SimulatedLoad { incoming_bytes: 2500 << 20, flush_bytes, overwrite_percent: 0, is_pressed: false };
    [tree.apply(&load), tree.apply(&SimulatedLoad { overwrite_percent: 100, ..load })]
}

#[test]
fn splinter_writes_less_than_turtle_within_its_space_bound() {
    for flush_bytes in [8 << 20, 24 << 20, 64 << 20] {
        let [turtle, splinter] = [Policy::Turtle, Policy::Splinter].map(|policy| costs(policy, flush_bytes));
        assert!(splinter[0].write_amplification() < turtle[0].write_amplification());
        assert!(splinter[0].space < 1.01 && splinter[1].space < 1.5, "{splinter:?}");
        assert!(splinter.iter().all(|costs| costs.max_tiers <= 19), "{splinter:?}");
        assert!(turtle.iter().all(|costs| costs.max_tiers <= 12), "{turtle:?}");
    }
}

#[test]
fn a_policy_switch_makes_no_checkpoint_far_more_expensive() {
    let mut tree = SimulatedTree::new(BeTreeOptions::new(Policy::Splinter));
    let load = SimulatedLoad {
        incoming_bytes: 2500 << 20,
        flush_bytes: 24 << 20,
        overwrite_percent: 0,
        is_pressed: false,
    };
    let before = tree.apply(&load);
    tree.set_options(BeTreeOptions::new(Policy::Turtle));
    let after = tree.apply(&load);
    assert!(after.dearest_flush < before.dearest_flush * 3.0);
    assert!(after.max_tiers <= 12, "{after:?}");
}

#[test]
fn an_overwritten_turtle_tree_has_bounded_space_amplification() {
    // (data, flush distance, maximum write amplification)
    for (data_bytes, flush_bytes, written_max) in
        [(496 << 20, 25 << 20, 3.5), (2_480 << 20, 64 << 20, 3.9), (10_000 << 20, 64 << 20, 4.4)]
    {
        let mut tree = SimulatedTree::new(BeTreeOptions::new(Policy::Turtle));
        let load = SimulatedLoad {
            incoming_bytes: data_bytes,
            flush_bytes,
            overwrite_percent: 0,
            is_pressed: false,
        };
        tree.apply(&load);
        let overwriting = SimulatedLoad { overwrite_percent: 100, ..load };
        // From the first overwrite on: data buffered as new hides no garbage.
        for eighth in 0..16 {
            let costs = tree.apply(&SimulatedLoad { incoming_bytes: data_bytes / 8, ..overwriting });
            let space_max = if eighth < 8 { 1.28 } else { 1.25 };
            assert!(costs.space < space_max, "{data_bytes}: {costs:?}");
        }
        let costs = tree.apply(&SimulatedLoad { incoming_bytes: data_bytes * 2, ..overwriting });
        assert!(costs.write_amplification() < written_max, "{data_bytes}: {costs:?}");
        assert!(costs.max_tiers <= 13, "{data_bytes}: {costs:?}");
    }
}
