//! The state of a keyspace that readers see: its write buffers and its tree, replaced as a whole.
//!
//! **Invariants**
//! - Buffers are newest first; everything in the tree is older than everything in the buffers.
//! - The active buffer changes only under the commit lock.

use std::{ptr, time::Duration};

use testudo_base::{
    KeyspaceId, Result, Seqno,
    merge_operator::FullMerge,
    num::{low64, u64_of},
    prefetch::{AddressHint, LINE_BYTES},
    sync::{
        Arc, ArcSwap, Mutex, OnceLock,
        atomic::{
            AtomicBool, AtomicU64, AtomicUsize,
            Ordering::{AcqRel, Acquire, Relaxed, Release},
        },
    },
};
use testudo_contract::Tree;
use testudo_memtable::{Memtable, MemtableHint};
use testudo_options::StoredOptions;
use testudo_records::KeyspaceRecords;
use testudo_values::{Placement, ValueLog, ValueLogRecord};

use crate::{
    background::{drop_totals::DropTotals, idle::Idle},
    gaps::Gaps,
    memory::budget::OwnShare,
    snapshots::{held_buffer::HeldBuffer, held_view::HeldView},
};

/// A memtable with the seqnos of its first and last commits.
#[derive(Debug)]
pub struct WriteBuffer {
    pub table: Arc<Memtable>,
    /// Seqno of the first commit that chose this buffer; 0 before that.
    first_seqno: AtomicU64,
    /// The last seqno that the buffer may hold, once it is sealed.
    sealed_at: AtomicU64,
    /// Bytes of the longest value or list of operands that a commit has inserted.
    longest_value_bytes: AtomicUsize,
    /// Shared with holders that outlive the flush of the buffer.
    held: OnceLock<Arc<HeldBuffer>>,
    /// Decides which values go to value logs.
    placement: Placement,
    /// Bytes of inserted values that qualify for a value log.
    loggable_bytes: AtomicU64,
    /// The value log to which commits write such values, if not to the WAL.
    value_log: Option<Arc<ValueLog>>,
    /// The value log was taken away; no commit has appended to it.
    has_given_up_log: AtomicBool,
}

impl WriteBuffer {
    pub fn new(table: Memtable, placement: Placement, value_log: Option<Arc<ValueLog>>) -> Arc<Self> {
        Arc::new(Self {
            table: Arc::new(table),
            first_seqno: 0.into(),
            sealed_at: 0.into(),
            longest_value_bytes: 0.into(),
            held: OnceLock::new(),
            placement,
            loggable_bytes: 0.into(),
            value_log,
            has_given_up_log: false.into(),
        })
    }

    /// Records that a commit has inserted a value.
    #[inline]
    pub fn record_loggable(&self, value: &[u8]) {
        if self.goes_to_value_log(value) {
            debug_assert!(self.first_commit().is_some(), "a commit has chosen the buffer");
            self.loggable_bytes.fetch_add(u64_of(value.len()), Relaxed);
        }
    }

    /// Whether the value qualifies for a value log, so that it is written only once.
    pub fn goes_to_value_log(&self, value: &[u8]) -> bool {
        self.placement.goes_to_value_log(value.len())
    }

    /// Whether values in the value log later move back to their keys.
    pub fn logs_transient(&self) -> bool {
        self.placement.logs_medium()
    }

    /// Bytes of inserted values that qualify for a value log.
    pub fn loggable_bytes(&self) -> u64 {
        self.loggable_bytes.load(Relaxed)
    }

    /// The value log to which commits write such values, if not to the WAL.
    pub fn value_log(&self) -> Option<&Arc<ValueLog>> {
        self.value_log.as_ref().filter(|_| !self.has_given_up_log.load(Acquire))
    }

    /// Whether the buffer is unsealed and its value log is full.
    pub fn has_full_log(&self) -> bool {
        self.sealed_at() == Seqno(0) && self.value_log().is_some_and(|log| log.is_full())
    }

    /// Takes the value log away and returns it, if no commit has appended to it. REQUIRES: the commit lock is
    /// held.
    pub fn give_up_unused_log(&self) -> Option<Arc<ValueLog>> {
        let unused = self.value_log().filter(|log| log.is_unused()).cloned();
        debug_assert_eq!(self.sealed_at(), Seqno(0), "the log of a sealed buffer becomes a segment");
        if unused.is_some() {
            self.has_given_up_log.store(true, Release);
        }
        unused
    }

    /// Records that a commit has inserted a value of `bytes`, or operands that became part of such an entry.
    #[inline]
    pub fn record_value(&self, bytes: usize) {
        if bytes > self.longest_value_bytes.load(Relaxed) {
            self.longest_value_bytes.fetch_max(bytes, Relaxed);
        }
    }

    /// Upper bound of the length of entries written since the store was opened. Exact for a key whose stripe
    /// is locked.
    pub fn longest_value_bytes(&self) -> usize {
        self.longest_value_bytes.load(Relaxed)
    }

    /// Records that a commit will write to the buffer; returns whether it is the first. REQUIRES: the commit
    /// lock.
    #[inline]
    pub fn record_commit(&self, first: Seqno) -> bool {
        let before = self.first_seqno.load(Relaxed);
        debug_assert!(before < first.0, "commits are recorded in the order of their seqnos");
        debug_assert_eq!(self.sealed_at(), Seqno(0), "no commit chooses a sealed buffer");
        let is_first = before == 0;
        if is_first {
            self.first_seqno.store(first.0, Release);
        }
        is_first
    }

    /// Seqno of the first commit that chose the buffer, if any.
    pub fn first_commit(&self) -> Option<Seqno> {
        Some(Seqno(self.first_seqno.load(Acquire))).filter(|seqno| seqno.0 > 0)
    }

    /// Seals the buffer: it never holds a seqno above `seqno`. REQUIRES: the commit lock is held.
    pub fn seal(&self, seqno: Seqno) {
        debug_assert_eq!(self.sealed_at(), Seqno(0), "a buffer is sealed once");
        debug_assert!(self.first_commit().is_some_and(|first| first <= seqno), "a sealed buffer has commits");
        self.sealed_at.store(seqno.0, Release);
    }

    /// The buffer as shared with holders that outlive its flush.
    pub fn held(&self) -> &Arc<HeldBuffer> {
        self.held.get_or_init(|| Arc::new(HeldBuffer::new(&self.table)))
    }

    /// Whether such a holder exists.
    pub fn is_held(&self) -> bool {
        self.held.get().is_some_and(|held| Arc::strong_count(held) > 1)
    }

    pub fn sealed_at(&self) -> Seqno {
        Seqno(self.sealed_at.load(Acquire))
    }
}

/// The state of a keyspace at one moment.
#[derive(Debug)]
pub struct View {
    pub active: Arc<WriteBuffer>,
    /// Newest first.
    pub sealed: Vec<Arc<WriteBuffer>>,
    pub tree: Arc<dyn Tree>,
    /// Cached records of the tree.
    pub records: KeyspaceRecords,
    /// How operands become values.
    pub full_merge: Arc<FullMerge>,
    /// The settings in force for the tree, shared by many keyspaces.
    pub options: Arc<StoredOptions>,
    /// This view as shared with its holders.
    pub held: OnceLock<Arc<HeldView>>,
}

impl View {
    /// This view for holders that outlive its replacement.
    pub fn held(&self) -> Arc<HeldView> {
        let held = self.held.get_or_init(|| {
            Arc::new(HeldView {
                buffers: self.buffers().map(|buffer| Arc::clone(buffer.held())).collect(),
                tree: Arc::clone(&self.tree),
                records: self.records.clone(),
                full_merge: Arc::clone(&self.full_merge),
                options: Arc::clone(&self.options),
            })
        });
        Arc::clone(held)
    }

    /// All write buffers, newest first.
    pub fn buffers(&self) -> impl Iterator<Item = &Arc<WriteBuffer>> {
        std::iter::once(&self.active).chain(&self.sealed)
    }
}

/// Addresses that a commit to a keyspace dereferences one after the other.
#[derive(Debug, Default)]
pub struct WriteHint {
    view: AddressHint,
    buffer: AddressHint,
    memtable: MemtableHint,
}

impl WriteHint {
    /// Records that a commit has written to the active buffer of `view`.
    #[inline]
    pub fn note(&self, view: &View) {
        self.view.note(ptr::from_ref(view).cast());
        self.buffer.note(ptr::from_ref(&*view.active).cast());
        self.memtable.note(&view.active.table);
    }

    /// Prefetches all of them.
    #[inline]
    pub fn prefetch(&self) {
        self.view.prefetch::<{ size_of::<View>().div_ceil(LINE_BYTES) }>();
        self.buffer.prefetch::<{ size_of::<WriteBuffer>().div_ceil(LINE_BYTES) }>();
        self.memtable.prefetch();
    }
}

/// A keyspace of an open store. Fields that commits use come first and adjacent: among thousands of
/// keyspaces, most are in no CPU cache.
#[derive(Debug)]
#[repr(C)]
pub struct KeyspaceCore {
    pub id: KeyspaceId,
    pub write_share: OwnShare,
    /// Microseconds for which its writers waited for its jobs or its own share of write memory.
    pub delayed_micros: AtomicU64,
    pub view: ArcSwap<View>,
    pub write_hint: WriteHint,
    /// The [`FullMerge`] has an operator.
    has_operator: bool,
    dropped: AtomicBool,
    /// Written since the last background check.
    was_written: AtomicBool,
    /// The active buffer must be sealed before much more is written to it.
    pub must_seal: AtomicBool,
    pub full_merge: Arc<FullMerge>,
    pub name: Arc<str>,
    pub drops: DropTotals,
    /// Ranges that scans skip; created by the first scan.
    gaps: OnceLock<Arc<Gaps>>,
    /// Time of the last write. Used by background work alone.
    pub idle: Mutex<Idle>,
    /// A search for background jobs may find one.
    jobs_may_exist: AtomicBool,
    /// As above, for jobs that run only in an idle tree.
    idle_jobs_may_exist: AtomicBool,
    /// The last job could not be installed: the tree had changed.
    was_overtaken: AtomicBool,
    /// Value log for the next buffer.
    pub spare_value_log: Mutex<Option<Arc<ValueLog>>>,
    /// Value logs found at opening, kept until all their values are flushed.
    pub found_value_logs: Mutex<Vec<ValueLogRecord>>,
}

impl KeyspaceCore {
    /// Its gaps, for a scan.
    pub fn gaps(&self, bytes_of_all: &Arc<AtomicU64>) -> Arc<Gaps> {
        Arc::clone(self.gaps.get_or_init(|| Arc::new(Gaps::new(bytes_of_all))))
    }

    /// Returns the gaps of the keyspace, if it has any.
    #[inline]
    pub fn known_gaps(&self) -> Option<&Gaps> {
        self.gaps.get().map(|gaps| &**gaps).filter(|gaps| !gaps.is_empty())
    }

    /// A keyspace that was just opened or created.
    pub fn new(id: KeyspaceId, name: Arc<str>, view: View, now: Duration) -> Arc<Self> {
        debug_assert!(view.sealed.is_empty(), "a keyspace begins without sealed buffers");
        let full_merge = Arc::clone(&view.full_merge);
        Arc::new(Self {
            id,
            write_share: OwnShare::default(),
            delayed_micros: 0.into(),
            view: ArcSwap::from_pointee(view),
            write_hint: WriteHint::default(),
            has_operator: full_merge.has_operator(),
            dropped: false.into(),
            was_written: false.into(),
            must_seal: false.into(),
            full_merge,
            name,
            drops: DropTotals::default(),
            gaps: OnceLock::new(),
            idle: Mutex::new(Idle::from(now)),
            jobs_may_exist: true.into(),
            idle_jobs_may_exist: true.into(),
            was_overtaken: false.into(),
            spare_value_log: Mutex::default(),
            found_value_logs: Mutex::default(),
        })
    }

    /// The full merge, if the keyspace has a merge operator.
    #[inline]
    pub fn merging(&self) -> Option<&FullMerge> {
        self.has_operator.then_some(&*self.full_merge)
    }

    /// Same as [`FullMerge::check_value`].
    #[inline]
    pub fn check_value(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.merging().map_or(Ok(()), |full_merge| full_merge.check_value(key, value))
    }

    /// The value logs that the durable state refers to. REQUIRES: `flush_lock` and the commit lock are held.
    pub fn value_logs(&self) -> Vec<ValueLogRecord> {
        let view = self.view.load();
        let of_buffers = view.buffers().filter_map(|buffer| buffer.value_log());
        let mut records: Vec<_> = of_buffers.map(|log| log.record().clone()).collect();
        records.extend(self.spare_value_log.lock().iter().map(|log| log.record().clone()));
        records.extend(self.found_value_logs.lock().iter().cloned());
        records
    }

    /// Releases the space of the value logs. REQUIRES: no durable state refers to it any more.
    pub fn give_up_value_logs(&self) {
        let spare = self.spare_value_log.lock().take();
        let view = self.view.load();
        let of_buffers = view.buffers().filter_map(|buffer| buffer.value_log());
        of_buffers.chain(&spare).for_each(|log| log.give_up());
    }

    pub fn is_dropped(&self) -> bool {
        self.dropped.load(Acquire)
    }

    pub fn mark_dropped(&self) {
        self.dropped.store(true, Release);
    }

    /// Records that a commit chose this keyspace's buffer. Stores only on change, to keep the cache line
    /// shared.
    #[inline]
    pub fn record_write(&self) {
        if !self.was_written.load(Relaxed) {
            self.was_written.store(true, Relaxed);
        }
    }

    /// Consumes the written flag: a write interrupts idleness.
    pub fn check_for_writes(&self, now: Duration) {
        if self.was_written.load(Relaxed) {
            self.was_written.store(false, Relaxed);
            self.idle.lock().interrupt(now);
        }
    }

    /// Records that the tree has changed, so that it may have jobs.
    pub fn expect_jobs(&self) {
        self.jobs_may_exist.store(true, Release);
        self.idle_jobs_may_exist.store(true, Release);
    }

    /// Whether a search for jobs may find one; clears the flags until [`KeyspaceCore::expect_jobs`] sets
    /// them.
    pub fn take_expected_jobs(&self, is_idle: bool) -> bool {
        // A search visits all keyspaces, and few have a flag set.
        let take = |flag: &AtomicBool| flag.load(Acquire) && flag.swap(false, AcqRel);
        let expected = take(&self.jobs_may_exist);
        let expected_if_idle = is_idle && take(&self.idle_jobs_may_exist);
        expected || expected_if_idle
    }

    /// Records a delay of a writer for the sake of this keyspace.
    pub fn record_delay(&self, delay: Duration) {
        self.delayed_micros.fetch_add(low64(delay.as_micros()), Relaxed);
    }

    /// Records whether the last job was installed, or discarded because the tree had changed.
    pub fn note_installed(&self, is_installed: bool) {
        self.was_overtaken.store(!is_installed, Relaxed);
    }

    pub fn was_overtaken(&self) -> bool {
        self.was_overtaken.load(Relaxed)
    }

    /// Seals the active buffer at `seqno` and makes `table` the new active one.
    /// REQUIRES: the commit lock is held.
    pub fn seal_active(&self, seqno: Seqno, table: Memtable) {
        let view = self.view.load();
        view.active.seal(seqno);
        debug_assert!(
            view.sealed.first().is_none_or(|newest| newest.sealed_at() < seqno),
            "buffers are newest first"
        );
        let value_log = self.spare_value_log.lock().take();
        let mut sealed = vec![Arc::clone(&view.active)];
        sealed.extend(view.sealed.iter().cloned());
        let next = View {
            active: WriteBuffer::new(table, view.options.placement_in_force(), value_log),
            sealed,
            tree: Arc::clone(&view.tree),
            records: view.records.clone(),
            full_merge: Arc::clone(&self.full_merge),
            options: Arc::clone(&view.options),
            held: OnceLock::new(),
        };
        self.view.store(Arc::new(next));
    }

    /// Publishes the same tree with other settings. REQUIRES: `flush_lock` and the commit lock are held, so
    /// that the tree and the active buffer do not change.
    pub fn publish_options(&self, tree: Arc<dyn Tree>, options: StoredOptions) {
        let view = self.view.load();
        let (active, sealed, records) = (Arc::clone(&view.active), view.sealed.clone(), view.records.clone());
        let (full_merge, options) = (Arc::clone(&self.full_merge), Arc::new(options));
        let held = OnceLock::new();
        self.view.store(Arc::new(View { active, sealed, tree, records, full_merge, options, held }));
    }

    /// Publishes a tree that contains `flushed`, the oldest sealed buffer, if any.
    /// `records` are the cached records of that tree; `None` if its answers are those of the previous tree.
    /// REQUIRES: the commit lock is held, so that the active buffer does not change.
    pub fn publish(
        &self,
        tree: Arc<dyn Tree>,
        flushed: Option<&Arc<WriteBuffer>>,
        records: Option<KeyspaceRecords>,
    ) {
        let view = self.view.load();
        let mut sealed = view.sealed.clone();
        if let Some(flushed) = flushed {
            let oldest = sealed.last();
            debug_assert!(
                oldest.is_some_and(|oldest| Arc::ptr_eq(oldest, flushed)),
                "the oldest sealed buffer is flushed first"
            );
            sealed.retain(|buffer| !Arc::ptr_eq(buffer, flushed));
        }
        let records = records.unwrap_or_else(|| view.records.clone());
        let (active, full_merge, options) =
            (Arc::clone(&view.active), Arc::clone(&self.full_merge), Arc::clone(&view.options));
        let held = OnceLock::new();
        self.view.store(Arc::new(View { active, sealed, tree, records, full_merge, options, held }));
    }
}
