//! A write buffer as its holders see it: snapshots, iterators, readers of values.
//!
//! A holder refers to a slot that holds the memtable until it has been flushed and its memory is needed for
//! other purposes. From then on the slot holds a spilled buffer (`spilled_buffer.rs`), shared by all holders.
//! A cursor in the middle of the memtable continues in the spilled buffer at the next key.
//!
//! **Invariants**
//! - The buffer's contents as of a reader's seqno never change.
//! - A buffer is spilled only after its flush, when nothing more is written to it.

use testudo_base::{
    Cursor, Entry, Kind, Result, Seqno,
    sync::{Arc, ArcSwap},
};
use testudo_memtable::{Memtable, MemtableScan};

use crate::snapshots::{spilled_buffer::SpilledBuffer, spilled_cursor::SpilledCursor};

/// Location of the contents.
#[derive(Debug)]
enum Content {
    Memory(Arc<Memtable>),
    Disk(Arc<SpilledBuffer>),
}

/// A write buffer shared with holders.
#[derive(Debug)]
pub struct HeldBuffer(ArcSwap<Content>);

impl HeldBuffer {
    pub fn new(table: &Arc<Memtable>) -> Self {
        Self(ArcSwap::from_pointee(Content::Memory(Arc::clone(table))))
    }

    /// The memtable, unless spilled.
    pub fn memtable(&self) -> Option<Arc<Memtable>> {
        match &**self.0.load() {
            Content::Memory(table) => Some(Arc::clone(table)),
            Content::Disk(_) => None,
        }
    }

    /// Releases the memtable. REQUIRES: `spilled` has the same contents for every holder.
    pub fn spill(&self, spilled: SpilledBuffer) {
        debug_assert!(self.memtable().is_some(), "a buffer is spilled once, for all holders");
        self.0.store(Arc::new(Content::Disk(Arc::new(spilled))));
    }

    /// Whether nothing was ever written to it.
    fn is_untouched(&self) -> bool {
        matches!(&**self.0.load(), Content::Memory(table) if !table.was_written())
    }

    /// Calls `f` with the newest version of `key` at or before `at`. `f` may run under the lock of a leaf: it
    /// should be short.
    pub fn get<R>(&self, key: &[u8], at: Seqno, f: impl FnOnce(Kind, &[u8]) -> R) -> Result<Option<R>> {
        match &**self.0.load() {
            Content::Memory(table) => Ok(table.get(key, at, f)),
            Content::Disk(spilled) => spilled.get(key, at, f),
        }
    }

    /// A cursor as of `at`; `None` if nothing was ever written to the buffer.
    /// REQUIRES: `at` is a registered seqno, and all commits up to it are done.
    pub fn cursor(self: &Arc<Self>, at: Seqno) -> Option<HeldCursor> {
        let place = Place::Memory(MemtableScan::new(at));
        (!self.is_untouched()).then(|| HeldCursor { buffer: Arc::clone(self), at, place })
    }
}

/// Position of a cursor.
#[derive(Debug)]
enum Place {
    Memory(MemtableScan),
    Disk(Box<SpilledCursor>),
}

/// A cursor over a held buffer; it does not pin the memtable.
#[derive(Debug)]
pub struct HeldCursor {
    buffer: Arc<HeldBuffer>,
    at: Seqno,
    place: Place,
}

impl HeldCursor {
    /// Continues with `in_memory` if the cursor is in the memtable and that is still there, or else with
    /// `on_disk`, which gets the cursor's key in the memtable.
    fn look(
        &mut self,
        in_memory: impl FnOnce(&mut MemtableScan, &Memtable),
        on_disk: impl FnOnce(&mut SpilledCursor, Option<&[u8]>) -> Result<()>,
    ) -> Result<()> {
        let spilled = match (&mut self.place, &**self.buffer.0.load()) {
            (Place::Memory(scan), Content::Memory(table)) => {
                in_memory(scan, table);
                return Ok(());
            }
            (Place::Disk(cursor), _) => return on_disk(cursor, None),
            (Place::Memory(_), Content::Disk(spilled)) => Arc::clone(spilled),
        };
        let mut cursor = Box::new(SpilledCursor::new(spilled, self.at));
        let stood_on = self.entry().map(|entry| entry.key.to_vec());
        on_disk(&mut cursor, stood_on.as_deref())?;
        self.place = Place::Disk(cursor);
        Ok(())
    }
}

impl Cursor for HeldCursor {
    fn seek_first(&mut self) -> Result<()> {
        self.look(|scan, table| scan.seek(table, &[]), |cursor, _| cursor.seek_first())
    }

    fn seek_last(&mut self) -> Result<()> {
        self.look(|scan, table| scan.seek_below(table, None), |cursor, _| cursor.seek_last())
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.look(|scan, table| scan.seek(table, key), |cursor, _| cursor.seek(key))
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        self.look(|scan, table| scan.seek_below(table, Some(key)), |cursor, _| cursor.seek_before(key))
    }

    fn next(&mut self) -> Result<()> {
        if let Place::Memory(scan) = &mut self.place
            && scan.step_forward()
        {
            return Ok(());
        }
        self.look(MemtableScan::go_on, |cursor, stood_on| {
            if let Some(key) = stood_on {
                cursor.seek(key)?;
                if cursor.entry().is_none_or(|entry| entry.key != key) {
                    return Ok(());
                }
            }
            cursor.next()
        })
    }

    fn prev(&mut self) -> Result<()> {
        if let Place::Memory(scan) = &mut self.place
            && scan.step_back()
        {
            return Ok(());
        }
        self.look(MemtableScan::go_back, |cursor, stood_on| match stood_on {
            Some(key) => cursor.seek_before(key),
            None => cursor.prev(),
        })
    }

    fn entry(&self) -> Option<Entry<'_>> {
        match &self.place {
            Place::Memory(scan) => scan.entry(),
            Place::Disk(cursor) => cursor.entry(),
        }
    }

    fn memory_bytes(&self) -> usize {
        match &self.place {
            Place::Memory(scan) => scan.memory_bytes(),
            Place::Disk(cursor) => size_of::<SpilledCursor>() + cursor.memory_bytes(),
        }
    }
}
