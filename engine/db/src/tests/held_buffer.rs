//! Cursors positioned in a memtable while it is spilled.

use std::path::Path;

use testudo_base::{Cursor, Kind, Seqno, chunks::ChunkPool, sync::Arc};
use testudo_env::MemEnv;
use testudo_memtable::Memtable;
use testudo_store::snapshots::{
    held_buffer::{HeldBuffer, HeldCursor},
    spilled_buffer::{SpilledBuffer, Spilling},
};

use crate::Db;

const AT: Seqno = Seqno(500);

fn held() -> Arc<HeldBuffer> {
    let table = Memtable::new(ChunkPool::new(0));
    for seqno in 1..=1_000_u64 {
        let key = (seqno % 300).to_be_bytes();
        table.insert(Seqno(seqno), Kind::Value, &key, &seqno.to_le_bytes(), Some(AT));
    }
    table.freeze();
    Arc::new(HeldBuffer::new(&Arc::new(table)))
}

fn key(cursor: &HeldCursor) -> Option<u64> {
    let entry = cursor.entry()?;
    let written = u64::from_le_bytes(entry.value.try_into().unwrap());
    let key = u64::from_be_bytes(entry.key.try_into().unwrap());
    assert!(written <= AT.0 && written % 300 == key, "the version of {AT}");
    Some(key)
}

#[test]
fn cursor_keeps_its_position_when_its_memtable_is_spilled() {
    let db = Db::builder(Path::new("/db")).env(MemEnv::new(1)).open().unwrap();
    let store = db.store();
    for steps in [0, 1, 7, 8, 9, 63, 64, 200, 298, 299, 300] {
        let held = held();
        let (mut forward, mut backward) = (held.cursor(AT).unwrap(), held.cursor(AT).unwrap());
        let mut sought = held.cursor(AT).unwrap();
        forward.seek_first().unwrap();
        backward.seek_last().unwrap();
        for step in 0..=300_u64 {
            if step == steps {
                let table = held.memtable().unwrap();
                let (data, run_ids, sealed_at) = (&store.data, &*store.run_ids, Seqno(1_000));
                let spilling = Spilling { data, run_ids, readers: &[AT], sealed_at };
                held.spill(SpilledBuffer::write(&table, &spilling).unwrap());
                assert_eq!(Arc::strong_count(&table), 1, "the memtable is still referenced");
                sought.seek(&step.to_be_bytes()).unwrap();
                assert_eq!(key(&sought), Some(step).filter(|step| *step < 300));
            }
            assert_eq!(key(&forward), Some(step).filter(|step| *step < 300), "spilled after {steps}");
            assert_eq!(key(&backward), 299_u64.checked_sub(step), "spilled after {steps}");
            if step < 300 {
                forward.next().unwrap();
                backward.prev().unwrap();
            }
        }
        // It can reverse on disk as in memory.
        forward.seek(&100_u64.to_be_bytes()).unwrap();
        forward.prev().unwrap();
        assert_eq!(key(&forward), Some(99));
    }
}

#[test]
fn cursor_reversed_after_a_spill_moves_to_the_previous_key() {
    let db = Db::builder(Path::new("/db")).env(MemEnv::new(1)).open().unwrap();
    let held = held();
    let mut cursor = held.cursor(AT).unwrap();
    cursor.seek(&100_u64.to_be_bytes()).unwrap();
    let table = held.memtable().unwrap();
    let store = db.store();
    let (data, run_ids) = (&store.data, &*store.run_ids);
    let spilling = Spilling { data, run_ids, readers: &[AT], sealed_at: Seqno(1_000) };
    held.spill(SpilledBuffer::write(&table, &spilling).unwrap());
    cursor.prev().unwrap();
    assert_eq!(key(&cursor), Some(99));
    cursor.next().unwrap();
    assert_eq!(key(&cursor), Some(100));
}
