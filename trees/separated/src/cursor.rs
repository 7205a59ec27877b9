//! A cursor over a tree that reads the values to which entries refer.
//!
//! A scan that goes on forward behind such an entry reads values ahead: the next few entries are taken out
//! of the tree, and the pages of their values loaded together. How many that are doubles as it goes on.
//!
//! **Invariants**
//! - It shows no references. After an error it stands nowhere.
//! - While entries are taken out, the tree's cursor stands behind the last of them, and the first is the
//!   current one. Else the tree's cursor stands on the current entry.
//! - An error shows where its entry is reached, not before.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
};

use testudo_base::{Cursor, Entry, Error, Kind, OwnedEntry, Result, ValueReference, num::u64_of};
use testudo_run::{Access, LookupProgress, ScanLimits};
use testudo_values::SegmentSet;

use crate::resolve::resolve;

/// Entries that are taken out of the tree at once, at most.
const AHEAD_ENTRIES_MAX: u64 = 32;
/// And bytes of their values.
const AHEAD_BYTES_MAX: u64 = 256 << 10;
/// Rounds of loading pages together: those of the index, and those of the values.
const ROUNDS: usize = 3;

/// An entry that was taken out of the tree.
struct Ahead {
    entry: OwnedEntry,
    /// What stands in the place of its reference.
    read: Option<Result<(Kind, Vec<u8>)>>,
}

/// The cursor.
pub(crate) struct ValueCursor {
    tree: Box<dyn Cursor + Send>,
    /// Those of the state that the cursor is over.
    segments: SegmentSet,
    /// What stands in the place of the reference that the tree's cursor stands on.
    read: Option<(Kind, Vec<u8>)>,
    ahead: VecDeque<Ahead>,
    /// Entries are taken out, or the last of them was the current one and nothing follows.
    is_ahead: bool,
    /// One of those that were taken out last had a reference.
    had_reference: bool,
    /// What the tree's cursor said behind the last of them.
    failed_behind: Option<Error>,
    /// How many are taken out next.
    next_count: u64,
    /// The most entries that are asked for.
    entries_left: u64,
    has_failed: bool,
}

impl ValueCursor {
    pub(crate) fn new(tree: Box<dyn Cursor + Send>, segments: SegmentSet, limits: &ScanLimits) -> Self {
        Self {
            tree,
            segments,
            read: None,
            ahead: VecDeque::new(),
            is_ahead: false,
            had_reference: false,
            failed_behind: None,
            next_count: 1,
            entries_left: limits.entries.unwrap_or(u64::MAX),
            has_failed: false,
        }
    }

    /// After the tree's cursor was placed on the current entry.
    fn look(&mut self, placed: Result<()>) -> Result<()> {
        self.ahead.clear();
        (self.is_ahead, self.failed_behind, self.next_count) = (false, None, 1);
        self.read = None;
        let outcome = placed.and_then(|()| self.read_value());
        self.has_failed = outcome.is_err();
        outcome
    }

    fn read_value(&mut self) -> Result<()> {
        if let Some(entry) = self.tree.entry().filter(|entry| is_reference(entry.kind)) {
            self.read = resolve(&self.segments, &entry, Access::Blocking)?;
        }
        Ok(())
    }

    /// Takes the entries from the tree's cursor on out, and reads their values.
    fn take_ahead(&mut self) {
        self.had_reference = false;
        let (mut bytes, count) = (0, self.next_count.min(self.entries_left).max(1));
        self.next_count = (2 * self.next_count).min(AHEAD_ENTRIES_MAX);
        while u64_of(self.ahead.len()) < count && bytes <= AHEAD_BYTES_MAX {
            let Some(entry) = self.tree.entry() else { break };
            let reference = ValueReference::of(entry.kind, entry.value).ok().flatten();
            self.had_reference |= reference.is_some();
            bytes +=
                reference.map_or(0, |reference| u64::from(reference.length)) + u64_of(entry.user_bytes());
            self.ahead.push_back(Ahead { entry: entry.to_owned(), read: None });
            if let Err(error) = self.tree.next() {
                self.failed_behind = Some(error);
                break;
            }
        }
        self.read_ahead();
    }

    /// Reads the values of what was taken out: pages that are missing are loaded together.
    fn read_ahead(&mut self) {
        let missing = RefCell::new(Vec::new());
        for round in 0..=ROUNDS {
            let progress = Cell::new(LookupProgress::default());
            for ahead in self.ahead.iter_mut().filter(|ahead| ahead.read.is_none()) {
                let entry = ahead.entry.as_entry();
                if is_reference(entry.kind) {
                    progress.set(LookupProgress::default());
                    let collecting = Access::Collecting(&missing, &progress);
                    let access = if round < ROUNDS { collecting } else { Access::Blocking };
                    ahead.read = resolve(&self.segments, &entry, access).transpose();
                }
            }
            let mut pages = missing.take();
            let Some(segment) = self.segments.iter().next().filter(|_| !pages.is_empty()) else { return };
            pages.sort_unstable_by_key(|address| address.page);
            pages.dedup();
            // Whoever asks for a page that cannot be read gets the error.
            let _ = segment.run().data().load_pages(&pages);
        }
    }

    /// Steps to the first entry that was taken out.
    fn show_first(&mut self) -> Result<()> {
        self.entries_left = self.entries_left.saturating_sub(1);
        let failed = match self.ahead.front_mut() {
            Some(Ahead { read, .. }) if read.as_ref().is_some_and(Result::is_err) => read.take(),
            Some(_) => None,
            None => self.failed_behind.take().map(Err),
        };
        let outcome = failed.map_or(Ok(()), |failed| failed.map(|_| ()));
        self.has_failed = outcome.is_err();
        outcome
    }
}

fn is_reference(kind: Kind) -> bool {
    matches!(kind, Kind::Reference | Kind::UnmergedReference)
}

impl Cursor for ValueCursor {
    fn seek_first(&mut self) -> Result<()> {
        let placed = self.tree.seek_first();
        self.look(placed)
    }

    fn seek_last(&mut self) -> Result<()> {
        let placed = self.tree.seek_last();
        self.look(placed)
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        let placed = self.tree.seek(key);
        self.look(placed)
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        let placed = self.tree.seek_before(key);
        self.look(placed)
    }

    fn next(&mut self) -> Result<()> {
        if self.has_failed || self.entry().is_none() {
            return Ok(());
        }
        if self.is_ahead {
            self.ahead.pop_front();
        } else {
            let goes_on = self.read.take().is_some();
            let moved = self.tree.next();
            if !goes_on || moved.is_err() {
                return self.look(moved);
            }
            self.is_ahead = true;
        }
        if self.ahead.is_empty() && self.failed_behind.is_none() {
            if self.is_ahead && !self.had_reference && self.next_count > 1 {
                return self.look(Ok(()));
            }
            self.take_ahead();
        }
        self.show_first()
    }

    fn prev(&mut self) -> Result<()> {
        if self.has_failed {
            return Ok(());
        }
        let placed = match self.ahead.pop_front() {
            Some(current) => self.tree.seek_before(&current.entry.key),
            None if self.is_ahead => return Ok(()),
            None => self.tree.prev(),
        };
        self.look(placed)
    }

    fn entry(&self) -> Option<Entry<'_>> {
        if self.has_failed {
            return None;
        }
        let (entry, read) = if self.is_ahead {
            let ahead = self.ahead.front()?;
            (ahead.entry.as_entry(), ahead.read.as_ref().and_then(|read| read.as_ref().ok()))
        } else {
            (self.tree.entry()?, self.read.as_ref())
        };
        Some(match read {
            None => entry,
            Some((kind, value)) => Entry { kind: *kind, value, ..entry },
        })
    }
}
