//! A cursor restricted to a range of keys.
//!
//! **Invariants**
//! - Bounds are checked once per move, not per access; from inside, only the bound ahead is checked.

use testudo_base::{Cursor, Entry, Result};

/// Keys from `low` (inclusive) to `high` (exclusive); `None` is unbounded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyBounds {
    /// Inclusive lower bound.
    pub low: Option<Vec<u8>>,
    /// Exclusive upper bound.
    pub high: Option<Vec<u8>>,
}

impl KeyBounds {
    /// Whether `key` is within the bounds.
    pub fn contains(&self, key: &[u8]) -> bool {
        self.low.as_deref().is_none_or(|low| low <= key) && self.high.as_deref().is_none_or(|high| key < high)
    }

    /// Whether the range is empty.
    pub fn is_empty(&self) -> bool {
        matches!((&self.low, &self.high), (Some(low), Some(high)) if low >= high)
            || matches!(&self.high, Some(high) if high.is_empty())
    }

    /// Returns the intersection of both ranges.
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

/// A cursor over the entries of another one within bounds.
#[derive(Debug)]
pub struct BoundedCursor<C> {
    cursor: C,
    bounds: KeyBounds,
    is_inside: bool,
}

impl<C: Cursor> BoundedCursor<C> {
    /// Restricts `cursor` to `bounds`.
    pub fn new(cursor: C, bounds: KeyBounds) -> Self {
        Self { cursor, bounds, is_inside: false }
    }

    /// Checks the bounds after one step from inside, towards `high` if `is_forward`, else towards `low`.
    #[inline]
    fn look_ahead(&mut self, moved: Result<()>, is_forward: bool) -> Result<()> {
        if !self.is_inside {
            return self.look(moved);
        }
        let KeyBounds { low, high } = &self.bounds;
        self.is_inside = moved.is_ok()
            && self.cursor.entry().is_some_and(|entry| match is_forward {
                true => high.as_deref().is_none_or(|high| entry.key < high),
                false => low.as_deref().is_none_or(|low| low <= entry.key),
            });
        moved
    }

    /// Checks the bounds after a move.
    #[inline]
    fn look(&mut self, moved: Result<()>) -> Result<()> {
        self.is_inside =
            moved.is_ok() && self.cursor.entry().is_some_and(|entry| self.bounds.contains(entry.key));
        moved
    }
}

impl<C: Cursor> Cursor for BoundedCursor<C> {
    fn seek_first(&mut self) -> Result<()> {
        let moved = match &self.bounds.low {
            Some(low) => self.cursor.seek(low),
            None => self.cursor.seek_first(),
        };
        self.look(moved)
    }

    fn seek_last(&mut self) -> Result<()> {
        let moved = match &self.bounds.high {
            Some(high) => self.cursor.seek_before(high),
            None => self.cursor.seek_last(),
        };
        self.look(moved)
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        let moved = match &self.bounds.low {
            Some(low) if key < low.as_slice() => self.cursor.seek(low),
            _ => self.cursor.seek(key),
        };
        self.look(moved)
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        let moved = match &self.bounds.high {
            Some(high) if key > high.as_slice() => self.cursor.seek_before(high),
            _ => self.cursor.seek_before(key),
        };
        self.look(moved)
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        let moved = self.cursor.next();
        self.look_ahead(moved, true)
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        let moved = self.cursor.prev();
        self.look_ahead(moved, false)
    }

    #[inline]
    fn entry(&self) -> Option<Entry<'_>> {
        if self.is_inside { self.cursor.entry() } else { None }
    }

    #[inline]
    fn is_warm(&self) -> bool {
        self.cursor.is_warm()
    }

    fn memory_bytes(&self) -> usize {
        self.cursor.memory_bytes()
    }
}
