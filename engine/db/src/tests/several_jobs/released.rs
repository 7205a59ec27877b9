//! Released log segments, whose files job threads remove.

use std::{path::Path, time::Duration};

use testudo_base::sync::Arc;
use testudo_env::{Env as _, Execution, MemEnv};
use testudo_flush::{round::flush_sealed::flush_sealed, seal::seal_buffers::seal_all};
use testudo_options::KeyspaceOptions;
use testudo_wal::list_segments;

use super::{
    VALUE, builder,
    gate::{Calls, Gate, GatedEnv},
};
use crate::{Db, Keyspace, VerifyLevel};

const RECORDS: u32 = 1000;

/// Writes new records, and flushes them as the flush thread does.
fn flush_round(db: &Db, keyspace: &Keyspace, round: u32) {
    for number in 0..RECORDS {
        keyspace.insert((round * RECORDS + number).to_be_bytes(), [7; VALUE]).unwrap();
    }
    seal_all(db.store());
    // The flush thread may be faster.
    flush_sealed(db.store()).unwrap();
}

fn check(keyspace: &Keyspace, rounds: u32) {
    for key in 0..rounds * RECORDS {
        assert!(keyspace.get(key.to_be_bytes()).unwrap().is_some(), "{key}");
    }
}

/// Opens a store whose job threads all wait in the removal of a log segment; returns the number of rounds
/// that it took.
fn stuck_in_removal(machine: &Arc<MemEnv>) -> (Db, Keyspace, Arc<Gate>, u32) {
    let gate = Gate::new("wal", Calls::RemovalsOfJobs);
    let env = GatedEnv::new(Arc::clone(machine) as _, &gate, Execution::Threads { cores: 2 });
    let db = builder(machine).env(env).open().unwrap();
    let keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
    gate.shut();
    let threads = db.store().background.job_executor.workers();
    let mut round = 0;
    while gate.waiting() == 0 {
        assert!(round < 200, "no job thread removes a log segment");
        flush_round(&db, &keyspace, round);
        round += 1;
    }
    for _ in 0..10_000 {
        if gate.waiting() == threads {
            return (db, keyspace, gate, round);
        }
        machine.sleep(Duration::from_millis(1));
    }
    let waiting = gate.waiting();
    gate.open(0);
    panic!("{waiting} of {threads} job threads remove a log segment");
}

#[test]
fn flushes_continue_while_log_segments_are_removed() {
    let machine = MemEnv::with_threads(1, 2);
    let (db, keyspace, gate, first) = stuck_in_removal(&machine);
    let oldest_file = list_segments(&*machine, Path::new("/db")).unwrap()[0];
    let oldest_listed = db.store().wal().unwrap().segments()[0].number;
    (first..first + 10).for_each(|round| flush_round(&db, &keyspace, round));
    // Closing waits for the removals.
    gate.open(0);
    assert!(oldest_file < oldest_listed, "segment {oldest_file} was removed by the flush");
    check(&keyspace, first + 10);
    assert_eq!(db.verify(VerifyLevel::Full).unwrap().findings, []);
}

#[test]
fn closing_removes_the_files_of_released_log_segments() {
    let machine = MemEnv::with_threads(1, 2);
    let (db, keyspace, gate, first) = stuck_in_removal(&machine);
    let files = || list_segments(&*machine, Path::new("/db")).unwrap().len();
    for round in first..first + 10 {
        flush_round(&db, &keyspace, round);
    }
    // Closing waits for the removals.
    gate.open(0);
    drop(keyspace);
    db.close().unwrap();
    assert_eq!(files(), 1);
}
