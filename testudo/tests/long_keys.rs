//! Stores of long keys stay within their memory budget, and their manifest stays small.
//!
//! Each case runs in its own processes, whose peak resident memory is compared with the budget: one loads the
//! store; one reopens it, looks up keys and scans it in both directions.
//!
//! The keys exceed the memory bound of a process, so keeping all of them would be detected.
//! `TESTUDO_LONG_KEYS_MIB` sets their total size in each store.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{env, fs, path::Path, process::Command};

use testudo::{Db, Keyspace, KeyspaceOptions, Tree};
use testudo_share::some_of;

/// Allowance of a process beyond the budget: code, stacks, memory that the allocator retains.
const ALLOWANCE: u64 = 24 << 20;
/// Cursors that two merges and a scan have open, each with its key and its current block.
const CURSORS: u64 = 64;
/// Environment variable for the MiB of keys in a store.
const MIB: &str = "TESTUDO_LONG_KEYS_MIB";
/// Environment variable of child processes: their role and their store.
const ROLE: &str = "TESTUDO_LONG_KEYS";

/// One store of this test.
#[derive(Clone, Copy, Debug)]
struct Case {
    key_bytes: usize,
    /// Bytes that all keys share; the others are random.
    shared_bytes: usize,
    count: u64,
    memory: u64,
    tree: Tree,
}

impl Case {
    /// Maximum memory of a process.
    fn bound(&self) -> u64 {
        self.memory + ALLOWANCE + CURSORS * 2 * self.key_bytes as u64
    }

    /// Key number `n`, in random order.
    fn key(&self, n: u64) -> Vec<u8> {
        let mut key = vec![b'p'; self.shared_bytes];
        let mut state = n;
        while key.len() < self.key_bytes {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            key.extend_from_slice(&(state ^ state >> 32).to_be_bytes());
        }
        key.truncate(self.key_bytes);
        key
    }

    fn open(&self, directory: &Path) -> (Db, Keyspace) {
        let db = Db::builder(directory).memory_bytes(self.memory).open().unwrap();
        let keyspace = db.keyspace("long", || KeyspaceOptions::default().tree(self.tree)).unwrap();
        (db, keyspace)
    }

    fn load(&self, directory: &Path) {
        let (db, keyspace) = self.open(directory);
        for n in 0..self.count {
            keyspace.insert(self.key(n), n.to_be_bytes()).unwrap();
        }
        say("loading", resident_peak());
        db.compact().unwrap();
        db.close().unwrap();
        // The history in the manifest of a store in use depends on the time of its last rewrite.
        let manifest = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().starts_with("manifest-");
        let files = fs::read_dir(directory).unwrap().map(Result::unwrap).filter(manifest);
        say("manifest", files.map(|entry| entry.metadata().unwrap().len()).sum());
        say("loaded", resident_peak());
    }

    fn read(&self, directory: &Path) {
        let (db, keyspace) = self.open(directory);
        say("opened", resident_peak());
        for n in (0..self.count).step_by(7) {
            assert_eq!(keyspace.get(self.key(n)).unwrap().as_deref(), Some(&n.to_be_bytes()[..]));
        }
        say("got", resident_peak());
        let (mut seen, mut previous) = (0, Vec::new());
        for entry in keyspace.iter().unwrap() {
            let entry = entry.unwrap();
            let (key, value) = (entry.key(), entry.value().unwrap());
            assert!(key > previous.as_slice(), "keys increase");
            assert_eq!(key, self.key(u64::from_be_bytes((*value).try_into().unwrap())), "key {seen}");
            previous = key.to_vec();
            seen += 1;
        }
        assert_eq!(seen, self.count);
        say("scanned", resident_peak());
        assert_eq!(keyspace.iter().unwrap().rev().count() as u64, self.count);
        db.close().unwrap();
        say("read", resident_peak());
    }
}

fn say(what: &str, bytes: u64) {
    println!("MEASURED {what} {bytes}");
}

/// Peak resident memory of this process, in bytes.
fn resident_peak() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.split_whitespace().next().unwrap().parse::<u64>().unwrap() << 10
}

/// Runs the test `name` again in a child process with `role`; returns its output.
fn in_process(name: &str, role: &str, directory: &Path) -> Vec<(String, u64)> {
    let output = Command::new(env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(ROLE, format!("{role} {}", directory.display()))
        // Measure the store, not the number of heaps that an allocator gives to its threads.
        .env("MALLOC_ARENA_MAX", "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{role}: {text}{}", String::from_utf8_lossy(&output.stderr));
    let measurements = text.lines().filter_map(|line| line.split_once("MEASURED ")?.1.split_once(' '));
    measurements.map(|(what, bytes)| (what.to_owned(), bytes.parse().unwrap())).collect()
}

/// Loads and reads the stores of a test, each in its own processes, and checks their memory.
fn check(name: &str, cases: &[Case]) {
    if let Ok(role) = env::var(ROLE) {
        let (role, directory) = role.split_once(' ').unwrap();
        let (role, number) = role.split_once('-').unwrap();
        let case = cases[number.parse::<usize>().unwrap()];
        return if role == "load" {
            case.load(Path::new(directory))
        } else {
            case.read(Path::new(directory))
        };
    }
    let mut broken = Vec::new();
    for (number, case) in cases.iter().enumerate() {
        let directory = tempfile::tempdir().unwrap();
        let store = directory.path().join("db");
        let user_bytes = case.count * case.key_bytes as u64;
        for role in ["load", "read"] {
            for (what, bytes) in in_process(name, &format!("{role}-{number}"), &store) {
                let bound = if what == "manifest" { (2 << 20) + user_bytes / 16 } else { case.bound() };
                println!(
                    "{case:?}: {what} {:.1} MiB of {:.1}",
                    bytes as f64 / 1048576.0,
                    bound as f64 / 1048576.0
                );
                if bytes > bound {
                    broken.push(format!("{case:?}: {what} is {bytes} bytes, at most {bound} are allowed"));
                }
            }
        }
        println!(
            "{case:?}: disk {:.1} MiB",
            fs::metadata(store.join("data")).unwrap().len() as f64 / 1048576.0
        );
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// Every tree, two budgets, keys that share all but 16 bytes and keys that share nothing: all combinations in
/// the short form; under the README's command every second tree, from number `first` on, with one of them.
fn cases(key_bytes: usize, first: usize) -> Vec<Case> {
    let mib = env::var(MIB).ok().map(|mib| mib.parse::<u64>().unwrap());
    let mut cases = Vec::new();
    for (index, (_, tree)) in some_of(Tree::presets().into_iter().enumerate(), 2, first) {
        let combinations =
            [4 << 20, 16 << 20].map(|memory| [key_bytes - 16, 0].map(|shared| (memory, shared)));
        for (memory, shared_bytes) in some_of(combinations.into_iter().flatten(), 4, index) {
            let mut case = Case { key_bytes, shared_bytes, count: 0, memory, tree };
            let bytes = mib.map_or(case.bound() * 5 / 4, |mib| mib << 20);
            case.count = bytes / key_bytes as u64;
            cases.push(case);
        }
    }
    cases
}

#[test]
fn keys_of_4_kib_stay_within_budget() {
    check("keys_of_4_kib_stay_within_budget", &cases(4096, 0));
}

#[test]
fn keys_of_64_kib_stay_within_budget() {
    check("keys_of_64_kib_stay_within_budget", &cases(65_536, 1));
}
