//! A frozen memtable as a tree wants to see it.

use std::sync::Arc;

use testudo_base::{Cursor, Seqno};
use testudo_contract::Updates;
use testudo_memtable::Memtable;

/// The newest versions of everything in a frozen memtable, or those that a snapshot sees.
#[derive(Debug)]
pub(crate) struct MemtableUpdates {
    table: Arc<Memtable>,
    at: Seqno,
    sealed_seqno: Seqno,
    bytes: u64,
}

impl MemtableUpdates {
    pub(crate) fn new(table: Arc<Memtable>, sealed_seqno: Seqno) -> Self {
        Self::as_of(table, sealed_seqno, Seqno(u64::MAX))
    }

    /// What a snapshot at `at` sees of them. REQUIRES: it was known to the memtable. Sizes and the range
    /// of keys are those of all.
    pub(crate) fn as_of(table: Arc<Memtable>, sealed_seqno: Seqno, at: Seqno) -> Self {
        let bytes = table.user_bytes();
        Self { table, at, sealed_seqno, bytes }
    }
}

impl Updates for MemtableUpdates {
    fn cursor(&self) -> Box<dyn Cursor + Send> {
        Box::new(self.table.cursor(self.at))
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
}
