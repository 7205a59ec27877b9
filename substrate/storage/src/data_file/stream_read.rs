//! Large reads of consecutive pages that go on while earlier ones are used, and a bound for their memory.
//!
//! **Invariants**
//! - The bytes of all leases together stay below the limit; who gets none reads when it must.
//! - What is read is *unverified*: the reader verifies each block.

use testudo_base::{
    Result,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};
use testudo_env::{AlignedBuffer, PendingRead};

use crate::DataFile;

/// Memory of all reads ahead of one store.
#[derive(Debug)]
pub(crate) struct StreamMemory {
    used: AtomicU64,
    limit: u64,
}

impl StreamMemory {
    /// An eighth of what the page cache has, within reason.
    pub(crate) fn beside_cache(cache_bytes: u64) -> Arc<Self> {
        Arc::new(Self { used: AtomicU64::new(0), limit: (cache_bytes / 8).clamp(1 << 20, 16 << 20) })
    }

    pub(crate) fn lease(self: &Arc<Self>, bytes: u64) -> Option<StreamLease> {
        let lease = StreamLease { memory: Arc::clone(self), bytes };
        // A lease that is too much is given back by its drop.
        (self.used.fetch_add(bytes, Relaxed) + bytes <= self.limit).then_some(lease)
    }
}

/// A piece of that memory, given back when dropped.
#[derive(Debug)]
pub struct StreamLease {
    memory: Arc<StreamMemory>,
    bytes: u64,
}

impl Drop for StreamLease {
    fn drop(&mut self) {
        let before = self.memory.used.fetch_sub(self.bytes, Relaxed);
        debug_assert!(before >= self.bytes, "what was lent is counted");
    }
}

/// A stream's read under way.
#[derive(Debug)]
pub struct StreamRead {
    pub(crate) data: Arc<DataFile>,
    pub(crate) first_page: u64,
    pub(crate) pending: Box<dyn PendingRead>,
}

impl StreamRead {
    /// Waits for its end; the bytes are unverified.
    pub fn wait(self) -> Result<AlignedBuffer> {
        let (mut buffer, result) = self.pending.wait();
        self.data.finish_stream(self.first_page, &mut buffer, result)?;
        Ok(buffer)
    }
}
