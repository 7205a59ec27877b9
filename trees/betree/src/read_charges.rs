//! Charges for buffers that reads had to search on the way to a child, which estimate the savings of a flush.
//!
//! A scan reads every tier with data in the part where it begins, and each is charged to the child. A point
//! read skips most tiers by their filters. One that does not have the key is charged if its filter was read
//! from the device, or did not exclude the key: a filter in memory that excludes it costs nothing. Page reads
//! are charged with more than cached pages. Once the charges of a child reach the cost of flushing its
//! buffered entries, a job does that while nothing more urgent is pending. Before that, tiers above leaves
//! are merged into one, which costs less. (LevelDB compacts a file after a number of seeks that missed in it,
//! by the same reasoning.)
//!
//! **Invariants**
//! - Charges are hints: losing them costs time, never an answer.

use std::sync::{
    OnceLock,
    atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
};

/// Charges of a node's children, by pivot, in KiB of merging.
#[derive(Debug, Default)]
pub(crate) struct ReadCharges {
    by_pivot: OnceLock<Box<[AtomicU32]>>,
    /// Something was charged since the last check. Used in the root, for the whole tree.
    is_charged: AtomicBool,
}

/// A copy of a node starts without charges.
impl Clone for ReadCharges {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl ReadCharges {
    /// Charges a read through the node, which has `pivots` children, to `pivot`, with the cost of merging
    /// `kib`.
    pub(crate) fn charge(&self, pivot: usize, pivots: usize, kib: u32) {
        debug_assert!(pivot < pivots, "a child of the node");
        let charges = self.by_pivot.get_or_init(|| (0..pivots).map(|_| AtomicU32::new(0)).collect());
        if let Some(charge) = charges.get(pivot) {
            charge.fetch_add(kib, Relaxed);
        }
    }

    /// Returns the charge of `pivot`, in KiB.
    pub(crate) fn of(&self, pivot: usize) -> u32 {
        self.by_pivot.get().and_then(|charges| charges.get(pivot)).map_or(0, |charge| charge.load(Relaxed))
    }

    /// Records in the root that there are new charges below it.
    pub(crate) fn note(&self) {
        if !self.is_charged.load(Relaxed) {
            self.is_charged.store(true, Relaxed);
        }
    }

    /// Whether anything was recorded since the last call.
    pub(crate) fn take_note(&self) -> bool {
        self.is_charged.load(Relaxed) && self.is_charged.swap(false, Relaxed)
    }
}

impl FromIterator<u32> for ReadCharges {
    fn from_iter<I: IntoIterator<Item = u32>>(charges: I) -> Self {
        let by_pivot: Box<[AtomicU32]> = charges.into_iter().map(AtomicU32::new).collect();
        Self { by_pivot: OnceLock::from(by_pivot), is_charged: AtomicBool::new(false) }
    }
}
