//! Work that a tree catches up on while idle.

use super::*;

fn key(number: u64) -> Vec<u8> {
    format!("user{number:020}").into_bytes()
}

fn tiers(bed: &Bed) -> usize {
    bed.tree.outline().iter().filter(|line| line.what == "tier").count()
}

#[test]
fn an_idle_splinter_tree_has_few_tiers_and_little_garbage() {
    const RECORDS: u64 = 3000;
    let value = |round: u64| Some(vec![b'a' + (round % 26) as u8; 100]);
    let mut bed = Bed::new(splinter(16 << 10, 16));
    bed.apply((0..RECORDS).map(|n| (key(n), value(0))).collect());
    let mut random = SplitMix::new(7);
    let mut waiting = Vec::new();
    for round in 1..80 {
        bed.apply((0..100).map(|_| (key(random.below(RECORDS)), value(round))).collect());
        let stats = bed.tree.stats();
        waiting.push(stats.buffered_bytes * 100 / stats.leaf_bytes);
    }
    // The amount buffered goes up and down as leaves become due together.
    let most = waiting[40..].iter().max().unwrap();
    let busy_tiers = tiers(&bed);
    assert!(
        busy_tiers > 8 && *most > 20,
        "{busy_tiers} tiers, {waiting:?} percent of the leaves are buffered"
    );
    bed.run_jobs();
    let (idle_tiers, idle) = (tiers(&bed), bed.tree.stats());
    assert!(idle_tiers <= 8 && idle.buffered_bytes * 5 <= idle.leaf_bytes, "{idle_tiers} tiers, {idle:?}");
    assert!(bed.tree.pick_job(&JobRequest::only(true)).is_none(), "it terminates");
    bed.check(&mut random);
}

#[test]
fn an_idle_turtle_tree_of_new_keys_has_no_extra_jobs() {
    let mut bed = Bed::new(turtle(16 << 10, 16));
    for round in 0..40u64 {
        bed.apply((0..100).map(|n| (key(n * 41 + round), Some(vec![7; 100]))).collect());
        let what = |is_idle| bed.tree.pick_job(&JobRequest::only(is_idle)).map(|job| job.what);
        assert_eq!(what(true), what(false));
    }
}

#[test]
fn an_overwritten_turtle_tree_has_little_garbage_and_less_when_idle() {
    const RECORDS: u64 = 3000;
    let value = |round: u64| Some(vec![b'a' + (round % 26) as u8; 100]);
    let mut bed = Bed::new(turtle(16 << 10, 32));
    bed.apply((0..RECORDS).map(|n| (key(n), value(0))).collect());
    let mut random = SplitMix::new(7);
    let mut waiting = Vec::new();
    for round in 1..200 {
        bed.apply((0..100).map(|_| (key(random.below(RECORDS)), value(round))).collect());
        let stats = bed.tree.stats();
        waiting.push(stats.buffered_bytes * 100 / stats.leaf_bytes);
    }
    let most = waiting[100..].iter().max().unwrap();
    assert!(*most <= 40, "{waiting:?} percent of the leaves are buffered");
    assert!(bed.tree.pick_job(&JobRequest::only(false)).is_none());
    bed.run_jobs();
    let idle = bed.tree.stats();
    assert!(idle.buffered_bytes * 10 <= idle.leaf_bytes, "{idle:?}");
    assert!(bed.tree.pick_job(&JobRequest::only(true)).is_none(), "it terminates");
    bed.check(&mut random);
}
