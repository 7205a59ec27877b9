//! Merges sorted sources into one; the newest entry of each key wins.
//!
//! There are few sources (a dozen or two), and one of them usually holds most entries. They are kept sorted
//! by their current keys, comparing cached eight-byte heads first. A source that moved is re-inserted, which
//! takes one comparison for the fullest source. Tombstones are passed on; a caller that knows that no older
//! data exists drops them. Operands are stacked on the older entry of their key; a caller that knows the
//! merge operator merges them. A sink can receive the entries that the merge drops.
//!
//! **Invariants**
//! - Sources are ordered newest first; for equal keys the source with the lowest index wins.
//! - Forward: every source is at its first entry ≥ the current key. Backward: at its last entry ≤ it.
//! - `order` contains the sources that are at an entry, the one of the current key first; it is empty after
//!   an error.
//! - The sink receives an entry when the merge moves past its key. After a new seek or a stop, it has
//!   received the entries of passed keys and no others.
//! - `stacked` is set if the current entry combines several sources; `stack` then holds its value.

use std::cmp::Ordering;

use testudo_base::{
    Cursor, DropSink, Entry, Error, Kind, MAX_VALUE_BYTES, Result, key, num::u64_of,
    operands_format::begin_stack, planted,
};

/// Direction of a cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Towards greater keys.
    Forward,
    /// Towards lesser keys.
    Backward,
}

/// A cursor over the union of its sources, which reports the entries that it drops to `S`.
#[derive(Debug)]
pub struct MergeCursor<C, S = ()> {
    sources: Vec<C>,
    sink: S,
    /// Head of each source's current key, after the prefix shared by all keys.
    heads: Vec<u64>,
    /// Size of each source's current entry, times two, plus one for operands.
    entry_marks: Vec<u64>,
    shared_bytes: usize,
    order: Vec<usize>,
    direction: Direction,
    key: Vec<u8>,
    passed_bytes: u64,
    stacked: Option<Kind>,
    stack: Vec<u8>,
}

/// Mark of a source whose current entry is operands.
const OPERANDS_MARK: u64 = 1;

impl<C: Cursor> MergeCursor<C> {
    /// Merges `sources`, newest first.
    pub fn new(sources: Vec<C>) -> Self {
        Self::with_shared_prefix(sources, 0)
    }

    /// Like [`MergeCursor::new`], if the first `shared_bytes` of all keys of all sources are equal.
    pub fn with_shared_prefix(sources: Vec<C>, shared_bytes: usize) -> Self {
        Self::with_sink(sources, shared_bytes, ())
    }
}

impl<C: Cursor, S: DropSink> MergeCursor<C, S> {
    /// Like [`MergeCursor::with_shared_prefix`], with a sink. During a complete pass in one direction, `sink`
    /// receives each entry that is not returned as it is: entries hidden by newer ones, and entries stacked
    /// into operands.
    pub fn with_sink(sources: Vec<C>, shared_bytes: usize, sink: S) -> Self {
        let heads = vec![0; sources.len()];
        let entry_marks = vec![0; sources.len()];
        let order = Vec::with_capacity(sources.len());
        let direction = Direction::Forward;
        Self {
            sources,
            sink,
            heads,
            entry_marks,
            shared_bytes,
            order,
            direction,
            key: Vec::new(),
            passed_bytes: 0,
            stacked: None,
            stack: Vec::new(),
        }
    }

    /// Returns the sources.
    pub fn into_sources(self) -> Vec<C> {
        self.sources
    }

    /// Returns the sink.
    pub fn into_sink(self) -> S {
        self.sink
    }

    /// Bytes of entries passed so far, including hidden ones.
    pub fn passed_bytes(&self) -> u64 {
        self.passed_bytes
    }

    /// Whether the current entry comes from the oldest source.
    #[inline]
    pub fn stands_on_oldest(&self) -> bool {
        self.order.first().is_some_and(|&source| source + 1 == self.sources.len())
    }

    /// Whether the current entry comes from the newest source.
    #[inline]
    pub fn stands_on_newest(&self) -> bool {
        self.order.first() == Some(&0)
    }

    /// Whether an older source also has an entry of the current key.
    #[inline]
    pub fn hides_older(&self) -> bool {
        let &[current, next, ..] = self.order.as_slice() else { return false };
        self.heads[next] == self.heads[current] && self.key_of(next) == self.key_of(current)
    }

    /// Whether the oldest source has an entry of the current key that a newer one hides.
    pub fn hides_oldest(&self) -> bool {
        let (Some((&current, others)), Some(oldest)) =
            (self.order.split_first(), self.sources.len().checked_sub(1))
        else {
            return false;
        };
        self.heads[oldest] == self.heads[current]
            && others.contains(&oldest)
            && self.key_of(oldest) == self.key_of(current)
    }

    /// Positions all sources with `place`, and moves to the least (backward: the greatest) of their keys.
    pub fn place(&mut self, direction: Direction, place: impl FnOnce(&mut [C]) -> Result<()>) -> Result<()> {
        debug_assert_eq!(self.heads.len(), self.sources.len(), "each source must have a head");
        self.order.clear();
        self.stacked = None;
        self.direction = direction;
        place(&mut self.sources)?;
        for source in 0..self.sources.len() {
            if self.record_head(source) {
                self.order.push(source);
                self.sift_down(self.order.len() - 1);
            }
        }
        debug_assert!(self.order.len() <= self.sources.len(), "a source is in the order once");
        if self.stands_on_operands() { self.stack_up() } else { Ok(()) }
    }

    fn place_each(&mut self, direction: Direction, place: impl FnMut(&mut C) -> Result<()>) -> Result<()> {
        self.place(direction, |sources| sources.iter_mut().try_for_each(place))
    }

    /// Records the current entry of a source; `false` if it has ended.
    #[inline]
    fn record_head(&mut self, source: usize) -> bool {
        let Some(entry) = self.sources[source].entry() else { return false };
        self.heads[source] = key::head(entry.key.get(self.shared_bytes..).unwrap_or_default());
        let mark = u64::from(entry.kind == Kind::Operands);
        self.entry_marks[source] = u64_of(entry.user_bytes()) << 1 | mark;
        true
    }

    fn key_of(&self, source: usize) -> &[u8] {
        self.sources[source].entry().map_or(&[], |entry| entry.key)
    }

    /// Whether source `a` precedes source `b`.
    #[inline]
    fn precedes(&self, a: usize, b: usize) -> bool {
        let (head_a, head_b) = (self.heads[a], self.heads[b]);
        if head_a != head_b {
            return (head_a < head_b) == (self.direction == Direction::Forward);
        }
        self.precedes_beyond_heads(a, b)
    }

    /// Like [`Self::precedes`], for equal heads.
    fn precedes_beyond_heads(&self, a: usize, b: usize) -> bool {
        match (self.key_of(a).cmp(self.key_of(b)), self.direction) {
            (Ordering::Less, Direction::Forward) | (Ordering::Greater, Direction::Backward) => true,
            (Ordering::Equal, _) if planted!("merge-prefers-older") => b < a,
            (Ordering::Equal, _) => a < b,
            _ => false,
        }
    }

    /// Moves the source at `at` to its position among those before it.
    fn sift_down(&mut self, mut at: usize) {
        while at > 0 && self.precedes(self.order[at], self.order[at - 1]) {
            self.order.swap(at, at - 1);
            at -= 1;
        }
    }

    /// Whether the current entry may have to be stacked on older ones.
    #[inline]
    fn stands_on_operands(&self) -> bool {
        self.order.first().is_some_and(|&source| self.entry_marks[source] & OPERANDS_MARK != 0)
    }

    /// Combines the operands of the current key and their base, as far as it is in the sources, into one
    /// entry.
    #[cold]
    fn stack_up(&mut self) -> Result<()> {
        let key = self.key_of(self.order[0]);
        let same_key = self.order.iter().take_while(|&&source| self.key_of(source) == key).count();
        let is_operands = |source: &&usize| self.entry_marks[**source] & OPERANDS_MARK != 0;
        let mut depth = self.order[..same_key].iter().take_while(is_operands).count();
        if depth < same_key && !planted!("operands-without-their-value") {
            depth += 1;
        }
        debug_assert!(depth <= same_key, "only entries of the key are stacked");
        if depth == 1 {
            return Ok(());
        }
        let mut entries = self.order[..depth].iter().rev().filter_map(|&source| self.sources[source].entry());
        let Some(oldest) = entries.next() else { return Ok(()) };
        let kind = begin_stack(oldest.kind, oldest.value, &mut self.stack);
        for entry in entries {
            if planted!("operands-lost-in-merge") {
                self.stack.clear();
            }
            self.stack.extend_from_slice(entry.value);
        }
        if u64_of(self.stack.len()) > MAX_VALUE_BYTES {
            let error = Error::invalid("unmerged operands of a key exceed the maximum value length");
            let entry = self.sources[self.order[0]].entry();
            let error = entry.iter().fold(error, |error, entry| error.about_key(entry.key));
            self.order.clear();
            return Err(error);
        }
        self.stacked = Some(kind);
        Ok(())
    }

    /// Advances every source that is at the current key.
    fn step(&mut self) -> Result<()> {
        let stacked = self.stacked.take();
        let Some(&current) = self.order.first() else { return Ok(()) };
        let head = self.heads[current];
        // Most keys are in a single source.
        let mut equal = 1;
        while equal < self.order.len()
            && self.heads[self.order[equal]] == head
            && self.key_of(self.order[equal]) == self.key_of(current)
        {
            equal += 1;
        }
        if S::LISTENS && equal > 1 {
            self.report_drops(equal, stacked);
        }
        for at in (0..equal).rev() {
            if let Err(error) = self.move_at(at) {
                self.order.clear();
                return Err(error);
            }
        }
        if self.stands_on_operands() { self.stack_up() } else { Ok(()) }
    }

    /// Reports the entries of the first `equal` sources, which have the same key, to the sink.
    fn report_drops(&mut self, equal: usize, stacked: Option<Kind>) {
        // Without stacking, the newest one was returned.
        debug_assert!((1..=self.order.len()).contains(&equal), "sources at the key");
        let returned = usize::from(stacked.is_none());
        for &source in &self.order[returned..equal] {
            if let Some(entry) = self.sources[source].entry() {
                self.sink.dropped(&entry);
            }
        }
        if let (Some(kind), Some(entry)) = (stacked, self.sources[self.order[0]].entry()) {
            self.sink.made(&Entry { kind, value: &self.stack, ..entry });
        }
    }

    /// Advances the source at `at` and re-inserts it among those after it, which are sorted.
    fn move_at(&mut self, mut at: usize) -> Result<()> {
        let source = self.order[at];
        debug_assert!(self.sources[source].entry().is_some(), "the source must be at an entry");
        self.passed_bytes += self.entry_marks[source] >> 1;
        match self.direction {
            Direction::Forward => self.sources[source].next()?,
            Direction::Backward => self.sources[source].prev()?,
        }
        if !self.record_head(source) {
            self.order.remove(at);
            return Ok(());
        }
        while at + 1 < self.order.len() && self.precedes(self.order[at + 1], source) {
            self.order.swap(at, at + 1);
            at += 1;
        }
        Ok(())
    }

    /// Repositions with `place` at the current key.
    fn turn(&mut self, place: impl FnOnce(&mut Self, &[u8]) -> Result<()>) -> Result<()> {
        let Some(&current) = self.order.first() else { return Ok(()) };
        let mut key = std::mem::take(&mut self.key);
        key.clear();
        key.extend_from_slice(self.key_of(current));
        let placed = place(self, &key);
        self.key = key;
        placed
    }
}

impl<C: Cursor, S: DropSink> Cursor for MergeCursor<C, S> {
    fn seek_first(&mut self) -> Result<()> {
        self.place_each(Direction::Forward, |source| source.seek_first())
    }

    fn seek_last(&mut self) -> Result<()> {
        self.place_each(Direction::Backward, |source| source.seek_last())
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.place_each(Direction::Forward, |source| source.seek(key))
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        self.place_each(Direction::Backward, |source| source.seek_before(key))
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        if self.direction == Direction::Backward {
            self.turn(|merge, key| merge.seek(key))?;
        }
        self.step()
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        if self.direction == Direction::Forward {
            // The last entry before the current key, with a single seek.
            return self.turn(|merge, key| merge.seek_before(key));
        }
        self.step()
    }

    #[inline]
    fn entry(&self) -> Option<Entry<'_>> {
        let entry = self.sources[*self.order.first()?].entry()?;
        Some(match self.stacked {
            None => entry,
            Some(kind) => Entry { kind, value: &self.stack, ..entry },
        })
    }

    /// Warmth of the newest source of the current key.
    #[inline]
    fn is_warm(&self) -> bool {
        self.order.first().is_some_and(|&source| self.sources[source].is_warm())
    }

    fn memory_bytes(&self) -> usize {
        let own = self.sources.capacity() * (size_of::<C>() + 3 * size_of::<u64>());
        let kept = self.key.capacity() + self.stack.capacity();
        own + kept + self.sources.iter().map(Cursor::memory_bytes).sum::<usize>()
    }
}

#[cfg(test)]
mod tests;
