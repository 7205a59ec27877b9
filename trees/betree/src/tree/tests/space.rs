//! Space and bytes written while all keys are overwritten.

use super::*;

const RECORDS: u64 = 32 << 10;
const BATCH: u64 = 1600;
const RECORD_BYTES: u64 = 124;

fn key(number: u64) -> Vec<u8> {
    format!("user{number:020}").into_bytes()
}

fn live_bytes(bed: &Bed) -> u64 {
    bed.work.data.extents().stats().live_bytes
}

/// Does the jobs for which updates wait; returns the maximum of the space in use.
fn catch_up(bed: &mut Bed) -> u64 {
    let mut most = live_bytes(bed);
    while bed.tree.behind_bytes() > 0 {
        let job = bed.tree.pick_job(&JobRequest::only(false)).expect("jobs are behind");
        assert!(bed.run_job_with(&job, |_| {}), "no update in between");
        most = most.max(live_bytes(bed));
    }
    most
}

/// Overwrites all keys twice, in random order, then measures while they are overwritten once more. Returns
/// percent of the data: the bytes written for each incoming one, and the mean and maximum space.
fn overwritten(options: BeTreeOptions) -> [u64; 3] {
    let mut random = SplitMix::new(7);
    let mut bed = Bed::new(options);
    let update = |bed: &mut Bed, numbers: &mut dyn FnMut(u64) -> u64, value: u8| {
        let batch: Batch = (0..BATCH).map(|n| (key(numbers(n)), Some(vec![value; 100]))).collect();
        let updates = bed.updates_of(testudo_treebed::entries_of(&batch));
        let edit = bed.tree.apply(&bed.work, updates).unwrap();
        bed.publish(edit);
        catch_up(bed)
    };
    for round in 0..RECORDS.div_ceil(BATCH) {
        update(&mut bed, &mut |n| (round * BATCH + n) * 40_503 % RECORDS, 0);
    }
    let rounds = 3 * RECORDS / BATCH;
    let (mut spaces, mut before) = (Vec::new(), 0);
    for round in 0..rounds {
        if round == rounds * 2 / 3 {
            before = bed.written_bytes();
        }
        let most = update(&mut bed, &mut |_| random.below(RECORDS), u8::try_from(round % 256).unwrap());
        if round >= rounds * 2 / 3 {
            spaces.push(most);
        }
    }
    bed.tree.check_invariants(true).unwrap();
    let (data, measured) = (RECORDS * RECORD_BYTES, u64_of(spaces.len()));
    let written = bed.written_bytes() - before;
    let mean = spaces.iter().sum::<u64>() / measured;
    [
        written * 100 / (measured * BATCH * RECORD_BYTES),
        mean * 100 / data,
        spaces.iter().max().unwrap() * 100 / data,
    ]
}

#[test]
fn a_tree_under_uniform_overwrites_takes_little_space() {
    // Runs of a quarter of a leaf; a few nodes.
    for (options, written_max) in [(splinter(256 << 10, 32), 390), (turtle(256 << 10, 32), 400)] {
        let [written, mean, most] = overwritten(options);
        println!("{options:?}: {written} % written, {mean} and {most} % in use");
        assert!(written <= written_max && mean <= 145 && most <= 160, "{written} {mean} {most}: {options:?}");
    }
}

/// Fills a tree, does all of its jobs as an idle one does, and overwrites two thirds of the keys once, with
/// the jobs that this makes due. Returns the most bytes that were buffered, in percent of the data.
fn overwritten_once(options: BeTreeOptions) -> u64 {
    const ALL: u64 = 2 * RECORDS;
    const LARGE_BATCH: u64 = 2 * BATCH;
    let (mut random, mut bed) = (SplitMix::new(11), Bed::new(options));
    let update = |bed: &mut Bed, numbers: &mut dyn FnMut(u64) -> u64, is_idle: bool| {
        let batch: Batch = (0..LARGE_BATCH).map(|n| (key(numbers(n)), Some(vec![0; 100]))).collect();
        let updates = bed.updates_of(testudo_treebed::entries_of(&batch));
        let edit = bed.tree.apply(&bed.work, updates).unwrap();
        bed.publish(edit);
        while let Some(job) = bed.tree.pick_job(&JobRequest::only(is_idle)) {
            assert!(bed.run_job_with(&job, |_| {}), "no update in between");
        }
        bed.tree.stats().buffered_bytes
    };
    for round in 0..ALL.div_ceil(LARGE_BATCH) {
        update(&mut bed, &mut |n| (round * LARGE_BATCH + n) * 40_503 % ALL, true);
    }
    let rounds = ALL * 2 / 3 / LARGE_BATCH;
    let most = (0..rounds).map(|_| update(&mut bed, &mut |_| random.below(ALL), false)).max();
    bed.tree.check_invariants(true).unwrap();
    most.unwrap() * 100 / (ALL * RECORD_BYTES)
}

#[test]
fn overwrites_are_detected_before_many_are_buffered() {
    let most = overwritten_once(splinter(128 << 10, 32));
    assert!(most <= 40, "{most} % of the data were buffered");
}
