//! A panic in a job, in either half: the store is poisoned, nothing hangs, and nothing acknowledged is lost.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::mpsc,
    time::Duration,
};

use testudo_base::{ErrorKind, Result, sync::Arc};
use testudo_env::{CrashPolicy, Env as _, Execution, MemEnv};
use testudo_flush::jobs::prepare_next;
use testudo_options::{Durability, Tree};

use super::{
    SPLINTER, VALUE, Values, builder, check, contents,
    gate::{Calls, Gate, GatedEnv},
    keyspace_with_jobs, prepare_jobs, stuck,
};
use crate::{Db, Keyspace, VerifyLevel, maintenance::Stepping as _};

/// A call that runs flushes or jobs.
type Work = fn(&Db);

/// A longer wait means that a thread hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs `body` on a thread of its own, and fails if it does not end.
fn within_patience<T: Send + 'static>(what: &str, body: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = mpsc::channel();
    let run = Box::new(move || drop(sender.send(body())));
    MemEnv::with_threads(1, 1).spawn(what, run).unwrap();
    receiver.recv_timeout(PATIENCE).unwrap_or_else(|error| panic!("{what} hangs or fails: {error}"))
}

fn assert_poisoned<T: std::fmt::Debug>(what: &str, outcome: Result<T>) {
    let error = outcome.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Poisoned, "{what}: {error}");
    assert!(error.to_string().contains("panicked"), "{what}: {error}");
}

/// Checks a store after a panic: all operations end, writes with a clear error, and reads with answers.
fn check_poisoned(db: Db, keyspace: Keyspace, values: Values) {
    within_patience("use of a poisoned store", move || {
        check(&keyspace, &values, "poisoned");
        assert!(contents(db.snapshot().unwrap().iter(&keyspace)) == values);
        assert_poisoned("insert", keyspace.insert("key", "value"));
        assert_poisoned("flush", db.flush());
        assert_poisoned("compact", db.compact());
        assert_poisoned("compact_range", keyspace.compact_range(..));
        assert_poisoned("set_tree", keyspace.set_tree(Tree::leveled()));
        assert_poisoned("drop_keyspace", db.drop_keyspace("k"));
        drop(keyspace);
        assert_poisoned("close", db.close());
    });
}

/// Opens the store again, as the process and as a power loss would have left it.
fn check_reopened(machine: &MemEnv, values: &Values) {
    for machine in [machine.live_image(), machine.crash_image(&CrashPolicy::LOSE_ALL, 7)] {
        let db = builder(&machine).open().unwrap();
        let keyspace = db.open_keyspace("k").unwrap().unwrap();
        check(&keyspace, values, "reopened");
        db.compact().unwrap();
        check(&keyspace, values, "compacted");
        db.check_invariants().unwrap();
        assert_eq!(db.verify(VerifyLevel::Full).unwrap().findings, []);
        assert_eq!(db.stats().space.held_bytes, 0);
    }
}

#[test]
fn a_panic_in_one_of_four_jobs_poisons_the_store() {
    for panics in [1, 4] {
        let machine = MemEnv::with_threads(1, 4);
        let (db, keyspace, values, gate) = stuck(&machine);
        gate.open(panics);
        let health = Arc::clone(db.store());
        within_patience("the failure of the store", move || {
            while !health.has_failed() {
                std::thread::yield_now();
            }
        });
        check_poisoned(db, keyspace, values.clone());
        assert!(gate.panicked() > 0);
        check_reopened(&machine, &values);
    }
}

/// A drop of all handles ends as a close does.
#[test]
fn a_store_is_dropped_while_its_jobs_panic() {
    let machine = MemEnv::with_threads(1, 4);
    let (db, keyspace, values, gate) = stuck(&machine);
    let snapshot = db.snapshot().unwrap();
    within_patience("the drop of the store", move || {
        gate.open(4);
        drop((db, keyspace, snapshot));
    });
    check_reopened(&machine, &values);
}

/// The caller's thread may survive the panic, unlike a background thread. Clones of its handles do, too.
#[test]
fn a_panic_in_a_flush_or_job_on_the_callers_thread_poisons_the_store() {
    let works: [(&str, &str, Work); 6] = [
        ("data", "flush", |db| drop(db.flush())),
        ("manifest", "flush", |db| drop(db.flush())),
        ("data", "first half", |db| drop(prepare_next(db.store(), |_| false))),
        ("manifest", "second half", |db| while db.step().is_ok_and(|is_busy| is_busy) {}),
        ("data", "compact, first half", |db| drop(db.compact())),
        ("manifest", "compact, second half", |db| drop(db.compact())),
    ];
    for (file, what, work) in works {
        let machine = MemEnv::new(1);
        let gate = Gate::new(file, Calls::All);
        let env = GatedEnv::new(Arc::clone(&machine) as _, &gate, Execution::Stepped);
        let db = builder(&machine).env(env).open().unwrap();
        let (keyspace, mut values) = keyspace_with_jobs(&db, "k", SPLINTER);
        prepare_jobs(&db, 3);
        // Buffered, for a flush.
        keyspace.insert(1_u32.to_be_bytes(), [7; VALUE]).unwrap();
        db.persist(Durability::Sync).unwrap();
        values.insert(1, 7);
        gate.open(1);
        let outcome = catch_unwind(AssertUnwindSafe(|| work(&db)));
        assert!(outcome.is_err() && gate.panicked() == 1, "{what} panics");
        check_poisoned(db, keyspace, values.clone());
        check_reopened(&machine, &values);
    }
}
