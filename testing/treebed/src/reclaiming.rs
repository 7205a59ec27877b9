//! Random reclaim steps between updates and jobs.
//!
//! **Invariants**
//! - Steps change no answer, and repeating them leaves nothing above the bottom.

use testudo_contract::{LeastGain, Reclaim};
use testudo_env::SplitMix;

use crate::{Batch, Bed, Family, RunsByAge};

/// More steps than any of these trees needs.
const STEPS_MAX: u32 = 20_000;

/// Applies random updates and reclaim steps. `batch`: updates with a percentage of tombstones; `step`: a step
/// that moves at most a number of bytes into the bottom, as in [`Bed::reclaim_step`].
pub fn random_reclaim_steps<F: Family>(
    seed: u64,
    options: F,
    batch: impl Fn(&mut SplitMix, u8) -> Batch,
    step: impl Fn(&mut Bed<F>, LeastGain, u64, &mut Vec<Reclaim>) -> Option<Reclaim>,
) {
    let mut random = SplitMix::new(seed);
    let mut bed = Bed::new(options);
    let mut found = RunsByAge::new();
    for round in 0..30 {
        let batch = batch(&mut random, if (round / 10) % 2 == 1 { 80 } else { 15 });
        if random.percent(65) {
            bed.apply_on_top(batch)
        } else {
            bed.apply(batch)
        }
        for _ in 0..random.below(12) {
            let least_gain = if random.percent(50) { LeastGain::Any } else { LeastGain::None };
            step(&mut bed, least_gain, 1 + random.below(20_000), &mut Vec::new());
        }
        bed.tree.check_invariants(true).unwrap();
        bed.check_runs(&mut found);
        if random.percent(30) {
            bed.run_jobs();
            bed.check_runs(&mut found);
        }
        if random.percent(20) {
            bed.reopen();
        }
        if random.percent(20) {
            bed.check(&mut random);
        }
    }
    let mut tried = Vec::new();
    for _ in 0..STEPS_MAX {
        if step(&mut bed, LeastGain::None, 1 + random.below(20_000), &mut tried).is_none() {
            break;
        }
    }
    let waiting_bytes = bed.tree.stats().buffered_bytes;
    assert_eq!(waiting_bytes, 0, "entries are still above the bottom: {:?}", bed.tree.outline());
    bed.tree.check_invariants(true).unwrap();
    bed.check_runs(&mut found);
    bed.check(&mut random);
}
