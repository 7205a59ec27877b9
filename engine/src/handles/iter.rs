//! Iterating over a range of keys, from both ends.
//!
//! **Invariants**
//! - An iterator shows the state at its seqno; writes made later are invisible to it.
//! - It reads no further than it is asked for.
//! - What is left are the keys that are not below `low` nor returned by the front since it was set, and below
//!   `back_key`.
//! - After an error it returns `None` for good, unless it is positioned anew by [`Iter::seek`].

use std::{iter::Take, sync::Arc};

use testudo_base::{Cursor, Error, Kind, Result, num::u64_of, operands_format::Stack, planted};
use testudo_memtable::MemtableCursor;
use testudo_run::{KeyBounds, MergeCursor, ScanLimits};

use crate::{Slice, handles::snapshot::Pinned, read::stray_reference};

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

/// A key and its value, or its operands where they cannot be merged.
#[derive(Clone)]
pub struct Entry {
    key: Slice,
    value: std::result::Result<Slice, Box<Unmerged>>,
}

/// What a key has where there is no telling its value.
#[derive(Clone)]
struct Unmerged {
    kind: Kind,
    stack: Vec<u8>,
    why: Error,
}

/// Operands that wait for a merge operator, and what they change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaseWithOperands<'e> {
    /// The value below them; `None`: there is none.
    pub base: Option<&'e [u8]>,
    /// Oldest first; at least one.
    pub operands: Vec<&'e [u8]>,
}

impl Entry {
    /// The key.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// The value. May read from the device once values are stored apart from their keys.
    ///
    /// Errors, which leave the iterator as it is: what the merge operator says of the key's operands,
    /// `Invalid` if it panics or makes a value beyond 4 GiB; `Unsupported` if it is not registered;
    /// `Corruption` if the operands contradict themselves. [`Entry::base_with_operands`] shows what is there.
    pub fn value(&self) -> Result<Slice> {
        self.value.clone().map_err(|unmerged| unmerged.why)
    }

    /// Key and value, without a copy.
    ///
    /// Errors: as [`Entry::value`].
    pub fn into_pair(self) -> Result<(Slice, Slice)> {
        Ok((self.key, self.value.map_err(|unmerged| unmerged.why)?))
    }

    /// What the key has, as it is stored, where [`Entry::value`] is an error; `None` where it is not.
    pub fn base_with_operands(&self) -> Option<BaseWithOperands<'_>> {
        let unmerged = self.value.as_ref().err()?;
        let Stack { existing, operands } = Stack::decode(unmerged.kind, &unmerged.stack).ok()?;
        Some(BaseWithOperands { base: existing, operands })
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        let same_value = match (&self.value, &other.value) {
            (Ok(value), Ok(of_other)) => value == of_other,
            (Err(unmerged), Err(of_other)) => {
                (unmerged.kind, &unmerged.stack) == (of_other.kind, &of_other.stack)
            }
            _ => false,
        };
        same_value && self.key == other.key
    }
}

impl Eq for Entry {}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.value {
            Ok(value) => write!(f, "{:?} = {value:?}", self.key),
            Err(unmerged) => write!(f, "{:?}: {}", self.key, unmerged.why),
        }
    }
}

/// An iterator over entries in key order, from both ends.
///
/// An entry of which the value cannot be told, because its merge operator is not registered or refuses, comes
/// as any other: only its [`Entry::value`] is an error.
pub struct Iter {
    pinned: Arc<Pinned>,
    bounds: KeyBounds,
    /// Where what is left begins, but for what the front has returned: the start of the range, or where it
    /// was sought.
    low: Option<Vec<u8>>,
    front: Option<Sources>,
    /// `front` stands on the entry that was returned last; it moves on when the next one is asked for.
    front_is_returned: bool,
    back: Option<Sources>,
    back_is_returned: bool,
    /// Keys at or beyond it were returned from the back.
    back_key: Option<Vec<u8>>,
    /// At most so many entries will be asked for, as far as is known.
    expected_entries: Option<u64>,
    has_ended: bool,
}

impl std::fmt::Debug for Iter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Iter(at {})", self.pinned.seqno)
    }
}

/// A copy of an entry that is no tombstone; operands as the value that they make, if they make one.
fn owned(entry: &testudo_base::Entry<'_>, pinned: &Pinned) -> Entry {
    let value = match entry.kind {
        Kind::Value | Kind::Tombstone => Ok(entry.value.to_vec()),
        Kind::Operands | Kind::Unmerged => pinned.view.full_merge.merge(entry),
        Kind::Reference | Kind::UnmergedReference | Kind::Referred => Err(stray_reference()),
    };
    let unmerged = |why| Box::new(Unmerged { kind: entry.kind, stack: entry.value.to_vec(), why });
    Entry { key: entry.key.to_vec().into(), value: value.map(Slice::from).map_err(unmerged) }
}

impl Iter {
    pub(crate) fn new(pinned: Arc<Pinned>, bounds: KeyBounds) -> Self {
        let has_ended = bounds.is_empty();
        Self {
            pinned,
            low: bounds.low.clone(),
            bounds,
            front: None,
            front_is_returned: false,
            back: None,
            back_is_returned: false,
            back_key: None,
            expected_entries: None,
            has_ended,
        }
    }

    /// The first `count` entries that are left, as [`Iterator::take`] gives them. The store reads what these
    /// take, in few large pieces, where it would else read ahead by how far an iterator has come.
    ///
    /// ```
    /// # fn main() -> testudo::Result<()> {
    /// # let directory = std::env::temp_dir().join(format!("testudo-take-{}", std::process::id()));
    /// # let db = testudo::Db::builder(&directory).temporary().open()?;
    /// # let k = db.keyspace("letters", testudo::KeyspaceOptions::default)?;
    /// for letter in ["a", "b", "c", "d"] {
    ///     k.insert(letter, "")?;
    /// }
    /// let first = k.range("b"..)?.take(2).collect::<testudo::Result<Vec<_>>>()?;
    /// assert_eq!((first[0].key(), first[1].key(), first.len()), (&b"b"[..], &b"c"[..], 2));
    /// # Ok(())
    /// # }
    /// ```
    pub fn take(mut self, count: usize) -> Take<Self> {
        self.expected_entries = (count < usize::MAX).then(|| u64_of(count));
        Iterator::take(self, count)
    }

    fn sources(&self, limits: &ScanLimits) -> Sources {
        let view = &self.pinned.view;
        let mut sources = Vec::with_capacity(view.sealed.len() + 2);
        for buffer in view.buffers().filter(|buffer| buffer.first_commit().is_some()) {
            sources.push(Source::Buffer(buffer.table.cursor(self.pinned.seqno)));
        }
        sources.push(Source::Tree(view.tree.cursor_within(limits)));
        MergeCursor::new(sources)
    }

    /// Moves the front to the first entry whose key is ≥ `key` and inside the range, forwards or backwards.
    ///
    /// What is left then, for both ends, are the entries from there up to those that the back has returned:
    /// `next` takes the first of them, `next_back` the last. So entries below `key` come from neither end,
    /// unless the front is moved back by another seek; what the front has returned comes again if it lies
    /// there; what the back has returned never does. An iterator that has ended, or has failed, goes on where
    /// it is moved to.
    ///
    /// ```
    /// # fn main() -> testudo::Result<()> {
    /// # let directory = std::env::temp_dir().join(format!("testudo-seek-{}", std::process::id()));
    /// # let db = testudo::Db::builder(&directory).temporary().open()?;
    /// let k = db.keyspace("letters", testudo::KeyspaceOptions::default)?;
    /// for letter in ["a", "b", "c", "d", "e", "f"] {
    ///     k.insert(letter, "")?;
    /// }
    /// let mut iter = k.iter()?;
    /// iter.seek(b"c")?;
    /// assert_eq!(iter.next_back().unwrap()?.key(), b"f");
    /// assert_eq!(iter.next().unwrap()?.key(), b"c");
    /// iter.seek(b"b")?;
    /// let left: Vec<_> = iter.rev().map(|entry| entry.unwrap().key().to_vec()).collect();
    /// assert_eq!(left, [b"e", b"d", b"c", b"b"]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Errors: `Closed`; `Corruption` with file and offset; `Io`. After one nothing is left, until the next
    /// seek.
    pub fn seek(&mut self, key: &[u8]) -> Result<()> {
        let low = self.bounds.low.as_deref().filter(|low| *low > key).unwrap_or(key).to_vec();
        let mut sources = self.front.take().unwrap_or_else(|| self.sources(&self.limits()));
        self.has_ended = true;
        self.pinned.store().read(|| sources.seek(&low))?;
        self.low = Some(low);
        self.front = Some(sources);
        self.front_is_returned = false;
        self.has_ended = self.bounds.is_empty();
        Ok(())
    }

    /// How far the front will go, as far as that is known.
    fn limits(&self) -> ScanLimits {
        ScanLimits { entries: self.expected_entries, end: self.bounds.high.as_deref().map(Arc::from) }
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
                let mut sources = self.sources(&self.limits());
                match &self.low {
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
                return Ok(Some(owned(&entry, &self.pinned)));
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
                let mut sources = self.sources(&ScanLimits::default());
                // After an error it goes on below what it has returned.
                match self.back_key.as_ref().or(self.bounds.high.as_ref()) {
                    Some(high) => sources.seek_before(high)?,
                    None => sources.seek_last()?,
                }
                self.back.insert(sources)
            }
        };
        let low = if planted!("seek-ignored-from-the-back") { &self.bounds.low } else { &self.low };
        let front = self.front.as_ref().filter(|_| self.front_is_returned).and_then(Cursor::entry);
        while let Some(entry) = sources.entry() {
            let is_beyond = low.as_deref().is_some_and(|low| entry.key < low)
                || front.is_some_and(|front| entry.key <= front.key);
            if is_beyond {
                return Ok(None);
            }
            if entry.kind != Kind::Tombstone {
                let back_key = self.back_key.get_or_insert_default();
                back_key.clear();
                back_key.extend_from_slice(entry.key);
                self.back_is_returned = true;
                return Ok(Some(owned(&entry, &self.pinned)));
            }
            sources.prev()?;
        }
        Ok(None)
    }

    /// One step of either end.
    fn step(&mut self, step: impl FnOnce(&mut Self) -> Result<Option<Entry>>) -> Option<Result<Entry>> {
        if self.has_ended {
            return None;
        }
        let step = self.pinned.store().check_open().and_then(|()| step(self));
        self.has_ended = !matches!(step, Ok(Some(_)));
        step.map_err(|error| self.pinned.store().closed_or(error)).transpose()
    }
}

impl Iterator for Iter {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step(Self::forward)
    }
}

impl DoubleEndedIterator for Iter {
    fn next_back(&mut self) -> Option<Self::Item> {
        let step = self.step(Self::backward);
        if matches!(step, Some(Err(_))) {
            // A cursor that failed stands nowhere.
            self.back = None;
            self.back_is_returned = false;
        }
        step
    }
}
