//! A cursor that reads compaction buffers, and falls back to the sequences where those do not suffice.
//!
//! The fallback is permanent, from the current position on. It happens if a page of a retained run cannot be
//! read, which costs no answer, and at entries that are not values or tombstones. Operands were folded by the
//! merge, and references may point to values that have moved.
//!
//! **Invariants**
//! - Entries returned from compaction buffers equal those of the sequences.
//! - The key of the previous position is kept, so that a step can be repeated.

use std::sync::Arc;

use testudo_base::{Cursor, Entry, Kind, Result, planted};
use testudo_run::{ReadAhead, RunCursor, ScanLimits};
use testudo_sequence::PartCursor;
use testudo_storage::DataFile;

use crate::{
    levels::Levels,
    read_charges::ReadCharges,
    scan::{LevelParts, buffered_sections::BufferedSections},
};

/// A cursor over the levels and their compaction buffers.
#[derive(Debug)]
pub(crate) struct BufferedScan {
    cursor: PartCursor<LevelParts>,
    sections: Arc<BufferedSections>,
    /// Key of the entry before the last step.
    key: Vec<u8>,
}

/// A cursor operation.
#[derive(Clone, Copy, Debug)]
enum Step<'a> {
    First,
    Last,
    From(&'a [u8]),
    Before(&'a [u8]),
    Next,
    Prev,
}

impl Step<'_> {
    fn take(self, cursor: &mut impl Cursor) -> Result<()> {
        match self {
            Self::First => cursor.seek_first(),
            Self::Last => cursor.seek_last(),
            Self::From(key) => cursor.seek(key),
            Self::Before(key) => cursor.seek_before(key),
            Self::Next => cursor.next(),
            Self::Prev => cursor.prev(),
        }
    }

    /// Performs the step from `key` with a cursor that is not positioned there.
    fn take_from(self, key: &[u8], cursor: &mut impl Cursor) -> Result<()> {
        match self {
            Self::Next => {
                cursor.seek(key)?;
                if cursor.entry().is_some_and(|entry| entry.key == key) { cursor.next() } else { Ok(()) }
            }
            Self::Prev => cursor.seek_before(key),
            step => step.take(cursor),
        }
    }
}

impl BufferedScan {
    /// Creates an unpositioned cursor.
    pub(crate) fn new(
        levels: &Arc<Levels>,
        charges: &Arc<ReadCharges>,
        data: &Arc<DataFile>,
        limits: &ScanLimits,
    ) -> Self {
        let sections = Arc::default();
        let parts = LevelParts::with_buffers(levels, charges, &sections);
        Self { cursor: PartCursor::new(parts, data, limits), sections, key: Vec::new() }
    }

    /// Whether it reads compaction buffers at its position.
    #[cfg(test)]
    pub(crate) fn reads_sections(&self) -> bool {
        self.sections.are_in_use()
    }

    /// Whether the current entry can be returned.
    fn is_sure(&self) -> bool {
        let is_plain = |entry: Entry<'_>| matches!(entry.kind, Kind::Value | Kind::Tombstone);
        self.cursor.entry().is_none_or(is_plain) || planted!("scan-returns-folded-operands")
    }

    #[inline]
    fn step(&mut self, step: Step<'_>) -> Result<()> {
        self.key.clear();
        if let Some(entry) = self.cursor.entry() {
            self.key.extend_from_slice(entry.key);
        }
        let done = step.take(&mut self.cursor);
        if !self.sections.are_in_use() || (done.is_ok() && self.is_sure()) {
            return done;
        }
        self.step_without(step, done.is_err())
    }

    /// Repeats a step without compaction buffers.
    #[cold]
    fn step_without(&mut self, step: Step<'_>, has_failed: bool) -> Result<()> {
        if has_failed {
            self.sections.note_damaged(|run| {
                let mut cursor = RunCursor::new(Arc::clone(run), ReadAhead::Adaptive);
                step.take_from(&self.key, &mut cursor)
            });
        }
        self.sections.turn_off();
        step.take_from(&self.key, &mut self.cursor)
    }
}

impl Cursor for BufferedScan {
    fn seek_first(&mut self) -> Result<()> {
        self.step(Step::First)
    }

    fn seek_last(&mut self) -> Result<()> {
        self.step(Step::Last)
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.step(Step::From(key))
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        self.step(Step::Before(key))
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        self.step(Step::Next)
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        self.step(Step::Prev)
    }

    #[inline]
    fn entry(&self) -> Option<Entry<'_>> {
        self.cursor.entry()
    }

    fn memory_bytes(&self) -> usize {
        self.cursor.memory_bytes() + self.key.capacity()
    }
}
