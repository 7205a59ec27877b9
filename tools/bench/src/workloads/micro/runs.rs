//! Runs: building one, merging two into a third, point queries with all pages cached.
//!
//! | case | operation |
//! |---|---|
//! | build | a record pushed into a run, including its share of blocks, index and filter |
//! | merge | a record passed by a two-way merge into a new run |
//! | get | a point query of a present key |
//! | absent | a point query of an absent key: the filter |
//! | scan | a cursor step |
//!
//! **Invariants**
//! - Everything is in memory; reads are verified as usual.

use std::{hint::black_box, sync::Arc};

use testudo::Result;
use testudo_base::{
    Cursor, Entry, KeyspaceId, Kind, RunId, Seqno, checksum::hash_key, key::common_prefix, num::usize_of,
};
use testudo_run::{Access, Lookup};
use testudo_run::{MergeCursor, ReadAhead, Run, RunCursor, RunOrigin, RunWriter};
use testudo_storage::DataFile;

use super::{
    Bench,
    growing_file::growing_data_file,
    records::{KEY_BYTES, VALUE, key, keys},
};

const RECORDS: u64 = 100_000;
const CACHE_BYTES: u64 = 64 << 20;

pub(super) fn run(bench: &mut Bench<'_>) -> Result<()> {
    bench.check_names("run", &["build", "merge", "get", "absent", "scan"])?;
    let ops = bench.args.ops;
    let data = growing_data_file(CACHE_BYTES)?;
    if bench.wants("build", "testudo") {
        let sorted = sorted(0, ops.max(RECORDS));
        let mut open = writer(&data, 1, ops)?;
        bench.measure("run", "build", ops, |number| push(&mut open, &sorted[usize_of(number)]))?;
        black_box(open.finish(None)?);
    }
    if bench.wants("merge", "testudo") {
        let half = ops.max(RECORDS).div_ceil(2);
        let parts = [written(&data, 2, &sorted(0, half))?, written(&data, 3, &sorted(half, half))?];
        let cursors = parts.map(|run| RunCursor::new(run, ReadAhead::bytes(256 << 10)));
        let shared_bytes = common_prefix(&key(0), &key(1));
        let mut merge = MergeCursor::with_shared_prefix(cursors.into(), shared_bytes);
        merge.seek_first()?;
        let mut open = writer(&data, 4, ops)?;
        bench.measure("run", "merge", ops, |_| {
            let entry = merge.entry().expect("as many entries as operations");
            open.push(&entry).expect("keys ascend");
            merge.next().expect("valid pages");
        })?;
        black_box(open.finish(None)?);
    }
    queries(bench, &data)
}

fn queries(bench: &mut Bench<'_>, data: &Arc<DataFile>) -> Result<()> {
    let ops = bench.args.ops;
    if !["get", "absent", "scan"].iter().any(|case| bench.wants(case, "testudo")) {
        return Ok(());
    }
    let run = written(data, 5, &sorted(0, RECORDS))?;
    let present = keys(RECORDS);
    let absent: Vec<_> = (RECORDS..2 * RECORDS).map(key).collect();
    let step = |number: u64| usize_of(number.wrapping_mul(7919) % RECORDS);
    let get = |key: &[u8]| run.get(key, hash_key(key), Access::Blocking).expect("valid pages");
    for key in &present {
        black_box(get(key));
    }
    if bench.wants("get", "testudo") {
        bench.measure("run", "get", ops, |number| {
            assert!(matches!(get(&present[step(number)]), Lookup::Found(..)));
        })?;
    }
    if bench.wants("absent", "testudo") {
        bench.measure("run", "absent", ops, |number| {
            assert!(get(&absent[step(number)]) == Lookup::Absent);
        })?;
    }
    if bench.wants("scan", "testudo") {
        let mut cursor = RunCursor::new(Arc::clone(&run), ReadAhead::Adaptive);
        cursor.seek_first()?;
        bench.measure("run", "scan", ops, |_| {
            if black_box(cursor.entry()).is_none() {
                cursor.seek_first().expect("valid pages");
            }
            cursor.next().expect("valid pages");
        })?;
    }
    Ok(())
}

fn sorted(first: u64, count: u64) -> Vec<[u8; KEY_BYTES]> {
    let mut keys: Vec<_> = (first..first + count).map(key).collect();
    keys.sort_unstable();
    keys
}

fn writer(data: &Arc<DataFile>, id: u64, records: u64) -> Result<RunWriter> {
    let origin = RunOrigin {
        id: RunId(id),
        keyspace: KeyspaceId(1),
        keyspace_name: Arc::from("micro"),
        newest_seqno: Seqno(1),
    };
    RunWriter::new(Arc::clone(data), origin, records * 124)
}

fn push(open: &mut RunWriter, key: &[u8]) {
    open.push(&Entry { key, kind: Kind::Value, value: &VALUE }).expect("keys ascend");
}

fn written(data: &Arc<DataFile>, id: u64, sorted: &[[u8; KEY_BYTES]]) -> Result<Arc<Run>> {
    let mut open = writer(data, id, testudo_base::num::u64_of(sorted.len()))?;
    for key in sorted {
        push(&mut open, key);
    }
    open.finish(None)
}
