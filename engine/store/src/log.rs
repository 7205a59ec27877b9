//! The log of an open store, and the last seqno of its commits.

use testudo_base::{
    Error, ErrorKind, Result, Seqno,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
};
use testudo_wal::Wal;

/// Growth of the log after which the background, which could shorten it, is notified.
const GROWTH_BYTES: u64 = 1 << 20;

/// The log side of a store.
#[derive(Debug, Default)]
pub struct Log {
    /// `None` in a store that is open for reading only.
    pub wal: Option<Arc<Wal>>,
    /// The last seqno that recovery has reached; the visible state of a read-only store.
    recovered_seqno: AtomicU64,
    /// Recovery has ended.
    is_recovered: AtomicBool,
    /// Bytes of the log at the last notification, or when it was found shorter.
    told_bytes: AtomicU64,
}

impl Log {
    /// The WAL.
    ///
    /// Errors: `Unsupported` in a store that is open for reading only.
    pub fn wal(&self) -> Result<&Arc<Wal>> {
        self.wal
            .as_ref()
            .ok_or_else(|| Error::new(ErrorKind::Unsupported, "the store is open for reading only"))
    }

    /// Records that recovery has reached `seqno`.
    pub fn record_recovered(&self, seqno: Seqno) {
        debug_assert!(!self.is_recovered.load(Relaxed), "recovery has not ended");
        debug_assert!(seqno.0 >= self.recovered_seqno.load(Relaxed), "the log is replayed in order");
        self.recovered_seqno.store(seqno.0, Relaxed);
    }

    /// Records that recovery has read the whole log.
    pub fn end_recovery(&self) {
        debug_assert!(self.wal.is_some(), "the new log follows the one that was read");
        self.is_recovered.store(true, Relaxed);
    }

    /// The last seqno that recovery applied, if it has finished.
    pub fn recovered_until(&self) -> Option<Seqno> {
        self.is_recovered.load(Relaxed).then(|| Seqno(self.recovered_seqno.load(Relaxed)))
    }

    /// Whether the log has grown enough for the background to be notified.
    pub fn has_grown(&self) -> bool {
        let Some(wal) = &self.wal else { return false };
        let (bytes, told) = (wal.live_bytes(), self.told_bytes.load(Relaxed));
        let has_grown = bytes >= told + GROWTH_BYTES;
        if has_grown || bytes < told {
            self.told_bytes.store(bytes, Relaxed);
        }
        has_grown
    }

    /// The last seqno that was assigned.
    pub fn last_seqno(&self) -> Seqno {
        let recovered = || Seqno(self.recovered_seqno.load(Relaxed));
        self.wal.as_ref().map_or_else(recovered, |wal| wal.last_reserved_seqno())
    }
}
