//! Space while all keys are overwritten.

use super::*;

#[test]
#[ignore = "experiment"]
fn space_experiment() {
    let records: u64 = std::env::var("RECORDS").map_or(65536, |v| v.parse().unwrap());
    let leaf: u64 = std::env::var("LEAF").map_or(64, |v| v.parse().unwrap()) << 10;
    let batch: u64 = std::env::var("BATCH").map_or(2000, |v| v.parse().unwrap());
    let key = |n: u64| format!("user{n:020}").into_bytes();
    for options in [splinter(leaf, 64), turtle(leaf, 64)] {
        let mut random = SplitMix::new(7);
        let mut bed = Bed::new(options);
        let order: Vec<u64> = (0..records).map(|n| n * 40503 % records).collect();
        for chunk in order.chunks(usize::try_from(batch).unwrap()) {
            apply_light(&mut bed, chunk.iter().map(|n| (key(*n), Some(vec![7; 100]))).collect());
            while bed.tree.behind_bytes() > 0 && run_job(&mut bed) {}
        }
        let data: u64 = bed.runs().iter().map(|run| run.reference().user_bytes).sum();
        let user = records * 124;
        println!("{options:?} loaded: {data} of {user}");
        let mode = std::env::var("MODE").unwrap_or_else(|_| "pressed".into());
        let before = bed.written_bytes();
        let (mut incoming, mut spaces, mut jobs) = (0, Vec::new(), 0);
        for round in 0..records * 4 / batch {
            let updates: BTreeMap<_, _> =
                (0..batch).map(|_| (key(random.below(records)), Some(vec![round as u8; 100]))).collect();
            incoming += u64_of(updates.len()) * 124;
            apply_light(&mut bed, updates);
            let mut most = bed.work.data.extents().stats().live_bytes;
            let mut count = 0;
            let per_round = std::env::var("JOBS").map_or(u64::MAX, |v| v.parse().unwrap());
            loop {
                let pressed = bed.tree.behind_bytes() > 0;
                if !(pressed || (mode == "eager" && count < per_round)) || !run_job(&mut bed) {
                    break;
                }
                count += 1;
                most = most.max(bed.work.data.extents().stats().live_bytes);
            }
            jobs += count;
            if round > records * 2 / batch {
                let stats = bed.tree.stats();
                let runs = bed.runs();
                let mut distinct: BTreeMap<RunId, &Arc<Run>> = BTreeMap::new();
                runs.iter().for_each(|run| {
                    distinct.insert(run.reference().id, run);
                });
                let stored: u64 = distinct.values().map(|run| run.reference().stored_bytes()).sum();
                let entries: u64 = distinct.values().map(|run| run.reference().user_bytes).sum();
                spaces.push([
                    most,
                    bed.work.data.extents().stats().live_bytes,
                    stored,
                    entries,
                    stats.leaf_bytes,
                    stats.buffered_bytes,
                    entries - stats.leaf_bytes - stats.buffered_bytes.min(entries - stats.leaf_bytes),
                    u64_of(bed.lines("tier").len()) * user / u64_of(bed.lines("node").len()),
                ]);
            }
        }
        let written = bed.written_bytes() - before;
        let mean = |at: usize| {
            spaces.iter().map(|space| space[at]).sum::<u64>() as f64 / (spaces.len() as u64 * user) as f64
        };
        let max = |at: usize| spaces.iter().map(|space| space[at]).max().unwrap() as f64 / user as f64;
        println!(
            "  written {:.2}, jobs {jobs}, max {:.2}, live {:.2} (max {:.2}), stored {:.2}, entries {:.2}, leaves {:.2}, pending {:.2}, flushed {:.2}, tiers/node {:.1}",
            written as f64 / incoming as f64, max(0), mean(1), max(1), mean(2), mean(3), mean(4), mean(5), mean(6), mean(7)
        );
    }
}

fn apply_light(bed: &mut Bed, batch: Batch) {
    let updates = bed.updates_of(testudo_treebed::entries_of(&batch));
    let edit = bed.tree.apply(&bed.work, updates).unwrap();
    publish_light(bed, edit);
}

fn publish_light(bed: &mut Bed, edit: TreeEdit) {
    bed.durable.apply(&bed.work.data, &edit.changes);
    bed.tree = edit.tree;
}

fn run_job(bed: &mut Bed) -> bool {
    let Some(job) = bed.tree.pick_job(&JobRequest::only(false)) else { return false };
    let prepared = bed.tree.prepare(&bed.work, &job).unwrap();
    let edit = bed.tree.install(&bed.work, prepared).unwrap().unwrap();
    publish_light(bed, edit);
    true
}
