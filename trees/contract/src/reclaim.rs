//! Winning space in small pieces of work, for a device that is nearly full (decision 0032).
//!
//! The engine asks each tree for the piece that wins most ([`crate::Tree::pick_reclaim`]), compares what
//! they say of space, and lets one be done ([`crate::Tree::reclaim`]). What is written by it only the tree
//! knows.
//!
//! **Invariants**
//! - Going on with what is picked, but for what was no progress, comes to an end.

use testudo_storage::{Change, Extents};

use crate::{Opaque, TreeEdit};

/// A piece of work that wins space.
#[derive(Clone, Debug)]
pub struct Reclaim {
    /// What is written anew: a leaf, a run, the input of a compaction.
    pub target: Opaque,
    /// Whether less waits to be merged afterwards.
    pub is_merge: bool,
    /// About how many bytes of space it takes before it gives others back.
    pub space_bytes: u64,
    /// About how many bytes it wins in the end.
    pub gain_bytes: u64,
}

impl Reclaim {
    /// Whether it was worth it, as `edit` has come out. That less waits to be merged is progress even if no
    /// space is won; other pieces of work must give back more than they take, for they are chosen by
    /// estimates. What was none is dropped, and is not to be picked again before the tree has changed.
    pub fn is_progress(&self, edit: &TreeEdit, extents: &Extents) -> bool {
        let references = edit.changes.iter().filter_map(|change| match change {
            Change::References(span, delta) => Some((*span, *delta)),
            _ => None,
        });
        self.is_merge || extents.freed_pages(references) > 0
    }
}

/// What a piece of work has to win at least for [`crate::Tree::pick_reclaim`] to choose it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LeastGain {
    /// A part of what it writes.
    Worthwhile,
    /// However little, because a removal waits for it.
    Any,
    /// Nothing, the removal would be refused else: what waits is merged in the order of keys, so that all of
    /// what is dead is given back in the end.
    None,
}

/// What pieces of work [`crate::Tree::pick_reclaim`] may choose.
#[derive(Clone, Copy, Debug)]
pub struct ReclaimLimits<'a> {
    /// How much space they may take.
    pub space_bytes: u64,
    /// How much they have to win.
    pub least_gain: LeastGain,
    /// None of these: they did not fit, or won nothing.
    pub but: &'a [Reclaim],
}
