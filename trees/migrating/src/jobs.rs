//! The jobs of a migration, in two halves (decision 0044).
//!
//! A portion is read from the source tree, and written as runs of the bottom of the destination. A flush into
//! the source invalidates it; it is then moved while no flush runs. So portions are small.
//!
//! **Invariants**
//! - A portion is installed only if the source is still the tree that it was read from.
//! - After a turn, no portion is installed before garbage beyond the border was cut off.

use std::sync::Arc;

use testudo_base::{Result, Seqno, num::u64_of, planted};
use testudo_contract::{
    Job, JobRequest, Movable, Opaque, Part, Portion, Prepared, RangeJob, Scope, Tree, TreeEdit, Work,
};
use testudo_run::{BoundedCursor, KeyBounds};
use testudo_sequence::{Bounds, write_bottom};

use crate::{
    Course, Migrating,
    course::{SIDES, Side},
    migrating::Last,
};

/// Full runs per portion: enough to keep the overhead small, few enough to finish in some tens of
/// milliseconds.
const RUNS_OF_A_PORTION: u64 = 2;

/// Action of a job.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    /// Cuts the destination tree at the border.
    Cut,
    /// Moves the next portion.
    Move,
    /// A job of one of the trees.
    Own(Side, Job),
}

/// Output of a job, with the state it was prepared for.
enum Done {
    Cut { to: Arc<dyn Tree>, edit: TreeEdit },
    Moved { from: Arc<dyn Tree>, course: Course, portion: Option<Portion>, next: Option<Vec<u8>> },
    Own { side: Side, course: Course, prepared: Prepared },
}

fn movable(tree: &Arc<dyn Tree>) -> &dyn Movable {
    tree.as_movable().expect("a keyspace moves between trees that can be moved")
}

/// Returns a job of one of the trees as a job of the moving tree.
fn of_side(side: Side, job: Job) -> Job {
    Job { target: Opaque::new(Action::Own(side, job.clone())), scope: Scope::all(), ..job }
}

fn newest_seqno(tree: &Arc<dyn Tree>) -> Seqno {
    let seqno = |Part::Run(run): &Part| run.reference().newest_seqno;
    tree.parts().iter().map(seqno).max().unwrap_or_default()
}

impl Migrating {
    /// Picks the next job: portions alternate with jobs of the trees. A tree that flushes wait for comes
    /// first.
    pub(crate) fn pick(&self, request: &JobRequest<'_>) -> Job {
        if !self.course.is_cut {
            let what = "cut a tree after a turn";
            let (debt_bytes, target) = (self.portion_bytes(), Opaque::new(Action::Cut));
            return Job { what, debt_bytes, scope: Scope::all(), target };
        }
        let is_behind = |side: Side| self.tree_of(side).behind_bytes() > 0;
        let behind = [Side::To, Side::From].into_iter().find(|side| is_behind(*side));
        let own = || match (behind, self.last) {
            (Some(side), _) => self.own_job(side, request),
            (None, Last::Move) => {
                self.own_job(Side::To, request).or_else(|| self.own_job(Side::From, request))
            }
            (None, Last::OfTo) => self.own_job(Side::From, request),
            (None, Last::OfFrom) => None,
        };
        match own() {
            Some((side, job)) => of_side(side, job),
            None => {
                let what = "move keys to another tree";
                let (debt_bytes, target) = (self.portion_bytes(), Opaque::new(Action::Move));
                Job { what, debt_bytes, scope: Scope::all(), target }
            }
        }
    }

    /// Picks a job that compacts the beginning of `range` in the tree that has those keys.
    pub(crate) fn pick_range_of_sides(&self, range: &KeyBounds, bytes_max: u64) -> Result<Option<RangeJob>> {
        for side in self.course.in_key_order() {
            let inside = self.course.keys_of(side).intersection(range);
            if inside.is_empty() {
                continue;
            }
            let picked = self.tree_of(side).pick_range(&inside, bytes_max)?;
            let Some(RangeJob { job, done_below }) = picked else { continue };
            // Keys behind the border are in the other tree.
            let done_below = match (done_below, inside.high) {
                (Some(done), Some(high)) => Some(done.min(high)),
                (done, high) => done.or(high),
            };
            return Ok(Some(RangeJob { job: of_side(side, job), done_below }));
        }
        Ok(None)
    }

    /// Picks a job of one of the trees.
    fn own_job(&self, side: Side, request: &JobRequest<'_>) -> Option<(Side, Job)> {
        let job = match side {
            Side::From => movable(&self.from).job_while_left(request),
            Side::To => self.to.pick_job(&JobRequest { is_idle: false, ..*request }),
        };
        job.map(|job| (side, job))
    }

    pub(crate) fn portion_bytes(&self) -> u64 {
        SIDES.map(|side| movable(self.tree_of(side)).run_bytes()).into_iter().max().unwrap_or(0)
            * RUNS_OF_A_PORTION
    }

    pub(crate) fn prepare_job(&self, work: &Work, job: &Job) -> Result<Prepared> {
        let action = job.target.of().expect("the job was picked from a moving tree");
        let done = match action {
            Action::Cut => {
                let keys = self.course.keys_of(Side::To);
                let edit = movable(&self.to).cut_to(&work.within(&keys), &keys)?;
                Done::Cut { to: Arc::clone(&self.to), edit }
            }
            Action::Move => self.prepare_portion(work)?,
            Action::Own(side, job) => {
                let keys = self.course.keys_of(*side);
                let prepared = self.tree_of(*side).prepare(&work.within(&keys), job)?;
                Done::Own { side: *side, course: self.course.clone(), prepared }
            }
        };
        Ok(Prepared::new(job.what, done))
    }

    /// Writes the next portion.
    fn prepare_portion(&self, work: &Work) -> Result<Done> {
        let (from, course) = (Arc::clone(&self.from), self.course.clone());
        let rest = course.keys_of(Side::From);
        if rest.is_empty() {
            return Ok(Done::Moved { from, course, portion: None, next: None });
        }
        // Values that move back to their keys make a portion larger than its input.
        let parts =
            work.values.as_ref().map_or(1, |values| values.parts_with_values(from.stats().stored_bytes));
        let next = movable(&from).next_border(&rest, course.heading, self.portion_bytes() / parts)?;
        let bounds = course.portion_up_to(next.as_deref());
        debug_assert!(!bounds.is_empty(), "a portion has keys");
        let bytes = from.bytes_between(bounds.low.as_deref(), bounds.high.as_deref())?;
        work.progress.expect(bytes);
        let (run_bytes, written_bytes) = (movable(&self.to).run_bytes(), bytes.saturating_mul(parts));
        let target = written_bytes.div_ceil(written_bytes.div_ceil(run_bytes).max(1)).clamp(1, run_bytes);
        let newest = newest_seqno(&from).max(newest_seqno(&self.to));
        let all = if planted!("drops-of-portion-lost") {
            from.cursor()
        } else {
            movable(&from).merging_cursor(work)
        };
        let mut cursor = BoundedCursor::new(all, bounds.clone());
        let stats = from.stats();
        let entry_bytes = (stats.leaf_bytes + stats.buffered_bytes) / stats.entries.max(1);
        let layout = movable(&self.to).bottom_layout(entry_bytes.saturating_mul(parts));
        let written = write_bottom(&work.within(&bounds), &mut cursor, &bounds, newest, target, layout)?;
        debug_assert!(
            written.first().is_some_and(|first| first.low.as_low() == Bounds::from(&bounds).low),
            "the runs of a piece begin where it does"
        );
        let runs = written.into_iter().map(|fenced| (fenced.low.to_vec(), fenced.run)).collect();
        Ok(Done::Moved { from, course, portion: Some(Portion { bounds, runs }), next })
    }

    pub(crate) fn install_job(&self, work: &Work, prepared: Prepared) -> Result<Option<TreeEdit>> {
        // Ignore jobs prepared by another tree.
        match prepared.into() {
            Some(Done::Cut { to, edit }) if Arc::ptr_eq(&to, &self.to) => {
                debug_assert!(!self.course.is_cut, "a tree is cut once after a turn");
                let course = Course { is_cut: true, ..self.course.clone() };
                let mut changes = edit.changes;
                changes.push(course.put(work.keyspace));
                let tree = Arc::new(Self { to: edit.tree, course, ..self.clone() });
                Ok(Some(TreeEdit { tree, changes }))
            }
            Some(Done::Moved { from, course, portion, next })
                if Arc::ptr_eq(&from, &self.from) && course == self.course =>
            {
                self.with_moved(work, portion, next).map(Some)
            }
            Some(Done::Own { side, course, prepared }) if self.keeps_place(&course) => {
                let keys = self.course.keys_of(side);
                let edit = self.tree_of(side).install(&work.within(&keys), prepared)?;
                let last = match side {
                    Side::From => Last::OfFrom,
                    Side::To => Last::OfTo,
                };
                let next = |tree| Arc::new(Self { last, ..self.clone() }.with(side, tree));
                Ok(edit.map(|TreeEdit { tree, changes }| TreeEdit { tree: next(tree), changes }))
            }
            _ => Ok(None),
        }
    }

    /// Whether the border and heading are unchanged.
    fn keeps_place(&self, before: &Course) -> bool {
        (before.border.as_slice(), before.heading) == (self.course.border.as_slice(), self.course.heading)
    }

    /// Returns the state after a portion up to `next` has moved; the destination tree if it was the last.
    fn with_moved(&self, work: &Work, portion: Option<Portion>, next: Option<Vec<u8>>) -> Result<TreeEdit> {
        let mut changes = Vec::new();
        let mut to = Arc::clone(&self.to);
        if let Some(portion) = &portion {
            debug_assert!(u64_of(portion.runs.len()) > 0, "a portion is covered by runs");
            debug_assert!(
                self.course.is_cut,
                "garbage beyond the border is cut off before a portion is added"
            );
            let edit = movable(&to).with_portion(work, portion)?;
            to = edit.tree;
            if !planted!("border-edit-without-data") {
                changes.extend(edit.changes);
            }
        }
        let Some(border) = next else {
            changes.extend(movable(&self.from).clear(work));
            changes.push(Course::delete(work.keyspace));
            return Ok(TreeEdit { tree: to, changes });
        };
        let mut next = Self { to, last: Last::Move, ..self.clone() };
        if !planted!("range-moved-twice") {
            next.course = self.course.at(border);
            let keys = next.course.keys_of(Side::From);
            let edit = movable(&self.from).without_outside(&work.within(&keys), &keys)?;
            next.from = edit.tree;
            changes.extend(edit.changes);
        }
        changes.push(next.course.put(work.keyspace));
        Ok(TreeEdit { tree: Arc::new(next), changes })
    }
}
