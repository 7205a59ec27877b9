//! What the engine asks of a tree, whatever its structure.
//!
//! A tree is an immutable state behind an `Arc`: readers pin it and never block a writer. It changes when the
//! engine hands it sorted updates ([`Tree::apply`]) or lets it do a job of its own ([`Tree::prepare`],
//! [`Tree::install`]); both return a [`TreeEdit`], the next state together with the manifest changes that
//! make it durable.
//!
//! **Invariants**
//! - Trees never log, acknowledge a write, start a thread or sleep.
//! - A tree holds at most one entry per key in the answer to any query; older ones are dropped when merged,
//!   but for what operands change.
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

/// Parts into which [`Updates::borders`] cut a range of keys.
const BORDERS: u64 = 16;
/// How often a part that has too much is cut again: keys that are texts or numbers in digits crowd together,
/// once for each byte in which they differ.
const BORDER_DEPTH: u32 = 8;

/// Sorted updates on their way into a tree: a frozen memtable.
pub trait Updates: Send + Sync + fmt::Debug {
    /// A cursor over them; tombstones included.
    fn cursor(&self) -> Box<dyn Cursor + Send>;
    /// Everything of the keyspace up to this seqno is in these updates or in earlier ones. Greater than that
    /// of all earlier updates of the tree.
    fn sealed_seqno(&self) -> Seqno;
    /// Bytes of keys and values.
    fn bytes(&self) -> u64;
    /// About how many bytes lie in `[low, high)`; `None` bounds are open.
    fn bytes_between(&self, low: Option<&[u8]>, high: Option<&[u8]>) -> u64;
    /// The first and the last key; `None` if there are no updates.
    fn key_range(&self) -> Option<(Vec<u8>, Vec<u8>)>;
    /// The value segment in which values of them lie already, if there is one. It becomes the tree's if the
    /// tree takes its references. What is dead in it is what none of the updates has.
    fn value_segment(&self) -> Option<Segment> {
        None
    }
    /// As [`Updates::cursor`], but with references to the values that lie there.
    fn cursor_with_references(&self) -> Box<dyn Cursor + Send> {
        self.cursor()
    }
    /// Keys where work on them may be cut into parts, ascending. Between two there is an eighth of all at
    /// most, as far as can be told.
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

/// The first and the last key of the updates from `low` up to `high`, if these are two.
fn ends_within<U: Updates + ?Sized>(updates: &U, low: &[u8], high: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let mut cursor = updates.cursor();
    cursor.seek(low).ok()?;
    let first = cursor.entry()?.key.to_vec();
    cursor.seek_before(high).ok()?;
    let last = cursor.entry()?.key.to_vec();
    (first < last).then_some((first, last))
}

/// Keys at about equal distances between two, in order. None is longer than a key may be: they become fences.
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
    // Where there is no room for all of their bytes some are the same.
    borders.dedup();
    borders.retain(|border| border.as_slice() > first);
    borders
}

/// The next state of a tree and what makes it durable.
#[derive(Debug)]
pub struct TreeEdit {
    /// The state to publish once the changes are durable.
    pub tree: Arc<dyn Tree>,
    /// Objects put and deleted, references taken and given back.
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
    /// Of those, bytes of runs that are dead, but still used by queries in the place of live ones.
    pub retained_bytes: u64,
    /// Such runs that were given up because they were damaged, since the tree was opened.
    pub retained_damaged_runs: u64,
    /// Levels that retain nothing more, because mostly keys come into them that they have.
    pub frozen_levels: u64,
    /// Value segments.
    pub value_segments: u64,
    /// Bytes of the values in them.
    pub value_bytes: u64,
    /// Of those, bytes of values to which no entry refers any more.
    pub dead_value_bytes: u64,
    /// Bytes of values in transient segments.
    pub transient_value_bytes: u64,
    /// Of those, bytes of values to which no entry refers any more.
    pub dead_transient_value_bytes: u64,
    /// Data pages of runs that were replaced since the runs were written.
    pub replaced_pages: u64,
    /// Pages that have entries for which those had no room.
    pub overflow_pages: u64,
    /// How far its keyspace has come on its way from one family of trees to another, if it is moving.
    pub moving: Option<Moving>,
}

/// How far a keyspace has come that moves from one tree to another. The bytes are those of entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moving {
    /// In the tree where it goes.
    pub moved_bytes: u64,
    /// In the tree that it leaves.
    pub left_bytes: u64,
}

/// One line of a tree's outline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutlineLine {
    /// Depth below the root.
    pub depth: u32,
    /// What stands there: `node`, `tier`, `leaf`.
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
    /// Looks `key` up; `hash` is its [`testudo_base::checksum::hash_key`]. A tombstone may be reported as
    /// such or as `Absent`; operands are reported together with everything that the tree has below them, but
    /// not merged. A value that lies outside its runs is read, but for one in pieces, of which a tree has the
    /// reference alone.
    fn get(&self, key: &[u8], hash: u64, access: Access<'_>) -> Result<Lookup>;
    /// Whether everything that the tree has of `key`, operands and what they change, may come to more than
    /// `bytes`. Reads no pages, and errs on the side of yes.
    fn may_hold_more(&self, key: &[u8], bytes: u64) -> bool;
    /// Loads pages that [`Tree::get`] has noted, together.
    fn load_pages(&self, pages: &[PageAddress]) -> Result<()>;
    /// A cursor over all entries, tombstones included, operands as [`Tree::get`] reports them. Values that
    /// lie outside its runs are shown as references, which [`Tree::value_segments`] read. It keeps the state
    /// alive.
    fn cursor(&self) -> Box<dyn Cursor + Send> {
        self.cursor_within(&ScanLimits::default())
    }
    /// As [`Tree::cursor`]; it reads ahead by how far it is to go. Who goes further still gets every entry.
    fn cursor_within(&self, limits: &ScanLimits) -> Box<dyn Cursor + Send>;
    /// The state with `updates` on top of it.
    fn apply(&self, work: &Work, updates: Arc<dyn Updates>) -> Result<TreeEdit>;
    /// As [`Tree::apply`], but the updates are only put on top of everything else, which takes little more
    /// space than they do: [`Tree::on_top_bytes`].
    fn apply_on_top(&self, work: &Work, updates: Arc<dyn Updates>) -> Result<TreeEdit>;
    /// The most space that updates which take so many bytes of memory need on top.
    fn on_top_bytes(&self, memory_bytes: u64) -> u64;
    /// About the most space that a piece of work of [`Tree::pick_reclaim`] needs.
    fn reclaim_bytes(&self) -> u64;
    /// Of the pieces of work that win space the one that wins most. Going on with that comes to an end. Reads
    /// index pages only.
    fn pick_reclaim(&self, limits: &ReclaimLimits<'_>) -> Result<Option<Reclaim>>;
    /// Does what [`Tree::pick_reclaim`] chose. Trees of one family have the same terms for targets; it is an
    /// assert that the target comes from one of them.
    fn reclaim(&self, work: &Work, reclaim: &Reclaim) -> Result<TreeEdit>;
    /// Work that would make the tree better, cheapest first. `is_idle`: nothing has come in for a while, so
    /// that also such work is welcome as only makes up for what was put off; it comes to an end. Pure.
    fn pick_job(&self, is_idle: bool) -> Option<Job>;
    /// Whether reads have given [`Tree::pick_job`] new reasons since this was asked last.
    fn has_new_reasons(&self) -> bool {
        false
    }
    /// About how many bytes jobs should write before the next update, because they are too far behind what
    /// comes in; 0 if they are not. Pure.
    fn behind_bytes(&self) -> u64 {
        0
    }
    /// Reads and writes what a job needs that [`Tree::pick_job`] of this very state chose.
    fn prepare(&self, work: &Work, job: &Job) -> Result<Prepared>;
    /// Makes a prepared job part of this state, which may be a later one. Writes no run. `None` if what the
    /// job began with is not part of the tree any more; then nothing was done.
    fn install(&self, work: &Work, prepared: Prepared) -> Result<Option<TreeEdit>>;
    /// The changes that give back everything that the tree holds, for dropping its keyspace.
    fn release(&self) -> Vec<Change> {
        self.references().into_iter().map(|span| Change::References(span, -1)).collect()
    }
    /// How many rewrites a doubling of the flush distance spares each record: the slope of the tree's
    /// write-amplification model.
    fn rewrites_per_doubling(&self) -> f64;
    /// Statistics.
    fn stats(&self) -> TreeStats;
    /// About how many bytes of entries lie in `[low, high)`. Reads index pages only.
    fn bytes_between(&self, low: Option<&[u8]>, high: Option<&[u8]>) -> Result<u64>;
    /// The structure, in human-readable form.
    fn outline(&self) -> Vec<OutlineLine>;
    /// What its data lies in: every part that it refers to, once per reference.
    fn parts(&self) -> Vec<Part>;
    /// Whether no answer needs this run: queries ask it in the place of others, and do without it where it is
    /// damaged ([`Run::note_damage`](testudo_run::Run::note_damage)).
    fn is_spare(&self, run: RunId) -> bool;
    /// Every span that it refers to, once per reference. Checks compare it with the manifest, so that a part
    /// that [`Tree::parts`] leaves out is found.
    fn references(&self) -> Vec<ExtentSpan> {
        self.parts().iter().flat_map(Part::spans).copied().collect()
    }
    /// The values that its entries refer to, if it keeps some outside its runs.
    fn value_segments(&self) -> Option<&SegmentSet> {
        None
    }
    /// What it costs to have the values of large pairs where they are, if its keyspace moves them by that.
    fn value_costs(&self) -> Option<&Arc<ValueCosts>> {
        None
    }
    /// Checks the structure; with `deep` also every page and the order of all keys.
    fn check_invariants(&self, deep: bool) -> Result<()>;
    /// Reads what it retains of runs that were merged; fails unless that says what the tree says.
    fn check_retained(&self) -> Result<()>;
    /// Whether its keyspace is on its way from one tree to another.
    fn is_moving(&self) -> bool {
        false
    }
    /// The tree as one that keyspaces can move from and to; `None` if it is made of others.
    fn as_movable(&self) -> Option<&dyn Movable> {
        None
    }
}

#[cfg(test)]
mod tests;
