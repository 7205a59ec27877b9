//! What scans look into on their way is flushed once it pays, and not before.

use super::*;

fn key(number: u64) -> Vec<u8> {
    format!("user{number:020}").into_bytes()
}

/// A tree with tiers at each node.
fn filled() -> Bed {
    let mut bed = Bed::new(turtle(64 << 10, 16));
    let (batches, records) = (15, 2001);
    for batch in 0..batches {
        let number = |n: u64| (batch * records + n) * 7919 % (batches * records);
        bed.apply((0..records).map(|n| (key(number(n)), Some(vec![b'v'; 100]))).collect());
    }
    bed.run_jobs();
    bed
}

fn scan_everywhere(bed: &Bed, rounds: u64, step: usize) {
    for round in 0..rounds {
        for start in (0..30_015).step_by(step) {
            let mut cursor = bed.tree.cursor();
            cursor.seek(&key(start + round % 50)).unwrap();
            assert!(cursor.entry().is_some() || start > 29_900);
        }
    }
}

#[test]
fn many_scans_have_buffers_flushed_and_few_do_not() {
    let mut bed = filled();
    let before = bed.tree.stats();
    assert!(before.buffered_bytes > before.leaf_bytes / 4, "{before:?} is not worth a test");
    scan_everywhere(&bed, 1, 1000);
    assert!(bed.tree.has_new_reasons(), "scans are noted");
    assert!(!bed.tree.has_new_reasons(), "once");
    assert!(bed.tree.pick_job(false).is_none(), "a few scans pay for nothing");
    for _ in 0..40 {
        scan_everywhere(&bed, 10, 50);
        bed.run_jobs();
    }
    let after = bed.tree.stats();
    assert!(after.buffered_bytes < before.buffered_bytes / 10, "{before:?} {after:?}");
    bed.check(&mut SplitMix::new(1));
}
