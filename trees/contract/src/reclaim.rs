//! Reclaiming space in small units of work, for a device that is nearly full (decision 0032).
//!
//! The engine lets each tree pick the unit that reclaims most ([`crate::Compact::pick_reclaim`]), compares
//! their estimates, and runs one of them ([`crate::Compact::reclaim`]). Only the tree understands the target.
//!
//! **Invariants**
//! - Repeated picking terminates, if units that made no progress are excluded.

use testudo_storage::{Change, Extents};

use crate::{Opaque, TreeEdit};

/// A unit of work that reclaims space.
#[derive(Clone, Debug)]
pub struct Reclaim {
    /// Data to rewrite: a leaf, a run, the input of a compaction.
    pub target: Opaque,
    /// Whether it reduces the backlog of merges.
    pub is_merge: bool,
    /// Approximate space it takes before it releases any.
    pub space_bytes: u64,
    /// Approximate net space it reclaims.
    pub gain_bytes: u64,
}

impl Reclaim {
    /// Whether the outcome `edit` was progress. A smaller merge backlog is progress even if no space is
    /// reclaimed. Other units must release more than they take, because estimates chose them. A unit without
    /// progress is dropped, and must not be picked again before the tree has changed.
    pub fn is_progress(&self, edit: &TreeEdit, extents: &Extents) -> bool {
        let references = edit.changes.iter().filter_map(|change| match change {
            Change::References(span, delta) => Some((*span, *delta)),
            _ => None,
        });
        self.is_merge || extents.freed_pages(references) > 0
    }
}

/// Minimum gain for [`crate::Compact::pick_reclaim`] to choose a unit of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LeastGain {
    /// A fraction of the bytes it writes.
    Worthwhile,
    /// Any gain, because a delete waits for it.
    Any,
    /// No gain, since a delete would be refused otherwise. Pending merges are done in key order, so all
    /// garbage is eventually reclaimed.
    None,
}

/// Limits on the units of work that [`crate::Compact::pick_reclaim`] may choose.
#[derive(Clone, Copy, Debug)]
pub struct ReclaimLimits<'a> {
    /// Space they may take.
    pub space_bytes: u64,
    /// Minimum gain.
    pub least_gain: LeastGain,
    /// Units to exclude: they did not fit, or reclaimed nothing.
    pub but: &'a [Reclaim],
}
