//! The segments of one part of a shard, in eviction order.
//!
//! New records go to the newest segment. Records of an earlier cache are restored newest first, and each
//! segment of restored records becomes the oldest one.
//!
//! **Invariants**
//! - At most two segments grow: the newest, and the oldest if it holds restored records.

use std::collections::VecDeque;

use crate::{index::Location, segment::FIRST_PLACE};

/// A segment, and the end of its last record.
#[derive(Clone, Copy, Debug)]
pub(super) struct Queued {
    pub(super) id: u32,
    pub(super) end: usize,
}

impl Queued {
    fn empty(id: u32) -> Self {
        Self { id, end: FIRST_PLACE }
    }

    /// Returns room for a record at its end.
    fn place(&mut self, words: usize, segment_words: usize) -> Option<Location> {
        let at = Location { segment: self.id, place: self.end };
        debug_assert!(words > 0 && at.place >= FIRST_PLACE, "a position after the existing records");
        (at.place + words <= segment_words).then(|| {
            self.end += words;
            debug_assert!(self.end <= segment_words, "records end within the segment");
            at
        })
    }
}

/// The log of a part.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// Oldest first.
    closed: VecDeque<Queued>,
    /// The growing segment.
    open: Option<Queued>,
    /// The oldest segment, if it is growing with restored records.
    restored: Option<u32>,
}

impl Queue {
    pub(super) fn len(&self) -> usize {
        self.closed.len() + usize::from(self.open.is_some())
    }

    pub(super) fn has_no_closed(&self) -> bool {
        self.closed.is_empty()
    }

    pub(super) fn newest_first(&self) -> impl Iterator<Item = &Queued> {
        self.open.iter().chain(self.closed.iter().rev())
    }

    pub(super) fn close_open(&mut self) {
        self.closed.extend(self.open.take());
    }

    /// Makes `id`, an empty segment, the growing one.
    pub(super) fn begin(&mut self, id: u32) {
        self.close_open();
        self.open = Some(Queued::empty(id));
    }

    /// Makes `id`, an empty segment, the oldest one, growing with restored records.
    pub(super) fn begin_restored(&mut self, id: u32) {
        self.closed.push_front(Queued::empty(id));
        self.restored = Some(id);
    }

    /// Removes the oldest segment; closes the growing one for this if there is no other.
    pub(super) fn take_oldest(&mut self) -> Option<Queued> {
        if self.closed.is_empty() {
            self.close_open();
        }
        let oldest = self.closed.pop_front()?;
        debug_assert!(oldest.end >= FIRST_PLACE, "a segment starts with an unused word");
        self.restored = self.restored.filter(|restored| *restored != oldest.id);
        Some(oldest)
    }

    /// Returns room for a record in the growing segment.
    pub(super) fn place_in_open(&mut self, words: usize, segment_words: usize) -> Option<Location> {
        self.open.as_mut()?.place(words, segment_words)
    }

    /// Returns room for a record in the growing segment of restored records.
    pub(super) fn place_in_restored(&mut self, words: usize, segment_words: usize) -> Option<Location> {
        let restored = self.restored?;
        self.closed.front_mut().filter(|oldest| oldest.id == restored)?.place(words, segment_words)
    }
}
