//! A cursor that sees only a range of keys of another one.

use testudo_base::{Cursor, Entry, Result};

/// The keys from `low` (included) to `high` (excluded); `None` is open.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyBounds {
    /// The least key inside.
    pub low: Option<Vec<u8>>,
    /// The least key beyond.
    pub high: Option<Vec<u8>>,
}

impl KeyBounds {
    /// Whether `key` is inside.
    pub fn contains(&self, key: &[u8]) -> bool {
        self.low.as_deref().is_none_or(|low| low <= key) && self.high.as_deref().is_none_or(|high| key < high)
    }

    /// Whether no key at all is inside.
    pub fn is_empty(&self) -> bool {
        matches!((&self.low, &self.high), (Some(low), Some(high)) if low >= high)
            || matches!(&self.high, Some(high) if high.is_empty())
    }

    /// The keys inside both.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let low = match (&self.low, &other.low) {
            (Some(a), Some(b)) => Some(a.max(b).clone()),
            (a, b) => a.as_ref().or(b.as_ref()).cloned(),
        };
        let high = match (&self.high, &other.high) {
            (Some(a), Some(b)) => Some(a.min(b).clone()),
            (a, b) => a.as_ref().or(b.as_ref()).cloned(),
        };
        Self { low, high }
    }
}

/// A cursor over the entries of another one that lie inside bounds.
#[derive(Debug)]
pub struct BoundedCursor<C> {
    cursor: C,
    bounds: KeyBounds,
}

impl<C: Cursor> BoundedCursor<C> {
    /// Sees of `cursor` only what lies inside `bounds`.
    pub fn new(cursor: C, bounds: KeyBounds) -> Self {
        Self { cursor, bounds }
    }
}

impl<C: Cursor> Cursor for BoundedCursor<C> {
    fn seek_first(&mut self) -> Result<()> {
        match &self.bounds.low {
            Some(low) => self.cursor.seek(low),
            None => self.cursor.seek_first(),
        }
    }

    fn seek_last(&mut self) -> Result<()> {
        match &self.bounds.high {
            Some(high) => self.cursor.seek_before(high),
            None => self.cursor.seek_last(),
        }
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        match &self.bounds.low {
            Some(low) if key < low.as_slice() => self.cursor.seek(low),
            _ => self.cursor.seek(key),
        }
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        match &self.bounds.high {
            Some(high) if key > high.as_slice() => self.cursor.seek_before(high),
            _ => self.cursor.seek_before(key),
        }
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        self.cursor.next()
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        self.cursor.prev()
    }

    #[inline]
    fn entry(&self) -> Option<Entry<'_>> {
        self.cursor.entry().filter(|entry| self.bounds.contains(entry.key))
    }
}
