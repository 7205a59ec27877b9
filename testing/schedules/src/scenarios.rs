//! The scenarios: few clients with short scripts, each for one guarantee.
//!
//! **Invariants**
//! - Each write of a scenario has a unique value, so a read identifies the write that it saw.

use testudo::{
    Durability::{Buffered, Sync},
    Placement, Tree,
};
use testudo_db::maintenance::Stepping as _;

use crate::world::{World, judge, open, read_image};

/// Body of a schedule.
pub(crate) type Scenario = fn();

/// All scenarios of the whole store.
pub(crate) const SCENARIOS: [(&str, Scenario); 17] = [
    ("registers", registers),
    ("swaps", swaps),
    ("batches", batches),
    ("scans", scans),
    ("gaps", gaps),
    ("flushes", flushes),
    ("synced", synced),
    ("catalogue", catalogue),
    ("trees", trees),
    ("closing", closing),
    ("pressure", pressure),
    ("snapshots", snapshots),
    ("hot-key", hot_key),
    ("jobs", jobs),
    ("two-jobs", crate::two_jobs::two_jobs),
    ("dropped-jobs", crate::two_jobs::dropped_jobs),
    ("value-logs", value_logs),
];

const KEYS: [&str; 2] = ["a", "b"];

/// Plain writes and reads of the same keys.
fn registers() {
    let mut world = World::new();
    let main = world.keyspace("main");
    for writer in ["x", "y"] {
        let main = main.clone();
        world.start(move |client| {
            client.insert(&main, "a", &format!("{writer}1"));
            client.insert(&main, "b", &format!("{writer}2"));
            client.remove(&main, "a");
            client.insert(&main, "a", &format!("{writer}3"));
        });
    }
    world.start(move |client| {
        for _ in 0..3 {
            client.get(&main, "a");
            client.get(&main, "b");
        }
        client.multi_get(&main, &KEYS);
    });
    world.crash_and_check(&["main"], &KEYS);
}

/// Updates and swaps of the same keys, with a flush in between.
fn swaps() {
    let mut world = World::new();
    let main = world.keyspace("main");
    for writer in ["x", "y"] {
        let main = main.clone();
        world.start(move |client| {
            client.append(&main, "a", writer);
            client.swap(&main, "b", Some(&format!("{writer}1")));
            client.append(&main, "a", writer);
            client.swap(&main, "b", None);
        });
    }
    world.start(move |client| {
        client.insert(&main, "b", "z1");
        client.flush();
        client.get(&main, "a");
    });
    world.close_and_check(&["main"], &KEYS);
}

/// Batches across keyspaces, concurrent with snapshots.
fn batches() {
    let mut world = World::new();
    let (left, right) = (world.keyspace("left"), world.keyspace("right"));
    for writer in ["x", "y"] {
        let (left, right) = (left.clone(), right.clone());
        world.start(move |client| {
            let (first, second) = (format!("{writer}1"), format!("{writer}2"));
            client.batch(&[(&left, "a", Some(&first)), (&right, "a", Some(&first))], Buffered);
            client.batch(
                &[(&left, "a", None), (&left, "b", Some(&second)), (&right, "b", Some(&second))],
                Buffered,
            );
        });
    }
    world.start(move |client| {
        for _ in 0..3 {
            let mut held = client.snapshot();
            client.look(&mut held, &right, &KEYS);
            client.look(&mut held, &left, &KEYS);
        }
    });
    world.crash_and_check(&["left", "right"], &KEYS);
}

/// Scans in both directions, concurrent with batches and single writes.
fn scans() {
    const MANY: [&str; 5] = ["a", "b", "c", "d", "e"];
    let mut world = World::new();
    let main = world.keyspace("main");
    world.client(9).batch(&[(&main, "a", Some("0a")), (&main, "c", Some("0c"))], Buffered);
    let writer = main.clone();
    world.start(move |client| {
        client
            .batch(&[(&writer, "a", None), (&writer, "b", Some("x1")), (&writer, "e", Some("x1"))], Buffered);
        client.insert(&writer, "d", "x2");
        client.remove(&writer, "b");
    });
    let other = main.clone();
    world.start(move |client| {
        client.batch(&[(&other, "c", None), (&other, "d", Some("y1"))], Buffered);
        client.insert(&other, "a", "y2");
    });
    world.start(move |client| {
        for round in 0..4 {
            client.scan(&main, &MANY, round % 2 == 1);
        }
    });
    world.crash_and_check(&["main"], &MANY);
}

/// Scans record gaps and use them, while entries are written into them and flushed.
fn gaps() {
    const MANY: [&str; 3] = ["a", "b", "c"];
    let mut world = World::new();
    let main = world.keyspace("main");
    world.client(9).batch(&[(&main, "a", Some("0a")), (&main, "b", Some("0b"))], Buffered);
    world.client(9).batch(&[(&main, "a", None), (&main, "c", Some("0c"))], Buffered);
    let writer = main.clone();
    world.start(move |client| {
        client.remove(&writer, "b");
        client.insert(&writer, "a", "x1");
        client.batch(&[(&writer, "a", None), (&writer, "b", Some("x2"))], Buffered);
    });
    let scanner = main.clone();
    world.start(move |client| {
        for round in 0..3 {
            client.scan(&scanner, &MANY, round % 2 == 1);
        }
    });
    world.start(move |client| {
        client.scan(&main, &MANY, false);
        client.flush();
        let mut held = client.snapshot();
        client.look(&mut held, &main, &MANY);
        client.scan(&main, &MANY, true);
    });
    world.crash_and_check(&["main"], &MANY);
}

/// Manual flushes, concurrent with writes, reads and snapshots.
fn flushes() {
    let mut world = World::new();
    let main = world.keyspace("main");
    let writer = main.clone();
    world.start(move |client| {
        client.insert(&writer, "a", "x1");
        client.batch(&[(&writer, "a", Some("x2")), (&writer, "b", Some("x2"))], Buffered);
        client.remove(&writer, "a");
        client.insert(&writer, "b", "x3");
    });
    world.start(|client| {
        client.flush();
        client.flush();
    });
    world.start(move |client| {
        client.get(&main, "a");
        let mut held = client.snapshot();
        client.look(&mut held, &main, &KEYS);
        client.get(&main, "b");
        client.look(&mut held, &main, &KEYS);
        client.scan(&main, &KEYS, true);
    });
    world.crash_and_check(&["main"], &KEYS);
}

/// Synced commits, concurrent with buffered ones, and a power loss.
fn synced() {
    let mut world = World::new();
    let (left, right) = (world.keyspace("left"), world.keyspace("right"));
    for writer in ["x", "y", "z"] {
        let (left, right) = (left.clone(), right.clone());
        world.start(move |client| {
            client.insert(&left, "b", &format!("{writer}1"));
            let value = format!("{writer}2");
            client.batch(&[(&left, "a", Some(&value)), (&right, "a", Some(&value))], Sync);
            client.insert(&right, "b", &format!("{writer}3"));
            if writer == "z" {
                client.persist();
            }
        });
    }
    world.crash_and_check(&["left", "right"], &KEYS);
}

/// A keyspace is dropped and created again while it is written to.
fn catalogue() {
    let mut world = World::new();
    let (keep, gone) = (world.keyspace("keep"), world.keyspace("gone"));
    let (kept, written) = (keep.clone(), gone.clone());
    world.start(move |client| {
        for round in 0..3 {
            let value = format!("x{round}");
            client.insert(&kept, "a", &value);
            // Refused once the keyspace is dropped: never applied in part.
            let mut batch = client.db.batch();
            batch.insert(&written, "a", &value);
            batch.insert(&kept, "c", &value);
            if let Err(error) = batch.commit() {
                assert_eq!(error.kind(), testudo::ErrorKind::Invalid, "{error}");
            }
        }
    });
    world.start(move |client| {
        client.flush();
        assert!(client.db.drop_keyspace("gone").expect("a drop"));
        assert!(gone.insert("b", "late").is_err(), "a write to a dropped keyspace succeeded");
        let anew = client.db.keyspace("gone", Default::default).expect("a keyspace");
        assert!(anew.get("a").expect("a read").is_none(), "a new keyspace is not empty");
        client.batch(&[(&anew, "n", Some("y1")), (&keep, "b", Some("y1"))], Sync);
    });
    world.start(|client| client.flush());
    world.crash_and_check(&["keep"], &KEYS);
}

/// A keyspace that changes its tree while it is written, read and flushed.
fn trees() {
    let mut world = World::new();
    let main = world.keyspace("main");
    let writer = main.clone();
    world.start(move |client| {
        client.insert(&writer, "a", "x1");
        client.insert(&writer, "b", "x2");
        client.flush();
        client.remove(&writer, "a");
        client.get(&writer, "b");
        client.flush();
        client.insert(&writer, "a", "x3");
    });
    let switched = main.clone();
    world.start(move |_| {
        for round in 0..3 {
            let (leaf_bytes, max_pivots) = (4 << 10, 4 + round);
            switched
                .set_tree(Tree::splinter().with_run_bytes(leaf_bytes).with_max_pivots(max_pivots))
                .expect("another tree");
        }
    });
    world.start(move |client| {
        client.get(&main, "a");
        client.scan(&main, &KEYS, false);
        client.get(&main, "b");
    });
    world.crash_and_check(&["main"], &KEYS);
}

/// The store is closed while clients write, then opened again.
fn closing() {
    let mut world = World::new();
    let main = world.keyspace("main");
    for writer in ["x", "y"] {
        let main = main.clone();
        world.start(move |client| {
            let (first, second) = (format!("{writer}1"), format!("{writer}2"));
            let durability = if writer == "x" { Sync } else { Buffered };
            let _ = client.insert(&main, "a", &format!("{writer}0"))
                && client.batch(&[(&main, "a", Some(&first)), (&main, "b", Some(&first))], durability)
                && client.insert(&main, "b", &second);
        });
    }
    world.start(|client| {
        let call = client.recorder.begin(client.number);
        client.db.clone().close().expect("a clean close");
        client.recorder.end(call, crate::history::Action::Persist, true);
    });
    world.join();
    drop(main);
    let World { env, db, recorder, .. } = world;
    drop(db);
    let keys = ["main/a".to_owned(), "main/b".to_owned()];
    judge(&recorder, Some((&keys, &read_image(&env, &["main"]))));
    let db = open(&env);
    let main = db.open_keyspace("main").expect("a look").expect("it was durable");
    main.insert("a", "again").expect("a write");
    db.check_invariants().expect("invariants");
    db.close().expect("a clean close");
}

/// Values so large that write buffers fill up, are sealed and are flushed automatically.
fn pressure() {
    let mut world = World::new();
    let main = world.keyspace("main");
    for writer in ["x", "y"] {
        let main = main.clone();
        world.start(move |client| {
            for round in 0..3 {
                let value = format!("{writer}{round}{}", ".".repeat(60_000));
                client.insert(&main, if round % 2 == 0 { "a" } else { "b" }, &value);
            }
        });
    }
    world.start(move |client| {
        client.get(&main, "a");
        let mut held = client.snapshot();
        client.look(&mut held, &main, &KEYS);
        client.get(&main, "b");
        client.look(&mut held, &main, &KEYS);
    });
    world.crash_and_check(&["main"], &KEYS);
}

/// Large values that commits append to value logs while buffers are sealed and flushed.
fn value_logs() {
    const MANY: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
    let long = |value: &str| format!("{value}{}", ".".repeat(30_000));
    let mut world = World::new();
    let main = world.keyspace_with("main", Placement::separate());
    // Enough data that the next buffer gets a value log.
    let first = world.client(9);
    for key in MANY {
        first.insert(&main, key, &long(&format!("0{key}")));
    }
    first.flush();
    for (writer, keys) in [("x", ["a", "b", "c"]), ("y", ["d", "e", "f"])] {
        let main = main.clone();
        world.start(move |client| {
            for key in keys {
                client.insert(&main, key, &long(&format!("{writer}{key}")));
            }
        });
    }
    world.start(move |client| {
        for key in ["a", "d", "e"] {
            client.flush();
            client.get(&main, key);
        }
    });
    world.close_and_check(&["main"], &MANY);
}

/// Snapshots that are held across overwrites and flushes.
fn snapshots() {
    let mut world = World::new();
    let main = world.keyspace("main");
    world.client(9).insert(&main, "a", "0");
    let writer = main.clone();
    world.start(move |client| {
        for round in 1..4 {
            client.insert(&writer, "a", &format!("x{round}"));
            client.remove(&writer, "b");
            client.insert(&writer, "b", &format!("x{round}b"));
        }
    });
    for _ in 0..2 {
        let main = main.clone();
        world.start(move |client| {
            let mut early = client.snapshot();
            client.look(&mut early, &main, &["a"]);
            if client.number == 1 {
                client.flush();
            }
            let mut late = client.snapshot();
            client.look(&mut early, &main, &KEYS);
            client.look(&mut late, &main, &KEYS);
            client.look(&mut early, &main, &KEYS);
        });
    }
    world.crash_and_check(&["main"], &KEYS);
}

/// All clients read a key in the tree while it is overwritten, removed and flushed.
fn hot_key() {
    let mut world = World::new();
    let main = world.keyspace("main");
    let before = world.client(9);
    before.insert(&main, "a", "0");
    before.insert(&main, "b", "0b");
    before.flush();
    drop(before);
    let writer = main.clone();
    world.start(move |client| {
        client.insert(&writer, "a", "x1");
        client.flush();
        client.remove(&writer, "b");
        client.append(&writer, "a", "+");
        client.flush();
    });
    for _ in 0..2 {
        let main = main.clone();
        world.start(move |client| {
            let mut held = client.snapshot();
            client.get(&main, "a");
            client.look(&mut held, &main, &KEYS);
            client.get(&main, "a");
            client.multi_get(&main, &KEYS);
            client.look(&mut held, &main, &KEYS);
            client.get(&main, "b");
        });
    }
    world.crash_and_check(&["main"], &KEYS);
}

/// Jobs flush tombstones down; between their halves other clients write, flush and change the tree.
fn jobs() {
    let mut world = World::new();
    let main = world.keyspace("main");
    let before = world.client(9);
    before.insert(&main, "a", "0");
    before.insert(&main, "b", "0b");
    before.flush();
    before.remove(&main, "a");
    before.flush();
    drop(before);
    let writer = main.clone();
    world.start(move |client| {
        client.insert(&writer, "a", "x1");
        client.remove(&writer, "b");
        client.flush();
        client.remove(&writer, "a");
        client.flush();
        client.insert(&writer, "b", "x2");
    });
    let switched = main.clone();
    world.start(move |client| {
        client.db.compact().expect("all jobs are done");
        switched.set_tree(Tree::splinter().with_run_bytes(4 << 10).with_max_pivots(5)).expect("another tree");
        client.db.compact().expect("all jobs are done");
    });
    world.start(move |client| {
        client.get(&main, "a");
        let mut held = client.snapshot();
        client.scan(&main, &KEYS, false);
        client.look(&mut held, &main, &KEYS);
        client.get(&main, "b");
    });
    world.crash_and_check(&["main"], &KEYS);
}
