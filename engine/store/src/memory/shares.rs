//! Division of the memory budget.
//!
//! | share | for |
//! |---|---|
//! | as set or chosen by the governor, initially 45 %; less on a small device | write buffers |
//! | 1/12, at most 48 MiB; more from 32 MiB on, up to 14 MiB | log buffers, streams, nodes, tables |
//! | 1/8, at most 10 MiB | the process itself: code, stacks, memory retained by its allocator |
//! | a quarter of the rest | pages in any case: at least indexes and filters |
//! | a 32nd of the rest | tables of the page cache |
//! | the remainder | cached records and more pages, which also use the idle memory of write buffers |
//!
//! Half of the 1/12 is for metadata: memory of trees and keyspaces that is used whether their data is read
//! or not. If there is more metadata, the caches shrink by the excess. Once they are at their minimum, the
//! write buffers shrink too, until metadata has half of the memory outside the reserve. The same holds for
//! log buffers beyond the usual number, which fill on a busy device, and for the extra memory of merges and
//! scans of separated values. Both reserves are measured (decision 0036): streams and the process need about
//! as much with 64 MiB as with 256 MiB. A budget below 32 MiB cannot hold them anyway, and is better used
//! otherwise.
//!
//! One write buffer fills while another flushes, so the flush distance of a single keyspace (the checkpoint
//! distance χ of TurtleKV) is half of their share.
//!
//! **Invariants**
//! - The shares add up to the budget.

use testudo_base::{
    Error, MAX_VALUE_BYTES, Result,
    num::{u64_of, usize_of},
};
use testudo_wal::USUAL_BUFFERS;

/// Minimum budget: one tree cannot work with less.
const MIN_BYTES: u64 = 1 << 20;
/// Minimum memory for write buffers, however small their share.
const MIN_WRITE_BYTES: u64 = 64 << 10;
/// Minimum memory for caches, however large the share of write buffers.
const MIN_CACHE_BYTES: u64 = 256 << 10;

/// Budgets up to this size cannot hold what streams and the process need, and are better used otherwise.
const SMALL_BUDGET: u64 = 32 << 20;
/// The part of a budget for log buffers, streams, nodes and tables, up to a maximum …
const WORKING_PARTS: u64 = 12;
const WORKING_BYTES_MAX: u64 = 48 << 20;
/// … and the additional part of what is beyond a small budget, up to a maximum of both: streams need about
/// as much with 64 MiB as with 256 MiB.
const STREAM_PARTS: u64 = 4;
const STREAM_BYTES_MAX: u64 = 14 << 20;
/// The part for the process itself, up to a maximum, which is measured (decision 0036).
const PROCESS_PARTS: u64 = 8;
const PROCESS_BYTES_MAX: u64 = 10 << 20;
/// The part of the working memory that is reserved for metadata: the caches shrink by what exceeds it.
const METADATA_PARTS: u64 = 2;
/// Metadata takes at most one part in this many of the memory outside the reserve: the rest stays useful.
const METADATA_PARTS_MAX: u64 = 2;
/// Write buffers get at least one part in this many of the budget, whatever their share.
const WRITE_PARTS_MIN: u64 = 64;
/// A log buffer is one part in this many of the budget, within bounds.
const WAL_BUFFER_PARTS: u64 = 256;
const WAL_BUFFER_BYTES_MIN: u64 = 16 << 10;
const WAL_BUFFER_BYTES_MAX: u64 = 1 << 20;
/// The part of the caches for the tables of the page cache: 49 bytes for each of its pages, four for each
/// page of the data file.
const PAGE_TABLE_PARTS: u64 = 32;
/// The part of the caches that pages have in any case: at least indexes and filters.
const PAGE_PARTS: u64 = 4;
/// One write buffer fills while another one flushes.
const BUFFERS_OF_KEYSPACE: u64 = 2;
/// Bounds of the size of log segments: below, files are too many; above, they are released too late.
const SEGMENT_BYTES_MIN: u64 = 1 << 20;
const SEGMENT_BYTES_MAX: u64 = 64 << 20;
/// Log segments beyond which the buffers that pin the log are flushed: a log that a single keyspace fills has
/// two, and a few keyspaces at different rates stay below the bound.
const LOG_SEGMENTS: u64 = 4;
/// Maximum log buffers, if the device has plenty of space.
const WAL_BUFFERS: usize = 16;
/// Log buffers take at most one part in this many of the budget.
const WAL_BUFFERS_PARTS: u64 = 16;
/// The reserve on the device is at most one part in this many of the budget, within bounds: log buffers take
/// no more, and the rest is for a manifest edit.
const RESERVE_PARTS: u64 = 16;
const RESERVE_BYTES_MIN: u64 = 1 << 20;
const RESERVE_BYTES_MAX: u64 = 16 << 20;
/// Minimum reserve on a device that is nearly full.
const RESERVE_BYTES_LEAST: u64 = 256 << 10;
/// A device has plenty of space with this many times the write buffers (on top of their trees, in pages that
/// are partly filled, and as much again) …
const PLENTY_BUFFERS: u64 = 5;
/// … and this many log segments, and this much for manifest and the rest.
const PLENTY_SEGMENTS: u64 = 4;
const PLENTY_BYTES: u64 = 32 << 20;
/// A value is at most one part in this many of the budget: it passes through write buffer, log and streams.
const VALUE_PARTS: u64 = 4;
/// Write buffers may exceed their bound by one part in this many: commits that were admitted below the bound
/// still arrive. Removals may use another such part while a full device prevents flushes.
const OVERRUN_PARTS: u64 = 16;

/// Bytes of write buffers at which writers wait. `write_buffers`: their bound.
#[inline]
pub fn hard_bound(write_buffers: u64) -> u64 {
    write_buffers / OVERRUN_PARTS * (OVERRUN_PARTS + 1)
}

/// Bytes of write buffers at which removals wait too. `write_buffers`: their bound.
pub fn removals_bound(write_buffers: u64) -> u64 {
    write_buffers / OVERRUN_PARTS * (OVERRUN_PARTS + 2)
}

const _: () = assert!(MIN_WRITE_BYTES + MIN_CACHE_BYTES < MIN_BYTES, "a minimum budget has both minimums");
const _: () = assert!(SEGMENT_BYTES_MIN < SEGMENT_BYTES_MAX && WAL_BUFFER_BYTES_MIN < WAL_BUFFER_BYTES_MAX);
const _: () =
    assert!(RESERVE_BYTES_LEAST < RESERVE_BYTES_MIN, "a nearly full device has the smaller reserve");
const _: () = assert!(USUAL_BUFFERS < WAL_BUFFERS, "plenty of space allows more log buffers");

/// A fraction of the budget, in millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share(u32);

impl Share {
    /// Initial share of write buffers.
    pub const DEFAULT: Self = Self(450_000);
    /// Maximum share of write buffers.
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
        debug_assert!(f64::from(millionths) <= Self::MAX * 1e6, "a share that was checked");
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
    /// Bytes for everything else.
    pub reserve: u64,
    /// Bytes for metadata and log buffers beyond those that the reserve covers.
    pub metadata: u64,
    pub wal_buffer_bytes: usize,
}

impl MemoryShares {
    /// Checks a budget. Errors: `Invalid` if it is too small for a store.
    pub fn check_total(total: u64) -> Result<()> {
        if total < MIN_BYTES {
            let message = format!("a memory budget of {total} bytes is below the minimum of {MIN_BYTES}");
            return Err(Error::invalid(message));
        }
        Ok(())
    }

    /// Divides `total`, with `metadata` bytes of metadata and `log_buffers` bytes of log buffers beyond the
    /// usual number. REQUIRES: `total` was checked.
    pub fn of(total: u64, write_share: Share, metadata: u64, log_buffers: u64) -> Self {
        debug_assert!(total >= MIN_BYTES, "the budget was checked");
        let beyond_small = total.saturating_sub(SMALL_BUDGET);
        let with_streams = (total / WORKING_PARTS + beyond_small / STREAM_PARTS).min(STREAM_BYTES_MAX);
        let working = with_streams.max((total / WORKING_PARTS).min(WORKING_BYTES_MAX));
        let reserve = working + (total / PROCESS_PARTS).min(PROCESS_BYTES_MAX);
        let metadata = metadata.saturating_sub(working / METADATA_PARTS).saturating_add(log_buffers);
        let metadata = metadata.min((total - reserve) / METADATA_PARTS_MAX);
        let write_max = total - reserve - metadata - MIN_CACHE_BYTES;
        let wanted = write_share.part_of(total).max(total / WRITE_PARTS_MIN);
        let write_buffers = wanted.clamp(MIN_WRITE_BYTES, write_max);
        let caches = total - reserve - metadata - write_buffers;
        let wal_buffer_bytes = (total / WAL_BUFFER_PARTS).clamp(WAL_BUFFER_BYTES_MIN, WAL_BUFFER_BYTES_MAX);
        let wal_buffer_bytes = usize_of(wal_buffer_bytes);
        let shares = Self { total, write_buffers, caches, reserve, metadata, wal_buffer_bytes };
        shares.check_sum();
        shares
    }

    /// The same with at most `bytes` for write buffers; the caches get the rest.
    #[must_use]
    pub fn with_write_buffers_max(self, bytes: u64) -> Self {
        let write_buffers = self.write_buffers.min(bytes.max(MIN_WRITE_BYTES));
        let shares = Self { write_buffers, caches: self.caches + self.write_buffers - write_buffers, ..self };
        shares.check_sum();
        shares
    }

    fn check_sum(&self) {
        debug_assert_eq!(
            self.write_buffers + self.caches + self.reserve + self.metadata,
            self.total,
            "the shares add up to the budget"
        );
        debug_assert!(self.caches >= MIN_CACHE_BYTES, "caches keep their minimum");
        debug_assert!(self.write_buffers >= MIN_WRITE_BYTES, "write buffers keep their minimum");
    }

    /// Bytes for the tables of the page cache.
    fn page_tables(&self) -> u64 {
        self.caches / PAGE_TABLE_PARTS
    }

    /// Bytes that the page cache has in any case.
    pub fn page_cache(&self) -> u64 {
        self.caches / PAGE_PARTS
    }

    /// Bytes for write buffers; records and pages use the part that these leave.
    pub fn chunks(&self) -> u64 {
        let chunks = self.total - self.reserve - self.metadata - self.page_cache() - self.page_tables();
        debug_assert!(chunks >= self.write_buffers, "records and pages use what write buffers leave");
        chunks
    }

    /// χ: bytes at which the write buffer of a single keyspace is sealed.
    pub fn flush_distance(&self) -> u64 {
        self.write_buffers / BUFFERS_OF_KEYSPACE
    }

    /// Size of a log segment: about as many bytes as one checkpoint writes.
    pub fn wal_segment_bytes(&self) -> u64 {
        self.flush_distance().clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX)
    }

    /// Maximum number of log buffers: sixteen, or as many as fit in a sixteenth of the budget. At full speed
    /// many fill during one sync of a busy device (0.1 s and more). If the device does not have plenty of
    /// space, they must not exceed the space reserved there.
    pub fn wal_buffer_count(&self, is_plenty: bool) -> usize {
        let most = if is_plenty { WAL_BUFFERS } else { USUAL_BUFFERS };
        let in_budget = self.total / WAL_BUFFERS_PARTS / u64_of(self.wal_buffer_bytes);
        usize_of(in_budget).clamp(USUAL_BUFFERS, most)
    }

    /// Length of the log in bytes beyond which the buffers that pin it are flushed.
    pub fn log_bound(&self) -> u64 {
        LOG_SEGMENTS * self.wal_segment_bytes()
    }

    /// Maximum bytes reserved on a device with plenty of space: more than the log buffers and a manifest
    /// edit.
    pub fn reserve_bytes_max(&self) -> u64 {
        (self.total / RESERVE_PARTS).clamp(RESERVE_BYTES_MIN, RESERVE_BYTES_MAX)
    }

    /// Bytes reserved on a device that is nearly full: the usual log buffers.
    pub fn reserve_bytes_least(&self) -> u64 {
        u64_of(USUAL_BUFFERS * self.wal_buffer_bytes).max(RESERVE_BYTES_LEAST)
    }

    /// Free space of a device above which the required space need not be computed: for full write buffers on
    /// top of their trees, their log, and as much again.
    pub fn plenty_bytes(&self) -> u64 {
        self.write_buffers * PLENTY_BUFFERS + self.wal_segment_bytes() * PLENTY_SEGMENTS + PLENTY_BYTES
    }

    /// χ of a keyspace with its own share.
    pub fn flush_distance_of(&self, share: Share) -> u64 {
        let bytes = share.part_of(self.total).max(MIN_WRITE_BYTES);
        (bytes / BUFFERS_OF_KEYSPACE).min(self.flush_distance())
    }
}

/// Maximum length of a value under a budget: it passes through write buffer, log and streams, so it must fit
/// several times.
pub fn max_value_bytes(total: u64) -> u64 {
    (total / VALUE_PARTS).min(MAX_VALUE_BYTES)
}

#[cfg(test)]
mod tests;
