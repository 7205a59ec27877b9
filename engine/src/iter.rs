//! Iterating over a range of keys, from both ends.
//!
//! **Invariants**
//! - An iterator shows the state at its seqno; writes made later are invisible to it.
//! - It reads no further than it is asked for.
//! - After an error it returns `None` for good, unless it is positioned anew by [`Iter::seek`].

use std::{collections::Bound, ops::RangeBounds, sync::Arc};

use testudo_base::{Cursor, Kind, Result, key};
use testudo_memtable::MemtableCursor;
use testudo_run::{KeyBounds, MergeCursor};

use crate::{Slice, snapshot::Pinned};

/// A write buffer or the tree.
enum Source {
    Buffer(MemtableCursor),
    Tree(Box<dyn Cursor + Send>),
}

type Sources = MergeCursor<Source>;

/// Calls the same method of whichever source it is.
macro_rules! either {
    ($source:expr, $cursor:ident => $call:expr) => {
        match $source {
            Source::Buffer($cursor) => $call,
            Source::Tree($cursor) => $call,
        }
    };
}

impl Cursor for Source {
    fn seek_first(&mut self) -> Result<()> {
        either!(self, cursor => cursor.seek_first())
    }
    fn seek_last(&mut self) -> Result<()> {
        either!(self, cursor => cursor.seek_last())
    }
    fn seek(&mut self, key: &[u8]) -> Result<()> {
        either!(self, cursor => cursor.seek(key))
    }
    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        either!(self, cursor => cursor.seek_before(key))
    }
    fn next(&mut self) -> Result<()> {
        either!(self, cursor => cursor.next())
    }
    fn prev(&mut self) -> Result<()> {
        either!(self, cursor => cursor.prev())
    }
    fn entry(&self) -> Option<testudo_base::Entry<'_>> {
        either!(self, cursor => cursor.entry())
    }
}

/// A key and its value.
#[derive(Clone, PartialEq, Eq)]
pub struct Entry {
    key: Slice,
    value: Slice,
}

impl Entry {
    /// The key.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// The value. May read from the device once values are stored apart from their keys.
    pub fn value(&self) -> Result<Slice> {
        Ok(self.value.clone())
    }

    /// Key and value, without a copy.
    pub fn into_pair(self) -> Result<(Slice, Slice)> {
        Ok((self.key, self.value))
    }
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} = {:?}", self.key, self.value)
    }
}

/// An iterator over entries in key order, from both ends.
pub struct Iter {
    pinned: Arc<Pinned>,
    bounds: KeyBounds,
    front: Option<Sources>,
    /// `front` stands on the entry that was returned last; it moves on when the next one is asked for.
    front_is_returned: bool,
    back: Option<Sources>,
    back_is_returned: bool,
    /// Keys at or beyond it were returned from the back.
    back_key: Option<Vec<u8>>,
    has_ended: bool,
}

impl std::fmt::Debug for Iter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Iter(at {})", self.pinned.seqno)
    }
}

/// A copy of an entry that is no tombstone; operands as the value that they make.
fn owned(entry: &testudo_base::Entry<'_>, pinned: &Pinned) -> Result<Entry> {
    let value = match entry.kind {
        Kind::Value | Kind::Tombstone => entry.value.to_vec(),
        Kind::Operands | Kind::Unfolded => pinned.view.folding.fold(entry)?,
    };
    Ok(Entry { key: entry.key.to_vec().into(), value: value.into() })
}

impl Iter {
    pub(crate) fn new(pinned: Arc<Pinned>, bounds: KeyBounds) -> Self {
        let has_ended = bounds.is_empty();
        Self {
            pinned,
            bounds,
            front: None,
            front_is_returned: false,
            back: None,
            back_is_returned: false,
            back_key: None,
            has_ended,
        }
    }

    fn sources(&self) -> Sources {
        let view = &self.pinned.view;
        let mut sources = Vec::with_capacity(view.sealed.len() + 2);
        for buffer in view.buffers().filter(|buffer| buffer.first_commit().is_some()) {
            sources.push(Source::Buffer(buffer.table.cursor(self.pinned.seqno)));
        }
        sources.push(Source::Tree(view.tree.cursor()));
        MergeCursor::new(sources)
    }

    /// Moves the front to the first entry whose key is ≥ `key` and inside the range.
    pub fn seek(&mut self, key: &[u8]) -> Result<()> {
        let low = self.bounds.low.as_deref().filter(|low| *low > key).unwrap_or(key).to_vec();
        let mut sources = self.front.take().unwrap_or_else(|| self.sources());
        self.has_ended = true;
        sources.seek(&low)?;
        self.front = Some(sources);
        self.front_is_returned = false;
        self.has_ended = self.bounds.is_empty();
        Ok(())
    }

    fn forward(&mut self) -> Result<Option<Entry>> {
        let sources = match &mut self.front {
            Some(sources) => {
                if std::mem::take(&mut self.front_is_returned) {
                    sources.next()?;
                }
                sources
            }
            None => {
                let mut sources = self.sources();
                match &self.bounds.low {
                    Some(low) => sources.seek(low)?,
                    None => sources.seek_first()?,
                }
                self.front.insert(sources)
            }
        };
        while let Some(entry) = sources.entry() {
            let is_beyond = self.bounds.high.as_deref().is_some_and(|high| entry.key >= high)
                || self.back_key.as_deref().is_some_and(|back| entry.key >= back);
            if is_beyond {
                return Ok(None);
            }
            if entry.kind != Kind::Tombstone {
                self.front_is_returned = true;
                return owned(&entry, &self.pinned).map(Some);
            }
            sources.next()?;
        }
        Ok(None)
    }

    fn backward(&mut self) -> Result<Option<Entry>> {
        let sources = match &mut self.back {
            Some(sources) => {
                if std::mem::take(&mut self.back_is_returned) {
                    sources.prev()?;
                }
                sources
            }
            None => {
                let mut sources = self.sources();
                match &self.bounds.high {
                    Some(high) => sources.seek_before(high)?,
                    None => sources.seek_last()?,
                }
                self.back.insert(sources)
            }
        };
        let front = self.front.as_ref().filter(|_| self.front_is_returned).and_then(Cursor::entry);
        while let Some(entry) = sources.entry() {
            let is_beyond = self.bounds.low.as_deref().is_some_and(|low| entry.key < low)
                || front.is_some_and(|front| entry.key <= front.key);
            if is_beyond {
                return Ok(None);
            }
            if entry.kind != Kind::Tombstone {
                let back_key = self.back_key.get_or_insert_default();
                back_key.clear();
                back_key.extend_from_slice(entry.key);
                self.back_is_returned = true;
                return owned(&entry, &self.pinned).map(Some);
            }
            sources.prev()?;
        }
        Ok(None)
    }

    fn latch(&mut self, step: Result<Option<Entry>>) -> Option<Result<Entry>> {
        self.has_ended = !matches!(step, Ok(Some(_)));
        step.transpose()
    }
}

impl Iterator for Iter {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.has_ended {
            return None;
        }
        let step = self.forward();
        self.latch(step)
    }
}

impl DoubleEndedIterator for Iter {
    fn next_back(&mut self) -> Option<Self::Item> {
        if self.has_ended {
            return None;
        }
        let step = self.backward();
        self.latch(step)
    }
}

/// The bounds of a range, as half-open ones.
pub(crate) fn bounds_of<K: AsRef<[u8]>>(range: &impl RangeBounds<K>) -> KeyBounds {
    let after = |key: &K| {
        let mut next = key.as_ref().to_vec();
        next.push(0);
        next
    };
    let low = match range.start_bound() {
        Bound::Included(key) => Some(key.as_ref().to_vec()),
        Bound::Excluded(key) => Some(after(key)),
        Bound::Unbounded => None,
    };
    let high = match range.end_bound() {
        Bound::Included(key) => Some(after(key)),
        Bound::Excluded(key) => Some(key.as_ref().to_vec()),
        Bound::Unbounded => None,
    };
    KeyBounds { low, high }
}

/// The bounds of the keys that start with `prefix`.
pub(crate) fn bounds_of_prefix(prefix: &[u8]) -> KeyBounds {
    KeyBounds { low: (!prefix.is_empty()).then(|| prefix.to_vec()), high: key::prefix_end(prefix) }
}
