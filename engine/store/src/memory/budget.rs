//! The memory budget as it is now: its size, the part of the write buffers and who sets it, and the share of
//! one keyspace.

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

/// Caches follow metadata in steps of a part of the budget, and of no less than this.
const METADATA_STEPS: u64 = 256;
const METADATA_STEP_MIN: u64 = 64 << 10;

/// No share of its own.
const NO_SHARE: u32 = u32::MAX;

/// The budget as it is now.
#[derive(Debug)]
pub struct Budget {
    total: AtomicU64,
    write_share: AtomicU32,
    /// The governor sets the share. Changed under its lock.
    is_auto: AtomicBool,
    governor: Mutex<Governor>,
    /// The most that write buffers get, by the size of the device.
    write_buffers_max: AtomicU64,
    /// Bytes of metadata that the caches make room for, and of log buffers beyond the usual few.
    metadata: AtomicU64,
    log_buffers: AtomicU64,
    /// Held while everything is made to follow; taken before the locks of pool and page cache.
    rebalancing: Mutex<()>,
}

impl Budget {
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

    /// Changes the budget. REQUIRES: it was checked; everything is made to follow afterwards.
    pub fn set_total(&self, bytes: u64) {
        self.total.store(bytes, Release);
    }

    /// Sets the part of the write buffers, and leaves it there. REQUIRES: everything is made to follow
    /// afterwards.
    pub fn set_write_share(&self, share: Share) {
        let _governor = self.governor.lock();
        self.is_auto.store(false, Release);
        self.write_share.store(share.millionths(), Release);
    }

    /// Whether the governor sets the part of the write buffers.
    pub fn is_auto(&self) -> bool {
        self.is_auto.load(Acquire)
    }

    /// Has the governor set it from now on, by what is counted from `now` on.
    pub fn set_auto(&self, now: Counted) {
        let mut governor = self.governor.lock();
        if !self.is_auto() {
            governor.begin_anew(now);
            self.is_auto.store(true, Release);
        }
    }

    /// Lets the governor decide. `true`: the part of the write buffers has changed, and everything has to be
    /// made to follow.
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

    /// What the governor decided last.
    pub fn last_decision(&self) -> Decision {
        self.governor.lock().last()
    }

    /// Takes over how much metadata there is, and how many bytes of log buffers beyond the usual few; whether
    /// the caches have to follow. Little changes are not worth it.
    pub fn note_metadata(&self, metadata: u64, log_buffers: u64) -> bool {
        let before = self.metadata.load(Acquire) + self.log_buffers.load(Acquire);
        let step = (self.total() / METADATA_STEPS).max(METADATA_STEP_MIN);
        let is_other = before.abs_diff(metadata + log_buffers) >= step;
        if is_other {
            self.metadata.store(metadata, Release);
            self.log_buffers.store(log_buffers, Release);
        }
        is_other
    }

    /// Taken by who makes everything follow.
    pub fn rebalancing(&self) -> MutexGuard<'_, ()> {
        self.rebalancing.lock()
    }

    /// How it is divided now.
    pub fn shares(&self) -> MemoryShares {
        let (metadata, log_buffers) = (self.metadata.load(Acquire), self.log_buffers.load(Acquire));
        let shares = MemoryShares::of(self.total(), self.write_share(), metadata, log_buffers);
        shares.with_write_buffers_max(self.write_buffers_max.load(Acquire))
    }

    /// Takes over the most that write buffers get; whether everything has to follow.
    pub fn set_write_buffers_max(&self, bytes: u64) -> bool {
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
