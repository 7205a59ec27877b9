//! The simulation over byte counts writes about as much as the tree.

use super::*;
use crate::{SimulatedLevels, SimulatedLoad};

const RECORD_BYTES: u64 = 108;
const FLUSH_BYTES: u64 = 300 * RECORD_BYTES;

/// Adds the same number of random flushes to a tree and its simulation; returns the write amplification of
/// both.
fn compare(options: LsmOptions, flushes: u64, overwrite_percent: u64) -> (f64, f64) {
    let mut random = SplitMix::new(7);
    let mut bed = Bed::new(options);
    let (mut written, mut keys) = (BTreeMap::new(), Vec::<Vec<u8>>::new());
    let mut flush = |bed: &mut Bed, overwrite_percent: u64| {
        let mut batch = Batch::new();
        while batch.len() < 300 {
            let key = if random.below(100) < overwrite_percent {
                keys[usize::try_from(random.below(u64_of(keys.len()))).unwrap()].clone()
            } else {
                keys.push(random.next_u64().to_be_bytes().to_vec());
                keys[keys.len() - 1].clone()
            };
            batch.insert(key, Some(vec![7; 100]));
        }
        bed.apply_and_move(batch);
        written.extend(bed.runs().iter().map(|run| (run.reference().id, run.reference().user_bytes)));
        written.values().sum::<u64>()
    };
    let load = SimulatedLoad {
        incoming_bytes: FLUSH_BYTES * flushes,
        flush_bytes: FLUSH_BYTES,
        overwrite_percent: 0,
        is_pressed: false,
    };
    let mut simulated = SimulatedLevels::new(options);
    let mut costs = simulated.apply(&load);
    let mut bytes = (0..flushes).map(|_| flush(&mut bed, 0)).last().unwrap();
    if overwrite_percent > 0 {
        let before = bytes;
        costs = simulated.apply(&SimulatedLoad { overwrite_percent, ..load });
        bytes = (0..flushes).map(|_| flush(&mut bed, overwrite_percent)).last().unwrap() - before;
    }
    (bytes as f64 / load.incoming_bytes as f64, costs.write_amplification())
}

#[test]
fn the_simulation_matches_the_tree() {
    let cases = [(4, 2, 60, 0, 0.1), (10, 4, 100, 0, 0.1), (10, 4, 200, 0, 0.1), (4, 2, 40, 100, 0.1)];
    for (growth, level1, flushes, overwrite_percent, margin) in some_of(cases, 2, 1) {
        let (real, simulated) = compare(options(8 << 10, growth, level1), flushes, overwrite_percent);
        let is_near = (real * (1.0 - margin)..real * (1.0 + margin)).contains(&simulated);
        assert!(is_near, "growth {growth}, {flushes} flushes: {real} real and {simulated} simulated writes");
    }
}
