//! Ordered reading of a memtable, in both directions, without blocking it.
//!
//! A cursor copies a few entries of one leaf at a time and repositions itself by key, so that inserts and
//! splits in between do not matter. Batches start small, for short scans, and grow.
//!
//! [`MemtableScan`] is only the position: its calls take the memtable as an argument. So it holds no
//! reference to the memtable, and its owner may release the memtable between calls.
//!
//! **Invariants**
//! - No lock is held between calls.
//! - `batch` holds consecutive entries in key order; `at` is the current one, or beyond the batch if the
//!   cursor is unpositioned.

use std::{ops::Range, sync::Arc};

use testudo_base::{Cursor, Entry, Kind, Result, Seqno};

use crate::{Memtable, arena::View};

const FIRST_BATCH_ENTRIES: usize = 8;
const BATCH_ENTRIES_MAX: usize = 64;
/// A batch ends with the entry that makes it at least this long.
const BATCH_BYTES_MAX: usize = 16 << 10;
/// A buffer enlarged beyond this by a huge value is not kept.
const KEPT_BYTES_MAX: usize = 1 << 20;

/// A copied entry: the start of its key, the start of its value, and its end.
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

    /// Copies an entry; returns whether the batch accepts another one.
    fn push(&mut self, view: View<'_>, entries_max: usize) -> bool {
        let start = self.bytes.len();
        if self.spans.is_empty() {
            // The others are probably about as long.
            let entry_bytes = view.key().len() + view.value().len();
            self.spans.reserve(entries_max);
            let bytes = entry_bytes.saturating_mul(entries_max);
            self.bytes.reserve(bytes.min(BATCH_BYTES_MAX.max(entry_bytes)));
        }
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

/// A position in the entries of a memtable as of one seqno. All calls must get the same memtable; they never
/// fail.
#[derive(Debug)]
pub struct MemtableScan {
    seqno: Seqno,
    batch: Batch,
    at: usize,
    /// Maximum number of entries of the first batch after a seek, and of the next batch.
    first_entries: usize,
    entries_max: usize,
    /// Scratch space for the key at which the next batch starts.
    bound: Vec<u8>,
}

impl MemtableScan {
    /// An unpositioned scan.
    pub fn new(at: Seqno) -> Self {
        Self {
            seqno: at,
            batch: Batch::default(),
            at: 0,
            first_entries: FIRST_BATCH_ENTRIES,
            entries_max: FIRST_BATCH_ENTRIES,
            bound: Vec::new(),
        }
    }

    /// The current entry.
    pub fn entry(&self) -> Option<Entry<'_>> {
        let span = *self.batch.spans.get(self.at)?;
        Some(Entry {
            key: self.batch.slice(span.start..span.value_start),
            kind: span.kind,
            value: self.batch.slice(span.value_start..span.end),
        })
    }

    /// Seqno of the current entry.
    pub fn seqno(&self) -> Option<Seqno> {
        self.batch.spans.get(self.at).map(|span| span.seqno)
    }

    /// Bytes of memory that it uses.
    pub fn memory_bytes(&self) -> usize {
        let Batch { bytes, spans } = &self.batch;
        bytes.capacity() + spans.capacity() * size_of::<Span>() + self.bound.capacity()
    }

    /// Moves to the first entry whose key is ≥ `key`.
    pub fn seek(&mut self, memtable: &Memtable, key: &[u8]) {
        self.entries_max = self.first_entries;
        self.fill_from(memtable, key, false);
    }

    /// Moves to the last entry whose key is < `end`, or to the last of all.
    pub fn seek_below(&mut self, memtable: &Memtable, end: Option<&[u8]>) {
        self.entries_max = self.first_entries;
        self.fill_below(memtable, end);
    }

    /// Moves to the next entry if it is in the batch; `false` if the memtable must be read.
    #[inline]
    pub fn step_forward(&mut self) -> bool {
        let is_at_hand = self.at + 1 < self.batch.spans.len();
        self.at += usize::from(is_at_hand);
        is_at_hand
    }

    /// Moves to the previous entry if it is in the batch; `false` if the memtable must be read.
    #[inline]
    pub fn step_back(&mut self) -> bool {
        let is_at_hand = self.at > 0;
        self.at -= usize::from(is_at_hand);
        is_at_hand
    }

    /// Continues after the current entry, with a larger batch.
    pub fn go_on(&mut self, memtable: &Memtable) {
        self.refill(|scan, bound| scan.fill_from(memtable, bound, true));
    }

    /// Continues before the current entry, with a larger batch.
    pub fn go_back(&mut self, memtable: &Memtable) {
        self.refill(|scan, bound| scan.fill_below(memtable, Some(bound)));
    }

    /// Fills the batch from `start` on and moves to its first entry.
    fn fill_from(&mut self, memtable: &Memtable, start: &[u8], exclusive: bool) {
        let Self { batch, entries_max, .. } = self;
        batch.clear();
        memtable.visit_from(start, exclusive, self.seqno, |view| batch.push(view, *entries_max));
        self.at = 0;
    }

    /// Fills the batch with entries below `end` and moves to its last entry.
    fn fill_below(&mut self, memtable: &Memtable, end: Option<&[u8]>) {
        let Self { batch, entries_max, .. } = self;
        batch.clear();
        memtable.visit_below(end, self.seqno, |view| batch.push(view, *entries_max));
        batch.spans.reverse();
        self.at = batch.spans.len().saturating_sub(1);
    }

    /// Continues past the current entry.
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
    /// A cursor over the entries as of `at`, including tombstones.
    ///
    /// It sees one consistent state as long as a snapshot at `at` keeps versions from being replaced. Without
    /// one, as with `Seqno(u64::MAX)`, it sees each entry in its state when the batch is copied.
    pub fn cursor(self: &Arc<Self>, at: Seqno) -> MemtableCursor {
        MemtableCursor { memtable: Arc::clone(self), scan: MemtableScan::new(at) }
    }

    /// Like [`Memtable::cursor`], for a caller that reads on to the end: its batches are large from the first
    /// one on.
    pub fn cursor_to_end(self: &Arc<Self>, at: Seqno) -> MemtableCursor {
        let scan = MemtableScan { first_entries: BATCH_ENTRIES_MAX, ..MemtableScan::new(at) };
        MemtableCursor { memtable: Arc::clone(self), scan }
    }
}

impl MemtableCursor {
    /// Seqno of the current entry.
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
