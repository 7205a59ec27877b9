//! The value logs of an open store: which there are, and what is written of them before the log names it
//! (decision 0052).
//!
//! A write buffer has one if the buffer before it got many large values. Commits without durability append
//! to it; what finds no room, or waits for the device anyway, goes into the log as any other value does.
//!
//! ```text
//! begin (edit: its space is the durable state's) -> spare of its keyspace -> of the active buffer
//!   -> of a sealed one -> a value segment, by the edit of the flush that gives the tree its references
//! ```
//!
//! **Invariants**
//! - Whatever a record of the log refers to is written before the record, and synced before it.
//! - A value log is in the durable state as long as a record refers to it that may be replayed.

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

/// Bytes of values after which the device gets them for good, though nobody asks for it: a sync of all that a
/// write buffer has would keep everybody waiting who writes meanwhile.
const SYNCED_TOGETHER: u64 = 16 << 20;

/// Those that commits append to, or that are about to become segments.
#[derive(Debug)]
pub struct ValueLogs {
    data: Arc<DataFile>,
    open: Mutex<Vec<Weak<ValueLog>>>,
    /// Something was appended that is not known to be synced.
    is_unsynced: AtomicBool,
    /// Bytes of values that were appended.
    bytes: AtomicU64,
    /// How many there were when the data file was synced last.
    synced_bytes: AtomicU64,
    /// One of them is full, and its buffer is to be sealed.
    has_full: AtomicBool,
}

impl ValueLogs {
    pub fn new(data: &Arc<DataFile>) -> Arc<Self> {
        let open = Mutex::default();
        let (data, bytes, synced_bytes) = (Arc::clone(data), 0.into(), 0.into());
        Arc::new(Self { data, open, is_unsynced: false.into(), bytes, synced_bytes, has_full: false.into() })
    }

    /// The buffer of a full one waits for the background to seal it.
    pub fn note_full(&self) {
        self.has_full.store(true, Release);
    }

    /// Whether that was noted since this was asked last.
    pub fn take_note_of_full(&self) -> bool {
        self.has_full.load(Relaxed) && self.has_full.swap(false, AcqRel)
    }

    pub fn add(&self, log: &Arc<ValueLog>) {
        self.open.lock().push(Arc::downgrade(log));
    }

    /// Bytes of values that were appended.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// How many there are that have become no segments yet.
    pub fn count(&self) -> usize {
        let mut open = self.open.lock();
        open.retain(|log| log.upgrade().is_some_and(|log| log.is_open()));
        open.len()
    }

    /// Bytes of memory that they take beside the values that write buffers have.
    pub fn memory_bytes(&self) -> u64 {
        self.all().iter().map(|log| u64_of(log.memory_bytes())).sum()
    }

    /// Appends a value. Before the log gets a record that refers to it.
    ///
    /// Errors: `Io`.
    pub fn append(&self, log: &ValueLog, value: &[u8]) -> Result<Option<ValueReference>> {
        let appended = log.append(value)?;
        if appended.is_some() {
            self.is_unsynced.store(true, Release);
            self.bytes.fetch_add(u64_of(value.len()), Relaxed);
        }
        Ok(appended)
    }

    /// Writes everything that was appended before.
    pub fn write_out(&self) -> Result<()> {
        if self.is_unsynced.load(Acquire) { self.write_all_out() } else { Ok(()) }
    }

    /// Makes everything durable that was appended before. REQUIRES: one at a time, and nobody writes out
    /// meanwhile: the log's right to write is held.
    ///
    /// Errors: those of files; they end the log.
    pub fn sync(&self) -> Result<()> {
        // What is appended from here on is for the next one.
        if planted!("values-synced-after-record") || !self.is_unsynced.swap(false, AcqRel) {
            return Ok(());
        }
        self.write_all_out()?;
        self.synced_bytes.store(self.bytes(), Relaxed);
        self.data.sync()
    }

    /// Syncs what was written of them, if that is much. Nothing may rely on it.
    ///
    /// Errors: those of files; the data file does not forget them.
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
