//! The write buffer: inserts in random order, updates, gets of present and of absent keys.
//!
//! | case | operation |
//! |---|---|
//! | insert | insert of a new record of 24 + 100 bytes, in random key order |
//! | update | update of an existing key, in place |
//! | get | get of a present key |
//! | miss | get of an absent key |
//!
//! **Invariants**
//! - The memtable of `get`, `update` and `miss` has 200,000 records, whatever the number of operations.

use std::hint::black_box;

use testudo::Result;
use testudo_base::{Kind, Seqno, chunks::ChunkPool};
use testudo_memtable::Memtable;

use super::{
    Bench,
    records::{VALUE, key, keys},
};

const RECORDS: u64 = 200_000;
const LATEST: Seqno = Seqno(u64::MAX);

pub(super) fn run(bench: &mut Bench<'_>) -> Result<()> {
    bench.check_names("memtable", &["insert", "update", "get", "miss"])?;
    let ops = bench.args.ops;
    if bench.wants("insert", "testudo") {
        let keys = keys(ops.max(RECORDS));
        let table = Memtable::new(ChunkPool::new(1 << 40));
        bench.measure("memtable", "insert", ops, |number| insert(&table, number, &keys[at(number)]))?;
    }
    let cases = ["update", "get", "miss"];
    if !cases.iter().any(|case| bench.wants(case, "testudo")) {
        return Ok(());
    }
    let table = Memtable::new(ChunkPool::new(1 << 40));
    let present = keys(RECORDS);
    for (number, key) in (0..).zip(&present) {
        insert(&table, number, key);
    }
    let absent: Vec<_> = (RECORDS..2 * RECORDS).map(key).collect();
    let step = |number: u64| at(number.wrapping_mul(7919) % RECORDS);
    if bench.wants("update", "testudo") {
        bench.measure("memtable", "update", ops, |number| {
            insert(&table, RECORDS + number, &present[step(number)])
        })?;
    }
    let get = |key: &[u8]| black_box(table.get(key, LATEST, |_, value| value.len())).unwrap_or(0);
    if bench.wants("get", "testudo") {
        bench.measure("memtable", "get", ops, |number| assert!(get(&present[step(number)]) > 0))?;
    }
    if bench.wants("miss", "testudo") {
        bench.measure("memtable", "miss", ops, |number| assert!(get(&absent[step(number)]) == 0))?;
    }
    Ok(())
}

fn insert(table: &Memtable, number: u64, key: &[u8]) {
    table.insert(Seqno(number + 1), Kind::Value, key, &VALUE, None);
}

fn at(number: u64) -> usize {
    testudo_base::num::usize_of(number)
}
