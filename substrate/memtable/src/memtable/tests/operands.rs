//! Operands are stacked on the key's existing version.

use testudo_base::{
    merge_operator::{FullMerge, MergeOperators},
    operands_format::{Stack, encode_operand},
};

use super::*;

fn table_with(name: Option<&str>) -> (Memtable, Arc<FullMerge>) {
    let full_merge = MergeOperators::default().full_merge("k", name);
    (Memtable::with_full_merge(ChunkPool::new(4 << 20), Arc::clone(&full_merge)), full_merge)
}

fn merge(table: &Memtable, seqno: u64, key: &[u8], operand: &[u8], keep_from: Option<u64>) -> InsertOutcome {
    table.insert(Seqno(seqno), Kind::Operands, key, &encode_operand(operand), keep_from.map(Seqno))
}

/// The state of a key within one memtable: its value, if known, and the bytes appended to it.
type Appended = (Option<Option<Vec<u8>>>, Vec<u8>);

/// The same for an entry, whether or not operands were merged.
fn appended(kind: Kind, value: &[u8]) -> Appended {
    match kind {
        Kind::Value => (Some(Some(value.to_vec())), Vec::new()),
        Kind::Tombstone => (Some(None), Vec::new()),
        _ => {
            let Stack { existing, operands } = Stack::decode(kind, value).unwrap();
            ((kind == Kind::Unmerged).then(|| existing.map(<[u8]>::to_vec)), operands.concat())
        }
    }
}

/// A canonical form for equivalent entries.
fn flat((base, more): Appended) -> (bool, Option<Vec<u8>>) {
    match base {
        None => (false, Some(more)),
        Some(None) if more.is_empty() => (true, None),
        Some(base) => (true, Some([base.unwrap_or_default(), more].concat())),
    }
}

#[test]
fn each_snapshot_sees_its_operands_in_order() {
    for (name, seed) in [(None, 1), (Some("append"), 2), (Some("append"), 3), (None, 4)] {
        let (table, _) = table_with(name);
        let table = Arc::new(table);
        let mut dice = Dice(seed << 32);
        let mut model: BTreeMap<Vec<u8>, Appended> = BTreeMap::new();
        let mut snapshots: Vec<(u64, BTreeMap<Vec<u8>, Appended>)> = Vec::new();
        for seqno in 1..6_000_u64 {
            let key = format!("key{}", dice.below(40)).into_bytes();
            let newest = snapshots.last().map(|(seqno, _)| *seqno);
            let operand = vec![b'a' + (seqno % 26) as u8; 1 + dice.below(12) as usize];
            match dice.below(12) {
                0 => {
                    let length = if dice.below(4) == 0 { 3000 } else { 5 };
                    put(&table, seqno, &key, &vec![b'='; length], newest);
                    model.insert(key, (Some(Some(vec![b'='; length])), Vec::new()));
                }
                1 => {
                    table.insert(Seqno(seqno), Kind::Tombstone, &key, &[], newest.map(Seqno));
                    model.insert(key, (Some(None), Vec::new()));
                }
                _ => {
                    merge(&table, seqno, &key, &operand, newest);
                    model.entry(key).or_default().1.extend(operand);
                }
            }
            match dice.below(400) {
                0 => snapshots.push((seqno, model.clone())),
                1 => drop(snapshots.pop()),
                _ => {}
            }
        }
        table.check();
        snapshots.push((u64::MAX, model));
        for (seqno, model) in &snapshots {
            let mut cursor = table.cursor(Seqno(*seqno));
            cursor.seek_first().unwrap();
            for (key, expected) in model {
                let entry = cursor.entry().unwrap();
                let found = flat(appended(entry.kind, entry.value));
                let expected = flat(expected.clone());
                assert_eq!((entry.key, &found), (key.as_slice(), &expected), "{name:?} at {seqno}");
                let (kind, value) = table.get_owned(key, Seqno(*seqno)).unwrap();
                assert_eq!(flat(appended(kind, &value)), expected);
                cursor.next().unwrap();
            }
            assert!(cursor.entry().is_none());
        }
    }
}

#[test]
fn counter_is_merged_in_place() {
    let (table, full_merge) = table_with(Some("add-u64"));
    merge(&table, 1, b"c", &1_u64.to_le_bytes(), None);
    let memory = table.memory_bytes();
    for seqno in 2..=1000 {
        assert!(merge(&table, seqno, b"c", &1_u64.to_le_bytes(), None).replaced_in_place);
    }
    assert_eq!(table.memory_bytes(), memory);
    let (kind, value) = table.get_owned(b"c", LATEST).unwrap();
    let sum = full_merge.merge(&Entry { key: b"c", kind, value: &value }).unwrap();
    assert_eq!(sum, 1000_u64.to_le_bytes());
}

#[test]
fn growing_short_values_use_a_few_times_their_bytes() {
    let (table, _) = table_with(Some("append"));
    for seqno in 1..=10_000_u64 {
        let key = (seqno % 100).to_be_bytes();
        if seqno <= 100 {
            put(&table, seqno, &key, b"0123456789", None);
        } else {
            merge(&table, seqno, &key, b"0123456789", None);
        }
    }
    assert!(table.memory_bytes() < 500_000, "{}", table.memory_bytes());
    let (kind, value) = table.get_owned(&7_u64.to_be_bytes(), LATEST).unwrap();
    assert_eq!((kind, value), (Kind::Value, b"0123456789".repeat(100)));
}

#[test]
fn long_operand_lists_use_about_twice_their_bytes() {
    for name in [None, Some("append")] {
        let (table, _) = table_with(name);
        for seqno in 1..=20_000 {
            merge(&table, seqno, b"list", b"0123456789", None);
        }
        assert!(table.memory_bytes() < 1_600_000, "{name:?}: {}", table.memory_bytes());
        let (kind, value) = table.get_owned(b"list", LATEST).unwrap();
        assert_eq!(appended(kind, &value).1.len(), 200_000);
    }
}
