use testudo_share::some_of;
use testudo_testkit::configuration::crash_configurations;

use super::run_seed;
use crate::{
    Limits,
    sweep::{counted, sweep},
};

#[test]
fn runs_with_one_seed_are_byte_identical() {
    let configurations: Vec<_> = some_of(crash_configurations(), 3, 0).collect();
    let count = configurations.len() as u64;
    let outcome = sweep(&Limits::default(), configurations, None, |configuration| {
        for seed in [1, 2] {
            let [first, second] = [(); 2].map(|()| run_seed(&configuration, seed).unwrap());
            assert_eq!(first, second, "{}, seed {seed}", configuration.name);
            assert_ne!(first.digest, run_seed(&configuration, seed + 10).unwrap().digest);
        }
        Ok(counted("configurations", 1))
    });
    assert_eq!(outcome.unwrap().count("configurations"), count);
}
