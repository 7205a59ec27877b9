//! Updates of which the large values lie in value segments.
//!
//! **Invariants**
//! - Cursors over them show what those over the plain updates show, with references for large values.

use testudo_base::{Cursor, Entry, Kind, Result, Seqno, ValueReference, num::u64_of, sync::Arc};
use testudo_contract::{Updates, Work};
use testudo_run::RunOrigin;
use testudo_values::{Placement, Segment, SegmentWriter};

/// The references that stand for large values, in the order of their keys.
#[derive(Debug, Default)]
struct References {
    /// All keys, one after the other.
    keys: Vec<u8>,
    /// Where each key ends.
    ends: Vec<usize>,
    references: Vec<ValueReference>,
    /// Bytes that those up to each reference save.
    saved: Vec<u64>,
}

impl References {
    fn push(&mut self, key: &[u8], reference: ValueReference) {
        self.keys.extend_from_slice(key);
        self.ends.push(self.keys.len());
        self.references.push(reference);
        let saved = self.saved.last().copied().unwrap_or_default();
        self.saved.push(saved + u64::from(reference.length));
    }

    fn key(&self, index: usize) -> &[u8] {
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.keys[start..self.ends[index]]
    }

    /// How many keys come before `key`.
    fn rank(&self, key: &[u8]) -> usize {
        let (mut low, mut high) = (0, self.references.len());
        while low < high {
            let middle = low.midpoint(high);
            if self.key(middle) < key { low = middle + 1 } else { high = middle }
        }
        low
    }

    fn saved_before(&self, index: usize) -> u64 {
        index.checked_sub(1).map_or(0, |last| self.saved[last])
    }
}

/// Updates with references.
#[derive(Debug)]
pub(crate) struct SeparatedUpdates {
    plain: Arc<dyn Updates>,
    placement: Placement,
    references: Arc<References>,
}

/// Writes the large values of `plain` into segments of about `segment_bytes`; `None` if it has none.
pub(crate) fn separate(
    plain: &Arc<dyn Updates>,
    work: &Work,
    placement: Placement,
    segment_bytes: u64,
) -> Result<Option<(SeparatedUpdates, Vec<Segment>)>> {
    let (mut references, mut segments) = (References::default(), Vec::new());
    let mut open: Option<SegmentWriter> = None;
    let mut cursor = plain.cursor();
    cursor.seek_first()?;
    while let Some(entry) = cursor.entry() {
        if separates(placement, &entry) {
            if let Some(full) = open.take_if(|open| open.stored_bytes() >= segment_bytes) {
                segments.push(full.finish()?);
            }
            let writer = match &mut open {
                Some(open) => open,
                closed => closed.insert(SegmentWriter::new(
                    Arc::clone(&work.data),
                    segment_origin(work, plain.sealed_seqno()),
                    segment_bytes.min(plain.bytes()),
                )?),
            };
            references.push(entry.key, writer.push(entry.key, entry.value)?);
        }
        cursor.next()?;
    }
    let Some(last) = open else { return Ok(None) };
    segments.push(last.finish()?);
    let (plain, references) = (Arc::clone(plain), Arc::new(references));
    Ok(Some((SeparatedUpdates { plain, placement, references }, segments)))
}

/// What a new run of values says of itself. `newest_seqno`: none of its values is newer.
pub(crate) fn segment_origin(work: &Work, newest_seqno: Seqno) -> RunOrigin {
    RunOrigin {
        id: work.run_ids.take(),
        keyspace: work.keyspace,
        keyspace_name: Arc::clone(&work.keyspace_name),
        newest_seqno,
    }
}

#[inline]
fn separates(placement: Placement, entry: &Entry<'_>) -> bool {
    entry.kind == Kind::Value && placement.separates(entry.key.len(), entry.value.len())
}

impl Updates for SeparatedUpdates {
    fn cursor(&self) -> Box<dyn Cursor + Send> {
        Box::new(ReferenceCursor {
            plain: self.plain.cursor(),
            placement: self.placement,
            references: Arc::clone(&self.references),
            expected: 0,
            reference: Vec::new(),
        })
    }

    fn sealed_seqno(&self) -> Seqno {
        self.plain.sealed_seqno()
    }

    fn bytes(&self) -> u64 {
        self.plain.bytes().saturating_sub(self.references.saved_before(self.references.references.len()))
    }

    fn bytes_between(&self, low: Option<&[u8]>, high: Option<&[u8]>) -> u64 {
        let from = low.map_or(0, |low| self.references.rank(low));
        let to = high.map_or(self.references.references.len(), |high| self.references.rank(high));
        let saved = self.references.saved_before(to).saturating_sub(self.references.saved_before(from));
        // That of the plain ones is an estimate; references are left, at least.
        self.plain.bytes_between(low, high).saturating_sub(saved).max(u64_of(to.saturating_sub(from)))
    }

    fn key_range(&self) -> Option<(Vec<u8>, Vec<u8>)> {
        self.plain.key_range()
    }
}

/// A cursor over the plain updates that shows references.
struct ReferenceCursor {
    plain: Box<dyn Cursor + Send>,
    placement: Placement,
    references: Arc<References>,
    /// The reference that comes next, as a rule.
    expected: usize,
    /// That of the entry where it stands; empty if it has none.
    reference: Vec<u8>,
}

impl ReferenceCursor {
    /// After the plain cursor has moved.
    fn look(&mut self) {
        self.reference.clear();
        let Some(entry) = self.plain.entry().filter(|entry| separates(self.placement, entry)) else { return };
        let is_next = self.expected < self.references.references.len()
            && self.references.key(self.expected) == entry.key;
        let at = if is_next { self.expected } else { self.references.rank(entry.key) };
        debug_assert_eq!(self.references.key(at), entry.key, "a reference for each large value");
        self.references.references[at].encode(&mut self.reference);
        self.expected = at + 1;
    }

    fn moved(&mut self, outcome: Result<()>) -> Result<()> {
        self.look();
        outcome
    }
}

impl Cursor for ReferenceCursor {
    fn seek_first(&mut self) -> Result<()> {
        let outcome = self.plain.seek_first();
        self.moved(outcome)
    }

    fn seek_last(&mut self) -> Result<()> {
        let outcome = self.plain.seek_last();
        self.moved(outcome)
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        let outcome = self.plain.seek(key);
        self.moved(outcome)
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        let outcome = self.plain.seek_before(key);
        self.moved(outcome)
    }

    fn next(&mut self) -> Result<()> {
        let outcome = self.plain.next();
        self.moved(outcome)
    }

    fn prev(&mut self) -> Result<()> {
        let outcome = self.plain.prev();
        self.moved(outcome)
    }

    fn entry(&self) -> Option<Entry<'_>> {
        let entry = self.plain.entry()?;
        if self.reference.is_empty() {
            return Some(entry);
        }
        Some(Entry { kind: Kind::Reference, value: &self.reference, ..entry })
    }
}
