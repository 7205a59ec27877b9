//! Many sorted sources read as one, the newest entry of each key winning.
//!
//! Sources are few (a dozen at most), so the least key is found by a scan over cached eight-byte heads instead of a
//! heap. Tombstones are passed on; whoever knows that nothing older lies below drops them.
//!
//! **Invariants**
//! - Sources are ordered newest first; of equal keys the source with the least index wins.
//! - Forward: every source stands on its first entry ≥ the current key. Backward: on its last entry ≤ it.

use std::cmp::Ordering;

use testudo_base::{Cursor, Entry, Result, key, num::u64_of, planted};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Forward,
    Backward,
}

/// A cursor over the union of its sources.
#[derive(Debug)]
pub struct MergeCursor<C> {
    sources: Vec<C>,
    /// Head of each source's current key, `None` where the source has ended.
    heads: Vec<Option<u64>>,
    current: Option<usize>,
    direction: Direction,
    key: Vec<u8>,
    passed_bytes: u64,
}

impl<C: Cursor> MergeCursor<C> {
    /// Merges `sources`, newest first.
    pub fn new(sources: Vec<C>) -> Self {
        let heads = vec![None; sources.len()];
        Self {
            sources,
            heads,
            current: None,
            direction: Direction::Forward,
            key: Vec::new(),
            passed_bytes: 0,
        }
    }

    /// Bytes of entries that were passed so far, those included that a newer one hid.
    pub fn passed_bytes(&self) -> u64 {
        self.passed_bytes
    }

    fn note_head(&mut self, source: usize) {
        self.heads[source] = self.sources[source].entry().map(|entry| key::head(entry.key));
    }

    fn compare(&self, a: usize, b: usize) -> Ordering {
        self.heads[a].cmp(&self.heads[b]).then_with(|| {
            let key = |source: usize| self.sources[source].entry().map(|entry| entry.key);
            key(a).cmp(&key(b))
        })
    }

    fn choose(&mut self) {
        let wanted = match self.direction {
            Direction::Forward => Ordering::Less,
            Direction::Backward => Ordering::Greater,
        };
        let mut best: Option<usize> = None;
        for source in 0..self.sources.len() {
            let is_better = |best| {
                let order = self.compare(source, best);
                order == wanted || (order == Ordering::Equal && planted!("merge-prefers-older"))
            };
            if self.heads[source].is_some() && best.is_none_or(is_better) {
                best = Some(source);
            }
        }
        self.current = best;
    }

    /// Positions every source with `place`, then chooses.
    fn place_all(&mut self, direction: Direction, mut place: impl FnMut(&mut C) -> Result<()>) -> Result<()> {
        self.current = None;
        self.direction = direction;
        for source in 0..self.sources.len() {
            place(&mut self.sources[source])?;
            self.note_head(source);
        }
        self.choose();
        Ok(())
    }

    /// Moves every source that stands on the current key one on.
    fn step(&mut self) -> Result<()> {
        let Some(current) = self.current.take() else { return Ok(()) };
        let head = self.heads[current];
        for source in 0..self.sources.len() {
            if source == current || self.heads[source] != head {
                continue;
            }
            let key = |source: usize| self.sources[source].entry().map(|entry| entry.key);
            if key(source) == key(current) {
                self.move_source(source)?;
            }
        }
        self.move_source(current)?;
        self.choose();
        Ok(())
    }

    fn move_source(&mut self, source: usize) -> Result<()> {
        self.passed_bytes += self.sources[source].entry().map_or(0, |entry| u64_of(entry.user_bytes()));
        match self.direction {
            Direction::Forward => self.sources[source].next()?,
            Direction::Backward => self.sources[source].prev()?,
        }
        self.note_head(source);
        Ok(())
    }

    fn copy_key(&mut self) {
        self.key.clear();
        if let Some(current) = self.current
            && let Some(entry) = self.sources[current].entry()
        {
            self.key.extend_from_slice(entry.key);
        }
    }
}

impl<C: Cursor> Cursor for MergeCursor<C> {
    fn seek_first(&mut self) -> Result<()> {
        self.place_all(Direction::Forward, |source| source.seek_first())
    }

    fn seek_last(&mut self) -> Result<()> {
        self.place_all(Direction::Backward, |source| source.seek_last())
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.place_all(Direction::Forward, |source| source.seek(key))
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        self.place_all(Direction::Backward, |source| source.seek_before(key))
    }

    fn next(&mut self) -> Result<()> {
        if self.direction == Direction::Backward {
            self.copy_key();
            let key = std::mem::take(&mut self.key);
            self.seek(&key)?;
            self.key = key;
        }
        self.step()
    }

    fn prev(&mut self) -> Result<()> {
        if self.direction == Direction::Forward {
            // The last entry before the current key, in one positioning.
            self.copy_key();
            let key = std::mem::take(&mut self.key);
            let placed = self.seek_before(&key);
            self.key = key;
            return placed;
        }
        self.step()
    }

    #[inline]
    fn entry(&self) -> Option<Entry<'_>> {
        self.sources[self.current?].entry()
    }
}
