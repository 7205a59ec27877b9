//! A cursor over a spilled write buffer as of one seqno, in either direction.
//!
//! **Invariants**
//! - It is positioned on a key with a version at or before its seqno, or unpositioned.

use std::{ops::Range, sync::Arc};

use testudo_base::{Cursor, Entry, Kind, Result, Seqno};
use testudo_run::{Direction, ReadAhead, RunCursor};

use crate::snapshots::{
    spilled_buffer::{SpilledBuffer, place_of, seek_version, version_here},
    versions_format::KeyVersions,
};

/// The visible version of the current key.
#[derive(Clone, Debug)]
enum Seen {
    /// It is stored with the key.
    Here(Kind, Range<usize>),
    /// The cursor over versions is positioned on it.
    Apart,
}

/// A cursor over a spilled buffer.
#[derive(Debug)]
pub struct SpilledCursor {
    buffer: Arc<SpilledBuffer>,
    at: Seqno,
    part: usize,
    keys: Option<RunCursor>,
    versions: Option<RunCursor>,
    seen: Option<Seen>,
}

impl SpilledCursor {
    /// Creates an unpositioned cursor as of `at`.
    pub fn new(buffer: Arc<SpilledBuffer>, at: Seqno) -> Self {
        Self { buffer, at, part: 0, keys: None, versions: None, seen: None }
    }

    /// Opens the part with this number; `None` if it does not exist.
    fn open(&mut self, part: usize) -> Option<&mut RunCursor> {
        if part != self.part {
            (self.keys, self.versions) = (None, None);
            self.part = part;
        }
        let keys = &self.buffer.parts.get(part)?.keys;
        Some(self.keys.get_or_insert_with(|| RunCursor::new(Arc::clone(keys), ReadAhead::Adaptive)))
    }

    /// Moves from the current key to the first one with a visible version.
    fn settle(&mut self, direction: Direction) -> Result<()> {
        self.seen = None;
        loop {
            let Some(entry) = self.keys.as_ref().and_then(Cursor::entry) else {
                let part = match direction {
                    Direction::Forward => Some(self.part + 1),
                    Direction::Backward => self.part.checked_sub(1),
                };
                let Some(keys) = part.and_then(|part| self.open(part)) else { return Ok(()) };
                match direction {
                    Direction::Forward => keys.seek_first()?,
                    Direction::Backward => keys.seek_last()?,
                }
                continue;
            };
            let seen = match place_of(entry.value)? {
                KeyVersions::Here => {
                    version_here(entry.value, self.at)?.map(|(kind, range)| Seen::Here(kind, range))
                }
                KeyVersions::Apart(number) => self.seek_apart(number)?,
            };
            if seen.is_some() {
                self.seen = seen;
                return Ok(());
            }
            let Some(keys) = &mut self.keys else { return Ok(()) };
            match direction {
                Direction::Forward => keys.next()?,
                Direction::Backward => keys.prev()?,
            }
        }
    }

    fn seek_apart(&mut self, number: u64) -> Result<Option<Seen>> {
        if self.versions.is_none() {
            self.versions = self.buffer.parts[self.part].version_cursor();
        }
        let Some(versions) = &mut self.versions else { return Ok(None) };
        Ok(seek_version(versions, number, self.at)?.map(|_| Seen::Apart))
    }
}

impl Cursor for SpilledCursor {
    fn seek_first(&mut self) -> Result<()> {
        if let Some(keys) = self.open(0) {
            keys.seek_first()?;
        }
        self.settle(Direction::Forward)
    }

    fn seek_last(&mut self) -> Result<()> {
        if let Some(keys) = self.buffer.parts.len().checked_sub(1).and_then(|last| self.open(last)) {
            keys.seek_last()?;
        }
        self.settle(Direction::Backward)
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        let part = self.buffer.part_of(key).unwrap_or(0);
        if let Some(keys) = self.open(part) {
            keys.seek(key)?;
        }
        self.settle(Direction::Forward)
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        let part = self.buffer.part_of(key).unwrap_or(0);
        if let Some(keys) = self.open(part) {
            keys.seek_before(key)?;
        }
        self.settle(Direction::Backward)
    }

    fn next(&mut self) -> Result<()> {
        let Some(keys) = self.keys.as_mut().filter(|_| self.seen.is_some()) else { return Ok(()) };
        keys.next()?;
        self.settle(Direction::Forward)
    }

    fn prev(&mut self) -> Result<()> {
        let Some(keys) = self.keys.as_mut().filter(|_| self.seen.is_some()) else { return Ok(()) };
        keys.prev()?;
        self.settle(Direction::Backward)
    }

    fn entry(&self) -> Option<Entry<'_>> {
        let of_key = self.keys.as_ref()?.entry()?;
        match self.seen.as_ref()? {
            Seen::Here(kind, range) => {
                Some(Entry { kind: *kind, value: &of_key.value[range.clone()], ..of_key })
            }
            Seen::Apart => {
                let version = self.versions.as_ref()?.entry()?;
                Some(Entry { key: of_key.key, ..version })
            }
        }
    }

    fn memory_bytes(&self) -> usize {
        [&self.keys, &self.versions].into_iter().flatten().map(Cursor::memory_bytes).sum()
    }
}
