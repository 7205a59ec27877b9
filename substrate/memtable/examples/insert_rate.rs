//! Prints the cost of inserting into, reading and scanning a memtable of 64 MB.
//!
//! Run with `cargo run --release -p testudo-memtable --example insert_rate`.

use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use testudo_base::chunks::ChunkPool;
use testudo_base::{Cursor, Kind, Seqno, checksum::hash_key};
use testudo_memtable::Memtable;

const KEYS: u64 = 500_000;
const LATEST: Seqno = Seqno(u64::MAX);

#[expect(clippy::disallowed_methods, reason = "a measurement needs the real clock")]
fn now() -> Instant {
    Instant::now()
}

/// The `i`-th key: 24 bytes, in random order.
fn key(i: u64) -> [u8; 24] {
    let mut key = *b"user....................";
    let hex = format!("{:016x}", hash_key(&i.to_le_bytes()));
    key[8..].copy_from_slice(hex.as_bytes());
    key
}

fn report(what: &str, took: Duration, count: u64) {
    println!("{what:<36} {:7.1} ns each", took.as_secs_f64() * 1e9 / count as f64);
}

fn insert_all(table: &Memtable, keys: &[[u8; 24]], first_seqno: u64) {
    let value = [7; 100];
    for (key, seqno) in keys.iter().zip(first_seqno..) {
        table.insert(Seqno(seqno), Kind::Value, key, &value, None);
    }
}

fn main() {
    let keys: Vec<_> = (0..KEYS).map(key).collect();
    let mut sorted = keys.clone();
    sorted.sort_unstable();
    let pool = ChunkPool::new(256 << 20);
    for (what, keys) in
        [("insert, fresh memory", &keys), ("insert, recycled memory", &keys), ("insert, ascending", &sorted)]
    {
        let table = Memtable::new(Arc::clone(&pool));
        let started = now();
        insert_all(&table, keys, 1);
        report(what, started.elapsed(), KEYS);
        let (user, memory) = (table.user_bytes() as f64, table.memory_bytes() as f64);
        println!("{:36} {:7.1} MB for {:.1} MB of keys and values", "", memory / 1e6, user / 1e6);
    }
    let table = Arc::new(Memtable::new(Arc::clone(&pool)));
    insert_all(&table, &keys, 1);

    let mut shuffled = keys.clone();
    shuffled.sort_unstable_by_key(|key| hash_key(key));
    let started = now();
    let found: u64 =
        shuffled.iter().filter_map(|key| table.get(key, LATEST, |_, value| value.len() as u64)).sum();
    report("get, present", started.elapsed(), KEYS);
    assert_eq!(found, KEYS * 100);

    let started = now();
    assert!(shuffled.iter().all(|key| table.get(&key[..23], LATEST, |_, _| ()).is_none()));
    report("get, absent", started.elapsed(), KEYS);

    let started = now();
    insert_all(&table, &shuffled, KEYS);
    report("replace in place", started.elapsed(), KEYS);

    let started = now();
    let mut cursor = table.cursor(LATEST);
    let mut count = 0;
    cursor.seek_first().expect("never fails");
    while cursor.entry().is_some() {
        count += 1;
        cursor.next().expect("never fails");
    }
    report("scan", started.elapsed(), count);

    let started = now();
    for key in &shuffled[..100_000] {
        cursor.seek(key).expect("never fails");
    }
    report("seek", started.elapsed(), 100_000);

    drop((cursor, table));
    let table = Memtable::new(pool);
    let started = now();
    thread::scope(|scope| {
        for part in keys.chunks(keys.len() / 2) {
            scope.spawn(|| insert_all(&table, part, 1));
        }
    });
    report("insert, two threads", started.elapsed(), KEYS);
}
