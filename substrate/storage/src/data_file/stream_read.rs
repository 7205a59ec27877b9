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

/// Read-aheads take up to this part of the page cache: it is not in the budget of its own, and pages that are
/// used again are worth more.
const STREAM_PARTS: u64 = 8;
/// Bounds of their memory: some reads of 64 KiB even with a tiny cache, and no more than a device needs.
const STREAM_BYTES_MIN: u64 = 1 << 20;
const STREAM_BYTES_MAX: u64 = 16 << 20;

/// Memory of all read-aheads of one store.
#[derive(Debug)]
pub(crate) struct StreamMemory {
    used: AtomicU64,
    limit: u64,
}

impl StreamMemory {
    /// A part of the page cache, within bounds.
    pub(crate) fn beside_cache(cache_bytes: u64) -> Arc<Self> {
        Arc::new(Self {
            used: AtomicU64::new(0),
            limit: (cache_bytes / STREAM_PARTS).clamp(STREAM_BYTES_MIN, STREAM_BYTES_MAX),
        })
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
