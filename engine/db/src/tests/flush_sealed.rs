//! Memory that a flush round leaves in use while a snapshot is held.
//!
//! **Invariants**
//! - Only the test flushes: a simulated machine has no background threads.

use std::path::Path;

use testudo_env::MemEnv;
use testudo_flush::{
    round::{
        flush_sealed::{flush_round, oldest_sealed},
        spill::{end_relief, spill_held_buffers},
    },
    seal::seal_buffers::seal_all,
};
use testudo_options::KeyspaceOptions;

use crate::Db;

#[test]
fn flushed_buffer_counts_as_write_memory_while_snapshots_hold_it() {
    for is_held in [false, true] {
        let db = Db::builder(Path::new("/db")).env(MemEnv::new(1)).memory_bytes(8 << 20).open().unwrap();
        let keyspace = db.keyspace("k", KeyspaceOptions::default).unwrap();
        for number in 0..10_000_u32 {
            keyspace.insert(number.to_be_bytes(), [7; 100]).unwrap();
        }
        let snapshot = is_held.then(|| db.snapshot().unwrap());
        let store = db.store();
        seal_all(store);
        let before = store.backpressure.used();
        {
            let _flush = store.flush_lock.lock();
            flush_round(store, oldest_sealed(store)).unwrap();
            let used = store.backpressure.used();
            assert_eq!(used * 2 > before, is_held, "{used} bytes of {before}");
            spill_held_buffers(store);
            end_relief(store);
        }
        assert!(store.backpressure.used() * 8 < before, "{} bytes of {before}", store.backpressure.used());
        if let Some(snapshot) = snapshot {
            assert_eq!(
                snapshot.get(&keyspace, 9_999_u32.to_be_bytes()).unwrap().as_deref(),
                Some(&[7; 100][..])
            );
        }
    }
}
