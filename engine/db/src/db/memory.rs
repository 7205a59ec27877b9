//! The handle by which users change the memory budget of an open store.
//!
//! How much of it write buffers get is the one knob between writes and reads (TurtleKV §3, χ): the larger
//! the batches that reach a tree, the less is written again; what is left are caches. Files do not depend on
//! it: any share can follow any other, in use or at the next opening. Unless a share is set, a governor moves
//! it to where the next byte saves most (decision 0039).
//!
//! **Invariants**
//! - A change takes effect with the next memtable; nobody waits for it.

use std::mem;

use testudo_base::{Result, sync::Arc};
use testudo_flush::govern::govern_memory::counted_for_governor;
use testudo_store::{
    Store,
    memory::{
        rebalance::rebalance_memory,
        shares::{MemoryShares, Share},
    },
};

use crate::{Db, Keyspace};

/// The memory of an open store, from [`Db::memory`]. Nothing of it is kept when the store is closed.
#[derive(Clone, Debug)]
pub struct Memory {
    store: Arc<Store>,
}

impl Drop for Memory {
    fn drop(&mut self) {
        if self.store.is_forked() {
            mem::forget(Arc::clone(&self.store));
        }
    }
}

impl Memory {
    pub(crate) fn of(db: &Db) -> Self {
        Self { store: Arc::clone(db.store()) }
    }

    /// Everything that the store may hold in memory, in bytes.
    pub fn total(&self) -> u64 {
        self.store.memory.total()
    }

    /// Changes the budget; [`crate::DbBuilder::memory_bytes`] sets it at first. Log buffers and the room kept
    /// back on the device keep the size that they got when the store was opened.
    ///
    /// Errors: `Invalid` below 1 MiB.
    pub fn set_total(&self, bytes: u64) -> Result<()> {
        self.store.health.check_process()?;
        MemoryShares::check_total(bytes)?;
        self.store.memory.set_total(bytes);
        rebalance_memory(&self.store);
        Ok(())
    }

    /// The part of the budget that write buffers may take, whoever set it.
    pub fn write_share(&self) -> f64 {
        self.store.memory.write_share().as_f64()
    }

    /// Sets the part of the budget that write buffers may take, and keeps it there until [`Memory::auto`].
    /// More of it makes writes cheaper, less of it leaves more to caches; a little is kept for either. In
    /// effect from the next memtable on.
    ///
    /// Errors: `Invalid` outside `0.0..=0.9`.
    pub fn set_write_share(&self, share: f64) -> Result<()> {
        self.store.health.check_process()?;
        self.store.memory.set_write_share(Share::of(share)?);
        rebalance_memory(&self.store);
        Ok(())
    }
}

impl Memory {
    /// Has the store choose the part of the budget that write buffers may take, between an eighth and three
    /// quarters, as it does from the beginning: what the next byte saves in rewriting, by the model of the
    /// trees, against the reads of the device that the caches would save with it. Its last decision and the
    /// reasons are in [`crate::DbStats`].
    pub fn auto(&self) {
        if self.store.is_forked() {
            return;
        }
        self.store.memory.set_auto(counted_for_governor(&self.store));
    }

    /// Whether the store chooses it: at first, and after [`Memory::auto`].
    pub fn is_auto(&self) -> bool {
        self.store.memory.is_auto()
    }
}

impl Keyspace {
    /// Its own part of the budget for write buffers, if one was set.
    pub fn write_share(&self) -> Option<f64> {
        self.core.write_share.get().map(Share::as_f64)
    }

    /// Bounds what the write buffers of this keyspace may take to a part of the whole budget, or lifts the
    /// bound (`None`, as at first). Within the share of the store's write buffers; beyond the bound its
    /// memtable is flushed by itself. Not kept when the store is closed.
    ///
    /// Errors: `Invalid` outside `0.0..=0.9`.
    pub fn set_write_share(&self, share: Option<f64>) -> Result<()> {
        self.db.store().health.check_process()?;
        self.core.write_share.set(share.map(Share::of).transpose()?);
        Ok(())
    }
}
