//! Updates in a vector, in place of a frozen memtable.
//!
//! **Invariants**
//! - The entries are sorted by key, at most one for each key.

use std::sync::Arc;

use testudo_base::{Cursor, Entry, OwnedEntry, Result, Seqno, num::u64_of};
use testudo_contract::Updates;
use testudo_run::KeyBounds;

/// Sorted updates in a vector.
#[derive(Debug)]
pub struct VecUpdates {
    entries: Arc<Vec<OwnedEntry>>,
    sealed: Seqno,
}

impl VecUpdates {
    /// Creates updates of these entries, in key order, sealed at `sealed`.
    pub fn new(entries: Vec<OwnedEntry>, sealed: Seqno) -> Self {
        debug_assert!(entries.is_sorted_by(|one, next| one.key < next.key), "entries are in key order");
        Self { entries: Arc::new(entries), sealed }
    }

    /// Number of entries.
    pub fn count(&self) -> usize {
        self.entries.len()
    }
}

impl Updates for VecUpdates {
    fn cursor(&self) -> Box<dyn Cursor + Send> {
        Box::new(VecCursor { entries: Arc::clone(&self.entries), at: usize::MAX })
    }

    fn sealed_seqno(&self) -> Seqno {
        self.sealed
    }

    fn bytes(&self) -> u64 {
        self.bytes_between(None, None)
    }

    fn bytes_between(&self, low: Option<&[u8]>, high: Option<&[u8]>) -> u64 {
        let bounds = KeyBounds { low: low.map(<[u8]>::to_vec), high: high.map(<[u8]>::to_vec) };
        let inside = self.entries.iter().filter(|entry| bounds.contains(&entry.key));
        inside.map(|entry| u64_of(entry.as_entry().user_bytes())).sum()
    }

    fn key_range(&self) -> Option<(Vec<u8>, Vec<u8>)> {
        Some((self.entries.first()?.key.clone(), self.entries.last()?.key.clone()))
    }
}

#[derive(Debug)]
struct VecCursor {
    entries: Arc<Vec<OwnedEntry>>,
    /// Index of the entry; out of range if the cursor is unpositioned.
    at: usize,
}

impl VecCursor {
    fn first_from(&self, key: &[u8]) -> usize {
        self.entries.partition_point(|entry| entry.key.as_slice() < key)
    }
}

impl Cursor for VecCursor {
    fn seek_first(&mut self) -> Result<()> {
        self.at = 0;
        Ok(())
    }

    fn seek_last(&mut self) -> Result<()> {
        self.at = self.entries.len().wrapping_sub(1);
        Ok(())
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.at = self.first_from(key);
        Ok(())
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        self.at = self.first_from(key).wrapping_sub(1);
        Ok(())
    }

    fn next(&mut self) -> Result<()> {
        self.at += 1;
        Ok(())
    }

    fn prev(&mut self) -> Result<()> {
        self.at = self.at.wrapping_sub(1);
        Ok(())
    }

    fn entry(&self) -> Option<Entry<'_>> {
        self.entries.get(self.at).map(OwnedEntry::as_entry)
    }
}
