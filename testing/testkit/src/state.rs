//! Expected content of a store: a map per keyspace and a fingerprint of all of them.
//!
//! **Invariants**
//! - The fingerprint is the wrapping sum of one hash per keyspace and per pair; it depends on the content
//!   only, not on its history.
//! - States share bytes; copying a state copies pointers.

use std::{
    collections::{BTreeMap, btree_map},
    ops::Bound,
    sync::Arc,
};

use testudo_base::{Result, checksum::checksum64};

use crate::{
    op::Slot,
    operator::merged,
    store::{Pair, RawScan},
};

/// Shared bytes.
pub type Bytes = Arc<[u8]>;

/// One change of the content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delta {
    /// A key is written or removed.
    Write {
        /// The keyspace.
        keyspace: Slot,
        /// The key.
        key: Bytes,
        /// The new value; `None` removes.
        value: Option<Bytes>,
    },
    /// An operand changes a key's value.
    Merge {
        /// The keyspace.
        keyspace: Slot,
        /// The key.
        key: Bytes,
        /// The operand.
        operand: Bytes,
    },
    /// An empty keyspace is created.
    Create(Slot),
    /// A keyspace is dropped with all its pairs.
    Drop(Slot),
}

/// A value and the hash of its pair.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Cell {
    value: Bytes,
    hash: u64,
}

type Map = BTreeMap<Bytes, Cell>;

/// The content of all keyspaces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    keyspaces: BTreeMap<Slot, Map>,
    fingerprint: u64,
}

impl State {
    /// Equal contents have equal fingerprints; different contents almost never do.
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// Whether the keyspace exists.
    pub fn has(&self, keyspace: Slot) -> bool {
        self.keyspaces.contains_key(&keyspace)
    }

    /// All keyspaces.
    pub fn slots(&self) -> Vec<Slot> {
        self.keyspaces.keys().copied().collect()
    }

    /// Number of pairs in all keyspaces.
    pub fn len(&self) -> usize {
        self.keyspaces.values().map(Map::len).sum()
    }

    /// Whether no keyspace holds a pair.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reads one key.
    pub fn get(&self, keyspace: Slot, key: &[u8]) -> Option<&Bytes> {
        Some(&self.keyspaces.get(&keyspace)?.get(key)?.value)
    }

    /// Makes one change.
    pub fn apply(&mut self, delta: &Delta) {
        match delta {
            Delta::Create(keyspace) => {
                if let btree_map::Entry::Vacant(vacant) = self.keyspaces.entry(*keyspace) {
                    vacant.insert(Map::new());
                    self.fingerprint = self.fingerprint.wrapping_add(hash_of(&[], *keyspace, None));
                }
            }
            Delta::Drop(keyspace) => {
                if let Some(map) = self.keyspaces.remove(keyspace) {
                    let pairs = map
                        .values()
                        .fold(hash_of(&[], *keyspace, None), |sum, cell| sum.wrapping_add(cell.hash));
                    self.fingerprint = self.fingerprint.wrapping_sub(pairs);
                }
            }
            Delta::Write { keyspace, key, value } => self.write(*keyspace, key, value.as_ref()),
            Delta::Merge { keyspace, key, operand } => {
                let existing = self.get(*keyspace, key).map(|value| &**value);
                let value = merged(*keyspace, existing, operand).into();
                self.write(*keyspace, key, Some(&value));
            }
        }
    }

    fn write(&mut self, keyspace: Slot, key: &Bytes, value: Option<&Bytes>) {
        let Some(map) = self.keyspaces.get_mut(&keyspace) else {
            return;
        };
        let old = match value {
            Some(value) => {
                let hash = hash_of(key, keyspace, Some(value));
                self.fingerprint = self.fingerprint.wrapping_add(hash);
                map.insert(Arc::clone(key), Cell { value: Arc::clone(value), hash })
            }
            None => map.remove(key),
        };
        self.fingerprint = self.fingerprint.wrapping_sub(old.map_or(0, |cell| cell.hash));
    }

    /// Expected result of a scan; empty for a missing keyspace.
    pub fn scan<'a>(&'a self, keyspace: Slot, scan: &RawScan) -> Vec<(&'a [u8], &'a [u8])> {
        let Some(map) = self.keyspaces.get(&keyspace) else {
            return Vec::new();
        };
        let (lower, upper) = bounds_of(scan);
        let seek = |walk: &mut Walk<'a>, key: &[u8]| {
            let target = Bound::Included(key.to_vec());
            let inside = match &lower {
                Bound::Included(lower) | Bound::Excluded(lower) => key > lower.as_slice(),
                Bound::Unbounded => true,
            };
            walk.pairs = pairs_of(map, if inside { &target } else { &lower }, &walk.upper);
            Ok(())
        };
        let pairs = pairs_of(map, &lower, &upper);
        scan.collect(Walk { pairs, upper }, seek).unwrap_or_default()
    }

    /// Describes some differences to another state, to explain a failure.
    pub fn explain_difference(&self, other: &Self) -> String {
        let mut lines = Vec::new();
        if self.slots() != other.slots() {
            lines.push(format!("keyspaces {:?} instead of {:?}", other.slots(), self.slots()));
        }
        let empty = Map::new();
        for (slot, map) in &self.keyspaces {
            let found = other.keyspaces.get(slot).unwrap_or(&empty);
            let mut keys: Vec<_> = map.keys().chain(found.keys()).collect();
            keys.sort_unstable();
            keys.dedup();
            let differing = keys.into_iter().filter(|key| map.get(*key) != found.get(*key));
            lines.extend(differing.take(5).map(|key| {
                let (expected, found) = (map.get(key), found.get(key));
                let show = |cell: Option<&Cell>| show_value(cell.map(|cell| &*cell.value));
                format!(
                    "keyspace {slot}, key {}: expected {}, found {}",
                    show_key(key),
                    show(expected),
                    show(found)
                )
            }));
        }
        lines.truncate(20);
        lines.join("\n")
    }
}

/// A movable walk over a map.
struct Walk<'a> {
    /// `None` if the bounds exclude every key.
    pairs: Option<btree_map::Range<'a, Bytes, Cell>>,
    /// Upper bound; after a step from the back, that key, exclusive.
    upper: Bound<Vec<u8>>,
}

impl<'a> Iterator for Walk<'a> {
    type Item = Result<(&'a [u8], &'a [u8])>;

    fn next(&mut self) -> Option<Self::Item> {
        self.pairs.as_mut()?.next().map(|(key, cell)| Ok((&**key, &*cell.value)))
    }
}

impl DoubleEndedIterator for Walk<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        let (key, cell) = self.pairs.as_mut()?.next_back()?;
        self.upper = Bound::Excluded(key.to_vec());
        Some(Ok((&**key, &*cell.value)))
    }
}

/// The pairs between the bounds.
fn pairs_of<'a>(
    map: &'a Map,
    lower: &Bound<Vec<u8>>,
    upper: &Bound<Vec<u8>>,
) -> Option<btree_map::Range<'a, Bytes, Cell>> {
    let bounds = (lower.as_ref().map(Vec::as_slice), upper.as_ref().map(Vec::as_slice));
    (!is_inverted(bounds)).then(|| map.range::<[u8], _>(bounds))
}

impl FromIterator<(Slot, Vec<Pair>)> for State {
    fn from_iter<T: IntoIterator<Item = (Slot, Vec<Pair>)>>(keyspaces: T) -> Self {
        let mut state = Self::default();
        for (keyspace, pairs) in keyspaces {
            state.apply(&Delta::Create(keyspace));
            for (key, value) in pairs {
                state.write(keyspace, &key.into(), Some(&value.into()));
            }
        }
        state
    }
}

/// Formats a key, truncated.
pub fn show_key(key: &[u8]) -> String {
    let shown = String::from_utf8_lossy(&key[..key.len().min(60)]).escape_debug().to_string();
    if key.len() > 60 { format!("{shown:?}… ({} bytes)", key.len()) } else { format!("\"{shown}\"") }
}

/// Formats a value, truncated.
pub fn show_value(value: Option<&[u8]>) -> String {
    match value {
        None => "nothing".into(),
        Some(value) => format!("{} bytes, hash {:08x}", value.len(), checksum64(value, 0) >> 32),
    }
}

/// Returns lower and upper bound of a scan, with the prefix resolved.
fn bounds_of(scan: &RawScan) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    let Some(prefix) = &scan.prefix else {
        return (scan.lower.clone(), scan.upper.clone());
    };
    let mut successor = prefix.clone();
    while let Some(last) = successor.pop() {
        if last < u8::MAX {
            successor.push(last + 1);
            return (Bound::Included(prefix.clone()), Bound::Excluded(successor));
        }
    }
    (Bound::Included(prefix.clone()), Bound::Unbounded)
}

/// Whether no key can lie between the bounds, in the cases where `BTreeMap::range` panics.
fn is_inverted(bounds: (Bound<&[u8]>, Bound<&[u8]>)) -> bool {
    match bounds {
        (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
        (Bound::Included(lower), Bound::Included(upper)) => lower > upper,
        (
            Bound::Included(lower) | Bound::Excluded(lower),
            Bound::Included(upper) | Bound::Excluded(upper),
        ) => lower >= upper,
    }
}

/// Hash of a pair, or of a keyspace.
fn hash_of(key: &[u8], keyspace: Slot, value: Option<&[u8]>) -> u64 {
    let seed = checksum64(key, u64::from(keyspace) << 1 | u64::from(value.is_some()));
    checksum64(value.unwrap_or_default(), seed)
}

#[cfg(test)]
mod tests;
