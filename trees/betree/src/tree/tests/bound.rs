//! A node's buffer stays within its bound (TurtleKV §3.1.2).

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
    while let Some(job) = bed.tree.pick_job(&JobRequest::only(false)) {
        let prepared = bed.tree.prepare(&bed.work, &job).unwrap();
        let edit = bed.tree.install(&bed.work, prepared).unwrap();
        bed.publish(edit.expect("no update in between"));
    }
    assert!(most_buffered(&bed) <= bound, "{} bytes in a node", most_buffered(&bed));
    bed.check(&mut random);
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
            while let Some(job) = bed.tree.pick_job(&JobRequest::only(false)) {
                let prepared = bed.tree.prepare(&bed.work, &job).unwrap();
                let edit = bed.tree.install(&bed.work, prepared).unwrap();
                bed.publish(edit.expect("no update in between"));
            }
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
