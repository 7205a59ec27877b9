//! Damage to runs that are only in compaction buffers costs no answer: the run is dropped.

use std::path::Path;

use super::*;

const RECORDS: u64 = 6_000;

fn key(number: u64) -> Vec<u8> {
    format!("user{number:020}").into_bytes()
}

fn batch(round: u64, count: u64) -> Batch {
    let numbers = (0..count).map(|n| (n * 7919 + round * 31) % RECORDS);
    numbers.map(|number| (key(number), Some(vec![b'a' + (round % 26) as u8; 100]))).collect()
}

/// The runs that are only in compaction buffers.
fn spare_runs(bed: &Bed) -> Vec<Arc<Run>> {
    bed.runs().into_iter().filter(|run| bed.tree.is_spare(run.reference().id)).collect()
}

/// A tree with nothing cached but the filters and indexes of retained runs.
fn retaining_bed() -> Bed {
    let mut bed = Bed::new(LsmOptions { retained_percent: 100, ..options(16 << 10, 4, 2) });
    bed.apply_and_move((0..RECORDS).map(|number| (key(number), Some(vec![b'v'; 100]))).collect());
    bed.run_jobs();
    bed.cool(4 << 20);
    for round in 0..20 {
        for number in 0..RECORDS {
            bed.get(&key(number));
        }
        bed.apply_and_move(batch(round, 500));
    }
    bed.cool(8 << 20);
    for run in spare_runs(&bed) {
        for number in 0..RECORDS {
            let _ = run.check_filter(&key(number));
            run.bytes_between(Some(&key(number)), None).unwrap();
        }
    }
    bed
}

/// Damages all data pages of the runs.
fn damage(bed: &Bed, runs: &[Arc<Run>]) {
    let file =
        bed.env.open(Path::new("/data"), OpenOptions { mode: OpenMode::Write, direct: false }).unwrap();
    for run in runs.iter().map(|run| run.reference()) {
        for page in 0..run.data_pages {
            let offset = run.locate(page).unwrap().0 * testudo_base::PAGE_BYTES + 200;
            let mut byte = [0];
            file.read_at(offset, &mut byte).unwrap();
            file.write_at(offset, &[byte[0] ^ 1]).unwrap();
        }
    }
}

fn check_all(bed: &Bed) {
    for number in 0..RECORDS {
        assert_eq!(bed.get(&key(number)), bed.model.get(&key(number)).cloned());
    }
}

#[test]
fn damaged_retained_runs_cost_no_answer_and_are_dropped() {
    let mut bed = retaining_bed();
    let spare = spare_runs(&bed);
    assert!(spare.len() > 3, "{spare:?}");
    bed.tree
        .pick_job(&JobRequest::only(true))
        .inspect(|job| assert!(!job.what.contains("damaged"), "{job:?}"));
    damage(&bed, &spare);
    // Lookups of the first round may stop at a damaged run that hides another one.
    check_all(&bed);
    check_all(&bed);
    let damaged: Vec<RunId> =
        spare.iter().filter(|run| run.is_known_damaged()).map(|run| run.reference().id).collect();
    assert!(damaged.len() > 1, "{} of {} runs were read", damaged.len(), spare.len());
    // They are not read again.
    let before = bed.work.data.io_stats().page_reads;
    check_all(&bed);
    assert_eq!(bed.work.data.io_stats().page_reads, before);
    assert!(bed.tree.has_new_reasons());
    let job = bed.pick_job(false).expect("a job drops the damaged runs");
    assert_eq!(job.what, "drop damaged retained runs");
    let prepared = bed.tree.prepare(&bed.work, &job).unwrap();
    let edit = bed.tree.install(&bed.work, prepared).unwrap().expect("no update in between");
    bed.publish(edit);
    bed.tree.check_invariants(true).unwrap();
    assert!(bed.runs().iter().all(|run| !damaged.contains(&run.reference().id)));
    assert_eq!(bed.tree.stats().retained_damaged_runs, u64_of(damaged.len()));
    check_all(&bed);
    bed.run_jobs();
    let job = bed.pick_job(true);
    assert!(job.as_ref().is_none_or(|job| !job.what.contains("damaged")), "{job:?}");
}

#[test]
fn point_queries_skip_damaged_retained_runs() {
    let bed = retaining_bed();
    damage(&bed, &spare_runs(&bed));
    for number in 0..RECORDS {
        let key = key(number);
        let Lookup::Found(Kind::Value, value, _) =
            bed.tree.get(&key, hash_key(&key), Access::Blocking).unwrap()
        else {
            panic!("a record is missing");
        };
        assert_eq!(Some(value), bed.model.get(&key).cloned());
    }
    assert!(spare_runs(&bed).iter().any(|run| run.is_known_damaged()));
}

#[test]
fn scans_skip_damaged_retained_runs() {
    let bed = retaining_bed();
    let spare = spare_runs(&bed);
    // The pages where scans begin are cached, subsequent ones are not.
    for number in (0..RECORDS).step_by(400) {
        for run in &spare {
            let _ = run.get(&key(number), hash_key(&key(number)), Access::Blocking);
        }
    }
    damage(&bed, &spare);
    for number in (0..RECORDS).step_by(400) {
        let start = key(number);
        let mut cursor = bed.tree.cursor();
        cursor.seek(&start).unwrap();
        for (key, value) in bed.model.range(start.clone()..).take(400) {
            let entry = cursor.entry().expect("a record is missing");
            assert_eq!((entry.key, entry.value), (key.as_slice(), value.as_slice()));
            cursor.next().unwrap();
        }
        let mut cursor = bed.tree.cursor();
        cursor.seek_before(&start).unwrap();
        for (key, value) in bed.model.range(..start).rev().take(400) {
            let entry = cursor.entry().expect("a record is missing");
            assert_eq!((entry.key, entry.value), (key.as_slice(), value.as_slice()));
            cursor.prev().unwrap();
        }
    }
    assert!(spare.iter().any(|run| run.is_known_damaged()));
}
