//! The sources of a scan: write buffers and the tree, merged.
//!
//! **Invariants**
//! - Separated values appear as references and are not read.

use testudo_base::{Cursor, Entry, Result, Seqno};
use testudo_memtable::MemtableCursor;
use testudo_run::{MergeCursor, ScanLimits};

use crate::{
    keyspace::View,
    snapshots::{held_buffer::HeldCursor, held_view::HeldView},
};

/// A source of a scan: a write buffer or the tree.
pub enum Source {
    Buffer(MemtableCursor),
    Held(HeldCursor),
    Tree(Box<dyn Cursor + Send>),
}

/// The merged sources of a scan.
pub type Sources = MergeCursor<Source>;

/// Calls the same method of the source's cursor.
macro_rules! either {
    ($source:expr, $cursor:ident => $call:expr) => {
        match $source {
            Source::Buffer($cursor) => $call,
            Source::Held($cursor) => $call,
            Source::Tree($cursor) => $call,
        }
    };
}

impl Cursor for Source {
    fn seek_first(&mut self) -> Result<()> {
        either!(self, cursor => cursor.seek_first())
    }
    fn seek_last(&mut self) -> Result<()> {
        either!(self, cursor => cursor.seek_last())
    }
    fn seek(&mut self, key: &[u8]) -> Result<()> {
        either!(self, cursor => cursor.seek(key))
    }
    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        either!(self, cursor => cursor.seek_before(key))
    }
    fn next(&mut self) -> Result<()> {
        either!(self, cursor => cursor.next())
    }
    fn prev(&mut self) -> Result<()> {
        either!(self, cursor => cursor.prev())
    }
    fn entry(&self) -> Option<Entry<'_>> {
        either!(self, cursor => cursor.entry())
    }
    fn memory_bytes(&self) -> usize {
        either!(self, cursor => cursor.memory_bytes())
    }
}

/// The sources of a scan of a view as of `seqno`, within `limits`.
pub fn sources_at(view: &HeldView, seqno: Seqno, limits: &ScanLimits) -> Sources {
    debug_assert!(!view.buffers.is_empty(), "a view has the buffer that was active");
    let mut sources = Vec::with_capacity(view.buffers.len() + 1);
    sources.extend(view.buffers.iter().filter_map(|buffer| buffer.cursor(seqno)).map(Source::Held));
    sources.push(Source::Tree(view.tree.cursor_within(limits)));
    MergeCursor::new(sources)
}

/// The sources of a scan of the newest state of a view.
pub fn sources_of_newest(view: &View, limits: &ScanLimits) -> Sources {
    let mut sources = Vec::with_capacity(view.sealed.len() + 2);
    for buffer in view.buffers().filter(|buffer| buffer.first_commit().is_some()) {
        sources.push(Source::Buffer(buffer.table.cursor(Seqno(u64::MAX))));
    }
    sources.push(Source::Tree(view.tree.cursor_within(limits)));
    MergeCursor::new(sources)
}
