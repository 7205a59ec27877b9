//! The common interface for reading sorted entries, from a memtable to a whole keyspace.

use crate::{Entry, Result};

/// A position in a sequence of entries sorted by key, each key at most once.
///
/// A new cursor is unpositioned: [`Cursor::entry`] is `None` until one of the moving calls succeeds. After an
/// error the cursor is unpositioned and must be positioned again.
pub trait Cursor {
    /// Moves to the first entry.
    fn seek_first(&mut self) -> Result<()>;
    /// Moves to the last entry.
    fn seek_last(&mut self) -> Result<()>;
    /// Moves to the first entry whose key is ≥ `key`.
    fn seek(&mut self, key: &[u8]) -> Result<()>;
    /// Moves to the last entry whose key is < `key`.
    fn seek_before(&mut self, key: &[u8]) -> Result<()>;
    /// Moves to the next entry. REQUIRES: positioned on an entry.
    fn next(&mut self) -> Result<()>;
    /// Moves to the previous entry. REQUIRES: positioned on an entry.
    fn prev(&mut self) -> Result<()>;
    /// Returns the current entry; `None` if unpositioned or past either end.
    fn entry(&self) -> Option<Entry<'_>>;
    /// Whether the entry is in a page that queries read repeatedly, as far as known: its merged result will
    /// stay in memory, too. A hint.
    fn is_warm(&self) -> bool {
        false
    }
    /// Approximate bytes of memory that it uses in addition to itself.
    fn memory_bytes(&self) -> usize {
        0
    }
}

impl<C: Cursor + ?Sized> Cursor for Box<C> {
    fn seek_first(&mut self) -> Result<()> {
        (**self).seek_first()
    }
    fn seek_last(&mut self) -> Result<()> {
        (**self).seek_last()
    }
    fn seek(&mut self, key: &[u8]) -> Result<()> {
        (**self).seek(key)
    }
    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        (**self).seek_before(key)
    }
    fn next(&mut self) -> Result<()> {
        (**self).next()
    }
    fn prev(&mut self) -> Result<()> {
        (**self).prev()
    }
    fn entry(&self) -> Option<Entry<'_>> {
        (**self).entry()
    }
    fn is_warm(&self) -> bool {
        (**self).is_warm()
    }
    fn memory_bytes(&self) -> usize {
        size_of_val(&**self) + (**self).memory_bytes()
    }
}
