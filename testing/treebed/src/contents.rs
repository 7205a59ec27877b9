//! The expected contents of a tree, and the comparison with its answers.
//!
//! **Invariants**
//! - A model has values only: a key without one is absent or deleted.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
};

use testudo_base::{Cursor, Kind, OwnedEntry, checksum::hash_key};
use testudo_contract::Tree;
use testudo_run::{Access, Lookup};

/// Updates by key: values, or `None` for tombstones.
pub type Batch = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// Expected content of a tree: values by key.
pub type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Returns the entries of a batch.
pub fn entries_of(batch: &Batch) -> Vec<OwnedEntry> {
    let entry = |(key, value): (&Vec<u8>, &Option<Vec<u8>>)| OwnedEntry {
        key: key.clone(),
        kind: if value.is_some() { Kind::Value } else { Kind::Tombstone },
        value: value.clone().unwrap_or_default(),
    };
    batch.iter().map(entry).collect()
}

/// Applies a batch to the model.
pub fn put_into(model: &mut Model, batch: Batch) {
    for (key, value) in batch {
        match value {
            Some(value) => model.insert(key, value),
            None => model.remove(&key),
        };
    }
}

/// Moves a cursor to the next entry, in this direction, that is not a tombstone.
pub fn skip_tombstones(cursor: &mut dyn Cursor, forward: bool) {
    while cursor.entry().is_some_and(|entry| entry.kind == Kind::Tombstone) {
        if forward { cursor.next().unwrap() } else { cursor.prev().unwrap() }
    }
}

/// Returns the value of `key`, in a query that waits for pages and in one that blocks.
#[track_caller]
pub fn look_up(tree: &dyn Tree, key: &[u8]) -> Option<Vec<u8>> {
    let (wanted, progress) = (RefCell::new(Vec::new()), Cell::default());
    let hash = hash_key(key);
    let answer = loop {
        match tree.get(key, hash, Access::Collecting(&wanted, &progress)).unwrap() {
            Lookup::Waiting => tree.load_pages(&wanted.take()).unwrap(),
            answer => break answer,
        }
    };
    assert_eq!(answer, tree.get(key, hash, Access::Blocking).unwrap());
    match answer {
        Lookup::Found(Kind::Value, value, _) => Some(value),
        _ => None,
    }
}

/// Returns the key and value of the entry at the cursor.
fn seen(cursor: &dyn Cursor) -> Option<(&[u8], &[u8])> {
    cursor.entry().map(|entry| (entry.key, entry.value))
}

/// Returns the key and value of an expected entry.
fn of_model<'m>((key, value): (&'m Vec<u8>, &'m Vec<u8>)) -> (&'m [u8], &'m [u8]) {
    (key, value)
}

/// Checks that the tree has exactly the model's values: scans in both directions, and lookups and seeks of
/// `keys`.
#[track_caller]
pub fn check_contents(tree: &dyn Tree, model: &Model, keys: impl Iterator<Item = Vec<u8>>) {
    let mut cursor = tree.cursor();
    cursor.seek_first().unwrap();
    for expected in model.iter().map(of_model) {
        skip_tombstones(&mut *cursor, true);
        assert_eq!(seen(&*cursor), Some(expected));
        cursor.next().unwrap();
    }
    skip_tombstones(&mut *cursor, true);
    assert!(cursor.entry().is_none());
    cursor.seek_last().unwrap();
    for expected in model.iter().rev().map(of_model) {
        skip_tombstones(&mut *cursor, false);
        assert_eq!(seen(&*cursor), Some(expected));
        cursor.prev().unwrap();
    }
    for key in keys {
        assert_eq!(look_up(tree, &key), model.get(&key).cloned());
        cursor.seek(&key).unwrap();
        skip_tombstones(&mut *cursor, true);
        assert_eq!(seen(&*cursor), model.range(key.clone()..).next().map(of_model));
        cursor.seek_before(&key).unwrap();
        skip_tombstones(&mut *cursor, false);
        assert_eq!(seen(&*cursor), model.range(..key).next_back().map(of_model));
    }
}
