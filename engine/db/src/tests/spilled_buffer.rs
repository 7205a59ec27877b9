//! Compares spilled buffers with their memtables, at every seqno that they were written for.

use std::path::Path;

use testudo_base::{Cursor, Kind, Seqno, chunks::ChunkPool, sync::Arc};
use testudo_env::MemEnv;
use testudo_memtable::Memtable;
use testudo_store::snapshots::{
    spilled_buffer::{SpilledBuffer, Spilling},
    spilled_cursor::SpilledCursor,
};

use crate::Db;

/// A memtable with about 60 keys of up to 300 versions; it keeps those that `readers` see.
fn table(readers: &[u64]) -> Arc<Memtable> {
    let table = Memtable::new(ChunkPool::new(0));
    let mut number = 7_u64;
    for seqno in 1..=2_000_u64 {
        number = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29) ^ seqno;
        // Some keys are prefixes of others, and a few get most of the writes.
        let key = if number.is_multiple_of(3) { number % 5 } else { number % 60 };
        let key = vec![u8::try_from(key % 7).unwrap(); usize::try_from(key / 7 + 1).unwrap()];
        let kind = if number.is_multiple_of(11) { Kind::Tombstone } else { Kind::Value };
        let length = if number.is_multiple_of(50) { 3_000 } else { usize::try_from(number % 40).unwrap() };
        let value = vec![u8::try_from(seqno % 251).unwrap(); length];
        let newest = readers.iter().rev().find(|reader| **reader < seqno);
        table.insert(Seqno(seqno), kind, &key, &value, newest.map(|newest| Seqno(*newest)));
    }
    table.freeze();
    Arc::new(table)
}

fn entries(cursor: &mut impl Cursor, is_backward: bool) -> Vec<testudo_base::OwnedEntry> {
    if is_backward {
        cursor.seek_last().unwrap()
    } else {
        cursor.seek_first().unwrap()
    }
    let mut entries = Vec::new();
    while let Some(entry) = cursor.entry() {
        entries.push(entry.to_owned());
        if is_backward { cursor.prev().unwrap() } else { cursor.next().unwrap() }
    }
    entries
}

#[test]
fn spilled_buffer_reads_like_its_memtable_at_every_seqno() {
    let db = Db::builder(Path::new("/db")).env(MemEnv::new(1)).open().unwrap();
    let store = db.store();
    let every: Vec<u64> = (0..=2_000).collect();
    for readers in [&[][..], &[1_000], &[0, 3, 700, 701, 702, 1_999], &[2_000, 9_000], &every] {
        let table = table(readers);
        let seqnos: Vec<Seqno> = readers.iter().copied().map(Seqno).collect();
        let spilling = Spilling {
            data: &store.data,
            run_ids: &store.run_ids,
            readers: &seqnos,
            sealed_at: Seqno(2_000),
        };
        let spilled = Arc::new(SpilledBuffer::write(&table, &spilling).unwrap());
        let mut keys = entries(&mut table.cursor(Seqno(u64::MAX)), false);
        keys.iter_mut().for_each(|entry| entry.key.push(0));
        for &at in seqnos.iter().step_by(seqnos.len() / 50 + 1) {
            let mut in_memory = table.cursor(at);
            let mut on_disk = SpilledCursor::new(Arc::clone(&spilled), at);
            for is_backward in [false, true] {
                let expected = entries(&mut in_memory, is_backward);
                assert_eq!(entries(&mut on_disk, is_backward), expected, "at {at}, {is_backward}");
            }
            for key in keys.iter().map(|entry| &entry.key) {
                for key in [&key[..], &key[..key.len() - 1]] {
                    let expected = table.get_owned(key, at);
                    let got = spilled.get(key, at, |kind, value| (kind, value.to_vec())).unwrap();
                    assert_eq!(got, expected, "{key:?} at {at}");
                    in_memory.seek(key).unwrap();
                    on_disk.seek(key).unwrap();
                    assert_eq!(on_disk.entry(), in_memory.entry(), "from {key:?} at {at}");
                    in_memory.seek_before(key).unwrap();
                    on_disk.seek_before(key).unwrap();
                    assert_eq!(on_disk.entry(), in_memory.entry(), "before {key:?} at {at}");
                }
            }
        }
    }
}

#[test]
fn spill_skips_versions_that_no_reader_sees() {
    let db = Db::builder(Path::new("/db")).env(MemEnv::new(1)).open().unwrap();
    let store = db.store();
    let every: Vec<u64> = (0..=2_000).collect();
    let table = table(&every);
    let written = |readers: &[Seqno]| {
        let (data, run_ids, sealed_at) = (&store.data, &*store.run_ids, Seqno(2_000));
        let spilling = Spilling { data, run_ids, readers, sealed_at };
        let spilled = SpilledBuffer::write(&table, &spilling).unwrap();
        let runs = spilled.parts.iter().flat_map(|part| std::iter::once(&part.keys).chain(&part.versions));
        runs.map(|run| run.reference().stored_bytes()).sum::<u64>()
    };
    let all: Vec<Seqno> = every.iter().copied().map(Seqno).collect();
    assert_eq!(written(&[]), 0);
    assert!(written(&[Seqno(2_000)]) * 4 < written(&all), "a single reader needs few versions");
    let twice: Vec<Seqno> = [&all[..], &[Seqno(3_000), Seqno(4_000)]].concat();
    assert_eq!(written(&all), written(&twice), "readers that see the same versions share them");
}
