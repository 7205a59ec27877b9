//! Counts of entries dropped so far by flushed buffers and installed merges.

use testudo_base::{
    DropCounts,
    sync::{Mutex, OnceLock},
};

/// Entries dropped by one step of work, or in total.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// In write buffers that were flushed since.
    pub in_buffers: DropCounts,
    /// In the merges of flushes and jobs.
    pub in_merges: DropCounts,
}

impl std::ops::AddAssign for Dropped {
    fn add_assign(&mut self, more: Self) {
        self.in_buffers += more.in_buffers;
        self.in_merges += more.in_merges;
    }
}

/// A total that takes little memory while nothing was dropped: there may be thousands of keyspaces.
#[derive(Debug, Default)]
pub struct DropTotals(OnceLock<Box<Mutex<Dropped>>>);

impl DropTotals {
    pub fn add(&self, more: Dropped) {
        if more != Dropped::default() {
            *self.0.get_or_init(Box::default).lock() += more;
        }
    }

    pub fn get(&self) -> Dropped {
        self.0.get().map_or_else(Dropped::default, |dropped| *dropped.lock())
    }
}
