//! Entries dropped in write buffers and merges are counted: every written entry is in the trees or was
//! dropped.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use testudo::{Db, DbStats, Keyspace, KeyspaceOptions, Tree};
use testudo_db::maintenance::Stepping as _;
use testudo_env::{MemEnv, SplitMix};

fn open(machine: &Arc<MemEnv>) -> Db {
    Db::builder("/db").env(machine.clone()).memory_bytes(1 << 20).open().unwrap()
}

/// Entries and bytes that were written or created, and those that were dropped.
fn in_and_dropped(stats: &DbStats) -> [(u64, u64); 2] {
    [
        (stats.writes.count + stats.merges.folded_entries, stats.writes.bytes + stats.merges.folded_bytes),
        (
            stats.merges.dropped_before_flush_entries + stats.merges.dropped_entries,
            stats.merges.dropped_before_flush_bytes + stats.merges.dropped_bytes,
        ),
    ]
}

#[test]
fn overwrites_in_one_buffer_never_reach_the_tree() {
    let machine = MemEnv::new(1);
    let db = open(&machine);
    let keyspace = db.keyspace("k", KeyspaceOptions::default).unwrap();
    for round in 0..50 {
        for number in 0..100_u32 {
            keyspace.insert(number.to_be_bytes(), [round; 20]).unwrap();
        }
    }
    assert_eq!(keyspace.stats().merges.dropped_before_flush_entries, 0, "counted when it is flushed");
    db.flush().unwrap();
    let stats = keyspace.stats();
    assert_eq!(
        (stats.merges.dropped_before_flush_entries, stats.merges.dropped_before_flush_bytes),
        (4_900, 4_900 * 24)
    );
    assert_eq!((stats.merges.dropped_entries, stats.merges.folded_entries), (0, 0));
    assert_eq!(stats.tree.entries, 100);
    let of_store = db.stats();
    assert_eq!(of_store.merges.dropped_before_flush_bytes, stats.merges.dropped_before_flush_bytes);
    drop(keyspace);
    assert!(db.drop_keyspace("k").unwrap());
    assert_eq!(
        db.stats().merges.dropped_before_flush_bytes,
        stats.merges.dropped_before_flush_bytes,
        "it was flushed"
    );
}

/// Random writes of all kinds, with flushes and jobs.
fn write(db: &Db, keyspaces: &[Keyspace], random: &mut SplitMix) {
    for _ in 0..6_000 {
        let keyspace = &keyspaces[usize::from(random.below(2) == 1)];
        let key = format!("key{:04}", random.below(900));
        match random.below(10) {
            0..=1 => keyspace.remove(key).unwrap(),
            2..=3 => keyspace.merge(key, "operand").unwrap(),
            _ => keyspace.insert(key, vec![1; usize::try_from(random.below(300)).unwrap()]).unwrap(),
        }
        match random.below(400) {
            0 => db.flush().unwrap(),
            1..=30 => drop(db.step().unwrap()),
            _ => {}
        }
    }
}

#[test]
fn an_emptied_store_has_dropped_every_entry() {
    let machine = MemEnv::new(2);
    let db = open(&machine);
    let turtle = Tree::turtle().with_run_bytes(4 << 10).with_max_pivots(4);
    let options = |tree| KeyspaceOptions::default().tree(tree).merge_operator("append");
    let keyspaces = [
        db.keyspace("turtle", options(turtle)).unwrap(),
        db.keyspace("splinter", options(Tree::splinter())).unwrap(),
    ];
    let mut random = SplitMix::new(9);
    for round in 0..4 {
        write(&db, &keyspaces, &mut random);
        db.flush().unwrap();
        db.compact().unwrap();
        let [taken, dropped] = in_and_dropped(&db.stats());
        assert!(dropped.0 < taken.0 && dropped.1 < taken.1, "{round}: readable entries were dropped");
    }
    for number in 0..900 {
        for keyspace in &keyspaces {
            keyspace.remove(format!("key{number:04}")).unwrap();
        }
    }
    db.flush().unwrap();
    db.compact().unwrap();
    let stats = db.stats();
    let of_keyspaces = keyspaces.each_ref().map(Keyspace::stats);
    assert!(of_keyspaces.iter().all(|stats| stats.tree.buffered_runs == 0), "{of_keyspaces:?}");
    // An emptied leaf keeps one tombstone of seven bytes.
    let left: u64 = of_keyspaces.iter().map(|stats| stats.tree.entries).sum();
    assert_eq!(left, of_keyspaces.iter().map(|stats| stats.tree.tombstones).sum::<u64>());
    let [taken, dropped] = in_and_dropped(&stats);
    assert_eq!(taken, (dropped.0 + left, dropped.1 + 7 * left));
    assert!(stats.merges.folded_entries > 100 && stats.merges.dropped_entries > 1_000, "{stats:?}");
    let sum = |of: fn(&testudo::KeyspaceStats) -> u64| of_keyspaces.iter().map(of).sum::<u64>();
    assert_eq!(stats.merges.dropped_before_flush_bytes, sum(|stats| stats.merges.dropped_before_flush_bytes));
    assert_eq!(stats.merges.dropped_bytes, sum(|stats| stats.merges.dropped_bytes));
    assert_eq!(stats.merges.folded_bytes, sum(|stats| stats.merges.folded_bytes));
}
