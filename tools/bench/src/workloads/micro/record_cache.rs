//! The record cache: hits, and fills that replace older records.
//!
//! | case | operation |
//! |---|---|
//! | hit | a lookup of a cached record |
//! | fill | an insert into a full cache |
//!
//! **Invariants**
//! - The cache of `hit` holds 100,000 records, whatever the number of operations.

use std::hint::black_box;

use testudo::Result;
use testudo_base::{KeyspaceId, checksum::hash_key, chunks::ChunkPool, num::usize_of};
use testudo_records::{KeyspaceRecords, RecordCache};

use super::{
    Bench,
    records::{VALUE, key, keys},
};

const RECORDS: u64 = 100_000;

pub(super) fn run(bench: &mut Bench<'_>) -> Result<()> {
    bench.check_names("record-cache", &["hit", "fill"])?;
    let ops = bench.args.ops;
    if bench.wants("hit", "testudo") {
        let pool = ChunkPool::new(64 << 20);
        let records = KeyspaceRecords::new(&RecordCache::new(&pool, 64 << 20), KeyspaceId(1));
        let keys = keys(RECORDS);
        for key in &keys {
            records.fill(key, hash_key(key), &VALUE, 0);
        }
        let mut found = 0;
        bench.measure("record-cache", "hit", ops, |number| {
            let key = &keys[usize_of(number.wrapping_mul(7919) % RECORDS)];
            found += u64::from(black_box(records.get(key, hash_key(key))).is_some());
        })?;
        assert!(found * 4 >= ops * 3, "{found} of {ops} records were found");
    }
    if bench.wants("fill", "testudo") {
        let pool = ChunkPool::new(4 << 20);
        let records = KeyspaceRecords::new(&RecordCache::new(&pool, 16 << 20), KeyspaceId(1));
        bench.measure("record-cache", "fill", ops, |number| {
            let key = key(number);
            records.fill(&key, hash_key(&key), &VALUE, 0);
        })?;
    }
    Ok(())
}
