//! The current memory budget: its size, the share of the write buffers and whether the governor sets it, and
//! the share of a single keyspace.

use testudo_base::{
    Result,
    sync::{
        Mutex, MutexGuard,
        atomic::{
            AtomicBool, AtomicU32, AtomicU64,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
};

use crate::memory::{
    governor::{Conditions, Counted, Decision, Governor, Writing},
    shares::{MemoryShares, Share, max_value_bytes},
};

/// Caches follow metadata in steps of this fraction of the budget, and no smaller than the minimum.
const METADATA_STEPS: u64 = 256;
const METADATA_STEP_MIN: u64 = 64 << 10;

/// The keyspace has no share of its own.
const NO_SHARE: u32 = u32::MAX;

/// The current budget.
#[derive(Debug)]
pub struct Budget {
    total: AtomicU64,
    write_share: AtomicU32,
    /// The governor sets the share. Changed under the governor's lock.
    is_auto: AtomicBool,
    governor: Mutex<Governor>,
    /// Maximum bytes of write buffers, determined by the size of the device.
    write_buffers_max: AtomicU64,
    /// Bytes of metadata for which the caches were reduced, and of log buffers beyond the usual number.
    metadata: AtomicU64,
    log_buffers: AtomicU64,
    /// Held while all components are adjusted; taken before the locks of the pool and the page cache.
    rebalancing: Mutex<()>,
}

impl Budget {
    /// Creates a budget of `total` bytes.
    ///
    /// Errors: `Invalid` if it is too small for a store.
    pub fn new(total: u64) -> Result<Self> {
        MemoryShares::check_total(total)?;
        let write_share = Share::DEFAULT.millionths().into();
        Ok(Self {
            total: total.into(),
            write_share,
            is_auto: true.into(),
            governor: Mutex::default(),
            write_buffers_max: u64::MAX.into(),
            metadata: 0.into(),
            log_buffers: 0.into(),
            rebalancing: Mutex::new(()),
        })
    }

    pub fn total(&self) -> u64 {
        self.total.load(Acquire)
    }

    pub fn write_share(&self) -> Share {
        Share::from_millionths(self.write_share.load(Acquire))
    }

    /// Changes the budget. REQUIRES: it was checked; the caller rebalances afterwards.
    pub fn set_total(&self, bytes: u64) {
        debug_assert!(MemoryShares::check_total(bytes).is_ok(), "the budget was checked");
        self.total.store(bytes, Release);
    }

    /// Sets the share of the write buffers and turns the governor off. REQUIRES: the caller rebalances
    /// afterwards.
    pub fn set_write_share(&self, share: Share) {
        let _governor = self.governor.lock();
        self.is_auto.store(false, Release);
        self.write_share.store(share.millionths(), Release);
    }

    /// Whether the governor sets the share of the write buffers.
    pub fn is_auto(&self) -> bool {
        self.is_auto.load(Acquire)
    }

    /// Turns the governor on, with evidence counted from `now` on.
    pub fn set_auto(&self, now: Counted) {
        let mut governor = self.governor.lock();
        if !self.is_auto() {
            governor.begin_anew(now);
            self.is_auto.store(true, Release);
        }
    }

    /// Lets the governor decide. Returns whether the share of the write buffers has changed: the caller must
    /// then rebalance.
    pub fn govern(&self, now: Counted, ghost_bytes: u64, writing: impl FnOnce() -> Writing) -> bool {
        let mut governor = self.governor.lock();
        let total = self.total();
        if !self.is_auto() || !governor.has_evidence(now, total) {
            return false;
        }
        let share = self.write_share().as_f64();
        let conditions = Conditions { total, share, ghost_bytes, writing: writing() };
        let share = governor.decide(now, &conditions).and_then(|share| Share::of(share).ok());
        if let Some(share) = share {
            self.write_share.store(share.millionths(), Release);
        }
        share.is_some()
    }

    /// The governor's last decision.
    pub fn last_decision(&self) -> Decision {
        self.governor.lock().last()
    }

    /// Stores the bytes of metadata, and of log buffers beyond the usual number. Returns whether the caches
    /// must follow; small changes are ignored.
    pub fn note_metadata(&self, metadata: u64, log_buffers: u64) -> bool {
        let before = self.metadata.load(Acquire) + self.log_buffers.load(Acquire);
        debug_assert!(self.total() > 0, "the budget was checked");
        let step = (self.total() / METADATA_STEPS).max(METADATA_STEP_MIN);
        let is_other = before.abs_diff(metadata + log_buffers) >= step;
        if is_other {
            self.metadata.store(metadata, Release);
            self.log_buffers.store(log_buffers, Release);
        }
        is_other
    }

    /// Locks the budget for rebalancing.
    pub fn rebalancing(&self) -> MutexGuard<'_, ()> {
        self.rebalancing.lock()
    }

    /// The current shares.
    pub fn shares(&self) -> MemoryShares {
        let (metadata, log_buffers) = (self.metadata.load(Acquire), self.log_buffers.load(Acquire));
        let shares = MemoryShares::of(self.total(), self.write_share(), metadata, log_buffers);
        shares.with_write_buffers_max(self.write_buffers_max.load(Acquire))
    }

    /// Sets the maximum bytes of write buffers; returns whether the caller must rebalance.
    pub fn set_write_buffers_max(&self, bytes: u64) -> bool {
        debug_assert!(bytes > 0, "every device has room for some write buffer");
        let before = self.shares().write_buffers;
        self.write_buffers_max.store(bytes, Release);
        self.shares().write_buffers != before
    }

    #[inline]
    pub fn max_value_bytes(&self) -> u64 {
        max_value_bytes(self.total.load(Relaxed))
    }
}

/// The write share of one keyspace, if it has one of its own.
#[derive(Debug)]
pub struct OwnShare(AtomicU32);

impl Default for OwnShare {
    fn default() -> Self {
        Self(NO_SHARE.into())
    }
}

impl OwnShare {
    #[inline]
    pub fn get(&self) -> Option<Share> {
        Some(self.0.load(Relaxed)).filter(|&millionths| millionths != NO_SHARE).map(Share::from_millionths)
    }

    pub fn set(&self, share: Option<Share>) {
        self.0.store(share.map_or(NO_SHARE, Share::millionths), Relaxed);
    }
}
