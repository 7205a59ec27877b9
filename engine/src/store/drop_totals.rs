//! Entries that have died so far, as far as what they died in was flushed or installed.

use testudo_base::{DropCounts, sync::Mutex};

/// Entries that died in one piece of work, or in all so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Dropped {
    /// In write buffers, which were flushed since.
    pub(crate) in_buffers: DropCounts,
    /// In the merges of flushes and jobs.
    pub(crate) in_merges: DropCounts,
}

impl std::ops::AddAssign for Dropped {
    fn add_assign(&mut self, more: Self) {
        self.in_buffers += more.in_buffers;
        self.in_merges += more.in_merges;
    }
}

/// A sum of them.
#[derive(Debug, Default)]
pub(crate) struct DropTotals(Mutex<Dropped>);

impl DropTotals {
    pub(crate) fn add(&self, more: Dropped) {
        *self.0.lock() += more;
    }

    pub(crate) fn get(&self) -> Dropped {
        *self.0.lock()
    }
}
