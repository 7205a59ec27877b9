//! The record cache alone: readers of newer and older states of a tree, flushes, and memory that is
//! reclaimed.
//!
//! **Invariants**
//! - The value of a key in a state is a function, so each read can be checked on its own.

use testudo_base::{
    KeyspaceId, Kind, Seqno,
    checksum::hash_key,
    chunks::ChunkPool,
    sync::{Arc, ArcSwap},
};
use testudo_memtable::Memtable;
use testudo_records::{KeyspaceRecords, RecordCache};

const KEYS: [&[u8]; 4] = [b"a", b"b", b"c", b"d"];
const STATES: u64 = 3;
const SEGMENT_BYTES: usize = 4 << 10;

/// A state of a tree, and the records valid for it.
type State = (u64, KeyspaceRecords);

/// Whether the flush that creates `state` changes the key.
fn is_changed(key: usize, state: u64) -> bool {
    state.is_multiple_of(key as u64 + 1)
}

/// Value of a key in a state. Values are long, so that a few fill a segment, and carry their state at both
/// ends. Some states have longer ones.
fn value_in(key: usize, state: u64) -> Vec<u8> {
    let last = (0..=state).rev().find(|state| is_changed(key, *state)).expect("state 0 has all keys");
    format!("{last}{}{last}", ".".repeat(if last == 3 { 500 } else { 400 })).into_bytes()
}

fn read(key: usize, (state, records): &State) {
    let hash = hash_key(KEYS[key]);
    match records.get(KEYS[key], hash) {
        Some(value) => assert_eq!(value, value_in(key, *state), "key {key} in state {state}"),
        None => records.fill(KEYS[key], hash, &value_in(key, *state), 0),
    }
}

/// Creates the next state.
fn flush((state, records): &State, pool: &Arc<ChunkPool>) -> State {
    let next = state + 1;
    let table = Arc::new(Memtable::new(Arc::clone(pool)));
    for (number, key) in KEYS.iter().enumerate().filter(|(number, _)| is_changed(*number, next)) {
        table.insert(Seqno(next), Kind::Value, key, &value_in(number, next), None);
    }
    table.freeze();
    let admits = next.is_multiple_of(2);
    let records = records.advance(&mut table.cursor(Seqno(u64::MAX)), admits).expect("memory does not fail");
    (next, records)
}

/// Concurrent reads, fills, flushes and lack of memory.
pub(crate) fn records() {
    let pool = ChunkPool::new(4 * SEGMENT_BYTES as u64);
    let cache = RecordCache::new(&pool, 1 << 20);
    let first: State = (0, KeyspaceRecords::new(&cache, KeyspaceId(1)));
    let newest = Arc::new(ArcSwap::from_pointee(first));
    let mut threads = Vec::new();
    for reader in 0..2 {
        let newest = Arc::clone(&newest);
        threads.push(shuttle::thread::spawn(move || {
            let held = newest.load_full();
            for round in 0..4 {
                let key = (reader + round) % KEYS.len();
                read(key, &newest.load_full());
                read(0, &newest.load_full());
                read(key, &held);
            }
        }));
    }
    let flushed = (Arc::clone(&newest), Arc::clone(&pool));
    threads.push(shuttle::thread::spawn(move || {
        let (newest, pool) = flushed;
        for _ in 0..STATES {
            let state = newest.load_full();
            newest.store(Arc::new(flush(&state, &pool)));
        }
    }));
    let taker = Arc::clone(&pool);
    threads.push(shuttle::thread::spawn(move || {
        for _ in 0..2 {
            let taken = [taker.take(2 * SEGMENT_BYTES), taker.take(SEGMENT_BYTES)];
            taker.give_back(taken);
        }
    }));
    for thread in threads {
        thread.join().expect("no panic");
    }
    for key in 0..KEYS.len() {
        read(key, &newest.load_full());
        read(key, &newest.load_full());
    }
    drop((newest, cache));
    assert_eq!(pool.used_bytes(), 0, "memory was lost");
}
