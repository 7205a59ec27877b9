//! The public write buffer. Its table is created by the first write; until then it costs next to nothing,
//! because there may be thousands of keyspaces without writes.
//!
//! **Invariants**
//! - The table exists until the memtable is dropped.

use std::ptr;

use testudo_base::{
    DropCounts, Kind, Seqno,
    chunks::ChunkPool,
    merge_operator::FullMerge,
    num::{u64_of, usize_of},
    prefetch::AddressHint,
    sync::{Arc, OnceLock},
};

use crate::{
    arena::View,
    leaf::InsertOutcome,
    table::{INSERT_LINES, Table},
    top::LEAF_LINES,
};

/// An ordered, concurrent, in-memory table of versions of keys; see the head of the crate.
#[derive(Debug)]
pub struct Memtable {
    table: OnceLock<Box<Table>>,
    pool: Arc<ChunkPool>,
    full_merge: Arc<FullMerge>,
}

/// The versions of a key, newest first.
#[derive(Clone)]
pub struct Versions<'a>(Option<View<'a>>);

impl<'a> Iterator for Versions<'a> {
    type Item = (Seqno, Kind, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let view = self.0.take()?;
        self.0 = view.prev();
        Some((view.seqno(), view.kind(), view.value()))
    }
}

impl Memtable {
    /// An empty memtable that takes its memory from `pool`, for a keyspace without a merge operator.
    pub fn new(pool: Arc<ChunkPool>) -> Self {
        Self::with_full_merge(pool, Arc::default())
    }

    /// An empty memtable that takes its memory from `pool` and merges operands as its keyspace does.
    pub fn with_full_merge(pool: Arc<ChunkPool>, full_merge: Arc<FullMerge>) -> Self {
        Self { table: OnceLock::new(), pool, full_merge }
    }

    /// The table, if anything was written.
    #[inline]
    pub(crate) fn table(&self) -> Option<&Table> {
        self.table.get().map(|table| &**table)
    }

    /// Returns the table, and its bytes if this call has created it.
    fn table_or_new(&self) -> (&Table, u64) {
        let mut made = 0;
        if self.table.get().is_none() {
            let table = Box::new(Table::new(Arc::clone(&self.pool), Arc::clone(&self.full_merge)));
            let bytes = table.memory_bytes();
            // If two threads create one, the first counts.
            made = self.table.set(table).map_or(0, |()| bytes);
        }
        (self.table().expect("there is one now"), made)
    }

    /// Inserts a version of `key`; threads may insert concurrently, in any seqno order.
    ///
    /// `keep_from` is the newest snapshot that reads this memtable: versions at or before it are kept when
    /// newer ones arrive; others are replaced. All writers must see the snapshot before any of them inserts a
    /// newer version. A version that arrives after a newer one is linked behind it if the snapshot may need
    /// it, and dropped otherwise; of two with equal seqno the later call wins. The value of a tombstone is
    /// ignored. Operands are stacked on the key's existing version; versions of such a key must arrive in
    /// seqno order.
    ///
    /// Panics if the memtable is frozen, or if key or value exceed their maximum length.
    #[inline]
    pub fn insert(
        &self,
        seqno: Seqno,
        kind: Kind,
        key: &[u8],
        value: &[u8],
        keep_from: Option<Seqno>,
    ) -> InsertOutcome {
        if let Some(table) = self.table() {
            return table.insert(seqno, kind, key, value, keep_from);
        }
        let (table, made) = self.table_or_new();
        let mut outcome = table.insert(seqno, kind, key, value, keep_from);
        outcome.memory_bytes_added += usize_of(made);
        outcome
    }

    /// Calls `f` with the newest version of `key` at or before `at`; `Seqno(u64::MAX)` selects the newest of
    /// all.
    ///
    /// `f` runs under the lock of the leaf: it should be short, and must not call this memtable.
    #[inline]
    pub fn get<R>(&self, key: &[u8], at: Seqno, f: impl FnOnce(Kind, &[u8]) -> R) -> Option<R> {
        self.table()?.get(key, at, f)
    }

    /// Returns a copy of the newest version of `key` at or before `at`.
    pub fn get_owned(&self, key: &[u8], at: Seqno) -> Option<(Kind, Vec<u8>)> {
        self.get(key, at, |kind, value| (kind, value.to_vec()))
    }

    /// The seqno of the newest version of `key`.
    pub fn newest_seqno(&self, key: &[u8]) -> Option<Seqno> {
        self.table()?.newest_seqno(key)
    }

    /// Returns the first key in `[low, high)` written after `since`; a concurrent insert may add one. Skips
    /// leaves without inserts since then.
    pub fn first_newer(&self, low: &[u8], high: Option<&[u8]>, since: Seqno) -> Option<Vec<u8>> {
        self.table()?.first_newer(low, high, since)
    }

    /// Bytes of memory, used or reserved: records, index, tables.
    pub fn memory_bytes(&self) -> u64 {
        u64_of(size_of::<Self>()) + self.table().map_or(0, Table::memory_bytes)
    }

    /// Bytes of all keys and their newest values. Visits all leaves.
    pub fn user_bytes(&self) -> u64 {
        self.table().map_or(0, Table::user_bytes)
    }

    /// Bytes of memory still occupied by replaced records. Visits all leaves.
    pub fn garbage_bytes(&self) -> u64 {
        self.table().map_or(0, Table::garbage_bytes)
    }

    /// Versions that readers of the newest ones will not see again: newer ones of their keys exist, they
    /// arrived too late, or their operands became part of another one. Older ones that snapshots read are
    /// included. Visits all leaves.
    ///
    /// The versions inserted and made equal [`Memtable::len`] plus the dropped ones; the same holds for their
    /// bytes.
    pub fn drops(&self) -> DropCounts {
        self.table().map_or_else(DropCounts::default, Table::drops)
    }

    /// Number of keys. Visits all leaves.
    pub fn len(&self) -> usize {
        self.table().map_or(0, Table::len)
    }

    /// Whether it has no keys.
    pub fn is_empty(&self) -> bool {
        self.table().is_none_or(Table::is_empty)
    }

    /// Least seqno inserted. Visits all leaves.
    pub fn min_seqno(&self) -> Option<Seqno> {
        self.table()?.min_seqno()
    }

    /// Greatest seqno inserted. Visits all leaves.
    pub fn max_seqno(&self) -> Option<Seqno> {
        self.table()?.max_seqno()
    }

    /// The least key.
    pub fn min_key(&self) -> Option<Vec<u8>> {
        self.table()?.min_key()
    }

    /// The greatest key.
    pub fn max_key(&self) -> Option<Vec<u8>> {
        self.table()?.max_key()
    }

    /// Estimates the bytes of the entries in `[low, high)`: keys, newest values, and a small overhead per
    /// entry.
    ///
    /// Exact except where a bound is within a leaf, whose entries are assumed to have equal size. Visits the
    /// leaves of the range.
    /// leaves of the range.
    pub fn bytes_between(&self, low: Option<&[u8]>, high: Option<&[u8]>) -> u64 {
        self.table().map_or(0, |table| table.bytes_between(low, high))
    }

    /// Forbids further inserts. On return, no insert is in progress.
    pub fn freeze(&self) {
        self.table_or_new().0.freeze();
    }

    /// Whether the memtable must be sealed because its arena ids are nearly exhausted: at about 2 GB of
    /// values of 32 KiB each, or 16 GB of small ones. A batch of the maximum size still fits.
    pub fn must_seal(&self) -> bool {
        self.table().is_some_and(Table::must_seal)
    }

    /// For tests: acts as if `count` more of the 131,064 arena ids were in use.
    #[doc(hidden)]
    pub fn use_up_names(&self, count: u32) {
        self.table_or_new().0.use_up_names(count);
    }

    /// Like [`Table::visit_from`].
    pub(crate) fn visit_from(
        &self,
        start: &[u8],
        exclusive: bool,
        at: Seqno,
        visit: impl FnMut(View<'_>) -> bool,
    ) {
        if let Some(table) = self.table() {
            table.visit_from(start, exclusive, at, visit);
        }
    }

    /// Calls `show` with the kind, the seqno and the value length of each entry as of `at`, in key order.
    pub fn for_each_version(&self, at: Seqno, mut show: impl FnMut(Kind, Seqno, usize)) {
        let mut last: Option<Vec<u8>> = None;
        loop {
            let start = last.take();
            self.visit_from(start.as_deref().unwrap_or_default(), start.is_some(), at, |view| {
                show(view.kind(), view.seqno(), view.value().len());
                let last = last.get_or_insert_default();
                last.clear();
                last.extend_from_slice(view.key());
                true
            });
            if last.is_none() {
                return;
            }
        }
    }

    /// Whether anything was ever written.
    #[inline]
    pub fn was_written(&self) -> bool {
        self.table().is_some()
    }

    /// Calls `visit` with each key and all of its versions, in key order, until it returns false. It runs
    /// under the lock of the leaf, which readers share: it may be slow only if the memtable is frozen.
    pub fn for_each_key(&self, mut visit: impl FnMut(&[u8], Versions<'_>) -> bool) {
        let mut last: Option<Vec<u8>> = None;
        loop {
            let start = last.take();
            let mut goes_on = true;
            let newest = Seqno(u64::MAX);
            self.visit_from(start.as_deref().unwrap_or_default(), start.is_some(), newest, |view| {
                let last = last.get_or_insert_default();
                last.clear();
                last.extend_from_slice(view.key());
                goes_on = visit(view.key(), Versions(Some(view)));
                goes_on
            });
            if last.is_none() || !goes_on {
                return;
            }
        }
    }

    /// Like [`Table::visit_below`].
    pub(crate) fn visit_below(&self, end: Option<&[u8]>, at: Seqno, visit: impl FnMut(View<'_>) -> bool) {
        if let Some(table) = self.table() {
            table.visit_below(end, at, visit);
        }
    }

    /// Checks the invariants of the table.
    #[cfg(test)]
    pub(crate) fn check(&self) {
        if let Some(table) = self.table() {
            table.check();
        }
    }
}

/// Addresses of a memtable's parts, recorded by an insert, so that everything the next insert accesses is
/// prefetched at once. Wrong hints only cost time.
///
/// Among thousands of memtables, none is in a cache. Each pointer from one part to the next then costs a
/// memory latency; with known addresses there is only one.
#[derive(Debug, Default)]
pub struct MemtableHint {
    memtable: AddressHint,
    table: AddressHint,
    leaf: AddressHint,
}

impl MemtableHint {
    /// Records the addresses after an insert into `memtable`. A large memtable is not recorded: it is written
    /// so often that its shared parts are in the caches, including those of other processors.
    #[inline]
    pub fn note(&self, memtable: &Memtable) {
        let small = memtable.table().filter(|table| table.is_small());
        self.memtable.note(small.map_or(ptr::null(), |_| ptr::from_ref(memtable).cast()));
        self.table.note(small.map_or(ptr::null(), |table| ptr::from_ref(table).cast()));
        self.leaf.note(small.map_or(ptr::null(), |table| table.only_leaf()));
    }

    /// Prefetches everything that an insert accesses.
    #[inline]
    pub fn prefetch(&self) {
        self.memtable.prefetch::<1>();
        self.table.prefetch_to_write::<INSERT_LINES>();
        self.leaf.prefetch_to_write::<LEAF_LINES>();
    }
}

#[cfg(test)]
mod tests;
