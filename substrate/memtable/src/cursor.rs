//! Reading a memtable in order, either way, without holding it up.
//!
//! A cursor copies a few entries of one leaf at a time and finds its way back by key, so that inserts and
//! splits in between do not matter. Batches start small, for the sake of short scans, and grow.
//!
//! [`MemtableScan`] is the place alone: whoever has one says with each call which memtable it is in. So it
//! holds no memtable, and its owner may let go of that between calls.
//!
//! **Invariants**
//! - No lock is held between calls.
//! - `batch` holds consecutive entries in key order; `at` is the one the cursor stands on, or beyond the
//!   batch if it stands nowhere.

use std::{ops::Range, sync::Arc};

use testudo_base::{Cursor, Entry, Kind, Result, Seqno};

use crate::{Memtable, arena::View};

const FIRST_BATCH_ENTRIES: usize = 8;
const BATCH_ENTRIES_MAX: usize = 64;
/// A batch ends with the entry that makes it this long.
const BATCH_BYTES_MAX: usize = 16 << 10;
/// A buffer that a huge value made larger than this is not kept.
const KEPT_BYTES_MAX: usize = 1 << 20;

/// A copied entry: where its key ends and its value starts, and where that ends.
#[derive(Clone, Copy, Debug)]
struct Span {
    start: usize,
    value_start: usize,
    end: usize,
    kind: Kind,
    seqno: Seqno,
}

#[derive(Debug, Default)]
struct Batch {
    bytes: Vec<u8>,
    spans: Vec<Span>,
}

impl Batch {
    fn clear(&mut self) {
        self.spans.clear();
        self.bytes.clear();
        if self.bytes.capacity() > KEPT_BYTES_MAX {
            self.bytes = Vec::new();
        }
    }

    /// Copies an entry; returns whether another one should follow.
    fn push(&mut self, view: View<'_>, entries_max: usize) -> bool {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(view.key());
        let value_start = self.bytes.len();
        self.bytes.extend_from_slice(view.value());
        let (kind, seqno) = (view.kind(), view.seqno());
        self.spans.push(Span { start, value_start, end: self.bytes.len(), kind, seqno });
        self.spans.len() < entries_max && self.bytes.len() < BATCH_BYTES_MAX
    }

    fn slice(&self, range: Range<usize>) -> &[u8] {
        &self.bytes[range]
    }
}

/// A place in the entries of a memtable as they were at one seqno. Its calls are given the same memtable each
/// time, and never fail.
#[derive(Debug)]
pub struct MemtableScan {
    seqno: Seqno,
    batch: Batch,
    at: usize,
    entries_max: usize,
    /// Scratch space for the key from which the next batch starts.
    bound: Vec<u8>,
}

impl MemtableScan {
    /// Stands nowhere.
    pub fn new(at: Seqno) -> Self {
        Self {
            seqno: at,
            batch: Batch::default(),
            at: 0,
            entries_max: FIRST_BATCH_ENTRIES,
            bound: Vec::new(),
        }
    }

    /// The entry that it stands on.
    pub fn entry(&self) -> Option<Entry<'_>> {
        let span = *self.batch.spans.get(self.at)?;
        Some(Entry {
            key: self.batch.slice(span.start..span.value_start),
            kind: span.kind,
            value: self.batch.slice(span.value_start..span.end),
        })
    }

    /// When that entry was written.
    pub fn seqno(&self) -> Option<Seqno> {
        self.batch.spans.get(self.at).map(|span| span.seqno)
    }

    /// Bytes of memory that it takes.
    pub fn memory_bytes(&self) -> usize {
        let Batch { bytes, spans } = &self.batch;
        bytes.capacity() + spans.capacity() * size_of::<Span>() + self.bound.capacity()
    }

    /// Stands on the first entry whose key is ≥ `key`.
    pub fn seek(&mut self, memtable: &Memtable, key: &[u8]) {
        self.entries_max = FIRST_BATCH_ENTRIES;
        self.fill_from(memtable, key, false);
    }

    /// Stands on the last entry whose key is < `end`, or on the last of all.
    pub fn seek_below(&mut self, memtable: &Memtable, end: Option<&[u8]>) {
        self.entries_max = FIRST_BATCH_ENTRIES;
        self.fill_below(memtable, end);
    }

    /// Moves to the next entry if that is at hand; `false` if the memtable has to be looked into.
    #[inline]
    pub fn step_forward(&mut self) -> bool {
        let is_at_hand = self.at + 1 < self.batch.spans.len();
        self.at += usize::from(is_at_hand);
        is_at_hand
    }

    /// Moves to the entry before if that is at hand; `false` if the memtable has to be looked into.
    #[inline]
    pub fn step_back(&mut self) -> bool {
        let is_at_hand = self.at > 0;
        self.at -= usize::from(is_at_hand);
        is_at_hand
    }

    /// Goes on behind the entry on which it stands, with a larger batch.
    pub fn go_on(&mut self, memtable: &Memtable) {
        self.refill(|scan, bound| scan.fill_from(memtable, bound, true));
    }

    /// Goes on before the entry on which it stands, with a larger batch.
    pub fn go_back(&mut self, memtable: &Memtable) {
        self.refill(|scan, bound| scan.fill_below(memtable, Some(bound)));
    }

    /// Fills the batch from `start` on and stands on its first entry.
    fn fill_from(&mut self, memtable: &Memtable, start: &[u8], exclusive: bool) {
        let Self { batch, entries_max, .. } = self;
        batch.clear();
        memtable.visit_from(start, exclusive, self.seqno, |view| batch.push(view, *entries_max));
        self.at = 0;
    }

    /// Fills the batch with what is below `end` and stands on its last entry.
    fn fill_below(&mut self, memtable: &Memtable, end: Option<&[u8]>) {
        let Self { batch, entries_max, .. } = self;
        batch.clear();
        memtable.visit_below(end, self.seqno, |view| batch.push(view, *entries_max));
        batch.spans.reverse();
        self.at = batch.spans.len().saturating_sub(1);
    }

    /// Continues past the entry on which the scan stands.
    fn refill(&mut self, fill: impl FnOnce(&mut Self, &[u8])) {
        let mut bound = std::mem::take(&mut self.bound);
        bound.clear();
        if let Some(entry) = self.entry() {
            bound.extend_from_slice(entry.key);
            self.entries_max = (self.entries_max * 2).min(BATCH_ENTRIES_MAX);
            fill(self, &bound);
        }
        self.bound = bound;
    }
}

/// A cursor over one memtable at one seqno; see [`Memtable::cursor`]. Its calls never fail.
#[derive(Debug)]
pub struct MemtableCursor {
    memtable: Arc<Memtable>,
    scan: MemtableScan,
}

impl Memtable {
    /// A cursor over the entries as they were at `at`, tombstones included.
    ///
    /// It sees one state as long as a snapshot at `at` keeps versions from being replaced; without one, as
    /// with `Seqno(u64::MAX)`, it sees each entry as it is when the cursor comes near.
    pub fn cursor(self: &Arc<Self>, at: Seqno) -> MemtableCursor {
        MemtableCursor { memtable: Arc::clone(self), scan: MemtableScan::new(at) }
    }
}

impl MemtableCursor {
    /// When the entry was written that the cursor stands on.
    pub fn seqno(&self) -> Option<Seqno> {
        self.scan.seqno()
    }
}

impl Cursor for MemtableCursor {
    fn seek_first(&mut self) -> Result<()> {
        self.seek(&[])
    }

    fn seek_last(&mut self) -> Result<()> {
        self.scan.seek_below(&self.memtable, None);
        Ok(())
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.scan.seek(&self.memtable, key);
        Ok(())
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        self.scan.seek_below(&self.memtable, Some(key));
        Ok(())
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        if !self.scan.step_forward() {
            self.scan.go_on(&self.memtable);
        }
        Ok(())
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        if !self.scan.step_back() {
            self.scan.go_back(&self.memtable);
        }
        Ok(())
    }

    #[inline]
    fn entry(&self) -> Option<Entry<'_>> {
        self.scan.entry()
    }

    fn memory_bytes(&self) -> usize {
        self.scan.memory_bytes()
    }
}

#[cfg(test)]
mod tests;
