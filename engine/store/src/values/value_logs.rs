//! The value logs of an open store, and the writes and syncs of values that precede their log records
//! (decision 0052).
//!
//! A write buffer has a value log if the previous buffer received many large values. Commits without
//! durability append to it. Values that do not fit, or whose commit is synced anyway, go to the WAL as usual.
//!
//! ```text
//! begin (edit: its space is the durable state's) -> spare of its keyspace -> of the active buffer
//!   -> of a sealed one -> a value segment, by the edit of the flush that gives the tree its references
//! ```
//!
//! **Invariants**
//! - A value is written before the log record that refers to it, and synced before it.
//! - A value log is in the durable state as long as a record that may be replayed refers to it.

use testudo_base::{
    Result, ValueReference,
    num::u64_of,
    planted,
    sync::{
        Arc, Mutex, Weak,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{AcqRel, Acquire, Relaxed, Release},
        },
    },
};
use testudo_storage::DataFile;
use testudo_values::ValueLog;

/// Bytes of values after which they are synced without request: syncing all values of a write buffer at once
/// would block all concurrent writers.
const SYNCED_TOGETHER: u64 = 16 << 20;

/// Value logs that commits append to, or that are about to become segments.
#[derive(Debug)]
pub struct ValueLogs {
    data: Arc<DataFile>,
    open: Mutex<Vec<Weak<ValueLog>>>,
    /// There are appended values that may be unsynced.
    is_unsynced: AtomicBool,
    /// Bytes of appended values.
    bytes: AtomicU64,
    /// The value of `bytes` at the last sync of the data file.
    synced_bytes: AtomicU64,
    /// A value log is full, and its buffer must be sealed.
    has_full: AtomicBool,
}

impl ValueLogs {
    pub fn new(data: &Arc<DataFile>) -> Arc<Self> {
        let open = Mutex::default();
        let (data, bytes, synced_bytes) = (Arc::clone(data), 0.into(), 0.into());
        Arc::new(Self { data, open, is_unsynced: false.into(), bytes, synced_bytes, has_full: false.into() })
    }

    /// Records that a value log is full and its buffer waits to be sealed by the background.
    pub fn note_full(&self) {
        self.has_full.store(true, Release);
    }

    /// Returns whether that was recorded since the last call, and clears it.
    pub fn take_note_of_full(&self) -> bool {
        self.has_full.load(Relaxed) && self.has_full.swap(false, AcqRel)
    }

    pub fn add(&self, log: &Arc<ValueLog>) {
        debug_assert!(log.is_open() && log.is_unused(), "a new value log");
        self.open.lock().push(Arc::downgrade(log));
    }

    /// Bytes of appended values.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// Number of value logs that have not become segments yet.
    pub fn count(&self) -> usize {
        let mut open = self.open.lock();
        open.retain(|log| log.upgrade().is_some_and(|log| log.is_open()));
        open.len()
    }

    /// Bytes of memory that they use in addition to the values in write buffers.
    pub fn memory_bytes(&self) -> u64 {
        self.all().iter().map(|log| u64_of(log.memory_bytes())).sum()
    }

    /// Appends a value. Must precede the log record that refers to it.
    ///
    /// Errors: `Io`.
    pub fn append(&self, log: &ValueLog, value: &[u8]) -> Result<Option<ValueReference>> {
        let appended = log.append(value)?;
        debug_assert!(
            appended.is_none_or(|reference| u64::from(reference.length) == u64_of(value.len())),
            "a reference states the length of its value"
        );
        if appended.is_some() {
            self.is_unsynced.store(true, Release);
            self.bytes.fetch_add(u64_of(value.len()), Relaxed);
        }
        Ok(appended)
    }

    /// Writes all values appended before the call.
    pub fn write_out(&self) -> Result<()> {
        if self.is_unsynced.load(Acquire) { self.write_all_out() } else { Ok(()) }
    }

    /// Makes all values appended before the call durable. REQUIRES: the caller holds the log's right to
    /// write, so that there is no concurrent sync or write-out.
    ///
    /// Errors: those of files; they end the log.
    pub fn sync(&self) -> Result<()> {
        // Later appends are left to the next sync.
        if planted!("values-synced-after-record") || !self.is_unsynced.swap(false, AcqRel) {
            return Ok(());
        }
        self.write_all_out()?;
        self.synced_bytes.store(self.bytes(), Relaxed);
        self.data.sync()
    }

    /// Syncs the written values if they are many. Nothing may rely on it.
    ///
    /// Errors: those of files; the data file remembers them.
    pub fn sync_early(&self) -> Result<()> {
        let bytes = self.bytes();
        if bytes - self.synced_bytes.load(Relaxed).min(bytes) < SYNCED_TOGETHER {
            return Ok(());
        }
        self.synced_bytes.store(bytes, Relaxed);
        self.data.sync()
    }

    fn write_all_out(&self) -> Result<()> {
        self.all().iter().try_for_each(|log| log.write_out())
    }

    fn all(&self) -> Vec<Arc<ValueLog>> {
        self.open.lock().iter().filter_map(Weak::upgrade).collect()
    }
}
