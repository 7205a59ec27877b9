//! A device is filled completely and emptied by removals, one key after the other: every removal is accepted,
//! and then there is room for writes again.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{path::Path, sync::Arc};

use testudo::{Db, ErrorKind, Keyspace, KeyspaceOptions, Tree};
use testudo_db::maintenance::Stepping as _;
use testudo_env::{CrashPolicy, MemEnv, SplitMix};
use testudo_share::some_of;

/// One device with one store on it.
struct Device {
    machine: Arc<MemEnv>,
    memory_bytes: u64,
    tree: Tree,
    value_bytes: u64,
    crashes: u64,
}

/// An open store.
type Open = (Db, Keyspace);

fn key(number: u64) -> Vec<u8> {
    let scattered = SplitMix::new(number).next_u64();
    format!("key{scattered:016x}{number:06}").into_bytes()
}

impl Device {
    fn new(room_bytes: u64, memory_bytes: u64, tree: Tree, value_bytes: u64) -> Self {
        let machine = MemEnv::new(room_bytes ^ memory_bytes);
        machine.space_limit(Some(room_bytes));
        Self { machine, memory_bytes, tree, value_bytes, crashes: 0 }
    }

    fn open(&self) -> Open {
        let builder = Db::builder(Path::new("/db")).env(self.machine.clone()).memory_bytes(self.memory_bytes);
        let db = builder.open().unwrap();
        let keyspace = db.keyspace("a", KeyspaceOptions::default().tree(self.tree)).unwrap();
        (db, keyspace)
    }

    /// The store after its process was killed. Its writes remain, and the space does not grow.
    fn crash(&mut self, open: Open) -> Open {
        open.0.persist(testudo::Durability::Sync).unwrap();
        self.crashes += 1;
        let image = self.machine.crash_image(&CrashPolicy::KEEP_ALL, self.crashes);
        drop(open);
        self.machine = image;
        self.open()
    }

    /// Writes until every write is refused despite background work; returns the number of records written.
    fn fill(&self, (db, keyspace): &Open, first: u64) -> u64 {
        let mut number = first;
        let mut refused = 0;
        while refused < 5 {
            let mut value = vec![0; usize::try_from(self.value_bytes).unwrap()];
            SplitMix::new(number).fill(&mut value);
            match keyspace.insert(key(number), &value) {
                Ok(()) => (number, refused) = (number + 1, 0),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::OutOfSpace, "{error}");
                    // Background work may take many steps.
                    let is_busy = (0..1000).any(|_| !matches!(db.step(), Ok(true)));
                    assert!(is_busy, "the background does not become idle");
                    refused += 1;
                }
            }
        }
        number - first
    }

    /// Removes these; panics with the store's statistics if a removal is refused after all background work.
    fn remove(&self, (db, keyspace): &Open, numbers: std::ops::Range<u64>) {
        for number in numbers {
            let mut tries = 0;
            while let Err(error) = keyspace.remove(key(number)) {
                assert_eq!(error.kind(), ErrorKind::OutOfSpace, "{error}");
                tries += 1;
                assert!(tries < 5, "removal {number} is not accepted: {error}, {:?}", db.stats());
                let _ = db.flush();
                let _ = db.compact();
            }
        }
    }
}

/// Fills, empties, fills again.
fn fill_and_empty(room_bytes: u64, memory_bytes: u64, tree: Tree, value_bytes: u64) {
    let mut device = Device::new(room_bytes, memory_bytes, tree, value_bytes);
    let mut open = device.open();
    let taken = device.fill(&open, 0);
    assert!(taken * value_bytes > room_bytes / 16, "only {taken} records fit at first");
    for tenth in 0..10 {
        device.remove(&open, taken * tenth / 10..taken * (tenth + 1) / 10);
        match tenth {
            2 | 6 => {
                drop(open);
                open = device.open();
            }
            4 | 8 => open = device.crash(open),
            _ => {}
        }
        let left = open.1.iter().unwrap().map(Result::unwrap).count() as u64;
        assert_eq!(left, taken - taken * (tenth + 1) / 10);
    }
    open.0.flush().unwrap();
    open.0.check_invariants().unwrap();
    let emptied = open.0.stats();
    let again = device.fill(&open, 1 << 40);
    println!("{room_bytes} {memory_bytes} {tree:?} {value_bytes}: {taken} taken, then {again}");
    assert!(
        again >= taken / 2,
        "only {again} records fit again, less than half of the first {taken}: {emptied:?}"
    );
    assert_eq!(open.1.iter().unwrap().count() as u64, again);
    open.0.check_invariants().unwrap();
}

/// A full device must not use more than it reports: space of log segments is reserved ahead.
#[test]
fn the_log_of_a_reopened_store_takes_little_of_a_full_device() {
    let tree = Tree::turtle().with_run_bytes(16 << 10).with_max_pivots(8);
    let mut device = Device::new(8 << 20, 1 << 20, tree, 200);
    let open = device.open();
    let taken = device.fill(&open, 0);
    let open = device.crash(open);
    device.remove(&open, 0..taken / 4);
    let (used, stats) = (device.machine.used_bytes(), open.0.stats());
    assert!(used < stats.space.disk_bytes + (512 << 10), "{used} bytes are used: {stats:?}");
}

/// A full device needs more repairs of its state at an opening, but they wait for the first write.
#[test]
fn an_open_without_writes_changes_no_file_on_a_full_device() {
    let tree = Tree::turtle().with_run_bytes(16 << 10).with_max_pivots(8);
    let mut device = Device::new(8 << 20, 1 << 20, tree, 200);
    let open = device.open();
    let taken = device.fill(&open, 0);
    device.remove(&open, 0..taken / 2);
    let open = device.crash(open);
    open.0.close().unwrap();
    let files = |machine: &MemEnv| -> Vec<_> {
        let paths = machine.all_files().into_iter();
        paths.map(|path| (path.clone(), machine.file_bytes(&path).unwrap())).collect()
    };
    let (before, used_before) = (files(&device.machine), device.machine.used_bytes());
    for is_read in [false, true] {
        let open = device.open();
        let used = device.machine.used_bytes();
        assert!(used <= used_before + 4096, "{used} bytes are used, {used_before} before");
        if is_read {
            assert_eq!(open.1.iter().unwrap().count() as u64, taken - taken / 2);
        }
        open.0.close().unwrap();
        let after = files(&device.machine);
        assert!(before.iter().map(|(path, _)| path).eq(after.iter().map(|(path, _)| path)), "other files");
        for ((path, before), (_, after)) in before.iter().zip(&after) {
            let first = before.iter().zip(after).position(|(before, after)| before != after);
            let lengths = (before.len(), after.len());
            assert!(before == after, "{} was changed: {lengths:?}, {first:?}", path.display());
        }
    }
}

fn every_tree(room_bytes: u64, memory_bytes: u64, value_bytes: u64) {
    for (_, tree) in Tree::presets() {
        fill_and_empty(room_bytes, memory_bytes, tree, value_bytes);
    }
}

/// Same as [`every_tree`] for a slow device: under the README's command one tree, number `first`.
fn some_trees(room_bytes: u64, memory_bytes: u64, value_bytes: u64, first: usize) {
    let presets = Tree::presets();
    let every = presets.len();
    for (_, tree) in some_of(presets, every, first) {
        fill_and_empty(room_bytes, memory_bytes, tree, value_bytes);
    }
}

/// Same as [`some_trees`] for the largest devices: in the short form every third tree, starting with number
/// `first`. The long form of the layer `loop-device` covers such devices.
fn few_trees(room_bytes: u64, memory_bytes: u64, value_bytes: u64, first: usize) {
    let thirds = Tree::presets().into_iter().skip(first % 3).step_by(3);
    for (_, tree) in some_of(thirds, 2, first / 3) {
        fill_and_empty(room_bytes, memory_bytes, tree, value_bytes);
    }
}

#[test]
fn a_device_of_6_mib() {
    every_tree(6 << 20, 1 << 20, 500);
}

#[test]
fn a_device_of_10_mib_with_small_records() {
    some_trees(10 << 20, 1 << 20, 40, 3);
}

#[test]
fn a_device_of_24_mib() {
    some_trees(24 << 20, 4 << 20, 1000, 0);
}

#[test]
fn a_device_of_80_mib_with_a_budget_of_4_mib() {
    few_trees(80 << 20, 4 << 20, 500, 1);
}

#[test]
fn a_device_of_80_mib_with_a_budget_of_16_mib() {
    few_trees(80 << 20, 16 << 20, 1500, 2);
}

#[test]
fn small_leaves_in_tall_trees() {
    let trees = [4 << 10, 16 << 10].map(|leaf_bytes| {
        let turtle = Tree::turtle().with_run_bytes(leaf_bytes).with_max_pivots(4);
        [
            turtle,
            Tree::splinter().with_run_bytes(leaf_bytes).with_max_pivots(4),
            Tree::leveled().with_run_bytes(leaf_bytes),
        ]
    });
    for tree in some_of(trees.into_iter().flatten(), 4, 0) {
        fill_and_empty(8 << 20, 1 << 20, tree, 200);
    }
}
