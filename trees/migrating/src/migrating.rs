//! The tree of a moving keyspace, as the engine sees it.
//!
//! **Invariants**
//! - It is immutable; `apply` and `install` return the next one.
//! - No tree is queried for, or updated with, keys of the other.

use std::sync::Arc;

use testudo_base::{Cursor, Error, ErrorKind, Result, RunId};
use testudo_contract::{
    Compact, Inspect, Job, JobRequest, Moving, Opaque, OutlineLine, Part, Prepared, RangeJob, Read, Reclaim,
    ReclaimLimits, Scope, Tree, TreeEdit, TreeStats, Update, Updates, Work,
};
use testudo_run::{Access, BoundedCursor, KeyBounds, Lookup, ScanLimits};
use testudo_sequence::ChainCursor;
use testudo_storage::PageAddress;

use crate::{
    Course,
    course::{SIDES, Side},
    halves::Halves,
    split_updates::UpdatesWithin,
};

/// Kind of the last job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Last {
    /// A job of the source tree.
    #[default]
    OfFrom,
    /// A job of the destination tree.
    OfTo,
    /// A portion was moved.
    Move,
}

/// Two trees and the border between them.
#[derive(Clone, Debug)]
pub struct Migrating {
    /// The source tree.
    pub(crate) from: Arc<dyn Tree>,
    /// The destination tree.
    pub(crate) to: Arc<dyn Tree>,
    pub(crate) course: Course,
    pub(crate) last: Last,
}

/// Target of a reclaim step.
#[derive(Clone, Debug)]
struct OfSide {
    side: Side,
    reclaim: Reclaim,
}

impl OfSide {
    fn into_reclaim(self) -> Reclaim {
        Reclaim { target: Opaque::new(self.clone()), ..self.reclaim }
    }
}

impl Migrating {
    /// Creates the tree of a keyspace at `course`.
    pub fn new(course: Course, from: Arc<dyn Tree>, to: Arc<dyn Tree>) -> Arc<Self> {
        debug_assert!(course.from != course.to, "the trees have slots of their own");
        Arc::new(Self { from, to, course, last: Last::default() })
    }

    pub(crate) fn tree_of(&self, side: Side) -> &Arc<dyn Tree> {
        match side {
            Side::From => &self.from,
            Side::To => &self.to,
        }
    }

    /// Replaces the state of one of the trees.
    pub(crate) fn with(mut self, side: Side, tree: Arc<dyn Tree>) -> Self {
        match side {
            Side::From => self.from = tree,
            Side::To => self.to = tree,
        }
        self
    }

    /// Applies to each tree its part of the updates.
    fn apply_by(
        &self,
        work: &Work,
        updates: &Arc<dyn Updates>,
        apply: impl Fn(&dyn Tree, &Work, Arc<dyn Updates>) -> Result<TreeEdit>,
    ) -> Result<TreeEdit> {
        let (mut next, mut changes) = (self.clone(), Vec::new());
        for side in SIDES {
            let keys = self.course.keys_of(side);
            let Some(part) = UpdatesWithin::of(Arc::clone(updates), &keys)? else { continue };
            let edit = apply(&**self.tree_of(side), &work.within(&keys), Arc::new(part))?;
            changes.extend(edit.changes);
            next = next.with(side, edit.tree);
        }
        Ok(TreeEdit { tree: Arc::new(next), changes })
    }

    /// Checks that only keys that have moved count in the destination tree.
    fn check_cut(&self) -> Result<()> {
        let left = self.course.keys_of(Side::From);
        if !self.course.is_cut || left.is_empty() {
            return Ok(());
        }
        let mut cursor = BoundedCursor::new(self.to.cursor(), left);
        cursor.seek_first()?;
        match cursor.entry() {
            None => Ok(()),
            Some(_) => Err(Error::new(ErrorKind::Corruption, "a tree has keys beyond the border")),
        }
    }
}

impl Read for Migrating {
    #[inline]
    fn get(&self, key: &[u8], hash: u64, access: Access<'_>) -> Result<Lookup> {
        self.tree_of(self.course.side_of(key)).get(key, hash, access)
    }

    fn may_hold_more(&self, key: &[u8], bytes: u64) -> bool {
        self.tree_of(self.course.side_of(key)).may_hold_more(key, bytes)
    }

    fn load_pages(&self, pages: &[PageAddress]) -> Result<()> {
        // Each tree tracks damage of its own runs.
        self.to.load_pages(pages).or_else(|_| self.from.load_pages(pages))
    }

    fn cursor_within(&self, limits: &ScanLimits) -> Box<dyn Cursor + Send> {
        let half = |side: Side| (Arc::clone(self.tree_of(side)), self.course.keys_of(side));
        let trees = self.course.in_key_order().map(half);
        Box::new(ChainCursor::new(Halves { trees, limits: limits.clone() }))
    }
}

impl Update for Migrating {
    fn apply(&self, work: &Work, updates: Arc<dyn Updates>) -> Result<TreeEdit> {
        self.apply_by(work, &updates, |tree, work, updates| tree.apply(work, updates))
    }

    fn apply_on_top(&self, work: &Work, updates: Arc<dyn Updates>) -> Result<TreeEdit> {
        self.apply_by(work, &updates, |tree, work, updates| tree.apply_on_top(work, updates))
    }

    fn on_top_bytes(&self, memory_bytes: u64) -> u64 {
        let most = SIDES.map(|side| self.tree_of(side).on_top_bytes(memory_bytes)).into_iter().max();
        // Each has its own runs.
        most.unwrap_or(0) + SIDES.map(|side| self.tree_of(side).on_top_bytes(0)).into_iter().sum::<u64>()
    }

    fn rewrites_per_doubling(&self) -> f64 {
        self.to.rewrites_per_doubling()
    }
}

impl Compact for Migrating {
    fn reclaim_bytes(&self) -> u64 {
        SIDES.map(|side| self.tree_of(side).reclaim_bytes()).into_iter().max().unwrap_or(0)
    }

    fn pick_reclaim(&self, limits: &ReclaimLimits<'_>) -> Result<Option<Reclaim>> {
        let mut best: Option<Reclaim> = None;
        for side in SIDES {
            let tried = limits.but.iter().filter_map(|tried| tried.target.of::<OfSide>());
            let but: Vec<Reclaim> =
                tried.filter(|tried| tried.side == side).map(|tried| tried.reclaim.clone()).collect();
            let picked = self.tree_of(side).pick_reclaim(&ReclaimLimits { but: &but, ..*limits })?;
            if let Some(reclaim) = picked
                && best.as_ref().is_none_or(|best| reclaim.gain_bytes > best.gain_bytes)
            {
                best = Some(OfSide { side, reclaim }.into_reclaim());
            }
        }
        Ok(best)
    }

    fn reclaim(&self, work: &Work, reclaim: &Reclaim) -> Result<TreeEdit> {
        let OfSide { side, reclaim } = reclaim.target.of().expect("the step was picked from a moving tree");
        let work = work.within(&self.course.keys_of(*side));
        let TreeEdit { tree, changes } = self.tree_of(*side).reclaim(&work, reclaim)?;
        Ok(TreeEdit { tree: Arc::new(self.clone().with(*side, tree)), changes })
    }

    fn pick_job(&self, request: &JobRequest<'_>) -> Option<Job> {
        request.allows(&Scope::all()).then(|| self.pick(request))
    }

    fn job_bytes_max(&self, bytes_max: u64) -> u64 {
        let of_sides = |bytes_max: u64| {
            let of_sides = SIDES.map(|side| self.tree_of(side).job_bytes_max(bytes_max));
            of_sides.into_iter().max().unwrap_or(bytes_max)
        };
        // A portion ends where a run begins; others may extend beyond its end.
        of_sides(bytes_max).max(self.portion_bytes() + of_sides(0))
    }

    fn pick_range(&self, range: &KeyBounds, bytes_max: u64) -> Result<Option<RangeJob>> {
        self.pick_range_of_sides(range, bytes_max)
    }

    fn has_new_reasons(&self) -> bool {
        self.to.has_new_reasons()
    }

    fn behind_bytes(&self) -> u64 {
        SIDES.map(|side| self.tree_of(side).behind_bytes()).into_iter().sum()
    }

    fn prepare(&self, work: &Work, job: &Job) -> Result<Prepared> {
        self.prepare_job(work, job)
    }

    fn install(&self, work: &Work, prepared: Prepared) -> Result<Option<TreeEdit>> {
        self.install_job(work, prepared)
    }
}

impl Inspect for Migrating {
    fn stats(&self) -> TreeStats {
        let (from, to) = (self.from.stats(), self.to.stats());
        let entry_bytes = |stats: &TreeStats| stats.leaf_bytes + stats.buffered_bytes;
        TreeStats {
            height: from.height.max(to.height),
            nodes: from.nodes + to.nodes,
            leaves: from.leaves + to.leaves,
            buffered_runs: from.buffered_runs + to.buffered_runs,
            leaf_bytes: from.leaf_bytes + to.leaf_bytes,
            buffered_bytes: from.buffered_bytes + to.buffered_bytes,
            entries: from.entries + to.entries,
            tombstones: from.tombstones + to.tombstones,
            stored_bytes: from.stored_bytes + to.stored_bytes,
            retained_bytes: from.retained_bytes + to.retained_bytes,
            retained_damaged_runs: from.retained_damaged_runs + to.retained_damaged_runs,
            frozen_levels: from.frozen_levels + to.frozen_levels,
            replaced_pages: from.replaced_pages + to.replaced_pages,
            overflow_pages: from.overflow_pages + to.overflow_pages,
            continued_bytes: from.continued_bytes + to.continued_bytes,
            index_bytes: from.index_bytes + to.index_bytes,
            page_updates: to.page_updates,
            moving: Some(Moving { moved_bytes: entry_bytes(&to), left_bytes: entry_bytes(&from) }),
            ..TreeStats::default()
        }
    }

    fn bytes_between(&self, low: Option<&[u8]>, high: Option<&[u8]>) -> Result<u64> {
        let asked = KeyBounds { low: low.map(<[u8]>::to_vec), high: high.map(<[u8]>::to_vec) };
        let mut bytes = 0;
        for side in SIDES {
            let inside = self.course.keys_of(side).intersection(&asked);
            if !inside.is_empty() {
                bytes += self.tree_of(side).bytes_between(inside.low.as_deref(), inside.high.as_deref())?;
            }
        }
        Ok(bytes)
    }

    fn outline(&self) -> Vec<OutlineLine> {
        let mut lines = Vec::new();
        for (what, tree) in [("left", &self.from), ("moved", &self.to)] {
            let TreeStats { leaves, leaf_bytes, buffered_bytes, entries, .. } = tree.stats();
            let bytes = leaf_bytes + buffered_bytes;
            lines.push(OutlineLine { depth: 0, what, count: leaves, bytes, entries });
            let below = |line: OutlineLine| OutlineLine { depth: line.depth + 1, ..line };
            lines.extend(tree.outline().into_iter().map(below));
        }
        lines
    }

    fn parts(&self) -> Vec<Part> {
        SIDES.into_iter().flat_map(|side| self.tree_of(side).parts()).collect()
    }

    fn is_spare(&self, run: RunId) -> bool {
        self.from.is_spare(run) || self.to.is_spare(run)
    }

    fn check_invariants(&self, deep: bool) -> Result<()> {
        for side in SIDES {
            self.tree_of(side).check_invariants(deep)?;
        }
        if deep { self.check_cut() } else { Ok(()) }
    }

    fn check_retained(&self) -> Result<()> {
        SIDES.into_iter().try_for_each(|side| self.tree_of(side).check_retained())
    }

    fn is_moving(&self) -> bool {
        true
    }
}

impl Tree for Migrating {}

#[cfg(test)]
mod tests;
