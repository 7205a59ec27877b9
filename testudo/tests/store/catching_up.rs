//! Flushes wait for the jobs of a tree that cannot keep up with the writes.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;

use testudo::{Db, Keyspace, KeyspaceOptions, Tree};
use testudo_db::maintenance::Stepping as _;
use testudo_env::{MemEnv, SplitMix};

/// Number of sequences of runs that a query searches.
fn sequences(keyspace: &Keyspace) -> usize {
    keyspace.outline().iter().filter(|line| ["filling", "emptying", "bottom"].contains(&line.what)).count()
}

/// Writes this many flushes, each too large to be merged with others as a small one.
fn write(db: &Db, keyspace: &Keyspace, flushes: u64, mut after: impl FnMut()) {
    let mut random = SplitMix::new(7);
    for _ in 0..flushes {
        for _ in 0..250 {
            keyspace.insert(random.next_u64().to_be_bytes(), [7; 100]).unwrap();
        }
        db.flush().unwrap();
        after();
    }
}

fn options() -> KeyspaceOptions {
    KeyspaceOptions::default()
        .tree(Tree::leveled().with_run_bytes(4 << 10).with_growth_factor(4).with_level1_flushes(4))
}

/// Only flushing threads run jobs here.
#[test]
fn a_leveled_tree_under_pressure_has_a_bounded_number_of_sequences() {
    let db = Db::builder(Path::new("/db")).env(MemEnv::new(1)).memory_bytes(8 << 20).open().unwrap();
    let keyspace = db.keyspace("users", options).unwrap();
    let mut most = 0;
    write(&db, &keyspace, 120, || most = most.max(sequences(&keyspace)));
    assert!((16..=40).contains(&most), "{most} sequences");
    let pressed = db.stats().jobs.count;
    assert!(pressed > 0);
    // Postponed work is done once there is time.
    while db.step().unwrap() {}
    assert!(sequences(&keyspace) <= 14, "{:?}", keyspace.outline());
    assert_eq!(keyspace.iter().unwrap().count(), 120 * 250);
    db.close().unwrap();
}

/// With threads, which run jobs on their own.
#[test]
fn a_leveled_tree_written_by_several_threads_loses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let db = Db::builder(directory.path()).memory_bytes(8 << 20).open().unwrap();
    let keyspace = db.keyspace("users", options).unwrap();
    let (threads, count) = (4_u64, 20_000_u64);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let keyspace = &keyspace;
            scope.spawn(move || {
                for n in 0..count {
                    let key = (thread * count + n).wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes();
                    keyspace.insert(key, [8; 100]).unwrap();
                }
            });
        }
    });
    db.flush().unwrap();
    assert!(sequences(&keyspace) <= 40, "{:?}", keyspace.outline());
    assert_eq!(keyspace.iter().unwrap().count() as u64, threads * count);
    db.close().unwrap();
}
