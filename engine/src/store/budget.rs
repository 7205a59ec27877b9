//! The memory budget as it is now: its size, the part of the write buffers, and the share of one keyspace.

use testudo_base::{
    Result,
    sync::{
        Mutex, MutexGuard,
        atomic::{
            AtomicU32, AtomicU64,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
};

use crate::store::shares::{MemoryShares, Share, max_value_bytes};

/// No share of its own.
const NO_SHARE: u32 = u32::MAX;

/// The budget as it is now.
#[derive(Debug)]
pub(crate) struct Budget {
    total: AtomicU64,
    write_share: AtomicU32,
    /// Held while everything is made to follow; taken before the locks of pool and page cache.
    rebalancing: Mutex<()>,
}

impl Budget {
    /// Errors: `Invalid` if it is too small for a store.
    pub(crate) fn new(total: u64) -> Result<Self> {
        MemoryShares::check_total(total)?;
        let write_share = Share::DEFAULT.millionths().into();
        Ok(Self { total: total.into(), write_share, rebalancing: Mutex::new(()) })
    }

    pub(crate) fn total(&self) -> u64 {
        self.total.load(Acquire)
    }

    pub(crate) fn write_share(&self) -> Share {
        Share::from_millionths(self.write_share.load(Acquire))
    }

    /// Changes the budget. REQUIRES: it was checked; everything is made to follow afterwards.
    pub(crate) fn set_total(&self, bytes: u64) {
        self.total.store(bytes, Release);
    }

    /// Changes the part of the write buffers. REQUIRES: everything is made to follow afterwards.
    pub(crate) fn set_write_share(&self, share: Share) {
        self.write_share.store(share.millionths(), Release);
    }

    /// Taken by who makes everything follow.
    pub(crate) fn rebalancing(&self) -> MutexGuard<'_, ()> {
        self.rebalancing.lock()
    }

    /// How it is divided now.
    pub(crate) fn shares(&self) -> MemoryShares {
        MemoryShares::of(self.total(), self.write_share())
    }

    #[inline]
    pub(crate) fn max_value_bytes(&self) -> u64 {
        max_value_bytes(self.total.load(Relaxed))
    }
}

/// The write share of one keyspace, if it has one of its own.
#[derive(Debug)]
pub(crate) struct OwnShare(AtomicU32);

impl Default for OwnShare {
    fn default() -> Self {
        Self(NO_SHARE.into())
    }
}

impl OwnShare {
    #[inline]
    pub(crate) fn get(&self) -> Option<Share> {
        Some(self.0.load(Relaxed)).filter(|&millionths| millionths != NO_SHARE).map(Share::from_millionths)
    }

    pub(crate) fn set(&self, share: Option<Share>) {
        self.0.store(share.map_or(NO_SHARE, Share::millionths), Relaxed);
    }
}
