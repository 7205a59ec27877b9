//! The interface between the engine and a tree, independent of the tree's structure.
//!
//! A tree is an immutable state behind an `Arc`: readers pin it and never block a writer. It changes when the
//! engine hands it sorted updates ([`Tree::apply`]) or lets it do a job of its own ([`Tree::prepare`],
//! [`Tree::install`]); both return a [`TreeEdit`], the next state together with the manifest changes that
//! make it durable.
//!
//! **Invariants**
//! - Trees never log, acknowledge a write, start a thread or sleep.
//! - The answer to any query has at most one entry per key. Merges drop older ones, except those that
//!   operands apply to.
//! - Nothing that an edit refers to is written after [`Tree::apply`] or [`Tree::prepare`] returned; the
//!   engine syncs the data file, commits the edit and only then publishes the state.

mod job;
mod movable;
mod opaque;
mod part;
mod reclaim;
mod work;

use std::{fmt, sync::Arc};

use testudo_base::{Cursor, ExtentSpan, MAX_KEY_BYTES, Result, RunId, Seqno, key};
use testudo_run::{Access, Lookup, ScanLimits};
use testudo_storage::{Change, PageAddress};
use testudo_values::{Segment, SegmentSet, ValueCosts};

pub use job::{Job, Prepared};
pub use movable::{Heading, Movable, Piece};
pub use opaque::Opaque;
pub use part::{Part, PartUse, RunUse};
pub use reclaim::{LeastGain, Reclaim, ReclaimLimits};
pub use work::{
    Executor, Height, InlineExecutor, OutlyingValues, PlaceValues, Progress, RecordedDrops, RunIds, Task,
    Work,
};

/// Number of parts into which [`Updates::borders`] cuts a range of keys.
const BORDERS: u64 = 16;
/// Recursion limit for cutting a part that is too large. Textual keys and decimal numbers cluster, once for
/// each byte in which they differ.
const BORDER_DEPTH: u32 = 8;

/// Sorted updates to be applied to a tree: a frozen memtable.
pub trait Updates: Send + Sync + fmt::Debug {
    /// Returns a cursor over them, tombstones included.
    fn cursor(&self) -> Box<dyn Cursor + Send>;
    /// Seqno up to which these and earlier updates have everything of the keyspace. Greater than that of all
    /// earlier updates of the tree.
    fn sealed_seqno(&self) -> Seqno;
    /// Bytes of keys and values.
    fn bytes(&self) -> u64;
    /// Approximate bytes in `[low, high)`; `None` bounds are open.
    fn bytes_between(&self, low: Option<&[u8]>, high: Option<&[u8]>) -> u64;
    /// Returns the first and the last key; `None` if there are no updates.
    fn key_range(&self) -> Option<(Vec<u8>, Vec<u8>)>;
    /// Value segment that already has some of their values, if there is one. The tree owns it once it has the
    /// references. A value in it is garbage if no update refers to it.
    fn value_segment(&self) -> Option<Segment> {
        None
    }
    /// Like [`Updates::cursor`], but returns references to the values in [`Updates::value_segment`].
    fn cursor_with_references(&self) -> Box<dyn Cursor + Send> {
        self.cursor()
    }
    /// Returns keys at which work on the updates may be split, ascending. At most about an eighth of all
    /// bytes is between two of them.
    fn borders(&self) -> Vec<Vec<u8>> {
        let mut borders = Vec::new();
        if let Some(ends) = self.key_range() {
            cut_range(self, ends, BORDER_DEPTH, &mut borders);
        }
        borders
    }
}

/// Adds borders between two keys of the updates.
fn cut_range<U: Updates + ?Sized>(
    updates: &U,
    (first, last): (Vec<u8>, Vec<u8>),
    depth: u32,
    borders: &mut Vec<Vec<u8>>,
) {
    let between = keys_between(&first, &last);
    let lows = std::iter::once(first.as_slice()).chain(between.iter().map(Vec::as_slice));
    let highs = between.iter().map(|key| Some(key.as_slice())).chain([None]);
    for (low, high) in lows.zip(highs) {
        let bytes = updates.bytes_between(Some(low), Some(high.unwrap_or(&last)));
        if bytes > updates.bytes() / BORDERS * 2
            && depth > 0
            && let Some(ends) = ends_within(updates, low, high.unwrap_or(&last))
        {
            cut_range(updates, ends, depth - 1, borders);
        }
        borders.extend(high.map(<[u8]>::to_vec));
    }
}

/// Returns the first and last key of the updates in `[low, high)`, if they differ.
fn ends_within<U: Updates + ?Sized>(updates: &U, low: &[u8], high: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let mut cursor = updates.cursor();
    cursor.seek(low).ok()?;
    let first = cursor.entry()?.key.to_vec();
    cursor.seek_before(high).ok()?;
    let last = cursor.entry()?.key.to_vec();
    (first < last).then_some((first, last))
}

/// Returns keys at about equal distances between two, in order. None is longer than a key may be: they become
/// fences.
fn keys_between(first: &[u8], last: &[u8]) -> Vec<Vec<u8>> {
    let shared = key::common_prefix(first, last);
    let (low, high) = (key::head(&first[shared..]), key::head(&last[shared..]));
    let step = high.saturating_sub(low) / BORDERS;
    if step == 0 {
        return Vec::new();
    }
    let border = |number: u64| {
        let mut border = [&first[..shared], &(low + number * step).to_be_bytes()].concat();
        border.truncate(MAX_KEY_BYTES);
        border
    };
    let mut borders: Vec<Vec<u8>> = (1..BORDERS).map(border).collect();
    // Truncated keys may be equal.
    borders.dedup();
    borders.retain(|border| border.as_slice() > first);
    borders
}

/// The next state of a tree and what makes it durable.
#[derive(Debug)]
pub struct TreeEdit {
    /// The state to publish once the changes are durable.
    pub tree: Arc<dyn Tree>,
    /// Objects put and deleted, references added and released.
    pub changes: Vec<Change>,
}

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
    /// Overflow pages of replaced pages.
    pub overflow_pages: u64,
    /// Progress of a migration between two families of trees, if one is under way.
    pub moving: Option<Moving>,
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

/// A tree's state.
pub trait Tree: Send + Sync + fmt::Debug {
    /// Looks up `key`; `hash` is its [`testudo_base::checksum::hash_key`]. A tombstone may be reported as
    /// such or as `Absent`. Operands are returned with all older entries they apply to, not merged. A value
    /// outside the tree's runs is read; for a value in pieces, only the reference is returned.
    fn get(&self, key: &[u8], hash: u64, access: Access<'_>) -> Result<Lookup>;
    /// Whether all entries of `key` in the tree, operands and their base included, may exceed `bytes`. Reads
    /// no pages; may return false positives.
    fn may_hold_more(&self, key: &[u8], bytes: u64) -> bool;
    /// Loads pages that [`Tree::get`] has noted, in one batch.
    fn load_pages(&self, pages: &[PageAddress]) -> Result<()>;
    /// Returns a cursor over all entries, tombstones included, operands as in [`Tree::get`]. Values outside
    /// the runs are returned as references, to be read through [`Tree::value_segments`]. The cursor keeps the
    /// state alive.
    fn cursor(&self) -> Box<dyn Cursor + Send> {
        self.cursor_within(&ScanLimits::default())
    }
    /// Like [`Tree::cursor`], with read-ahead sized by `limits`. A scan that goes further still gets every
    /// entry.
    fn cursor_within(&self, limits: &ScanLimits) -> Box<dyn Cursor + Send>;
    /// Returns the state with `updates` applied.
    fn apply(&self, work: &Work, updates: Arc<dyn Updates>) -> Result<TreeEdit>;
    /// Like [`Tree::apply`], but only adds the updates above all other data, which takes little more space
    /// than their size: see [`Tree::on_top_bytes`].
    fn apply_on_top(&self, work: &Work, updates: Arc<dyn Updates>) -> Result<TreeEdit>;
    /// Upper bound on the space that [`Tree::apply_on_top`] needs for updates with `memory_bytes` of memory.
    fn on_top_bytes(&self, memory_bytes: u64) -> u64;
    /// Approximate upper bound on the space that a unit of work from [`Tree::pick_reclaim`] needs.
    fn reclaim_bytes(&self) -> u64;
    /// Picks the unit of work that reclaims most space. Repeating this terminates. Reads index pages only.
    fn pick_reclaim(&self, limits: &ReclaimLimits<'_>) -> Result<Option<Reclaim>>;
    /// Executes the choice of [`Tree::pick_reclaim`]. All trees of one family use the same target type;
    /// panics if the target is of another type.
    fn reclaim(&self, work: &Work, reclaim: &Reclaim) -> Result<TreeEdit>;
    /// Picks a job that improves the tree, cheapest first. `is_idle`: there were no recent writes, so
    /// postponed work is allowed too; repeating it terminates. Pure.
    fn pick_job(&self, is_idle: bool) -> Option<Job>;
    /// Whether reads since the last call have given [`Tree::pick_job`] new reasons.
    fn has_new_reasons(&self) -> bool {
        false
    }
    /// Approximate bytes that jobs should write before the next update, because they are too far behind the
    /// incoming writes; 0 if they keep up. Pure.
    fn behind_bytes(&self) -> u64 {
        0
    }
    /// Does the reads and writes of a job that [`Tree::pick_job`] chose on this very state.
    fn prepare(&self, work: &Work, job: &Job) -> Result<Prepared>;
    /// Makes a prepared job part of this state, which may be a later one. Writes no run. Returns `None`,
    /// without effect, if the job's input is no longer part of the tree.
    fn install(&self, work: &Work, prepared: Prepared) -> Result<Option<TreeEdit>>;
    /// Returns the changes that release all extents of the tree, for dropping its keyspace.
    fn release(&self) -> Vec<Change> {
        self.references().into_iter().map(|span| Change::References(span, -1)).collect()
    }
    /// Number of rewrites per record saved by doubling the flush distance: the slope of the tree's
    /// write-amplification model.
    fn rewrites_per_doubling(&self) -> f64;
    /// Statistics.
    fn stats(&self) -> TreeStats;
    /// Approximate bytes of entries in `[low, high)`. Reads index pages only.
    fn bytes_between(&self, low: Option<&[u8]>, high: Option<&[u8]>) -> Result<u64>;
    /// Returns the structure in human-readable form.
    fn outline(&self) -> Vec<OutlineLine>;
    /// Returns all parts that the tree refers to, once per reference.
    fn parts(&self) -> Vec<Part>;
    /// Whether no answer depends on this run. Queries only use it instead of other runs, and skip it if it is
    /// damaged ([`Run::note_damage`](testudo_run::Run::note_damage)).
    fn is_spare(&self, run: RunId) -> bool;
    /// Returns every span that the tree refers to, once per reference. Checks compare it with the manifest,
    /// which detects a part missing from [`Tree::parts`].
    fn references(&self) -> Vec<ExtentSpan> {
        self.parts().iter().flat_map(Part::spans).copied().collect()
    }
    /// Value segments that its entries refer to, if it stores some values outside its runs.
    fn value_segments(&self) -> Option<&SegmentSet> {
        None
    }
    /// Cost model that decides where values of large pairs are stored, if the keyspace uses one.
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
    /// Returns the tree as a migration source or destination; `None` if it is made of other trees.
    fn as_movable(&self) -> Option<&dyn Movable> {
        None
    }
}

#[cfg(test)]
mod tests;
