//! Pages that were scattered by updates are gathered once scans have paid for it.

use super::*;

fn key(number: u64) -> Vec<u8> {
    format!("key{number:06}").into_bytes()
}

/// A run of 20,000 records whose pages were all replaced in random order.
fn scattered(random: &mut SplitMix) -> Bed {
    let mut bed = Bed::new(LsmOptions { flushes_directly: true, ..updating(4 << 20, 8, 4) });
    bed.apply_and_move((0..20_000).map(|number| (key(number), Some(vec![1; 100]))).collect());
    for round in 0..60 {
        let firsts: Vec<u64> = (0..16).map(|_| random.below(500) * 40).collect();
        let numbers = firsts.into_iter().flat_map(|first| first..first + 40);
        bed.apply(numbers.map(|number| (key(number), Some(vec![round; 100]))).collect());
        bed.run_jobs();
    }
    assert!(bed.tree.stats().replaced_pages > 300, "{:?}", bed.tree.stats());
    bed
}

fn scan_all(bed: &Bed) {
    let mut cursor = bed.tree.cursor();
    cursor.seek_first().unwrap();
    while cursor.entry().is_some() {
        cursor.next().unwrap();
    }
}

/// Scans until gathering has been paid for; returns the number of scans.
fn scan_until_due(bed: &Bed) -> u64 {
    for scans in 1..100 {
        scan_all(bed);
        if bed.pick_job(true).is_some() {
            return scans;
        }
    }
    let reads = bed.runs().iter().map(|run| run.scattered_reads()).sum::<u64>();
    panic!("pages are never gathered: {reads} further reads");
}

#[test]
fn scattered_pages_are_gathered_after_scans_only() {
    let mut random = SplitMix::new(8);
    let mut bed = scattered(&mut random);
    let groups = |bed: &Bed| bed.tree.stats().page_updates.moved_groups;
    assert!(bed.pick_job(true).is_none() && groups(&bed) == 0, "nothing was scanned");
    let scans = scan_until_due(&bed);
    scan_all(&bed);
    assert!(bed.tree.has_new_reasons(), "scans are noted");
    assert!(bed.pick_job(false).is_none(), "{scans} scans have not paid for it yet");
    // Scattered updates wait in the levels.
    bed.apply((0..190).map(|number| (key(number * 100), Some(vec![200; 100]))).collect());
    assert!(bed.tree.stats().buffered_runs > 0, "newer entries are above");
    let (pinned, model) = (Arc::clone(&bed.tree), bed.model.clone());
    let entries = bed.tree.stats().entries;
    let scope = Scope::all();
    let job = Job { what: "gather pages", debt_bytes: 0, scope, target: Opaque::new(Action::Gather(0)) };
    assert!(bed.run_job_with(&job, |_| ()), "it is not overtaken");
    assert!(bed.tree.stats().buffered_runs > 0, "they are still above");
    assert!(groups(&bed) > 20, "all groups of the run: {:?}", bed.tree.stats().page_updates);
    assert_eq!((bed.tree.stats().replaced_pages, bed.tree.stats().entries), (0, entries));
    bed.tree.check_invariants(true).unwrap();
    bed.check(&mut random);
    bed.reopen();
    bed.check(&mut random);
    check_pinned(vec![(pinned, model)]);
}

#[test]
fn a_run_that_changes_while_its_pages_are_gathered_stays() {
    let mut random = SplitMix::new(9);
    let mut bed = scattered(&mut random);
    scan_until_due(&bed);
    let job = bed.pick_job(true).expect("a job");
    let in_flight = bed.prepare(&job, 1 << 30);
    bed.apply((0..400).map(|number| (key(number), Some(vec![99; 100]))).collect());
    bed.install(in_flight);
    bed.check(&mut random);
    assert_eq!(bed.get(&key(7)), Some(vec![99; 100]), "the newer record");
}

#[test]
fn gathered_and_joined_runs_bring_no_new_keys() {
    let options = LsmOptions { flushes_directly: true, ..updating(64 << 10, 4, 2) };
    let mut bed = Bed::new(options);
    let mut levels = Levels { next_object: 1, ..Levels::default() };
    let value = |number: u64| OwnedEntry { key: key(number), kind: Kind::Value, value: vec![b'v'; 50] };
    let mut runs = Vec::new();
    for first in [0, 200, 400, 600] {
        let updates = bed.updates_of((first..first + 20).map(value).collect());
        runs.extend(level_runs(write_updates(&bed.work, &*updates, 1 << 20).unwrap()));
    }
    for level_run in &mut runs {
        level_run.fenced.low = level_run.extent().unwrap().low;
    }
    levels.bottom = Component::of_runs(runs, &mut levels.next_object).unwrap();
    let tree = LsmTree::of(options, &bed.work.data, levels, false);
    for action in [Action::Join(0..3), Action::Gather(3)] {
        let scope = Scope::all();
        let job = Job { what: "rewrite runs", debt_bytes: 0, scope, target: Opaque::new(action) };
        let prepared = tree.prepare(&bed.work, &job).unwrap();
        let edit = tree.install(&bed.work, prepared).unwrap().expect("no update in between");
        assert_eq!(edit.tree.stats().entries, 80);
    }
    assert_eq!(tree.levels.forecast.rewritten_keys(), 0, "a forecast would expect fewer inserts");
}
