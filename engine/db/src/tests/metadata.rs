//! Memory accounted for keyspaces.

use testudo_env::{Env, MemEnv};
use testudo_options::KeyspaceOptions;
use testudo_store::memory::metadata::SEPARATION_BYTES;
use testudo_values::Placement;

use crate::Db;

const MEMORY: u64 = 64 << 20;

/// Cache share after writing a few MiB with a given placement of values, before the store is closed and after
/// it is reopened.
fn caches(placement: Placement) -> [u64; 2] {
    let env = MemEnv::new(1);
    let open = || {
        let builder = Db::builder("/db").memory_bytes(MEMORY);
        let db = builder.env(std::sync::Arc::clone(&env) as std::sync::Arc<dyn Env>).open().unwrap();
        // Keep the governor from changing the share.
        db.memory().set_write_share(0.3).unwrap();
        db
    };
    let db = open();
    let keyspace = db.keyspace("k", KeyspaceOptions::default().placement(placement)).unwrap();
    for number in 0..1000_u32 {
        keyspace.insert(number.to_be_bytes(), [7; 3000]).unwrap();
    }
    db.compact().unwrap();
    let before = db.store().memory.shares().caches;
    db.close().unwrap();
    [before, open().store().memory.shares().caches]
}

#[test]
fn caches_shrink_by_memory_that_separated_values_need() {
    let [inline, separated] = [Placement::inline(), Placement::separate()].map(caches);
    for (inline, separated) in inline.into_iter().zip(separated) {
        let less = inline - separated;
        assert!(less >= SEPARATION_BYTES * 3 / 4, "{less} bytes less of {inline}");
    }
}
