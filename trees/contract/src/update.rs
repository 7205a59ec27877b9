//! Applying updates to a tree.
//!
//! **Invariants**
//! - Nothing that an edit refers to is written after [`Update::apply`] returned; the engine syncs the data
//!   file, commits the edit and only then publishes the state.

use std::sync::Arc;

use testudo_base::Result;
use testudo_storage::Change;

use crate::{Tree, Updates, Work};

/// The next state of a tree and the changes that make it durable.
#[derive(Debug)]
pub struct TreeEdit {
    /// The state to publish once the changes are durable.
    pub tree: Arc<dyn Tree>,
    /// Objects put and deleted, references added and released.
    pub changes: Vec<Change>,
}

/// Applies updates.
pub trait Update {
    /// Returns the state with `updates` applied.
    fn apply(&self, work: &Work, updates: Arc<dyn Updates>) -> Result<TreeEdit>;
    /// Like [`Update::apply`], but only adds the updates above all other data, which takes little more space
    /// than their size: see [`Update::on_top_bytes`].
    fn apply_on_top(&self, work: &Work, updates: Arc<dyn Updates>) -> Result<TreeEdit>;
    /// Upper bound on the space that [`Update::apply_on_top`] needs for updates with `memory_bytes` of
    /// memory.
    fn on_top_bytes(&self, memory_bytes: u64) -> u64;
    /// Number of rewrites per record saved by doubling the flush distance: the slope of the tree's
    /// write-amplification model.
    fn rewrites_per_doubling(&self) -> f64;
}
