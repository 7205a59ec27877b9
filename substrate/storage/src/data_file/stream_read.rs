//! Large asynchronous reads of consecutive pages (read-ahead), and a limit on their memory.
//!
//! **Invariants**
//! - The total of all leases stays below the limit; a reader without a lease reads on demand.
//! - Bytes of a stream are *unverified*: the reader verifies each block.

use testudo_base::{
    Result,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};
use testudo_env::{AlignedBuffer, PendingRead};

use crate::DataFile;

/// Memory of all read-aheads of one store.
#[derive(Debug)]
pub(crate) struct StreamMemory {
    used: AtomicU64,
    limit: u64,
}

impl StreamMemory {
    /// An eighth of the page cache, clamped to 1 … 16 MiB.
    pub(crate) fn beside_cache(cache_bytes: u64) -> Arc<Self> {
        Arc::new(Self { used: AtomicU64::new(0), limit: (cache_bytes / 8).clamp(1 << 20, 16 << 20) })
    }

    pub(crate) fn lease(self: &Arc<Self>, bytes: u64) -> Option<StreamLease> {
        let lease = StreamLease { memory: Arc::clone(self), bytes };
        // A lease beyond the limit is released by its drop.
        (self.used.fetch_add(bytes, Relaxed) + bytes <= self.limit).then_some(lease)
    }
}

/// A lease of read-ahead memory, released on drop.
#[derive(Debug)]
pub struct StreamLease {
    memory: Arc<StreamMemory>,
    bytes: u64,
}

impl Drop for StreamLease {
    fn drop(&mut self) {
        let before = self.memory.used.fetch_sub(self.bytes, Relaxed);
        debug_assert!(before >= self.bytes, "leased memory underflows");
    }
}

/// A stream read in flight.
#[derive(Debug)]
pub struct StreamRead {
    pub(crate) data: Arc<DataFile>,
    pub(crate) first_page: u64,
    pub(crate) pending: Box<dyn PendingRead>,
}

impl StreamRead {
    /// Waits for the read; the bytes are unverified.
    pub fn wait(self) -> Result<AlignedBuffer> {
        let (mut buffer, result) = self.pending.wait();
        self.data.finish_stream(self.first_page, &mut buffer, result)?;
        Ok(buffer)
    }
}
