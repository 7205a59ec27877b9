//! Bounds on a device that is nearly full: small write buffers and log, and the amount of held space.
//!
//! **Invariants**
//! - The bounds are computed from space by pure arithmetic ([`Bounds`]).

use testudo_base::{
    KeyspaceId,
    sync::{
        Mutex,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{Acquire, Relaxed},
        },
    },
};
use testudo_contract::Reclaim;

use crate::{
    memory::shares::{MemoryShares, removals_bound},
    space::space_guard::SpaceChecks,
};

/// On a device that is nearly full, write buffers get this fraction of the capacity of the store.
const CAPACITY_PARTS: u64 = 128;
/// Minimum bytes of write buffers on such a device.
const WRITE_BUFFERS_MIN: u64 = 128 << 10;
/// Other users may fill any device at any moment. So write buffers never exceed this fraction of the capacity
/// of the store, in powers of two, and space for them is reserved ([`write_buffers_max`]).
const DEVICE_PARTS: u64 = 64;
const DEVICE_BUFFERS_MIN: u64 = 256 << 10;
/// Minimum size of log segments on a nearly full device.
const SEGMENT_BYTES_MIN: u64 = 128 << 10;
/// Maximum length of the log on a nearly full device, in segments, before the buffers that pin it are
/// flushed.
const LOG_SEGMENTS: u64 = 4;

/// A log segment has this fraction of the bytes of write buffers: one is filled while the one before is
/// released.
const SEGMENT_PARTS: u64 = 2;
/// Log segments beyond those that are filled: the next one, which is created in advance, and the tail.
const SPARE_SEGMENTS: u64 = 2;
/// Jobs must leave this fraction of the space for buffers on top: removals put their buffers there while jobs
/// wait for readers to release space.
const RECLAIMING_PARTS: u64 = 2;

/// Each of several jobs may take this part of the free space.
const JOB_PARTS: u64 = 8;
const JOB_BYTES_MIN: u64 = 1 << 20;

/// Minimum space left to the file system.
const MARGIN_BYTES_MIN: u64 = 256 << 10;

const _: () =
    assert!(CAPACITY_PARTS > DEVICE_PARTS, "a nearly full device has smaller buffers than an empty one");
const _: () =
    assert!(WRITE_BUFFERS_MIN <= DEVICE_BUFFERS_MIN, "a nearly full device has the smaller minimum");

/// Space of log and manifest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Metadata {
    /// Bytes of the log that are not released.
    pub log_bytes: u64,
    /// Bytes by which the manifest may still grow.
    pub manifest_growth_bytes: u64,
}

/// Bounds of a store on a nearly full device, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    pub write_buffers: u64,
    pub segment_bytes: u64,
    pub log_bytes: u64,
    /// Space left to the file system, for log and manifest.
    pub margin: u64,
}

impl Bounds {
    /// `capacity`: space of the device that the store has or can get.
    pub fn of(capacity: u64, metadata: &Metadata, shares: &MemoryShares) -> Self {
        let write_buffers = (capacity / CAPACITY_PARTS).max(WRITE_BUFFERS_MIN).min(shares.write_buffers);
        let segment_bytes =
            (write_buffers / SEGMENT_PARTS).clamp(SEGMENT_BYTES_MIN, shares.wal_segment_bytes());
        debug_assert!(write_buffers <= shares.write_buffers, "a full device only shrinks write buffers");
        debug_assert!(segment_bytes <= shares.wal_segment_bytes(), "a full device only shrinks log segments");
        let log_bytes = LOG_SEGMENTS * segment_bytes;
        // Growth that has already happened is not reserved again: otherwise everything they use would be
        // taken from the data file, a little with each step.
        let log_growth = log_bytes.saturating_sub(metadata.log_bytes) + SPARE_SEGMENTS * segment_bytes;
        let margin = log_growth + metadata.manifest_growth_bytes + MARGIN_BYTES_MIN;
        Self { write_buffers, segment_bytes, log_bytes, margin }
    }

    /// The part of [`Bounds::margin`] that a new log and manifest use: one segment, the next one and a tail.
    pub fn beginning_bytes(&self) -> u64 {
        debug_assert!(self.segment_bytes <= self.log_bytes, "the log has a segment");
        self.margin - self.log_bytes.saturating_sub(self.segment_bytes).min(self.margin)
    }

    /// Maximum bytes of write buffers, including the extra for removals.
    pub fn buffered_bytes(&self) -> u64 {
        removals_bound(self.write_buffers)
    }
}

/// Maximum bytes of write buffers on a device of which the store has or can get `capacity` bytes.
pub fn write_buffers_max(capacity: u64) -> u64 {
    let part = (capacity / DEVICE_PARTS).max(DEVICE_BUFFERS_MIN);
    debug_assert!(part > 0, "there is a minimum");
    1 << part.ilog2()
}

/// Reclaim steps that did not fit, since the last edit or since more space became free.
#[derive(Debug, Default)]
struct Tried {
    steps: Vec<(KeyspaceId, Reclaim)>,
    /// The usable space when the first of them was tried.
    usable_bytes: u64,
}

/// State and bounds of a device that is nearly full.
#[derive(Debug, Default)]
pub struct NearlyFull {
    pub is_on: AtomicBool,
    /// Bytes that a job may read and write for lack of free space; 0 for no limit.
    job_bytes_max: AtomicU64,
    /// Held space is incomplete.
    pub is_short: AtomicBool,
    /// Free bytes below which the device is nearly full, because a flush by the tree's rules failed with
    /// about that many. 0 once one has succeeded.
    pub failed_bytes: AtomicU64,
    /// It was determined which free pages of the data file have space.
    pub holes_are_known: AtomicBool,
    pub bounds: Mutex<Bounds>,
    /// Free space of the data file, and the part of it to be held.
    pub usable_bytes: AtomicU64,
    pub held_bytes: AtomicU64,
    /// Bytes by which the file may grow.
    pub growth_bytes: AtomicU64,
    /// Bytes that a reclaim step needs.
    pub step_bytes: AtomicU64,
    /// Maximum bytes of write buffers that leave enough space for reclaiming, and the maximum when nothing
    /// can be reclaimed.
    pub buffered_max: AtomicU64,
    pub removed_max: AtomicU64,
    pub checks: SpaceChecks,
    /// A write was refused since write buffers were last flushed to free space.
    pub has_refused: AtomicBool,
    /// No step reclaims anything, until the next edit.
    pub is_exhausted: AtomicBool,
    tried: Mutex<Tried>,
}

impl NearlyFull {
    #[inline]
    pub fn is_on(&self) -> bool {
        self.is_on.load(Relaxed)
    }

    /// Records the space that is free for the store.
    pub fn set_free(&self, free_bytes: u64) {
        self.job_bytes_max.store((free_bytes / JOB_PARTS).max(JOB_BYTES_MIN), Relaxed);
    }

    /// Limit on the bytes that a job reads, and on those that it writes: its input takes space until its
    /// output is durable.
    pub fn job_bytes_max(&self) -> u64 {
        match self.job_bytes_max.load(Relaxed) {
            0 => u64::MAX,
            bytes => bytes,
        }
    }

    /// Whether only removals are accepted, and space must be reclaimed.
    pub fn is_short(&self) -> bool {
        self.is_short.load(Acquire)
    }

    /// The steps of a keyspace that did not fit into `usable_bytes`.
    pub fn tried_of(&self, keyspace: KeyspaceId, usable_bytes: u64) -> Vec<Reclaim> {
        let mut tried = self.tried.lock();
        if usable_bytes > tried.usable_bytes {
            tried.steps.clear();
        }
        tried.steps.iter().filter(|(id, _)| *id == keyspace).map(|(_, step)| step.clone()).collect()
    }

    /// Records a step that did not fit into `usable_bytes`.
    pub fn note_tried(&self, keyspace: KeyspaceId, step: Reclaim, usable_bytes: u64) {
        let mut tried = self.tried.lock();
        if tried.steps.is_empty() {
            tried.usable_bytes = usable_bytes;
        }
        debug_assert!(usable_bytes <= tried.usable_bytes, "more space makes every step worth another try");
        tried.steps.push((keyspace, step));
    }

    /// Records a committed edit, after which earlier failures of reclaiming no longer count.
    pub fn note_edit(&self) {
        self.is_exhausted.store(false, Relaxed);
        self.tried.lock().steps.clear();
    }

    /// Part of held space that tree jobs must leave free, and removals while anything can be reclaimed: a
    /// fraction of the space for buffers on top, plus a step.
    pub fn reclaiming_bytes(&self) -> u64 {
        let (held, step) = (self.held_bytes.load(Relaxed), self.step_bytes.load(Relaxed));
        step + held.saturating_sub(step) / RECLAIMING_PARTS
    }

    /// Bytes that are held, and bytes that should be.
    pub fn held_bytes(&self) -> (u64, u64) {
        let whole = self.held_bytes.load(Relaxed);
        (self.usable_bytes.load(Relaxed).min(whole), whole)
    }
}

/// The largest argument for which `space_of`, which must not decrease, is at most `space_bytes`.
pub fn most_within(space_bytes: u64, space_of: impl Fn(u64) -> u64) -> u64 {
    let (mut fits, mut too_much) = (0, space_bytes + 1);
    while too_much - fits > 1 {
        let middle = u64::midpoint(fits, too_much);
        if space_of(middle) <= space_bytes { fits = middle } else { too_much = middle }
    }
    debug_assert!(fits == 0 || space_of(fits) <= space_bytes, "the result fits");
    fits
}

#[cfg(test)]
mod tests;
