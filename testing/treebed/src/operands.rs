//! Operands on their way down a tree: returned together with their base, never lost.
//!
//! **Invariants**
//! - The model has the values that the operator `append` makes of all entries.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
};

use testudo_base::{
    Cursor, Entry, Kind, OwnedEntry,
    checksum::hash_key,
    merge_operator::{FullMerge, MergeOperators},
    operands_format::encode_operand,
};
use testudo_env::SplitMix;
use testudo_run::{Access, Lookup, LookupProgress};

use crate::{Bed, Family, Model};

fn key(number: u64) -> Vec<u8> {
    format!("key{number:05}").into_bytes()
}

/// Returns the value of an entry with its operands; `None` for a tombstone.
fn settle(full_merge: &FullMerge, entry: &Entry<'_>) -> Option<Vec<u8>> {
    match entry.kind {
        Kind::Value => Some(entry.value.to_vec()),
        Kind::Tombstone => None,
        _ => Some(full_merge.merge(entry).unwrap()),
    }
}

/// Applies random entries of all kinds to the first `keys` keys; the model has the values that the operator
/// makes of them.
pub fn apply_operands<F: Family>(bed: &mut Bed<F>, random: &mut SplitMix, keys: u64) {
    let mut entries = BTreeMap::new();
    for _ in 0..150 {
        let key = key(random.below(keys));
        let letter = b'a' + u8::try_from(random.below(26)).unwrap();
        let text = vec![letter; usize::try_from(random.below(40)).unwrap()];
        let (kind, value) = match random.below(10) {
            0..=2 => (Kind::Value, text),
            3 => (Kind::Tombstone, Vec::new()),
            _ => (Kind::Operands, text),
        };
        entries.insert(key, (kind, value));
    }
    for (key, (kind, value)) in &entries {
        match kind {
            Kind::Value => drop(bed.model.insert(key.clone(), value.clone())),
            Kind::Tombstone => drop(bed.model.remove(key)),
            _ => bed.model.entry(key.clone()).or_default().extend_from_slice(value),
        }
    }
    let entries = entries.into_iter().map(|(key, (kind, value))| {
        let value = if kind == Kind::Operands { encode_operand(&value) } else { value };
        OwnedEntry { key, kind, value }
    });
    let updates = bed.updates_of(entries.collect());
    let edit = bed.tree.apply(&bed.work, updates).unwrap();
    bed.publish(edit);
    bed.tree.check_invariants(false).unwrap();
}

/// Checks the first `keys` keys, in lookups that block and that wait for pages, and in scans.
#[track_caller]
pub fn check_operands<F: Family>(bed: &Bed<F>, keys: u64) {
    let full_merge = MergeOperators::default().full_merge("k", Some("append"));
    for number in 0..keys {
        let key = key(number);
        let expected = bed.model.get(&key).cloned();
        let hash = hash_key(&key);
        let value = |lookup: Lookup| match lookup {
            Lookup::Found(kind, value, _) => settle(&full_merge, &Entry { key: &key, kind, value: &value }),
            Lookup::Absent => None,
            Lookup::Waiting => panic!("a blocking query never returns Waiting"),
        };
        assert_eq!(value(bed.tree.get(&key, hash, Access::Blocking).unwrap()), expected);
        let (wanted, progress) = (RefCell::new(Vec::new()), Cell::new(LookupProgress::default()));
        let found = loop {
            match bed.tree.get(&key, hash, Access::Collecting(&wanted, &progress)).unwrap() {
                Lookup::Waiting => bed.tree.load_pages(&wanted.take()).unwrap(),
                found => break found,
            }
        };
        assert_eq!(value(found), expected);
    }
    for forward in [true, false] {
        let mut cursor = bed.tree.cursor();
        let mut found = Model::new();
        if forward { cursor.seek_first() } else { cursor.seek_last() }.unwrap();
        while let Some(entry) = cursor.entry() {
            if let Some(value) = settle(&full_merge, &entry) {
                assert!(found.insert(entry.key.to_vec(), value).is_none());
            }
            if forward { cursor.next() } else { cursor.prev() }.unwrap();
        }
        assert_eq!(found, bed.model);
    }
}
