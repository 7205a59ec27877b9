//! Scenarios in which two jobs of one keyspace are in progress, and end in any order.
//!
//! **Invariants**
//! - The tree has two jobs to do before the clients start, in parts that do not overlap.

use testudo::{Durability::Buffered, Keyspace, Tree};

use crate::world::World;

/// Flushes and entries of each, after which the tree has two jobs.
const FLUSHES: usize = 4;
const ENTRIES: usize = 12;
/// Length of a value: a run has only a few.
const VALUE_BYTES: usize = 900;
/// Keys of the flushes that the clients access: in different parts of the tree.
const KEYS: [&str; 4] = ["011", "036", "061", "086"];

fn long(value: &str) -> String {
    format!("{value:.<VALUE_BYTES$}")
}

/// Scattered keys, as many as a flush has.
fn keys_of(flush: usize) -> Vec<String> {
    let scattered = |number: usize| {
        let number = u32::try_from(flush * ENTRIES + number).unwrap_or(0);
        format!("{:03}", number.wrapping_mul(0x9e37_79b1) % 100)
    };
    (0..ENTRIES).map(scattered).collect()
}

/// A store with a keyspace `main` that has two jobs to do, which begin with the clients.
fn world_with_jobs() -> (World, Keyspace, Vec<String>) {
    let world = World::new();
    world.db.background().pause();
    let tree = Tree::splinter().with_run_bytes(4 << 10).with_max_pivots(4);
    let main = world.keyspace_of("main", tree);
    let before = world.client(9);
    let mut all: Vec<String> = Vec::new();
    for flush in 0..FLUSHES {
        let value = long(&format!("0{flush}"));
        let keys = keys_of(flush);
        let writes: Vec<_> = keys.iter().map(|key| (&main, key.as_str(), Some(value.as_str()))).collect();
        before.batch(&writes, Buffered);
        before.flush();
        all.extend(keys);
    }
    all.sort_unstable();
    all.dedup();
    (world, main, all)
}

/// Jobs end in any order, concurrently with writes, flushes and reads.
pub(crate) fn two_jobs() {
    let (mut world, main, all) = world_with_jobs();
    world.db.background().resume();
    for _ in 0..2 {
        world.start(|client| client.db.compact().expect("all jobs are done"));
    }
    let writer = main.clone();
    world.start(move |client| {
        client.insert(&writer, KEYS[0], &long("x1"));
        client.remove(&writer, KEYS[2]);
        client.flush();
        client.insert(&writer, KEYS[1], &long("x2"));
        client.remove(&writer, KEYS[0]);
    });
    let reader = main.clone();
    world.start(move |client| {
        let mut held = client.snapshot();
        for key in KEYS {
            client.get(&reader, key);
        }
        client.look(&mut held, &reader, &KEYS);
        client.multi_get(&reader, &KEYS);
        client.look(&mut held, &reader, &KEYS);
    });
    drop(main);
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    world.crash_and_check(&["main"], &all);
}

/// The keyspace is dropped, and created again, while its jobs are in progress. A snapshot still shows it, and
/// another keyspace gets the space.
pub(crate) fn dropped_jobs() {
    let (mut world, main, all) = world_with_jobs();
    let keep = world.keyspace("keep");
    let (mut held, dropped) = (world.client(8).snapshot(), main.clone());
    world.db.background().resume();
    world.start(|client| client.db.compact().expect("all jobs are done"));
    world.start(move |client| {
        for key in KEYS {
            client.look(&mut held, &dropped, &[key]);
        }
        client.look(&mut held, &dropped, &KEYS);
    });
    world.start(move |client| {
        for (key, value) in KEYS.iter().zip(["x1", "x2"]) {
            client.insert(&keep, key, &long(value));
            client.flush();
            client.get(&keep, key);
        }
    });
    world.start(move |client| {
        assert!(client.db.drop_keyspace("main").expect("a drop"));
        drop(main);
        let again = client.db.keyspace("main", Default::default).expect("a keyspace");
        assert!(again.get(KEYS[0]).expect("a read").is_none(), "a new keyspace is not empty");
    });
    let keys: Vec<&str> = all.iter().map(String::as_str).collect();
    world.crash_and_check(&["keep"], &keys);
}
