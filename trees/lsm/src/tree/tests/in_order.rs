//! Sequential inserts are written once.

use super::*;

/// Write amplification: bytes of entries in all runs that were in the tree after some batch, per user byte.
fn written_for_each_byte(options: LsmOptions, batches: u64, key_at: impl Fn(u64) -> Vec<u8>) -> f64 {
    const BATCH: u64 = 250;
    let mut bed = Bed::new(options);
    let mut written: BTreeMap<RunId, u64> = BTreeMap::new();
    let mut user_bytes = 0;
    for batch in 0..batches {
        let updates: Batch =
            (batch * BATCH..(batch + 1) * BATCH).map(|at| (key_at(at), Some(vec![7; 400]))).collect();
        user_bytes += updates.keys().map(|key| u64_of(key.len()) + 400).sum::<u64>();
        bed.apply(updates);
        for run in bed.runs() {
            written.insert(run.reference().id, run.reference().user_bytes);
        }
    }
    bed.run_jobs();
    bed.check(&mut SplitMix::new(1));
    written.values().sum::<u64>() as f64 / user_bytes as f64
}

#[test]
fn sequential_inserts_are_written_once() {
    let options = options(32 << 10, 10, 4);
    let upwards = written_for_each_byte(options, 60, |at| format!("{at:012}").into_bytes());
    let downwards = written_for_each_byte(options, 60, |at| format!("{:012}", 100_000 - at).into_bytes());
    assert!(upwards < 1.05 && downwards < 1.05, "{upwards} {downwards}");
}

#[test]
fn small_sequential_flushes_become_whole_runs() {
    let mut bed = Bed::new(options(64 << 10, 10, 4));
    for batch in 0..200u64 {
        bed.apply(
            (0..40).map(|n| (format!("{:012}", batch * 40 + n).into_bytes(), Some(vec![7; 100]))).collect(),
        );
    }
    bed.run_jobs();
    let stats = bed.tree.stats();
    assert!(stats.leaves + stats.buffered_runs < 3 * 200 * 40 * 112 / (64 << 10), "{stats:?}");
}
