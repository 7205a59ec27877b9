//! The handle to read and change the memory budget of an open store.
//!
//! The share of write buffers is the one knob that trades writes against reads (TurtleKV §3, χ): larger
//! batches reach a tree with less rewriting, and the rest of the memory is for caches. Files do not depend on
//! the share: it can change at any time, in use or at the next opening. Unless the share is set explicitly, a
//! governor moves it to where the next byte saves most (decision 0039).
//!
//! **Invariants**
//! - A change takes effect with the next memtable; no thread waits for it.

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

use crate::Db;

/// The memory budget of an open store, from [`Db::memory`]. Changes are not persisted: they end when the
/// store is closed.
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

    /// Returns the memory budget of the whole store, in bytes.
    pub fn total(&self) -> u64 {
        self.store.memory.total()
    }

    /// Changes the budget, which [`crate::DbBuilder::memory_bytes`] set initially. Log buffers and the device
    /// space kept in reserve keep the size they got at opening.
    ///
    /// Errors: `Invalid` below 1 MiB; `Closed` in a forked child.
    pub fn set_total(&self, bytes: u64) -> Result<()> {
        self.store.health.check_process()?;
        MemoryShares::check_total(bytes)?;
        self.store.memory.set_total(bytes);
        rebalance_memory(&self.store);
        Ok(())
    }

    /// Returns the share of the budget that write buffers may use, whether set explicitly or chosen
    /// automatically.
    pub fn write_share(&self) -> f64 {
        self.store.memory.write_share().as_f64()
    }

    /// Sets the share of the budget that write buffers may use, and keeps it until [`Memory::auto`]. A larger
    /// share makes writes cheaper; a smaller one leaves more memory to caches. A minimum remains for each.
    /// Takes effect with the next memtable.
    ///
    /// Errors: `Invalid` outside `0.0..=0.9`; `Closed` in a forked child.
    pub fn set_write_share(&self, share: f64) -> Result<()> {
        self.store.health.check_process()?;
        self.store.memory.set_write_share(Share::of(share)?);
        rebalance_memory(&self.store);
        Ok(())
    }
}

impl Memory {
    /// Lets the store choose the share of write buffers, between an eighth and three quarters of the budget.
    /// This is the initial state. The governor weighs the rewriting that the next byte saves, by the model of
    /// the trees, against the device reads that it would save in the caches. [`crate::DbStats`] has its last
    /// decision and the inputs.
    pub fn auto(&self) {
        if self.store.is_forked() {
            return;
        }
        self.store.memory.set_auto(counted_for_governor(&self.store));
    }

    /// Returns `true` if the store chooses the share: initially, and after [`Memory::auto`].
    pub fn is_auto(&self) -> bool {
        self.store.memory.is_auto()
    }
}
