//! A node's buffer stays within its bound (TurtleKV §3.1.2).

use testudo_base::PAGE_BYTES;

use super::*;

const RECORDS: u64 = 6000;

fn key(number: u64) -> Vec<u8> {
    format!("user{number:020}").into_bytes()
}

fn value(round: u64) -> Option<Vec<u8>> {
    Some(vec![b'a' + (round % 26) as u8; 100])
}

/// Maximum buffer size of the tree's nodes.
fn most_buffered(bed: &Bed) -> u64 {
    let nodes = bed.tree.outline().into_iter().filter(|line| line.what == "node");
    nodes.map(|line| line.bytes).max().unwrap_or_default()
}

#[test]
fn jobs_alone_reduce_buffers_to_a_smaller_bound() {
    let mut random = SplitMix::new(21);
    let mut bed = Bed::new(turtle(16 << 10, 16));
    bed.apply((0..RECORDS).map(|n| (key(n), value(0))).collect());
    for round in 1..60 {
        bed.apply((0..100).map(|_| (key(random.below(RECORDS)), value(round))).collect());
    }
    let narrow = turtle(1 << 10, 16);
    let bound = narrow.leaf_bytes * 16;
    assert!(most_buffered(&bed) > 2 * bound, "{} bytes in a node", most_buffered(&bed));
    bed.options = narrow;
    bed.reopen();
    settle(&mut bed);
    assert!(most_buffered(&bed) <= bound, "{} bytes in a node", most_buffered(&bed));
    bed.check(&mut random);
}

/// Does all jobs; checks the bounds after each.
fn settle(bed: &mut Bed) {
    bed.tree.check_invariants(false).unwrap();
    while let Some(job) = bed.tree.pick_job(&JobRequest::only(false)) {
        assert!(bed.run_job_with(&job, |_| {}), "no update in between");
        bed.tree.check_invariants(false).unwrap();
    }
}

#[test]
fn updates_alone_keep_turtle_nodes_within_the_bound() {
    for (options, locality, count) in [
        (turtle(32 << 10, 4), RECORDS, 150),
        // Several leaves of bytes at once.
        (turtle(16 << 10, 8), RECORDS, 800),
        (turtle(16 << 10, 8), 1000, 150),
        // Nearly everything goes to one pivot.
        (turtle(16 << 10, 8), 40, 150),
        // Smaller than a page, the unit of the estimates.
        (turtle(1 << 10, 4), RECORDS, 150),
        (turtle(1 << 10, 16), 400, 150),
    ] {
        let mut random = SplitMix::new(23);
        let mut bed = Bed::new(options);
        for round in 0..100 {
            // Leaves and nodes are split on the way.
            let first = random.below(RECORDS);
            let near = |n: u64| key((first + n) % RECORDS);
            bed.apply((0..count).map(|_| (near(random.below(locality)), value(round))).collect());
            let most = most_beyond(&bed);
            let is_estimate = options.leaf_bytes < PAGE_BYTES;
            assert!(
                is_estimate || most <= options.leaf_bytes,
                "{most} bytes beyond in round {round}: {options:?}"
            );
            // Otherwise a job is due.
            bed.tree.check_invariants(false).unwrap();
        }
        bed.check(&mut random);
    }
}

#[test]
fn jobs_alone_repair_nodes_after_a_change_of_settings() {
    let settings = [turtle(8 << 10, 16), splinter(8 << 10, 16)];
    let narrower = [turtle(2 << 10, 16), splinter(2 << 10, 16), turtle(8 << 10, 16), splinter(8 << 10, 16)];
    for options in settings {
        for narrow in narrower {
            let mut random = SplitMix::new(24);
            let mut bed = Bed::new(options);
            bed.apply((0..RECORDS).map(|n| (key(n), value(0))).collect());
            for round in 1..40 {
                bed.apply((0..100).map(|_| (key(random.below(RECORDS)), value(round))).collect());
            }
            bed.options = narrow;
            bed.reopen();
            bed.tree.check_invariants(true).unwrap();
            settle(&mut bed);
            let most = most_beyond(&bed);
            assert!(most <= narrow.leaf_bytes, "{most} bytes beyond: {options:?}, {narrow:?}");
            bed.check(&mut random);
        }
    }
}

#[test]
fn nodes_stay_within_the_bound_under_inserts_and_deletes() {
    for options in [turtle(4 << 10, 8), splinter(4 << 10, 8)] {
        let mut random = SplitMix::new(22);
        let mut bed = Bed::new(options);
        bed.apply((0..RECORDS).map(|n| (key(n), value(0))).collect());
        for round in 1..120 {
            // A moving window of deletes: leaves, and then nodes, are joined behind it.
            let first = round * 50;
            let removed = (first..first + 40).map(|n| (key(n), None));
            let written = (0..60).map(|_| (key(random.below(RECORDS)), value(round)));
            bed.apply(removed.chain(written).collect());
            settle(&mut bed);
            assert!(most_beyond(&bed) <= options.leaf_bytes, "{} bytes beyond", most_beyond(&bed));
        }
        bed.check(&mut random);
    }
}

/// Maximum excess of a node over its bound.
fn most_beyond(bed: &Bed) -> u64 {
    let lines = bed.tree.outline();
    let beyond = |at: usize| {
        let node = &lines[at];
        let below = lines[at + 1..].iter().take_while(|line| line.depth > node.depth);
        let children = below.filter(|line| line.depth == node.depth + 1 && line.what != "tier");
        let leaf_bytes: Vec<_> = children.map(|line| (line.what == "leaf").then_some(line.bytes)).collect();
        node.bytes.saturating_sub(bed.options.bound(&leaf_bytes))
    };
    (0..lines.len()).filter(|&at| lines[at].what == "node").map(beyond).max().unwrap_or_default()
}
