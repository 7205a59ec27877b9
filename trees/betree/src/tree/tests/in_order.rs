//! Sequential inserts are written about once.

use super::*;

/// Write amplification: bytes of entries in all runs that were in the tree after some batch, per user byte.
fn written_for_each_byte(options: BeTreeOptions, key_at: impl Fn(u64) -> Vec<u8>) -> f64 {
    const BATCH: u64 = 250;
    let mut bed = Bed::new(options);
    let mut written: BTreeMap<RunId, u64> = BTreeMap::new();
    let mut user_bytes = 0;
    for batch in 0..40 {
        let updates: BTreeMap<Vec<u8>, Option<Vec<u8>>> =
            (batch * BATCH..(batch + 1) * BATCH).map(|at| (key_at(at), Some(vec![7; 400]))).collect();
        user_bytes += updates.keys().map(|key| u64_of(key.len()) + 400).sum::<u64>();
        bed.apply(updates);
        for run in bed.runs() {
            written.insert(run.reference().id, run.reference().user_bytes);
        }
    }
    bed.check(&mut SplitMix::new(1));
    let leaves = bed.tree.outline().into_iter().filter(|line| line.what == "leaf" && line.entries > 0);
    let (count, bytes) = leaves.fold((0u64, 0), |(count, bytes), leaf| (count + 1, bytes + leaf.bytes));
    assert!(bytes > count * options.leaf_bytes / 2, "leaves are small: {count} hold {bytes} bytes");
    written.values().sum::<u64>() as f64 / user_bytes as f64
}

#[test]
fn sequential_inserts_are_written_once() {
    for options in [turtle(32 << 10, 8), splinter(32 << 10, 8)] {
        let upwards = written_for_each_byte(options, |at| format!("{at:012}").into_bytes());
        let downwards = written_for_each_byte(options, |at| format!("{:012}", 10_000 - at).into_bytes());
        let two_places =
            |at: u64| format!("{}{at:012}", if at.is_multiple_of(2) { 'a' } else { 'b' }).into_bytes();
        let at_two_places = written_for_each_byte(options, two_places);
        assert!(upwards < 1.25 && downwards < 1.25, "{upwards} {downwards}");
        assert!(at_two_places < 1.4, "{at_two_places}");
    }
}
