//! Updates of sequential keys, with occasional deletes and overwrites.
//!
//! **Invariants**
//! - Keys ascend in one place and descend in two.

use testudo_env::SplitMix;

use crate::{Batch, Bed, Family, RunsByAge, random_value};

/// Applies updates of sequential keys; checks after each that runs ordered by age answer like the tree.
pub fn sequential_script<F: Family>(seed: u64, options: F) {
    let mut random = SplitMix::new(seed);
    let mut bed = Bed::new(options);
    let mut found = RunsByAge::new();
    let (mut up, mut down) = (0, 9999);
    for _ in 0..40 {
        let mut batch = Batch::new();
        for _ in 0..random.below(150) {
            let value = (!random.percent(20)).then(|| random_value(&mut random));
            let key = match random.below(3) {
                0 => format!("a{down:05}"),
                1 => format!("b{up:05}"),
                _ => format!("b{down:05}"),
            };
            batch.insert(key.into_bytes(), value);
            up += random.below(2);
            down -= random.below(2);
        }
        if random.percent(20) {
            let old = 5000 + random.below(5000);
            batch.insert(format!("a{old:05}").into_bytes(), None);
        }
        bed.apply(batch);
        bed.check_runs(&mut found);
        if random.percent(10) {
            bed.run_jobs();
        }
    }
    bed.check(&mut random);
}
