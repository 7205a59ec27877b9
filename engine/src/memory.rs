//! The memory budget of an open store: what it is now, and the handle by which users change it.
//!
//! How much of it write buffers get is the one knob between writes and reads (TurtleKV §3, χ): the larger the batches that
//! reach a tree, the less is written again; what is left are caches. Files do not depend on it: any share can follow any
//! other, in use or at the next opening.
//!
//! **Invariants**
//! - A change takes effect with the next memtable; nobody waits for it.

use testudo_base::{
    Result,
    sync::{
        Arc, Mutex,
        atomic::{
            AtomicU32, AtomicU64,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
};

use crate::{
    Db, Keyspace,
    shares::{MemoryShares, Share, max_value_bytes},
    store::Store,
};

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

    fn set(&self, share: Option<Share>) {
        self.0.store(share.map_or(NO_SHARE, Share::millionths), Relaxed);
    }
}

impl Store {
    /// Makes everything follow the budget.
    fn rebalance_memory(&self) {
        let _rebalancing = self.memory.rebalancing.lock();
        let shares = self.memory.shares();
        self.oversized_keys.set_value_bytes_max(self.memory.max_value_bytes());
        self.backpressure.set_write_buffers(shares.write_buffers);
        self.arena_pool.set_limit(shares.chunks());
        self.data.set_cache_bytes(shares.page_cache());
        if let Some(wal) = &self.wal {
            wal.set_segment_bytes(shares.wal_segment_bytes());
        }
        self.bell.ring();
    }
}

/// The memory of an open store, from [`Db::memory`]. Nothing of it is kept when the store is closed.
#[derive(Clone, Debug)]
pub struct Memory {
    store: Arc<Store>,
}

impl Memory {
    pub(crate) fn of(db: &Db) -> Self {
        Self { store: Arc::clone(db.store()) }
    }

    /// Everything that the store may hold in memory, in bytes.
    pub fn total(&self) -> u64 {
        self.store.memory.total()
    }

    /// Changes the budget; [`crate::DbBuilder::memory_bytes`] sets it at first. Log buffers and the room kept back on the device keep the size that
    /// they got when the store was opened.
    ///
    /// Errors: `Invalid` below 1 MiB.
    pub fn set_total(&self, bytes: u64) -> Result<()> {
        MemoryShares::check_total(bytes)?;
        self.store.memory.total.store(bytes, Release);
        self.store.rebalance_memory();
        Ok(())
    }

    /// The part of the budget that write buffers may take.
    pub fn write_share(&self) -> f64 {
        self.store.memory.write_share().as_f64()
    }

    /// Changes the part of the budget that write buffers may take, 0.45 at first. More of it makes writes cheaper, less of it leaves more to
    /// caches; a little is kept for either. In effect from the next memtable on.
    ///
    /// Errors: `Invalid` outside `0.0..=0.9`.
    pub fn set_write_share(&self, share: f64) -> Result<()> {
        self.store.memory.write_share.store(Share::of(share)?.millionths(), Release);
        self.store.rebalance_memory();
        Ok(())
    }
}

impl Keyspace {
    /// Its own part of the budget for write buffers, if one was set.
    pub fn write_share(&self) -> Option<f64> {
        self.core.write_share.get().map(Share::as_f64)
    }

    /// Bounds what the write buffers of this keyspace may take to a part of the whole budget, or lifts the bound (`None`, as at first).
    /// Within the share of the store's write buffers; beyond the bound its memtable is drained by itself. Not kept when the store is
    /// closed.
    ///
    /// Errors: `Invalid` outside `0.0..=0.9`.
    pub fn set_write_share(&self, share: Option<f64>) -> Result<()> {
        self.core.write_share.set(share.map(Share::of).transpose()?);
        Ok(())
    }
}
