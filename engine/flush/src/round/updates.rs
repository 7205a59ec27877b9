//! Presents a frozen memtable to a tree as updates.
//!
//! **Invariants**
//! - An entry has a reference instead of its value only if the write that made it appended that value to the
//!   buffer's value log.

use std::sync::Arc;

use testudo_base::{Cursor, Entry, Kind, Result, Seqno, ValueReference};
use testudo_contract::Updates;
use testudo_memtable::{Memtable, MemtableCursor};
use testudo_values::{LoggedValues, Segment};

/// At least one in this many bytes of logged values must be live at the flush; otherwise the live values are
/// rewritten together.
const LIVING_PART: u64 = 2;
/// The upper bound of all seqnos.
const NEWEST: Seqno = Seqno(u64::MAX);

/// Which logged values stay where they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeptValues {
    /// Those of a segment of which enough is live; others are written again.
    IfMany,
    /// All of them, for lack of space to write any again.
    Always,
}

/// Newest versions of all keys in a frozen memtable.
#[derive(Debug)]
pub struct MemtableUpdates {
    table: Arc<Memtable>,
    sealed_seqno: Seqno,
    bytes: u64,
    logged: Option<Logged>,
}

/// Values that commits appended to the log, and the segment that counts which of them are still live.
#[derive(Debug)]
struct Logged {
    values: Arc<LoggedValues>,
    segment: Segment,
}

impl MemtableUpdates {
    pub fn new(table: Arc<Memtable>, sealed_seqno: Seqno) -> Self {
        debug_assert!(sealed_seqno > Seqno(0), "updates are those of a sealed buffer");
        let bytes = table.user_bytes();
        Self { table, sealed_seqno, bytes, logged: None }
    }

    /// Adds the locations of logged values.
    pub fn with_logged(self, values: Option<Arc<LoggedValues>>, kept: KeptValues) -> Self {
        let Some(values) = values else { return self };
        let mut segment = values.segment().with_all_dead();
        self.table.for_each_version(NEWEST, |kind, seqno, length| {
            if let Some(reference) = reference_of(&values, kind, seqno, length) {
                segment.revive(&reference);
            }
        });
        debug_assert!(segment.dead_bytes() <= segment.stored_bytes(), "only stored values are garbage");
        let living_bytes = segment.stored_bytes() - segment.dead_bytes();
        let are_few = living_bytes * LIVING_PART < segment.stored_bytes();
        if segment.is_dead() || (are_few && kept == KeptValues::IfMany) {
            return self;
        }
        Self { logged: Some(Logged { values, segment }), ..self }
    }
}

/// Location of an entry's value in the value log, found by the seqno of its write.
fn reference_of(values: &LoggedValues, kind: Kind, seqno: Seqno, length: usize) -> Option<ValueReference> {
    if kind == Kind::Value { values.reference_of(seqno, length) } else { None }
}

/// A cursor over a memtable that shows references instead of logged values.
struct ReferringCursor {
    plain: MemtableCursor,
    values: Arc<LoggedValues>,
    /// Encoded reference of the current entry.
    reference: Option<Vec<u8>>,
}

impl ReferringCursor {
    fn after(&mut self, moved: Result<()>) -> Result<()> {
        moved?;
        let mut bytes = self.reference.take().unwrap_or_default();
        bytes.clear();
        let found = self
            .plain
            .entry()
            .zip(self.plain.seqno())
            .and_then(|(entry, seqno)| reference_of(&self.values, entry.kind, seqno, entry.value.len()));
        self.reference = found.map(|reference| {
            reference.encode(&mut bytes);
            bytes
        });
        Ok(())
    }
}

impl Cursor for ReferringCursor {
    fn seek_first(&mut self) -> Result<()> {
        let moved = self.plain.seek_first();
        self.after(moved)
    }

    fn seek_last(&mut self) -> Result<()> {
        let moved = self.plain.seek_last();
        self.after(moved)
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        let moved = self.plain.seek(key);
        self.after(moved)
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        let moved = self.plain.seek_before(key);
        self.after(moved)
    }

    fn next(&mut self) -> Result<()> {
        let moved = self.plain.next();
        self.after(moved)
    }

    fn prev(&mut self) -> Result<()> {
        let moved = self.plain.prev();
        self.after(moved)
    }

    fn entry(&self) -> Option<Entry<'_>> {
        let entry = self.plain.entry()?;
        Some(match &self.reference {
            Some(reference) => Entry { kind: Kind::Reference, value: reference, ..entry },
            None => entry,
        })
    }
}

impl Updates for MemtableUpdates {
    fn cursor(&self) -> Box<dyn Cursor + Send> {
        Box::new(self.table.cursor_to_end(NEWEST))
    }

    fn sealed_seqno(&self) -> Seqno {
        self.sealed_seqno
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn bytes_between(&self, low: Option<&[u8]>, high: Option<&[u8]>) -> u64 {
        self.table.bytes_between(low, high)
    }

    fn key_range(&self) -> Option<(Vec<u8>, Vec<u8>)> {
        Some((self.table.min_key()?, self.table.max_key()?))
    }

    fn value_segment(&self) -> Option<Segment> {
        self.logged.as_ref().map(|logged| logged.segment.clone())
    }

    fn cursor_with_references(&self) -> Box<dyn Cursor + Send> {
        match &self.logged {
            Some(logged) => Box::new(ReferringCursor {
                plain: self.table.cursor_to_end(NEWEST),
                values: Arc::clone(&logged.values),
                reference: None,
            }),
            None => self.cursor(),
        }
    }
}
