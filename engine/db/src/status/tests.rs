//! Published statistics, on an in-memory disk whose clock moves only on request.

use std::{path::Path, time::Duration};

use testudo_base::sync::Arc;
use testudo_env::{Env, MemEnv, OpenMode, OpenOptions};
use testudo_options::KeyspaceOptions;

use super::{STATUS_FILE, inspect_store};
use crate::{
    Db, Keyspace,
    status::{publish_status, start_publishing},
};

const SECOND: Duration = Duration::from_secs(1);

struct Beside {
    env: Arc<dyn Env>,
    db: Db,
    keyspace: Keyspace,
}

impl Beside {
    fn new() -> Self {
        let env: Arc<dyn Env> = MemEnv::new(1);
        let db = Db::builder("/db").env(Arc::clone(&env)).memory_bytes(1 << 20).open().unwrap();
        let keyspace = db.keyspace("k", KeyspaceOptions::default).unwrap();
        // No background thread does it here.
        start_publishing(db.store());
        Self { env, db, keyspace }
    }

    fn publish(&self) {
        publish_status(self.db.store());
    }

    fn bytes(&self) -> Vec<u8> {
        let options = OpenOptions { mode: OpenMode::Read, direct: false };
        let file = self.env.open(&Path::new("/db").join(STATUS_FILE), options).unwrap();
        let mut bytes = vec![0; usize::try_from(file.len().unwrap()).unwrap()];
        file.read_at(0, &mut bytes).unwrap();
        bytes
    }

    fn write(&self, bytes: &[u8]) {
        let options = OpenOptions { mode: OpenMode::Write, direct: false };
        let file = self.env.open(&Path::new("/db").join(STATUS_FILE), options).unwrap();
        file.write_at(0, bytes).unwrap();
    }

    fn inspect(&self) -> super::StoreInspection {
        inspect_store(&self.env, Path::new("/db")).unwrap()
    }
}

#[test]
fn stats_are_published_at_most_once_a_second_and_only_if_changed() {
    let beside = Beside::new();
    beside.publish();
    let first = beside.bytes();
    beside.keyspace.insert("a", "1").unwrap();
    beside.publish();
    assert_eq!(beside.bytes(), first, "less than a second later");
    beside.env.sleep(SECOND);
    beside.publish();
    let second = beside.bytes();
    assert_ne!(second, first);
    for _ in 0..100 {
        beside.env.sleep(SECOND);
        beside.publish();
    }
    assert_eq!(beside.bytes(), second, "the store was idle");
    assert!(beside.inspect().published.unwrap().age >= 100 * SECOND);
}

#[test]
fn inspection_next_to_a_writer_shows_published_memory_stats() {
    let beside = Beside::new();
    assert!(beside.inspect().published.is_none(), "nothing was published yet");
    assert_eq!(beside.inspect().keyspaces[0].name, "k");
    for n in 0..100 {
        beside.keyspace.insert(format!("key {n}"), "value").unwrap();
    }
    beside.db.flush().unwrap();
    beside.keyspace.insert("one more", "value").unwrap();
    beside.publish();
    let seen = beside.inspect();
    assert_eq!((&seen.stats, &seen.keyspaces[0].stats), (&beside.db.stats(), &beside.keyspace.stats()));
    assert_eq!((seen.keyspaces[0].stats.tree.entries, seen.keyspaces[0].stats.memtables.entries), (100, 1));
    assert_eq!(seen.keyspaces[0].outline, beside.keyspace.outline());
    // A keyspace created later is visible, without its memory statistics.
    beside.db.keyspace("later", KeyspaceOptions::default).unwrap();
    assert_eq!(beside.inspect().keyspaces.len(), 2);
}

#[test]
fn status_of_another_store_or_process_is_ignored() {
    let beside = Beside::new();
    beside.keyspace.insert("a", "1").unwrap();
    beside.publish();
    let valid = super::status_format::Status::decode(&beside.bytes()).unwrap();
    assert_eq!(beside.inspect().stats.writes.count, 1);
    let other_process = super::Status { process: valid.process + 1, ..valid.clone() };
    let other_store = super::Status { store: testudo_base::StoreId(1), ..valid.clone() };
    for other in [other_process, other_store] {
        beside.write(&other.encode());
        let seen = beside.inspect();
        assert!(seen.published.is_none() && seen.stats.writes.count == 0);
    }
    beside.write(b"testudo-status torn");
    let before = beside.env.monotonic();
    assert!(beside.inspect().published.is_none());
    let waited = beside.env.monotonic() - before;
    assert!(waited >= SECOND / 5, "a torn status is retried: {waited:?}");
    beside.write(&valid.encode());
    assert!(beside.inspect().published.is_some());
}

#[test]
fn close_removes_the_status_and_a_leftover_one_is_ignored() {
    let beside = Beside::new();
    beside.publish();
    let left = beside.bytes();
    let env = Arc::clone(&beside.env);
    beside.db.clone().close().unwrap();
    assert!(env.list_dir(Path::new("/db")).unwrap().iter().all(|entry| entry.name != STATUS_FILE));
    let options = OpenOptions { mode: OpenMode::CreateNew, direct: false };
    env.open(&Path::new("/db").join(STATUS_FILE), options).unwrap().write_at(0, &left).unwrap();
    let seen = beside.inspect();
    assert!(seen.writer.is_none() && seen.published.is_none());
    // The next opening starts with its own file.
    let db = Db::builder("/db").env(env).memory_bytes(1 << 20).open().unwrap();
    start_publishing(db.store());
    assert!(beside.inspect().published.is_none());
}
