//! How the one memory budget is divided.
//!
//! | share | for |
//! |---|---|
//! | as set or chosen by the governor, 45 % at first; less on a small device | write buffers |
//! | 1/12, at most 48 MiB; more from 32 MiB on, up to 14 MiB | log buffers, streams, nodes, tables |
//! | 1/8, at most 10 MiB | the process itself: code, stacks, what its allocator keeps |
//! | a quarter of the rest | pages in any case: indexes and filters at least |
//! | a 32nd of the rest | tables of the page cache |
//! | what is left | cached records and more pages, which also have what write buffers do not use |
//!
//! Half of the first of these two is for metadata: what trees and keyspaces have in memory whether it is used
//! or not. If there is more of it, the caches have that much less; where these have the least, write buffers
//! give way too, until metadata has half of what the reserve leaves. So has the log if a busy device lets
//! more of its buffers fill than the reserve counts on, and have values outside for what merges and scans
//! need for them. Both reserves are what was measured (decision
//! 0036): streams and the process need about as much with 64 MiB as with 256. Less than 32 MiB cannot hold
//! them anyway, and is better used.
//!
//! One write buffer fills while another flushes, so the flush distance of a single keyspace (the checkpoint
//! distance χ of TurtleKV) is half of their share.
//!
//! **Invariants**
//! - The shares add up to the budget.

use testudo_base::{Error, Result, num::u64_of};
use testudo_wal::USUAL_BUFFERS;

/// Least budget: what one tree needs to work at all.
const MIN_BYTES: u64 = 1 << 20;
/// Least memory for write buffers, however small their share.
const MIN_WRITE_BYTES: u64 = 64 << 10;
/// Least memory for caches, however large the share of write buffers.
const MIN_CACHE_BYTES: u64 = 256 << 10;

/// Most log buffers, where the device has plenty of space.
const WAL_BUFFERS: usize = 16;

/// A part of the budget, in millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share(u32);

impl Share {
    /// What write buffers get at first.
    pub const DEFAULT: Self = Self(450_000);
    /// Most that write buffers can get.
    const MAX: f64 = 0.9;

    /// Checks and rounds a share. Errors: `Invalid` outside 0.0..=0.9.
    pub fn of(share: f64) -> Result<Self> {
        if !(0.0..=Self::MAX).contains(&share) {
            let message = format!("a write share of {share} is outside 0.0..={}", Self::MAX);
            return Err(Error::invalid(message));
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "checked to be in 0.0..=0.9"
        )]
        let millionths = (share * 1e6).round() as u32;
        Ok(Self(millionths))
    }

    pub fn from_millionths(millionths: u32) -> Self {
        Self(millionths)
    }

    pub fn millionths(self) -> u32 {
        self.0
    }

    pub fn as_f64(self) -> f64 {
        f64::from(self.0) / 1e6
    }

    fn part_of(self, total: u64) -> u64 {
        total / 1_000_000 * u64::from(self.0) + total % 1_000_000 * u64::from(self.0) / 1_000_000
    }
}

/// The shares of a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryShares {
    pub total: u64,
    pub write_buffers: u64,
    pub caches: u64,
    /// For everything that is neither.
    pub reserve: u64,
    /// For metadata and log buffers beyond what the reserve has for them.
    pub metadata: u64,
    pub wal_buffer_bytes: usize,
}

impl MemoryShares {
    /// Checks a budget. Errors: `Invalid` if it is too small for a store.
    pub fn check_total(total: u64) -> Result<()> {
        if total < MIN_BYTES {
            let message = format!("a memory budget of {total} bytes is below the least of {MIN_BYTES}");
            return Err(Error::invalid(message));
        }
        Ok(())
    }

    /// Divides `total` where there are so many bytes of metadata, and of log buffers beyond the usual few.
    /// REQUIRES: it was checked.
    pub fn of(total: u64, write_share: Share, metadata: u64, log_buffers: u64) -> Self {
        let beyond_small = total.saturating_sub(32 << 20);
        let working = (total / 12 + beyond_small / 4).min(14 << 20).max((total / 12).min(48 << 20));
        let reserve = working + (total / 8).min(10 << 20);
        let metadata = metadata.saturating_sub(working / 2).saturating_add(log_buffers);
        let metadata = metadata.min((total - reserve) / 2);
        let write_max = total - reserve - metadata - MIN_CACHE_BYTES;
        let write_buffers = write_share.part_of(total).max(total / 64).clamp(MIN_WRITE_BYTES, write_max);
        let caches = total - reserve - metadata - write_buffers;
        let wal_buffer_bytes = testudo_base::num::usize_of((total / 256).clamp(16 << 10, 1 << 20));
        Self { total, write_buffers, caches, reserve, metadata, wal_buffer_bytes }
    }

    /// The same where write buffers have no more than `bytes`; caches have the rest.
    #[must_use]
    pub fn with_write_buffers_max(self, bytes: u64) -> Self {
        let write_buffers = self.write_buffers.min(bytes.max(MIN_WRITE_BYTES));
        Self { write_buffers, caches: self.caches + self.write_buffers - write_buffers, ..self }
    }

    /// What the tables of the page cache have: 49 bytes for each of its pages, four for each page of the data
    /// file.
    fn page_tables(&self) -> u64 {
        self.caches / 32
    }

    /// What the page cache has in any case.
    pub fn page_cache(&self) -> u64 {
        self.caches / 4
    }

    /// What write buffers have, and records and pages as far as they leave it.
    pub fn chunks(&self) -> u64 {
        self.total - self.reserve - self.metadata - self.page_cache() - self.page_tables()
    }

    /// χ: bytes at which the write buffer of a single keyspace is sealed.
    pub fn flush_distance(&self) -> u64 {
        self.write_buffers / 2
    }

    /// Size of a log segment: about what one checkpoint writes.
    pub fn wal_segment_bytes(&self) -> u64 {
        self.flush_distance().clamp(1 << 20, 64 << 20)
    }

    /// How many log buffers there may be: sixteen, or what a sixteenth of the budget holds. At full speed
    /// many fill in the time that a busy device takes for one sync (0.1 s and more). Where the device has not
    /// plenty of space they must be no more than what is kept back there.
    pub fn wal_buffer_count(&self, is_plenty: bool) -> usize {
        let most = if is_plenty { WAL_BUFFERS } else { USUAL_BUFFERS };
        let in_budget = self.total / 16 / testudo_base::num::u64_of(self.wal_buffer_bytes);
        testudo_base::num::usize_of(in_budget).clamp(USUAL_BUFFERS, most)
    }

    /// Most bytes that the log may hold before what pins it is flushed.
    pub fn log_bound(&self) -> u64 {
        4 * self.wal_segment_bytes()
    }

    /// Most bytes that are kept back on a device with plenty of space: more than the log buffers and a
    /// manifest edit.
    pub fn reserve_bytes_max(&self) -> u64 {
        (self.total / 16).clamp(1 << 20, 16 << 20)
    }

    /// Bytes that are kept back on a device that is nearly full: the usual log buffers.
    pub fn reserve_bytes_least(&self) -> u64 {
        (u64_of(USUAL_BUFFERS * self.wal_buffer_bytes)).max(256 << 10)
    }

    /// Free space of a device on which nobody need ask how much is needed: for full write buffers on
    /// top of their trees, their log, and as much again.
    pub fn plenty_bytes(&self) -> u64 {
        self.write_buffers * 5 + self.wal_segment_bytes() * 4 + (32 << 20)
    }

    /// χ of a keyspace that has a share of its own.
    pub fn flush_distance_of(&self, share: Share) -> u64 {
        (share.part_of(self.total).max(MIN_WRITE_BYTES) / 2).min(self.flush_distance())
    }
}

/// Longest value under a budget: it passes through write buffer, log and streams, so it must fit several
/// times.
pub fn max_value_bytes(total: u64) -> u64 {
    (total / 4).min(testudo_base::MAX_VALUE_BYTES)
}

#[cfg(test)]
mod tests;
