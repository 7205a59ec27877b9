//! Numbers of a device that is nearly full: how small write buffers and log become, and how much space is
//! held.
//!
//! **Invariants**
//! - Choosing them is pure arithmetic over space ([`Bounds`]).

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

use crate::{memory::shares::MemoryShares, space::space_guard::SpaceChecks};

/// On a device that is nearly full write buffers get this part of what the store can have of it.
const CAPACITY_PARTS: u64 = 128;
/// But at least this much.
const WRITE_BUFFERS_MIN: u64 = 128 << 10;
/// Any device may be filled by others at any moment. So write buffers never get more than this part of what
/// the store can have of it, in powers of two, and space for them is kept back ([`write_buffers_max`]).
const DEVICE_PARTS: u64 = 64;
const DEVICE_BUFFERS_MIN: u64 = 256 << 10;
/// Least size of log segments then.
const SEGMENT_BYTES_MIN: u64 = 128 << 10;
/// Segments that the log may have then before what pins it is flushed.
const LOG_SEGMENTS: u64 = 4;

/// Left to the file system whatever there is.
const MARGIN_BYTES_MIN: u64 = 256 << 10;

/// What log and manifest take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Metadata {
    /// Bytes of log that were not released.
    pub log_bytes: u64,
    /// By how much the manifest may still grow.
    pub manifest_growth_bytes: u64,
}

/// How a store gets along with little space, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    pub write_buffers: u64,
    pub segment_bytes: u64,
    pub log_bytes: u64,
    /// What is left to the file system, for log and manifest.
    pub margin: u64,
}

impl Bounds {
    /// `capacity`: what the store has of the device or could have.
    pub fn of(capacity: u64, metadata: &Metadata, shares: &MemoryShares) -> Self {
        let write_buffers = (capacity / CAPACITY_PARTS).max(WRITE_BUFFERS_MIN).min(shares.write_buffers);
        let segment_bytes = (write_buffers / 2).clamp(SEGMENT_BYTES_MIN, shares.wal_segment_bytes());
        let log_bytes = LOG_SEGMENTS * segment_bytes;
        // What they have grown by already need not be left to them again: else all that they take would be
        // taken from the data file, a little with each step.
        let log_growth = log_bytes.saturating_sub(metadata.log_bytes) + 2 * segment_bytes;
        let margin = log_growth + metadata.manifest_growth_bytes + MARGIN_BYTES_MIN;
        Self { write_buffers, segment_bytes, log_bytes, margin }
    }

    /// What a log and a manifest that begin take of [`Bounds::margin`]: one segment, the next one and a tail.
    pub fn beginning_bytes(&self) -> u64 {
        self.margin - self.log_bytes.saturating_sub(self.segment_bytes).min(self.margin)
    }

    /// Most bytes of write buffers, with what removals may fill beyond.
    pub fn buffered_bytes(&self) -> u64 {
        self.write_buffers / 16 * 18
    }
}

/// The most that write buffers get on a device of which the store has or can have `capacity` bytes.
pub fn write_buffers_max(capacity: u64) -> u64 {
    let part = (capacity / DEVICE_PARTS).max(DEVICE_BUFFERS_MIN);
    1 << part.ilog2()
}

/// Steps of reclaiming that did not fit, since the last edit or since there was more space.
#[derive(Debug, Default)]
struct Tried {
    steps: Vec<(KeyspaceId, Reclaim)>,
    /// The space that was there for the first of them.
    usable_bytes: u64,
}

/// State and numbers of a device that is nearly full.
#[derive(Debug, Default)]
pub struct NearlyFull {
    pub is_on: AtomicBool,
    /// What is held is not whole.
    pub is_short: AtomicBool,
    /// With fewer free bytes the device is nearly full, because a flush by the tree's rules failed with
    /// about as many. 0 once one has succeeded.
    pub failed_bytes: AtomicU64,
    /// Which free pages of the data file have space was found out.
    pub holes_are_known: AtomicBool,
    pub bounds: Mutex<Bounds>,
    /// Free space of the data file, and how much of it is to be held.
    pub usable_bytes: AtomicU64,
    pub held_bytes: AtomicU64,
    /// By how much the file may grow.
    pub growth_bytes: AtomicU64,
    /// What a step of reclaiming needs.
    pub step_bytes: AtomicU64,
    /// How much write buffers may hold, so that enough is left for reclaiming; and where nothing can be
    /// reclaimed.
    pub buffered_max: AtomicU64,
    pub removed_max: AtomicU64,
    pub checks: SpaceChecks,
    /// A write was refused since write buffers were put into their trees to win space.
    pub has_refused: AtomicBool,
    /// No step wins anything, until the next edit.
    pub is_exhausted: AtomicBool,
    tried: Mutex<Tried>,
}

impl NearlyFull {
    #[inline]
    pub fn is_on(&self) -> bool {
        self.is_on.load(Relaxed)
    }

    /// Whether only removals are taken, and space is to be reclaimed.
    pub fn is_short(&self) -> bool {
        self.is_short.load(Acquire)
    }

    /// The steps of a keyspace that did not fit into so much space.
    pub fn tried_of(&self, keyspace: KeyspaceId, usable_bytes: u64) -> Vec<Reclaim> {
        let mut tried = self.tried.lock();
        if usable_bytes > tried.usable_bytes {
            tried.steps.clear();
        }
        tried.steps.iter().filter(|(id, _)| *id == keyspace).map(|(_, step)| step.clone()).collect()
    }

    /// A step did not fit into so much space.
    pub fn note_tried(&self, keyspace: KeyspaceId, step: Reclaim, usable_bytes: u64) {
        let mut tried = self.tried.lock();
        if tried.steps.is_empty() {
            tried.usable_bytes = usable_bytes;
        }
        tried.steps.push((keyspace, step));
    }

    /// An edit was committed: whatever was found out about reclaiming may have changed.
    pub fn note_edit(&self) {
        self.is_exhausted.store(false, Relaxed);
        self.tried.lock().steps.clear();
    }

    /// What jobs of the trees leave of held space, and removals while something can be reclaimed: half of
    /// what may be put on top, and a step.
    pub fn reclaiming_bytes(&self) -> u64 {
        let (held, step) = (self.held_bytes.load(Relaxed), self.step_bytes.load(Relaxed));
        step + held.saturating_sub(step) / 2
    }

    /// Bytes that are held, and those that should be.
    pub fn held_bytes(&self) -> (u64, u64) {
        let whole = self.held_bytes.load(Relaxed);
        (self.usable_bytes.load(Relaxed).min(whole), whole)
    }
}

/// The most bytes of which `space_of` says no more than `space_bytes`; it never falls.
pub fn most_within(space_bytes: u64, space_of: impl Fn(u64) -> u64) -> u64 {
    let (mut fits, mut too_much) = (0, space_bytes + 1);
    while too_much - fits > 1 {
        let middle = u64::midpoint(fits, too_much);
        if space_of(middle) <= space_bytes { fits = middle } else { too_much = middle }
    }
    fits
}

#[cfg(test)]
mod tests;
