//! How the one memory budget is divided.
//!
//! | share | for |
//! |---|---|
//! | 45 % | write buffers: one fills while another drains, so the checkpoint distance χ is half of it |
//! | 1/12, at most 48 MiB | log buffers, streams of background work, nodes, tables |
//! | the rest | page cache; index and filter pages live there too |
//!
//! **Invariants**
//! - The shares add up to the budget.

use testudo_base::{Error, Result};

/// Least budget: what one tree needs to work at all.
const MIN_BYTES: u64 = 1 << 20;

/// The shares of a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemoryShares {
    pub(crate) total: u64,
    pub(crate) write_buffers: u64,
    pub(crate) page_cache: u64,
    pub(crate) wal_buffer_bytes: usize,
}

impl MemoryShares {
    /// Divides `total`.
    pub(crate) fn of(total: u64) -> Result<Self> {
        if total < MIN_BYTES {
            let message = format!("a memory budget of {total} bytes is below the least of {MIN_BYTES}");
            return Err(Error::invalid(message));
        }
        let reserve = (total / 12).min(48 << 20);
        let write_buffers = total / 100 * 45;
        let page_cache = total - reserve - write_buffers;
        let wal_buffer_bytes = testudo_base::num::usize_of((total / 256).clamp(16 << 10, 1 << 20));
        Ok(Self { total, write_buffers, page_cache, wal_buffer_bytes })
    }

    /// χ: bytes of active write buffers at which they are sealed.
    pub(crate) fn checkpoint_distance(&self) -> u64 {
        self.write_buffers / 2
    }

    /// Size of a log segment: about what one checkpoint writes.
    pub(crate) fn wal_segment_bytes(&self) -> u64 {
        self.checkpoint_distance().clamp(1 << 20, 64 << 20)
    }

    /// Room kept back on the device: more than the log buffers and a manifest edit.
    pub(crate) fn reserve_bytes(&self) -> u64 {
        (self.total / 16).clamp(1 << 20, 16 << 20)
    }

    /// Longest value: it passes through write buffer, log and streams, so it must fit several times.
    pub(crate) fn max_value_bytes(&self) -> u64 {
        (self.total / 4).min(testudo_base::MAX_VALUE_BYTES)
    }
}
