//! Statistics, structure, parts and checks of a tree.
//!
//! **Invariants**
//! - Nothing here changes the tree or its answers.

use std::sync::Arc;

use testudo_base::{ExtentSpan, Result, RunId};
use testudo_values::ValueCosts;

use crate::Part;

/// Statistics of one tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TreeStats {
    /// Levels of nodes above the leaves.
    pub height: u32,
    /// Nodes.
    pub nodes: u64,
    /// Leaves that hold something.
    pub leaves: u64,
    /// Runs in node buffers.
    pub buffered_runs: u64,
    /// Bytes of entries in the leaves.
    pub leaf_bytes: u64,
    /// Bytes of entries waiting in node buffers.
    pub buffered_bytes: u64,
    /// Entries stored, shadowed ones included.
    pub entries: u64,
    /// Tombstones stored.
    pub tombstones: u64,
    /// Bytes of all runs in the data file.
    pub stored_bytes: u64,
    /// Of those, bytes of obsolete runs that a compaction buffer retains for queries.
    pub retained_bytes: u64,
    /// Retained runs that were dropped because of damage, since the tree was opened.
    pub retained_damaged_runs: u64,
    /// Levels that retain no more runs, because most incoming keys are overwrites.
    pub frozen_levels: u64,
    /// Value segments.
    pub value_segments: u64,
    /// Bytes of the values in them.
    pub value_bytes: u64,
    /// Of those, bytes of garbage values: no entry refers to them.
    pub dead_value_bytes: u64,
    /// Bytes of values in transient segments.
    pub transient_value_bytes: u64,
    /// Of those, bytes of garbage values.
    pub dead_transient_value_bytes: u64,
    /// Data pages of runs that were replaced since the runs were written.
    pub replaced_pages: u64,
    /// Overflow pages of data pages.
    pub overflow_pages: u64,
    /// Bytes of the bottom in runs whose pages would be updated, but cannot be: values of their sizes
    /// continue in the next page.
    pub continued_bytes: u64,
    /// Bytes of index and filter pages of the runs.
    pub index_bytes: u64,
    /// Work on pages since the tree was opened.
    pub page_updates: PageUpdateStats,
    /// Progress of a migration between two families of trees, if one is under way.
    pub moving: Option<Moving>,
}

/// Work on pages of a tree that updates them, since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageUpdateStats {
    /// Pages that were replaced.
    pub replaced: u64,
    /// Pages that were split: some of their entries went to overflow pages.
    pub overflowed: u64,
    /// Pages that were joined with others.
    pub joined: u64,
    /// New keys that came into pages.
    pub inserts: u64,
    /// Of those, new keys on pages that needed no overflow page for them.
    pub forecast_hits: u64,
    /// Runs with few incoming entries that were rewritten instead.
    pub rewritten_runs: u64,
    /// Slot groups of runs that were rewritten because scans found their pages scattered.
    pub moved_groups: u64,
    /// Flushes straight into pages.
    pub direct_flushes: u64,
}

/// Progress of a keyspace that migrates between two trees, in bytes of entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moving {
    /// Bytes in the destination tree.
    pub moved_bytes: u64,
    /// Bytes in the source tree.
    pub left_bytes: u64,
}

/// One line of a tree's outline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutlineLine {
    /// Depth below the root.
    pub depth: u32,
    /// Kind of the item: `node`, `tier`, `leaf`.
    pub what: &'static str,
    /// Number of children or runs.
    pub count: u64,
    /// Bytes of entries.
    pub bytes: u64,
    /// Entries.
    pub entries: u64,
}

/// Reports on the tree and checks it.
pub trait Inspect {
    /// Statistics.
    fn stats(&self) -> TreeStats;
    /// Approximate bytes of entries in `[low, high)`. Reads index pages only.
    fn bytes_between(&self, low: Option<&[u8]>, high: Option<&[u8]>) -> Result<u64>;
    /// Returns the structure in human-readable form.
    fn outline(&self) -> Vec<OutlineLine>;
    /// Returns all parts that the tree refers to, once per reference.
    fn parts(&self) -> Vec<Part>;
    /// Returns every span that the tree refers to, once per reference. Checks compare it with the manifest,
    /// which detects a part missing from [`Inspect::parts`].
    fn references(&self) -> Vec<ExtentSpan> {
        self.parts().iter().flat_map(Part::spans).copied().collect()
    }
    /// Whether no answer depends on this run. Queries only use it instead of other runs, and skip it if it is
    /// damaged ([`Run::note_damage`](testudo_run::Run::note_damage)).
    fn is_spare(&self, run: RunId) -> bool;
    /// Cost model that decides where large values are stored, if the keyspace uses one.
    fn value_costs(&self) -> Option<&Arc<ValueCosts>> {
        None
    }
    /// Checks the structure; with `deep` also every page and the order of all keys.
    fn check_invariants(&self, deep: bool) -> Result<()>;
    /// Reads all retained runs; fails unless they agree with the tree.
    fn check_retained(&self) -> Result<()>;
    /// Whether the keyspace is migrating from one tree to another.
    fn is_moving(&self) -> bool {
        false
    }
}
