//! Sorted entries in memory, and a cursor over a range of them.
//!
//! **Invariants**
//! - Keys are strictly increasing; entries are copied into one buffer.

use std::ops::Range;

use testudo_base::{
    Cursor, Entry, Kind, Result,
    num::{u32_of, u64_of, usize_of},
};

#[derive(Clone, Copy, Debug)]
struct Place {
    start: u32,
    key_bytes: u32,
    value_bytes: u32,
    kind: Kind,
}

/// Sorted entries.
#[derive(Clone, Debug, Default)]
pub struct EntryList {
    bytes: Vec<u8>,
    places: Vec<Place>,
    user_bytes: u64,
}

impl EntryList {
    /// Creates an empty list with memory for the entries of `some`, and `more` of about their size.
    pub fn with_room_for(some: &Self, more: usize) -> Self {
        let mean_bytes = some.bytes.len() / some.len().max(1);
        Self {
            bytes: Vec::with_capacity(some.bytes.len() + mean_bytes * more),
            places: Vec::with_capacity(some.places.len() + more),
            user_bytes: 0,
        }
    }

    /// Adds an entry. REQUIRES: its key is greater than all previous ones; the total is below 4 GiB.
    pub fn push(&mut self, entry: &Entry<'_>) {
        debug_assert!(self.last().is_none_or(|last| last.key < entry.key), "keys must increase");
        self.places.push(Place {
            start: u32_of(self.bytes.len()),
            key_bytes: u32_of(entry.key.len()),
            value_bytes: u32_of(entry.value.len()),
            kind: entry.kind,
        });
        self.bytes.extend_from_slice(entry.key);
        self.bytes.extend_from_slice(entry.value);
        self.user_bytes += u64_of(entry.user_bytes());
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Returns the entry at `index`.
    #[inline]
    pub fn get(&self, index: usize) -> Option<Entry<'_>> {
        let Place { start, key_bytes, value_bytes, kind } = *self.places.get(index)?;
        let start = usize_of(u64::from(start));
        let value = start + usize_of(u64::from(key_bytes));
        let end = value + usize_of(u64::from(value_bytes));
        debug_assert!(end <= self.bytes.len(), "the entry is in the buffer");
        Some(Entry { key: &self.bytes[start..value], kind, value: &self.bytes[value..end] })
    }

    /// Returns the first entry.
    pub fn first(&self) -> Option<Entry<'_>> {
        self.get(0)
    }

    /// Returns the last entry.
    pub fn last(&self) -> Option<Entry<'_>> {
        self.get(self.places.len().checked_sub(1)?)
    }

    /// Iterates over all entries.
    pub fn iter(&self) -> impl Iterator<Item = Entry<'_>> {
        (0..self.len()).filter_map(|index| self.get(index))
    }

    /// Number of tombstones.
    pub fn tombstones(&self) -> u64 {
        u64_of(self.places.iter().filter(|place| place.kind == Kind::Tombstone).count())
    }

    /// Total bytes of keys and values.
    pub fn user_bytes(&self) -> u64 {
        self.user_bytes
    }

    /// Removes all entries but keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.places.clear();
        self.user_bytes = 0;
    }

    /// Number of keys less than `key`.
    pub fn count_before(&self, key: &[u8]) -> usize {
        let key_of = |place: &Place| {
            let start = usize_of(u64::from(place.start));
            &self.bytes[start..start + usize_of(u64::from(place.key_bytes))]
        };
        self.places.partition_point(|place| key_of(place) < key)
    }

    /// Returns a cursor over the entries with these indexes.
    pub fn cursor(&self, range: Range<usize>) -> EntryListCursor<'_> {
        debug_assert!(range.end <= self.len(), "the range must be within the list");
        EntryListCursor { list: self, range, at: None }
    }
}

/// A cursor over a range of a list.
#[derive(Clone, Debug)]
pub struct EntryListCursor<'a> {
    list: &'a EntryList,
    range: Range<usize>,
    at: Option<usize>,
}

impl EntryListCursor<'_> {
    fn stand_on(&mut self, at: Option<usize>) -> Result<()> {
        self.at = at.filter(|at| self.range.contains(at));
        Ok(())
    }
}

impl Cursor for EntryListCursor<'_> {
    fn seek_first(&mut self) -> Result<()> {
        self.stand_on(Some(self.range.start))
    }

    fn seek_last(&mut self) -> Result<()> {
        self.stand_on(self.range.end.checked_sub(1))
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.stand_on(Some(self.list.count_before(key).max(self.range.start)))
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        self.stand_on(self.list.count_before(key).min(self.range.end).checked_sub(1))
    }

    fn next(&mut self) -> Result<()> {
        self.stand_on(self.at.map(|at| at + 1))
    }

    fn prev(&mut self) -> Result<()> {
        self.stand_on(self.at.and_then(|at| at.checked_sub(1)))
    }

    fn entry(&self) -> Option<Entry<'_>> {
        self.at.and_then(|at| self.list.get(at))
    }
}

#[cfg(test)]
mod tests;
