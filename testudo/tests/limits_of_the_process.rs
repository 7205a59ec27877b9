//! Limits of the process that are lowered while a store is open, and restored later: descriptors and file
//! sizes. A separate program, because limits are process-wide.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use testudo::{Db, Durability, ErrorKind, Keyspace, KeyspaceOptions};
use testudo_env::{Env, RealEnv};

const MEMORY: u64 = 4 << 20;
/// Timeout, only to detect a hang.
const PATIENCE: Duration = Duration::from_secs(60);

/// Lowers a limit until it is dropped.
struct Lowered(Resource, Rlimit);

impl Lowered {
    fn to(resource: Resource, limit: u64) -> Self {
        let before = getrlimit(resource);
        setrlimit(resource, Rlimit { current: Some(limit), ..before }).unwrap();
        Self(resource, before)
    }
}

impl Drop for Lowered {
    fn drop(&mut self) {
        setrlimit(self.0, self.1).unwrap();
    }
}

fn value(number: u32) -> Vec<u8> {
    (0..1000u32).map(|at| (number.wrapping_mul(31).wrapping_add(at) % 251) as u8).collect()
}

/// Writes up to `most` records until one is refused; returns the number accepted and the error.
fn write(keyspace: &Keyspace, from: u32, most: u32) -> (u32, Option<testudo::Error>) {
    for number in from..from + most {
        if let Err(error) = keyspace.insert(number.to_be_bytes(), value(number)) {
            return (number - from, Some(error));
        }
    }
    (most, None)
}

fn assert_holds(keyspace: &Keyspace, count: u32) {
    for number in 0..count {
        let found = keyspace.get(number.to_be_bytes()).unwrap();
        assert_eq!(found.as_deref(), Some(&value(number)[..]), "record {number} of {count}");
    }
}

/// Lowers a limit under an open store, writes, restores it, writes again: no acknowledged write is lost,
/// without reopening the store.
fn passes(resource: Resource, limit: u64, kind: ErrorKind) {
    let directory = tempfile::tempdir().unwrap();
    let open = || Db::builder(directory.path().join("db")).memory_bytes(MEMORY).open().unwrap();
    let db = open();
    let keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
    let (mut count, refusal) = write(&keyspace, 0, 3_000);
    assert!(refusal.is_none());
    {
        let _lowered = Lowered::to(resource, limit);
        let (taken, refusal) = write(&keyspace, count, 40_000);
        count += taken;
        let refusal = refusal.expect("this much data needs new or longer files");
        assert_eq!(refusal.kind(), kind, "{refusal}");
        // It is still refused, immediately or after a moment, but not permanently.
        let again = db.persist(Durability::Sync);
        assert!(again.is_ok() || again.unwrap_err().kind() != ErrorKind::Poisoned);
        assert_holds(&keyspace, count);
    }
    // Stalled parts notice within a second.
    let env = RealEnv::new();
    let end = env.monotonic() + PATIENCE;
    loop {
        let (taken, refusal) = write(&keyspace, count, 5_000);
        count += taken;
        let Some(refusal) = refusal else { break };
        assert_ne!(refusal.kind(), ErrorKind::Poisoned, "{refusal}");
        assert!(env.monotonic() < end, "{refusal}");
        env.sleep(Duration::from_millis(10));
    }
    db.persist(Durability::Sync).unwrap();
    db.flush().unwrap();
    assert_holds(&keyspace, count);
    drop(keyspace);
    db.close().unwrap();
    let db = open();
    assert_holds(&db.keyspace("k", KeyspaceOptions::default()).unwrap(), count);
}

#[test]
fn acknowledged_writes_survive_temporary_process_limits() {
    // No further descriptors: the log cannot start another segment.
    passes(Resource::Nofile, 3, ErrorKind::Io);
    // Files may not grow beyond the current size of the log and the data file.
    passes(Resource::Fsize, 3 << 20, ErrorKind::OutOfSpace);
}
