//! Dropped versions are counted, to the byte.

use testudo_base::{DropCounts, merge_operator::MergeOperators, operands_format::encode_operand};

use super::*;

/// Entries and bytes inserted.
#[derive(Default)]
struct Inserted(u64, u64);

impl Inserted {
    fn insert(&mut self, table: &Memtable, version: (u64, Kind, &[u8], &[u8]), keep_from: Option<u64>) {
        let (seqno, kind, key, value) = version;
        table.insert(Seqno(seqno), kind, key, value, keep_from.map(Seqno));
        self.0 += 1;
        self.1 += (key.len() + value.len()) as u64;
    }

    #[track_caller]
    fn check(&self, table: &Memtable) {
        let DropCounts { dropped_entries, dropped_bytes, made_entries, made_bytes } = table.drops();
        assert_eq!(self.0 + made_entries, table.len() as u64 + dropped_entries);
        assert_eq!(self.1 + made_bytes, table.user_bytes() + dropped_bytes);
    }
}

#[test]
fn inserted_and_made_versions_are_present_or_dropped() {
    for (seed, operator) in (0..if cfg!(miri) { 1 } else { 8 }).zip([Some("append"), None].iter().cycle()) {
        let full_merge = MergeOperators::default().full_merge("k", *operator);
        let table = Memtable::with_full_merge(ChunkPool::new(4 << 20), full_merge);
        let mut dice = Dice(seed << 32);
        let mut inserted = Inserted::default();
        let mut snapshot = None;
        inserted.check(&table);
        for seqno in 1..if cfg!(miri) { 150 } else { 6_000_u64 } {
            let key = odd_key(&mut dice);
            let value = vec![7; dice.below(60) as usize];
            match dice.below(10) {
                0 => inserted.insert(&table, (seqno, Kind::Tombstone, &key, &[]), snapshot),
                1..=3 => {
                    inserted.insert(&table, (seqno, Kind::Operands, &key, &encode_operand(&value)), snapshot);
                }
                _ => inserted.insert(&table, (seqno, Kind::Value, &key, &value), snapshot),
            }
            if dice.below(200) == 0 {
                snapshot = (dice.below(2) == 0).then_some(seqno);
            }
            if seqno % 500 == 0 {
                inserted.check(&table);
            }
        }
        inserted.check(&table);
        assert!(table.drops().dropped_entries > 100 || cfg!(miri));
    }
}

#[test]
fn late_versions_are_dropped_or_visible_to_snapshots_only() {
    let mut dice = Dice(5);
    for snapshot in [None, Some(20)] {
        let table = new_table();
        let mut inserted = Inserted::default();
        let mut seqnos: Vec<u64> = (1..=40).flat_map(|seqno| [seqno, seqno]).collect();
        while !seqnos.is_empty() {
            let seqno = seqnos.swap_remove(dice.below(seqnos.len() as u64) as usize);
            let value = vec![1; dice.below(30) as usize];
            inserted.insert(&table, (seqno, Kind::Value, b"key", &value), snapshot);
            inserted.check(&table);
        }
        assert_eq!(table.drops().dropped_entries, 79);
    }
}
