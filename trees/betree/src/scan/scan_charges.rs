//! How often scans had to look into the buffers on the way to a child, and so what flushing them would save.
//!
//! A point query is spared most sources by their filters; a scan looks into every tier that holds anything
//! for the part where it begins. Each such look is charged to the child, more if a page had to be read for
//! it. When the charges of a child amount to the price of writing its waiting entries further down, that is
//! done, as a job, while nothing more urgent is to do; before that, tiers above leaves become one, as that
//! costs less. (LevelDB compacts a file after so many seeks that
//! missed in it, by the same reckoning.)
//!
//! **Invariants**
//! - Charges are advice: losing them costs time, never an answer.

use std::sync::{
    OnceLock,
    atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
};

/// Charges of a node's children, by pivot, in KiB of merging.
#[derive(Debug, Default)]
pub(crate) struct ScanCharges {
    by_pivot: OnceLock<Box<[AtomicU32]>>,
    /// Something was charged since somebody asked. Of the root, for the whole tree.
    is_charged: AtomicBool,
}

/// A copy of a node begins with nothing charged.
impl Clone for ScanCharges {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl ScanCharges {
    /// A scan looked into the node, which has `pivots` children, on its way to `pivot`; that cost as much as
    /// merging so many KiB.
    pub(crate) fn charge(&self, pivot: usize, pivots: usize, kib: u32) {
        debug_assert!(pivot < pivots, "a child of the node");
        let charges = self.by_pivot.get_or_init(|| (0..pivots).map(|_| AtomicU32::new(0)).collect());
        if let Some(charge) = charges.get(pivot) {
            charge.fetch_add(kib, Relaxed);
        }
    }

    /// KiB that were charged for `pivot`.
    pub(crate) fn of(&self, pivot: usize) -> u32 {
        self.by_pivot.get().and_then(|charges| charges.get(pivot)).map_or(0, |charge| charge.load(Relaxed))
    }

    /// Notes on the root that there are new charges below it.
    pub(crate) fn note(&self) {
        if !self.is_charged.load(Relaxed) {
            self.is_charged.store(true, Relaxed);
        }
    }

    /// Whether anything was noted since the last time.
    pub(crate) fn take_note(&self) -> bool {
        self.is_charged.load(Relaxed) && self.is_charged.swap(false, Relaxed)
    }
}

impl FromIterator<u32> for ScanCharges {
    fn from_iter<I: IntoIterator<Item = u32>>(charges: I) -> Self {
        let by_pivot: Box<[AtomicU32]> = charges.into_iter().map(AtomicU32::new).collect();
        Self { by_pivot: OnceLock::from(by_pivot), is_charged: AtomicBool::new(false) }
    }
}
