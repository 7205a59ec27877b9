//! A stepped store that is dropped in the middle of a job.

use std::path::Path;

use testudo_base::sync::Arc;
use testudo_env::MemEnv;
use testudo_options::{KeyspaceOptions, Tree};

use crate::{Db, maintenance::Stepping as _};

#[test]
fn stepped_store_dropped_in_mid_job_is_freed() {
    let db = Db::builder(Path::new("/db")).env(MemEnv::new(1)).memory_bytes(1 << 20).open().unwrap();
    let tree = Tree::splinter().with_run_bytes(16 << 10).with_max_pivots(16);
    let keyspace = db.keyspace("k", KeyspaceOptions::default().tree(tree)).unwrap();
    for round in 0..40_u32 {
        for number in 0..100_u32 {
            let key = (round * 100 + number).wrapping_mul(0x9e37_79b1) % 3000;
            keyspace.insert(key.to_be_bytes(), [7; 100]).unwrap();
        }
        db.flush().unwrap();
    }
    while db.store().background.prepared_jobs() == 0 {
        assert!(db.step().unwrap(), "a job is ready");
    }
    let store = Arc::downgrade(db.store());
    let (data, jobs) = (Arc::downgrade(&db.store().data), Arc::downgrade(&db.store().background.jobs));
    drop((db, keyspace));
    assert!(store.upgrade().is_none(), "the store");
    assert!(data.upgrade().is_none(), "the data file");
    assert!(jobs.upgrade().is_none(), "the job and its keyspace");
}
