//! Small runs of the bottom are joined while levels above it stay as they are.

use super::*;

/// Writes runs with values for these numbers, as new as updates would be.
fn runs_of(bed: &mut Bed, numbers: impl Iterator<Item = u32>) -> Vec<LevelRun> {
    let value = |number: u32| OwnedEntry {
        key: format!("key{number:05}").into_bytes(),
        kind: Kind::Value,
        value: vec![b'v'; 50],
    };
    let updates = bed.updates_of(numbers.map(value).collect());
    let mut runs = level_runs(write_updates(&bed.work, &*updates, 1 << 20).unwrap());
    for level_run in &mut runs {
        level_run.fenced.low = level_run.extent().unwrap().low;
    }
    runs
}

#[test]
fn a_join_leaves_an_emptying_level_unchanged() {
    let mut bed = Bed::new(options(64 << 10, 4, 2));
    let mut levels = Levels { next_object: 1, ..Levels::default() };
    let small = (0..6).flat_map(|at| runs_of(&mut bed, at * 100..at * 100 + 20)).collect();
    levels.bottom = Component::of_runs(small, &mut levels.next_object).unwrap();
    let waiting = runs_of(&mut bed, 50..900);
    let emptying = vec![Component::of_runs(waiting, &mut levels.next_object).unwrap()];
    levels.levels.push(Level { filling: Vec::new(), emptying, began_bytes: 1 << 20, ..Level::default() });
    let tree = LsmTree::of(bed.options, &bed.work.data, levels, false);
    let job = Job {
        what: "join small runs",
        debt_bytes: 0,
        scope: Scope::all(),
        target: Opaque::new(Action::Join(0..6)),
    };
    let prepared = tree.prepare(&bed.work, &job).unwrap();
    let edit = tree.install(&bed.work, prepared).unwrap().expect("no update in between");
    assert_eq!(edit.tree.stats().buffered_bytes, tree.stats().buffered_bytes);
    assert_eq!(edit.tree.stats().leaves, 1);
    for number in (0..20).chain(50..900) {
        let key = format!("key{number:05}").into_bytes();
        let found = edit.tree.get(&key, hash_key(&key), Access::Blocking).unwrap();
        assert_ne!(found, Lookup::Absent, "{number}");
    }
}
