//! The log of an open store, and how far its commits go.

use testudo_base::{
    Error, ErrorKind, Result, Seqno,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};
use testudo_wal::Wal;

/// The log side of a store.
#[derive(Debug, Default)]
pub(crate) struct Log {
    /// `None` in a store that is open for reading only.
    pub(crate) wal: Option<Arc<Wal>>,
    /// How far recovery has come; what a read-only store shows.
    recovered_seqno: AtomicU64,
}

impl Log {
    /// The log. `Unsupported` in a store that is open for reading only.
    pub(crate) fn wal(&self) -> Result<&Arc<Wal>> {
        self.wal
            .as_ref()
            .ok_or_else(|| Error::new(ErrorKind::Unsupported, "the store is open for reading only"))
    }

    /// Recovery has come to `seqno`.
    pub(crate) fn record_recovered(&self, seqno: Seqno) {
        self.recovered_seqno.store(seqno.0, Relaxed);
    }

    /// The last seqno that was assigned.
    pub(crate) fn last_seqno(&self) -> Seqno {
        let recovered = || Seqno(self.recovered_seqno.load(Relaxed));
        self.wal.as_ref().map_or_else(recovered, |wal| wal.last_reserved_seqno())
    }
}
