//! Random operations with reopens and crashes, every answer compared with a map.
//!
//! `TESTUDO_SEED` and `TESTUDO_CONFIGURATION` replay one run; `TESTUDO_OPS` makes a long one of it.

use testudo_testkit::{
    Campaign,
    campaign::run_in_parallel,
    configuration::{Configuration, configurations},
};

/// Operations of all configurations and seeds together.
const OPS_IN_ALL: usize = 500_000;
/// Fixed seeds of each configuration; a fresh one comes on top.
const FIXED_SEEDS: std::ops::Range<u64> = 0..4;

#[test]
fn random_operations_give_the_answers_of_a_map() {
    let ops_in_all = std::env::var("TESTUDO_OPS").map_or(OPS_IN_ALL, |ops| ops.parse().expect("a number"));
    let (configurations, seeds) = (configurations(), Campaign::seeds(FIXED_SEEDS));
    let op_count = ops_in_all.div_ceil(configurations.len() * seeds.len());
    let runs: Vec<_> = configurations
        .iter()
        .flat_map(|configuration| seeds.iter().map(move |&seed| (configuration, seed)))
        .collect();
    let total = run_in_parallel(&runs, |&(configuration, seed)| {
        let Configuration { name, opener, profile } = configuration;
        Campaign { test: "model", configuration: name, opener, profile, op_count }.run(seed)
    });
    println!("{total:?}");
    assert!(total.ops >= ops_in_all);
    assert!(total.reopens > 0 && total.kills > 0 && total.crash_images > 0, "{total:?}");
}
