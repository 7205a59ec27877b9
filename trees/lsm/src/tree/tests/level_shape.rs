//! Levels fill and empty at the same pace.

use super::*;

#[test]
fn no_level_overflows_and_flushes_cost_about_the_same() {
    let mut bed = Bed::new(options(16 << 10, 6, 4));
    let mut random = SplitMix::new(3);
    let batch_bytes = 500 * 112;
    let (mut written, mut costs) = (bed.written_bytes(), Vec::new());
    for _ in 0..150 {
        let key = |random: &mut SplitMix| format!("{:012}", random.below(1 << 40)).into_bytes();
        bed.apply_and_move((0..500).map(|_| (key(&mut random), Some(vec![7; 100]))).collect());
        let now = bed.written_bytes();
        costs.push((now - written) as f64 / batch_bytes as f64);
        written = now;
        let lines = bed.tree.outline();
        let levels: Vec<u64> =
            lines.iter().filter(|line| line.what == "level").map(|line| line.bytes).collect();
        let bottom = lines.last().unwrap().bytes;
        assert!(levels.first().is_none_or(|first| *first <= 10 * batch_bytes), "{lines:?}");
        assert!(bottom < 20 * batch_bytes || levels.iter().sum::<u64>() <= bottom, "{lines:?}");
    }
    let late = &costs[50..];
    let mean = late.iter().sum::<f64>() / late.len() as f64;
    let dearest = late.iter().copied().fold(0.0, f64::max);
    assert!(dearest < mean * 2.5, "{dearest} {mean}: {costs:?}");
    assert!(mean < 24.0, "{mean}: {costs:?}");
    bed.check(&mut random);
}

#[test]
fn an_idle_overwritten_tree_has_nearly_everything_at_the_bottom() {
    let mut bed = Bed::new(options(16 << 10, 10, 4));
    let mut random = SplitMix::new(3);
    let key = |n: u64| format!("{n:012}").into_bytes();
    for batch in 0..10u64 {
        bed.apply((0..500).map(|n| (key(n * 10 + batch), Some(vec![7; 100]))).collect());
    }
    for _ in 0..60 {
        bed.apply((0..300).map(|_| (key(random.below(5000)), Some(vec![8; 100]))).collect());
    }
    bed.run_jobs();
    let stats = bed.tree.stats();
    assert!(stats.buffered_bytes * 10 <= stats.leaf_bytes, "{stats:?}");
    assert!(bed.pick_job(true).is_none(), "it terminates");
    bed.check(&mut random);
}

/// A tombstone of the empty key has zero bytes, but it exists.
#[test]
fn zero_byte_entries_are_not_overtaken_by_newer_ones() {
    for repeats in 1..6 {
        let mut bed = Bed::new(options(16 << 10, 6, 1));
        let mut random = SplitMix::new(3);
        bed.apply(Batch::from([(b"".to_vec(), Some(vec![1])), (b"a".to_vec(), Some(vec![1]))]));
        for round in 0..repeats {
            bed.apply(Batch::from([(b"".to_vec(), None)]));
            bed.check(&mut random);
            let value = vec![round; 100 << round];
            bed.apply(Batch::from([(b"".to_vec(), Some(value.clone())), (b"b".to_vec(), Some(value))]));
            bed.check(&mut random);
        }
        bed.reopen();
        bed.check(&mut random);
        bed.run_jobs();
        bed.check(&mut random);
    }
}
