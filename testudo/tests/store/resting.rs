//! An idle keyspace is compacted, regardless of other keyspaces.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    io,
    ops::Range,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use testudo::{Db, Durability, Keyspace, KeyspaceOptions, Tree, TreePreset};
use testudo_db::maintenance::Stepping as _;
use testudo_env::{CrashPolicy, Env, MemEnv};

const SPLINTER: Tree = Tree::splinter().with_run_bytes(16 << 10).with_max_pivots(16);

/// All required work of this tree is part of flushes: its jobs run only in idle time.
const TURTLE: Tree = Tree::turtle().with_run_bytes(16 << 10).with_max_pivots(16);

fn open(machine: Arc<MemEnv>) -> (Db, Keyspace, Keyspace) {
    let db = Db::builder(Path::new("/db")).env(machine).memory_bytes(1 << 20).open().unwrap();
    let [resting, busy] = [("resting", SPLINTER), ("busy", TURTLE)]
        .map(|(name, tree)| db.keyspace(name, || KeyspaceOptions::default().tree(tree)).unwrap());
    (db, resting, busy)
}

fn write(keyspace: &Keyspace, round: u32) {
    for n in 0..100_u32 {
        let key = (round * 100 + n).wrapping_mul(0x9e37_79b1) % 3000;
        keyspace.insert(format!("user{key:08}"), [7; 100]).unwrap();
    }
}

/// Leaves a dozen buffers in the tree.
fn put_off(db: &Db, keyspace: &Keyspace) -> u64 {
    for round in 0..60 {
        write(keyspace, round);
        db.flush().unwrap();
    }
    let tiers = keyspace.stats().tree.buffered_runs;
    assert!(tiers > 8, "{tiers}");
    tiers
}

#[test]
fn an_idle_keyspace_is_compacted_while_another_is_written() {
    let outcome = || {
        let machine = MemEnv::new(7);
        let (db, resting, busy) = open(machine.clone());
        put_off(&db, &resting);
        let write_and_step = |rounds: Range<u32>| {
            let jobs = db.stats().jobs.count;
            for round in rounds {
                write(&busy, round);
                if round % 2 == 0 {
                    db.flush().unwrap();
                }
                db.step().unwrap();
            }
            db.stats().jobs.count - jobs
        };
        let jobs = write_and_step(0..500);
        let tiers = resting.stats().tree.buffered_runs;
        assert!(jobs > 0 && tiers <= 8, "{jobs} jobs, {tiers} tiers");
        let jobs = write_and_step(500..1000);
        assert!(jobs < 250, "{jobs} jobs, although the other one is not idle");
        drop((resting, busy));
        db.check_invariants().unwrap();
        db.close().unwrap();
        (jobs, machine.operation_count(), machine.used_bytes())
    };
    assert_eq!(outcome(), outcome(), "steps are the same each time");
}

#[test]
fn the_flush_thread_compacts_idle_keyspaces_while_others_write() {
    let machine = MemEnv::with_threads(7, 2);
    let (db, resting, busy) = open(machine.clone());
    let before = put_off(&db, &resting);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0.. {
                if is_over.load(Relaxed) {
                    break;
                }
                write(&busy, round);
                machine.sleep(Duration::from_millis(5));
            }
        });
        let deadline = machine.monotonic() + Duration::from_secs(600);
        while resting.stats().tree.buffered_runs > before / 2 && machine.monotonic() < deadline {
            machine.sleep(Duration::from_millis(20));
        }
        is_over.store(true, Relaxed);
    });
    let tiers = resting.stats().tree.buffered_runs;
    assert!(tiers <= before / 2, "{before} tiers, {tiers} afterwards");
    drop((resting, busy));
    db.check_invariants().unwrap();
    db.close().unwrap();
}

/// Idle steps after which no work is left, even for keyspaces with rare flushes.
const RESTING_STEPS: u32 = 600;

/// Lets the store do all of its background work.
fn rest(db: &Db) {
    let mut idle_steps = 0;
    while idle_steps < RESTING_STEPS {
        idle_steps = if db.step().unwrap() { 0 } else { idle_steps + 1 };
    }
}

/// Checks that an idle store takes the same space as a settled one, except for some free space.
fn assert_settled(db: &Db, name: &str) {
    let rested = db.stats();
    db.compact().unwrap();
    let settled = db.stats();
    assert_eq!(
        rested.space.live_bytes, settled.space.live_bytes,
        "{name}: live bytes of an idle store and of a settled one"
    );
    let spare_bytes = (settled.space.data_file_bytes / 16).max(2 << 20);
    let (before, after) = (rested.space.data_file_bytes, settled.space.data_file_bytes);
    assert!(
        before <= after + spare_bytes,
        "{name}: {before} bytes of an idle store, {after} of a settled one"
    );
}

#[test]
fn an_idle_store_reclaims_the_space_of_garbage_values() {
    for (name, preset) in TreePreset::all() {
        let machine = MemEnv::new(7);
        let db = Db::builder(Path::new("/db")).env(machine).memory_bytes(8 << 20).open().unwrap();
        let keyspace = db.keyspace("k", KeyspaceOptions::default().tree(preset)).unwrap();
        for n in 0..2_000_u32 {
            keyspace.insert(n.wrapping_mul(0x9e37_79b1).to_be_bytes(), [n.to_le_bytes()[0]; 8_000]).unwrap();
            db.step().unwrap();
        }
        rest(&db);
        let full_bytes = db.stats().space.live_bytes;
        for n in (0..2_000_u32).filter(|n| n % 64 != 0) {
            keyspace.remove(n.wrapping_mul(0x9e37_79b1).to_be_bytes()).unwrap();
        }
        rest(&db);
        let left_bytes = db.stats().space.live_bytes;
        assert!(left_bytes < full_bytes / 8, "{name}: {left_bytes} of {full_bytes} bytes");
        assert_settled(&db, name);
    }
}

/// Bytes of a value; calls `then` before the last megabyte is read.
struct Interrupted<F> {
    left: u64,
    then: F,
}

impl<F: FnMut()> io::Read for Interrupted<F> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let before = self.left;
        let count = into.len().min(usize::try_from(before).unwrap());
        into[..count].fill(7);
        self.left -= count as u64;
        if before >= 1 << 20 && self.left < 1 << 20 {
            (self.then)();
        }
        Ok(count)
    }
}

#[test]
fn an_idle_store_reclaims_the_space_of_unreferenced_pieces() {
    let machine = MemEnv::new(7);
    let open = |machine| Db::builder(Path::new("/db")).env(machine).memory_bytes(8 << 20).open().unwrap();
    let db = open(machine.clone());
    let keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
    keyspace.insert("other", "value").unwrap();
    db.persist(Durability::Sync).unwrap();
    // Power is lost before the value is complete: its pieces exist, but not its entry.
    let length = 24 << 20;
    let mut image = None;
    let reader = Interrupted {
        left: length,
        then: || {
            db.persist(Durability::Sync).unwrap();
            image = Some(machine.crash_image(&CrashPolicy::KEEP_ALL, 1));
        },
    };
    keyspace.insert_reader("long", length, reader).unwrap();
    drop(keyspace);
    let db = open(image.unwrap());
    let full_bytes = db.stats().space.live_bytes;
    assert!(full_bytes > length / 2, "{full_bytes} bytes of pieces");
    rest(&db);
    let left_bytes = db.stats().space.live_bytes;
    assert!(left_bytes < full_bytes / 8, "{left_bytes} of {full_bytes} bytes");
    assert_settled(&db, "pieces");
}
