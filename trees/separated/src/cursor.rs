//! A cursor over a tree that reads the values to which entries refer.
//!
//! A scan that goes forward takes entries ahead and reads their values together, in the order of their
//! places: values that were written together lie side by side, and others are under way at once. How many it
//! takes doubles as it goes on, up to a bound in bytes, and is what the scan is for where that is known.
//!
//! **Invariants**
//! - It shows no references. After an error it stands nowhere.
//! - An error of an entry that was only taken ahead shows when the cursor comes there.
//! - While entries are taken ahead, the tree's cursor stands on the last of them, or nowhere.

use std::collections::VecDeque;

use testudo_base::{
    Cursor, Entry, Error, Kind, OwnedEntry, Result, ValueReference,
    num::{u64_of, usize_of},
};
use testudo_run::{Access, ScanLimits};
use testudo_storage::StreamLease;
use testudo_values::SegmentSet;

use crate::resolve::{damaged, resolve, value_in_place};

/// Entries that are taken ahead at most.
const AHEAD_ENTRIES: u64 = 64;
/// Bytes of values that are read together at most …
const AHEAD_BYTES: u64 = 256 << 10;
/// … and without a lease.
const UNLEASED_BYTES: u64 = 64 << 10;

/// The cursor.
pub(crate) struct ValueCursor {
    tree: Box<dyn Cursor + Send>,
    /// Those of the state that the cursor is over.
    segments: SegmentSet,
    limits: ScanLimits,
    /// What stands in the place of the reference that the tree's cursor stands on, if none are taken ahead.
    read: Option<(Kind, Vec<u8>)>,
    ahead: Ahead,
    /// How many entries are to be taken ahead next.
    count: u64,
    /// Entries that were passed since the last seek.
    passed: u64,
    has_failed: bool,
}

/// Entries that were taken ahead; the first is the current one.
#[derive(Default)]
struct Ahead {
    entries: VecDeque<Taken>,
    /// Why the tree's cursor could not go on behind them.
    failure: Option<Error>,
    /// Nothing comes behind them.
    has_ended: bool,
    /// Memory for their values.
    _lease: Option<StreamLease>,
}

/// An entry, with its value unless that was not read yet.
struct Taken {
    entry: OwnedEntry,
    /// Where the value is that is to be read.
    reference: Option<ValueReference>,
}

impl Taken {
    /// Puts `value` in the place of the reference.
    fn put(&mut self, value: &[u8]) -> Result<()> {
        let Entry { kind, value: bytes, .. } = self.entry.as_entry();
        (self.entry.kind, self.entry.value) = value_in_place(kind, bytes, value)?;
        self.reference = None;
        Ok(())
    }
}

fn owned(entry: &Entry<'_>) -> OwnedEntry {
    OwnedEntry { key: entry.key.to_vec(), kind: entry.kind, value: entry.value.to_vec() }
}

fn refers(kind: Kind) -> bool {
    matches!(kind, Kind::Reference | Kind::UnmergedReference)
}

impl ValueCursor {
    /// Over `tree`, whose values are in `segments`, for a scan within `limits`.
    pub(crate) fn new(tree: Box<dyn Cursor + Send>, segments: SegmentSet, limits: &ScanLimits) -> Self {
        Self {
            tree,
            segments,
            limits: limits.clone(),
            read: None,
            ahead: Ahead::default(),
            count: 1,
            passed: 0,
            has_failed: false,
        }
    }

    /// After the tree's cursor has moved. `goes_on`: forwards.
    fn look(&mut self, moved: Result<()>, goes_on: bool) -> Result<()> {
        self.read = None;
        let outcome = moved.and_then(|()| self.read_values(goes_on));
        self.has_failed = outcome.is_err();
        outcome
    }

    /// As [`ValueCursor::look`], where the cursor has been sought to.
    fn look_anew(&mut self, moved: Result<()>, goes_on: bool) -> Result<()> {
        self.ahead = Ahead::default();
        self.passed = 0;
        self.count = self.entries_left().map_or(1, |left| left.min(AHEAD_ENTRIES));
        self.look(moved, goes_on)
    }

    /// Entries that the scan is still for, as far as that is known.
    fn entries_left(&self) -> Option<u64> {
        self.limits.entries.map(|entries| entries.saturating_sub(self.passed)).filter(|left| *left > 0)
    }

    fn read_values(&mut self, goes_on: bool) -> Result<()> {
        let Some(entry) = self.tree.entry().filter(|entry| refers(entry.kind)) else { return Ok(()) };
        if !goes_on || self.count <= 1 {
            self.read = resolve(&self.segments, &entry, Access::Blocking)?;
            return Ok(());
        }
        self.take_ahead()?;
        self.read_first()
    }

    /// Takes entries from the current one on, and reads their values.
    fn take_ahead(&mut self) -> Result<()> {
        let count = usize_of(self.entries_left().unwrap_or(self.count).min(self.count));
        let data = self.segments.iter().next().map(|segment| segment.run().data());
        let lease = data.and_then(|data| data.lease_stream(AHEAD_BYTES));
        let bytes_max = if lease.is_some() { AHEAD_BYTES } else { UNLEASED_BYTES };
        let (mut ahead, mut bytes) = (Ahead { _lease: lease, ..Ahead::default() }, 0);
        while let Some(entry) = self.tree.entry() {
            let reference = ValueReference::of(entry.kind, entry.value).map_err(damaged)?;
            bytes += reference.map_or(u64_of(entry.value.len()), |reference| u64::from(reference.length));
            let is_beyond = self.limits.end.as_deref().is_some_and(|end| entry.key >= end);
            ahead.entries.push_back(Taken { entry: owned(&entry), reference });
            if ahead.entries.len() >= count || bytes >= bytes_max || is_beyond {
                break;
            }
            if let Err(failure) = self.tree.next() {
                ahead.failure = Some(failure);
                break;
            }
        }
        ahead.has_ended = self.tree.entry().is_none();
        self.ahead = ahead;
        self.read_together()
    }

    /// Reads the values of what was taken ahead. One that cannot be read is left to its turn, and so are
    /// those beyond the end of the scan.
    fn read_together(&mut self) -> Result<()> {
        let is_inside = |taken: &&mut Taken| {
            self.limits.end.as_deref().is_none_or(|end| taken.entry.key.as_slice() < end)
        };
        let mut wanted: Vec<&mut Taken> = self.ahead.entries.iter_mut().filter(is_inside).collect();
        wanted.retain(|taken| taken.reference.is_some());
        let references: Vec<(&[u8], ValueReference)> =
            wanted.iter().filter_map(|taken| Some((taken.entry.key.as_slice(), taken.reference?))).collect();
        let Ok(values) = self.segments.read_together(&references) else { return Ok(()) };
        wanted.into_iter().zip(values).try_for_each(|(taken, value)| taken.put(&value))
    }

    /// Reads the value of the current entry, if it was left to its turn.
    fn read_first(&mut self) -> Result<()> {
        let Some(first) = self.ahead.entries.front_mut() else { return Ok(()) };
        let Some(reference) = first.reference else { return Ok(()) };
        let value = self.segments.read(&first.entry.key, &reference, Access::Blocking)?;
        first.put(&value.expect("a blocking read waits for its page"))
    }

    /// On to the next of the entries that were taken ahead, or behind the last.
    fn pass(&mut self) -> Result<()> {
        self.ahead.entries.pop_front();
        if !self.ahead.entries.is_empty() {
            let outcome = self.read_first();
            self.has_failed = outcome.is_err();
            return outcome;
        }
        let Ahead { failure, has_ended, .. } = std::mem::take(&mut self.ahead);
        let moved = match failure {
            Some(failure) => Err(failure),
            None if has_ended => Ok(()),
            None => self.tree.next(),
        };
        self.look(moved, true)
    }
}

impl Cursor for ValueCursor {
    fn seek_first(&mut self) -> Result<()> {
        let moved = self.tree.seek_first();
        self.look_anew(moved, true)
    }

    fn seek_last(&mut self) -> Result<()> {
        let moved = self.tree.seek_last();
        self.look_anew(moved, false)
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        let moved = self.tree.seek(key);
        self.look_anew(moved, true)
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        let moved = self.tree.seek_before(key);
        self.look_anew(moved, false)
    }

    fn next(&mut self) -> Result<()> {
        if self.has_failed {
            return Ok(());
        }
        self.passed += 1;
        if self.ahead.entries.len() > 1 {
            return self.pass();
        }
        self.count = (self.count * 2).min(AHEAD_ENTRIES);
        if !self.ahead.entries.is_empty() {
            return self.pass();
        }
        let moved = self.tree.next();
        self.look(moved, true)
    }

    fn prev(&mut self) -> Result<()> {
        if self.has_failed {
            return Ok(());
        }
        self.count = 1;
        let moved = match std::mem::take(&mut self.ahead).entries.pop_front() {
            Some(first) => self.tree.seek_before(&first.entry.key),
            None => self.tree.prev(),
        };
        self.look(moved, false)
    }

    fn entry(&self) -> Option<Entry<'_>> {
        if let Some(first) = self.ahead.entries.front().filter(|_| !self.has_failed) {
            return Some(first.entry.as_entry());
        }
        let entry = self.tree.entry().filter(|_| !self.has_failed)?;
        Some(match &self.read {
            None => entry,
            Some((kind, value)) => Entry { kind: *kind, value, ..entry },
        })
    }
}
