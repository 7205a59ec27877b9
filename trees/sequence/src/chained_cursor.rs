//! A cursor over consecutive parts in key order, each opened when the cursor reaches it.
//!
//! **Invariants**
//! - At most one part is open.

use testudo_base::{Cursor, Entry, Result};

/// Parts with disjoint, increasing key ranges.
pub trait Parts {
    /// Number of parts.
    fn count(&self) -> usize;
    /// Returns the first part that may hold a key ≥ `key`; `count()` if there is none.
    fn find(&self, key: &[u8]) -> usize;
    /// Returns a cursor over a part; `None` if it is empty.
    fn open(&self, part: usize) -> Result<Option<Box<dyn Cursor + Send>>>;
}

/// A cursor over the concatenated parts.
pub struct ChainCursor<P> {
    parts: P,
    open: Option<(usize, Box<dyn Cursor + Send>)>,
}

impl<P: Parts> ChainCursor<P> {
    /// Creates an unpositioned cursor.
    pub fn new(parts: P) -> Self {
        Self { parts, open: None }
    }

    /// Opens `part` unless it is the open one; `false` if it is empty.
    fn ensure_open(&mut self, part: usize) -> Result<bool> {
        if self.open.as_ref().is_some_and(|(open, _)| *open == part) {
            return Ok(true);
        }
        debug_assert!(part < self.parts.count(), "a part of the chain");
        self.open = self.parts.open(part)?.map(|cursor| (part, cursor));
        Ok(self.open.is_some())
    }

    fn stands(&self) -> bool {
        self.open.as_ref().is_some_and(|(_, cursor)| cursor.entry().is_some())
    }

    /// Moves to the first entry of `part` or of the nearest non-empty one after it.
    fn first_from(&mut self, part: usize) -> Result<()> {
        for part in part..self.parts.count() {
            if self.ensure_open(part)?
                && let Some((_, cursor)) = &mut self.open
            {
                cursor.seek_first()?;
                if self.stands() {
                    return Ok(());
                }
            }
        }
        self.open = None;
        Ok(())
    }

    /// Moves to the last entry of the nearest non-empty part before `part`.
    fn last_before(&mut self, part: usize) -> Result<()> {
        for part in (0..part).rev() {
            if self.ensure_open(part)?
                && let Some((_, cursor)) = &mut self.open
            {
                cursor.seek_last()?;
                if self.stands() {
                    return Ok(());
                }
            }
        }
        self.open = None;
        Ok(())
    }
}

impl<P: Parts> Cursor for ChainCursor<P> {
    fn seek_first(&mut self) -> Result<()> {
        self.first_from(0)
    }

    fn seek_last(&mut self) -> Result<()> {
        self.last_before(self.parts.count())
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        let part = self.parts.find(key);
        if part < self.parts.count()
            && self.ensure_open(part)?
            && let Some((_, cursor)) = &mut self.open
        {
            cursor.seek(key)?;
            if self.stands() {
                return Ok(());
            }
        }
        self.first_from(part + 1)
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        let part = self.parts.find(key);
        if part < self.parts.count()
            && self.ensure_open(part)?
            && let Some((_, cursor)) = &mut self.open
        {
            cursor.seek_before(key)?;
            if self.stands() {
                return Ok(());
            }
        }
        self.last_before(part)
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        let Some((part, cursor)) = &mut self.open else { return Ok(()) };
        cursor.next()?;
        if cursor.entry().is_some() {
            return Ok(());
        }
        let next = *part + 1;
        self.first_from(next)
    }

    fn prev(&mut self) -> Result<()> {
        let Some((part, cursor)) = &mut self.open else { return Ok(()) };
        cursor.prev()?;
        if cursor.entry().is_some() {
            return Ok(());
        }
        let part = *part;
        self.last_before(part)
    }

    #[inline]
    fn entry(&self) -> Option<Entry<'_>> {
        self.open.as_ref().and_then(|(_, cursor)| cursor.entry())
    }

    #[inline]
    fn is_warm(&self) -> bool {
        self.open.as_ref().is_some_and(|(_, cursor)| cursor.is_warm())
    }

    fn memory_bytes(&self) -> usize {
        self.open.as_ref().map_or(0, |(_, cursor)| cursor.memory_bytes())
    }
}
